"""A step written in SQL: one SELECT that is called like a function of tables."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tapeline.declare.where import Where
from tapeline.errors import DeclarationError
from tapeline.sql.spark import POSITION, SparkSelect, parse_select
from tapeline.sql.tokens import NotASelectError

PREFIX = "tapeline_"  # of views that exist while Spark analyses: a session has views of its own
_analysing = threading.Lock()


@dataclass(frozen=True)
class Select:
    """A SELECT, called with a DataFrame for each name that it reads."""

    name: str
    sql: str
    where: Where
    about: str = ""

    @cached_property
    def parsed(self) -> SparkSelect:
        try:
            return parse_select(self.sql)
        except NotASelectError as error:
            raise DeclarationError(f"{self.where}: the sql of {self.name} {error}.") from None

    def __call__(self, **tables: Any) -> Any:
        """The rows, each with the place of its record where the tables have it."""
        stream = next((name for name, rows in tables.items() if POSITION in rows.columns), None)
        session = next(iter(tables.values())).sparkSession
        views = {name: f"{PREFIX}{name}" for name in tables}
        with _analysing:
            try:
                for name, rows in tables.items():
                    rows.createOrReplaceTempView(views[name])
                return session.sql(self.parsed.over(views, stream))
            finally:
                for view in views.values():
                    session.catalog.dropTempView(view)
