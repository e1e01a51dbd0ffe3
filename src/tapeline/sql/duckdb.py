"""DuckDB in memory, to parse and check SELECTs: no files, no network, no rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tapeline.errors import TapelineError

if TYPE_CHECKING:
    import pyarrow as pa


class WrongSqlError(TapelineError):
    """A text that DuckDB does not understand, or that is not one SELECT."""

    def __init__(self, words: str, select: bool = True) -> None:
        super().__init__(words)
        self.select = select


@lru_cache(maxsize=500)
def names_read(query: str) -> tuple[str, ...]:
    """The names that one SELECT reads, but for those of its own WITH; in lower case."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        try:
            kinds = [statement.type for statement in connection.extract_statements(query)]
            ((text,),) = connection.execute("select json_serialize_sql(?)", [query]).fetchall()
        except duckdb.Error as error:
            raise WrongSqlError(str(error)) from None
    if kinds != [duckdb.StatementType.SELECT]:
        raise WrongSqlError("it is not one SELECT", select=False)
    parsed = json.loads(text)
    if parsed["error"]:
        raise WrongSqlError(parsed["error_message"])
    nodes = list(_nodes(parsed))
    read = {node["table_name"].lower() for node in nodes if node.get("type") == "BASE_TABLE"}
    own = {one["key"].lower() for node in nodes for one in node.get("cte_map", {}).get("map", ())}
    return tuple(sorted(read - own))


def wrong_selects(
    selects: Mapping[str, str], inputs: Mapping[str, pa.Schema]
) -> Iterator[tuple[str, str]]:
    """The named SELECTs that do not suit the columns of their inputs, each with DuckDB's words.

    A SELECT may read those before it. Inputs are empty: only names and types are compared.
    """
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set enable_external_access = false")
        for name, schema in inputs.items():
            connection.register(name, schema.empty_table())
        for name, select in selects.items():
            try:
                connection.execute(f'create temp view "{name}" as {select}')
                connection.execute(f'select * from "{name}"')
            except duckdb.Error as error:
                yield name, str(error)


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a parsed query."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from _nodes(item)
