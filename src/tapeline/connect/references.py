"""References from where they live: PostgreSQL, HTTP and Delta, read whole and read again.

Addresses, secrets and limits are those of pulls: the section [pull.<name>] of the settings.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from tapeline.connect.http import HttpReader
from tapeline.connect.postgres_connection import check_address, open_link, words_of
from tapeline.connect.pulling import LaterError, login_of
from tapeline.connect.reference_rows import check_every, in_order, table_of, types_of
from tapeline.errors import DeclarationError, OperationError
from tapeline.extras import require
from tapeline.settings import PullSettings, Settings
from tapeline.store.delta_files import read_whole

if TYPE_CHECKING:
    from psycopg import Column, Cursor

# PostgreSQL's numbers for its types; the rest is text.
TYPES = {16: pa.bool_(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 700: pa.float32(),
         701: pa.float64(), 1082: pa.date32(), 1114: pa.timestamp("us", "UTC"),
         1184: pa.timestamp("us", "UTC")}  # fmt: skip
NUMERIC = 1700
FETCH_ROWS = 1_000


@dataclass(frozen=True)
class PostgresReference:
    """A PostgreSQL table, or one SELECT, read whole every so often. Where it is, is a setting."""

    table: str = ""
    query: str = ""
    every: str = "1 hour"
    schema: str | None = None

    def __post_init__(self) -> None:
        require("postgres", "PostgresReference")
        check_every("PostgresReference", self.every)
        types_of(self.schema)
        if bool(self.table) == bool(self.query):
            raise DeclarationError(
                "PostgresReference needs a table or a query, and not both. Write "
                "PostgresReference('office.stations')."
            )

    @property
    def path(self) -> str:
        return self.table or "a query"

    def read(self, name: str, settings: Settings) -> pa.Table:
        """All rows, in one statement of one read-only connection."""
        import psycopg
        from psycopg import sql

        said, secret = login_of(f"reference '{name}'", name, settings)
        check_address(said, name)
        what = f"reference '{name}': PostgreSQL"
        asked = sql.SQL("select * from {}").format(sql.Identifier(*self.table.split(".")))
        try:
            with (
                open_link(name, said, secret) as link,
                link.transaction(),
                link.cursor(name="tapeline_reference") as cursor,
            ):
                cursor.itersize = FETCH_ROWS
                cursor.execute(asked if self.table else self.query.encode())
                return self._rows(what, cursor, said)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise LaterError(f"{what}: {words_of(error)}.") from None
        except psycopg.Error as error:
            raise OperationError(
                f"{what}: {words_of(error)}. Correct the declaration, or give this user read "
                "access."
            ) from None

    def _rows(self, what: str, cursor: Cursor[Any], said: PullSettings) -> pa.Table:
        columns = cursor.description or []
        names = [column.name for column in columns]
        rows, size = [], 0
        for values in cursor:
            rows.append(dict(zip(names, values, strict=True)))
            size += sum(len(str(value)) for value in values)
            if size > said.answer_bytes:
                raise _too_long(what, said)
        own = {column.name: _type_of(column) for column in columns}
        return in_order(table_of(what, rows, types_of(self.schema) or own))


@dataclass(frozen=True)
class HttpReference:
    """JSON or CSV behind one address, read whole every so often. Where it is, is a setting."""

    path: str
    format: Literal["json", "csv"] = "json"
    every: str = "1 hour"
    schema: str | None = None
    records: str = ""  # where the list is in an object of JSON: "result.stations"

    kind = "reference"
    accepts = "application/json, text/csv"

    def __post_init__(self) -> None:
        require("http", "HttpReference")
        check_every("HttpReference", self.every)
        types_of(self.schema)
        if not self.path.startswith("/"):
            raise DeclarationError(
                f"HttpReference: the path '{self.path}' must start with '/'. The address is a "
                "setting: pull.<name>.address."
            )
        if self.format not in READERS:
            raise DeclarationError(
                f"HttpReference: format='{self.format}' is not known. Use 'json' or 'csv'."
            )

    @property
    def asks(self) -> str:
        return f"GET {self.path}"

    def read(self, name: str, settings: Settings) -> pa.Table:
        """All rows of one answer."""
        said, secret = login_of(f"reference '{name}'", name, settings)
        reader = HttpReader(self, name, said, secret)
        try:
            content = reader.content({})
        finally:
            reader.close()
        what = f"reference '{name}': {self.asks}"
        return in_order(READERS[self.format](self, what, content))


@dataclass(frozen=True)
class DeltaReference:
    """A Delta table in a folder of this machine, read whole every so often."""

    path: str
    every: str = "1 hour"

    def __post_init__(self) -> None:
        check_every("DeltaReference", self.every)

    def read(self, name: str, settings: Settings) -> pa.Table:
        """All rows of its newest version."""
        said = settings.pull.get(name, PullSettings())
        what = f"reference '{name}': the Delta table {self.path}"
        try:
            rows = read_whole(settings.within(self.path), said.answer_bytes)
        except OSError as error:
            raise OperationError(f"{what} cannot be read: {error}. Correct the path.") from None
        if rows is None:
            raise _too_long(what, said)
        return in_order(rows)


def _type_of(column: Column) -> pa.DataType:
    """Arrow's type for a column of PostgreSQL; what it does not know becomes text."""
    if column.type_code == NUMERIC and column.precision and column.precision <= 38:
        return pa.decimal128(column.precision, column.scale or 0)
    return TYPES.get(column.type_code, pa.string())


def _json(said: HttpReference, what: str, content: bytes) -> pa.Table:
    try:
        found: Any = json.loads(content, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise LaterError(f"{what} returned an answer that is not JSON.") from None
    for part in said.records.split(".") if said.records else ():
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        place = f" at '{said.records}'" if said.records else ""
        raise OperationError(
            f"{what} returned JSON without a list of objects{place}. Set records to the path of "
            "the list."
        )
    return table_of(what, found, types_of(said.schema))


def _csv(said: HttpReference, what: str, content: bytes) -> pa.Table:
    import pyarrow.csv as pa_csv

    types = types_of(said.schema)
    try:
        with pa_csv.open_csv(io.BytesIO(content)) as file:
            names = file.schema.names
        convert = pa_csv.ConvertOptions(
            column_types=types or {name: pa.string() for name in names},
            include_columns=list(types) if types else None,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pa_csv.read_csv(io.BytesIO(content), convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
        raise OperationError(
            f"{what} returned CSV that does not fit: {error}. Correct the schema, or the data."
        ) from None


READERS: dict[str, Callable[[HttpReference, str, bytes], pa.Table]] = {"json": _json, "csv": _csv}


def _too_long(what: str, said: PullSettings) -> OperationError:
    return OperationError(
        f"{what} has more than {said.answer_bytes:,} bytes. A reference is small: read fewer rows "
        "and columns, or raise answer_bytes in its section [pull.<name>]."
    )
