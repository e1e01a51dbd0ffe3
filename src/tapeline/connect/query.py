"""Any Structured Streaming query of Spark as a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from tapeline.declare.duration import parse_duration
from tapeline.declare.format import Format
from tapeline.declare.query_columns import DELETES, NUMBER
from tapeline.declare.schema import Field
from tapeline.declare.source import Intakes
from tapeline.errors import DeclarationError
from tapeline.formats.json import Json
from tapeline.formats.records import Records
from tapeline.settings import Settings

if TYPE_CHECKING:
    from tapeline.declare import Table

Mode = Literal["append", "update", "complete"]
Need = Literal["avro", "kafka"]
ASAP, AVAILABLE_NOW, ONCE = "asap", "available now", "once"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
CONTINUOUS = (
    "has the trigger '{}'. Continuous processing has no batches: Spark cannot tell which rows were "
    "delivered, so nothing could be put on the tape exactly once. Leave the trigger out, or write "
    "an interval such as trigger='1 second'."
)


@dataclass(frozen=True)
class Query:
    """A Structured Streaming query. Delivers: exactly once into the tape, by query and batch id.

    `function` gets a Spark session of its own and returns a streaming DataFrame, whose columns are
    those of the source. `mode` is Spark's output mode; "complete" needs `key`, the columns by
    which rows that vanish from the result are cancelled. `trigger` is "asap", an interval,
    "available now" or "once". `settings` are Spark's, for this query alone; `Query.ROCKSDB` keeps
    state in RocksDB. `needs` names connectors of Spark's own: "kafka", "avro".
    """

    ROCKSDB: ClassVar[Mapping[str, str]] = ROCKSDB
    proved: ClassVar[bool] = False  # nobody but Spark saw what it read

    function: Callable[[Any], Any]
    mode: Mode = "append"
    trigger: str = ASAP
    key: str | Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    needs: Need | Sequence[Need] = ()
    # The DataFrame's own, once Spark has analysed it.
    schema: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise DeclarationError(
                f"Query: {type(self.function).__name__} is not a function. Give a function that "
                "gets a Spark session and returns a streaming DataFrame."
            )
        object.__setattr__(self, "key", _names(self.key))
        object.__setattr__(self, "needs", _names(self.needs))
        for what, said, known in (
            ("mode", [self.mode], get_args(Mode)),
            ("needs", self.needs, get_args(Need)),
        ):
            for one in said:
                if one not in known:
                    raise DeclarationError(
                        f"{self.what}: {what} '{one}' is not one of {', '.join(known)}."
                    )
        for setting in self.settings:
            if not setting.startswith("spark.sql."):
                raise DeclarationError(
                    f"{self.what}: '{setting}' is not a setting of a query: these start with "
                    "'spark.sql.'. Others are of all of Spark: write them into [spark.conf]."
                )
        self._check_trigger()
        if (self.mode == "complete") != bool(self.key):
            raise DeclarationError(
                f"{self.what} has the mode '{self.mode}' and the key {list(self.key)}. A complete "
                "result needs the key of its rows, such as key='word': rows that vanish are "
                "cancelled by it. Other modes have none."
            )

    def _check_trigger(self) -> None:
        if self.trigger.startswith(("continuous", "real")):
            raise DeclarationError(f"{self.what} {CONTINUOUS.format(self.trigger)}")
        if self.trigger not in (ASAP, AVAILABLE_NOW, ONCE):
            try:
                parse_duration(self.trigger)
            except DeclarationError:
                raise DeclarationError(
                    f"{self.what}: trigger '{self.trigger}' is not 'asap', 'available now', 'once' "
                    "or an interval such as '10 seconds'."
                ) from None

    @property
    def what(self) -> str:
        """How errors name it."""
        return f"Query({self.name})"

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def path(self) -> str:
        """What a plan shows."""
        every = "" if self.trigger == ASAP else f", {self.trigger}"
        return f"Structured Streaming query {self.name}(), {self.mode} mode{every}"

    @property
    def keeps_versions(self) -> bool:
        """Whether a row replaces an earlier one of its key."""
        return self.mode != "append"

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of a decoded record; none before Spark has analysed the query."""
        return self.records.fields if self.schema is not None else ()

    @cached_property
    def records(self) -> Records:
        added = (NUMBER, DELETES) if self.keeps_versions else ()
        return Records(Json(), self.schema, messages=True, added=added, what=self.what)

    def with_schema(self, schema: str) -> Query:
        """The same query, of whose columns Spark has told us."""
        known = copy(self)
        known.__dict__.pop("records", None)
        object.__setattr__(known, "schema", schema)
        lacking = [name for name in self.key if name not in {f.name for f in known.fields}]
        if lacking:
            raise DeclarationError(
                f"{self.what} has the key '{lacking[0]}', which is not a column of its result: "
                f"{schema}."
            )
        return known

    def check_table(self, table: Table) -> None:
        """Refuse a table that would count each version of a row as another record."""
        if self.keeps_versions and not (table.key and table.sequence_by):
            deletes = f", apply_as_deletes='{DELETES.name}'" if self.mode == "complete" else ""
            raise DeclarationError(
                f"{table.where}: {table.name}() reads a query in {self.mode} mode, whose rows "
                "replace earlier ones. Declare which: key=[...], "
                f"sequence_by='{NUMBER.name}'{deletes}."
            )

    def decoder(self, settings: Settings, pipeline: str) -> Format:
        """The format, ready to decode what the tape of a pipeline has of this source."""
        return self.records.written

    def taken_by(self, intakes: Intakes) -> Any:
        return intakes.from_query(self)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
