"""DuckDB in memory, to parse and check SELECTs: no files, no network, no rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tapeline.errors import TapelineError

if TYPE_CHECKING:
    import pyarrow as pa

# Words of SQL that read the clock without being called.
CLOCKS = ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")


class WrongSqlError(TapelineError):
    """A text that DuckDB does not understand, or that is not one SELECT."""

    def __init__(self, words: str, select: bool = True) -> None:
        super().__init__(words)
        self.select = select


class WrongSelectError(TapelineError):
    """A named SELECT that does not suit the columns of its inputs, in DuckDB's words."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name


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


def unsteady_calls(query: str) -> list[str]:
    """The functions of a SELECT whose answer depends on the moment or on chance."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        ((text,),) = connection.execute("select json_serialize_sql(?)", [query]).fetchall()
        nodes = list(_nodes(json.loads(text)))
        called = {node["function_name"] for node in nodes if node.get("function_name")}
        found = connection.execute(
            "select distinct function_name from duckdb_functions() where stability in "
            "('VOLATILE', 'CONSISTENT_WITHIN_QUERY') and list_contains(?, function_name)",
            [sorted(called)],
        ).fetchall()
    words = {name for node in nodes for name in node.get("column_names", ()) if name in CLOCKS}
    return sorted({f"{name}()" for (name,) in found} | words)


def columns_of(
    selects: Mapping[str, str], inputs: Mapping[str, pa.Schema]
) -> dict[str, tuple[str, ...]]:
    """The columns of named SELECTs over inputs with these columns.

    A SELECT may read those before it. Inputs are empty: only names and types are compared.
    """
    import duckdb

    found: dict[str, tuple[str, ...]] = {}
    with duckdb.connect(":memory:") as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set enable_external_access = false")
        for name, schema in inputs.items():
            connection.register(name, schema.empty_table())
        for name, select in selects.items():
            try:
                connection.execute(f'create temp view "{name}" as {select}')
                described = connection.execute(f'select * from "{name}"').description or ()
            except duckdb.Error as error:
                raise WrongSelectError(name, str(error)) from None
            found[name] = tuple(column[0] for column in described)
    return found


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a parsed query."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from _nodes(item)
