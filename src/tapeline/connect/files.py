"""Files in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from tapeline.connect.formats import Format, NewFields, check_format, columns
from tapeline.declare.schema import Field
from tapeline.errors import DeclarationError, OperationError


@dataclass(frozen=True)
class Files:
    """Files dropped into a folder, or one reference file. Delivers: exactly once into the tape.

    `zone` is the time zone of timestamps that name none. `new_fields` says what becomes of fields
    that the schema does not name: "ignore", or "keep", as JSON in the column `new_fields`.
    """

    path: str
    format: Format = "json"
    schema: str | None = None
    zone: str = "UTC"
    new_fields: NewFields = "ignore"

    def __post_init__(self) -> None:
        check_format("Files", self.format, Format, self.new_fields, self.zone)

    @property
    def goes_to(self) -> str:
        """What a plan shows of a sink: a folder that gets one file per batch."""
        if self.format not in ("json", "csv", "parquet"):
            raise DeclarationError("Files: a sink writes json, csv or parquet.")
        return f"{self.format} files in {self.path}"

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The columns of a decoded record."""
        return columns(f"Files('{self.path}')", self.format, self.schema, self.new_fields)

    def snapshot(self, project: Path) -> pa.Table:
        """The whole file as it stands, for a reference; without a schema every column is text."""
        path = project / self.path
        try:
            return self._read(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise OperationError(
                f"reference file {path} cannot be read: {error}. Put it there, or correct it."
            ) from None

    def _read(self, path: Path) -> pa.Table:
        types = {f.name: arrow_type(f) for f in self.fields} if self.schema else None
        if path.suffix == ".parquet":
            return pq.read_table(path)
        if path.suffix == ".json":
            options = pa_json.ParseOptions(explicit_schema=pa.schema(types) if types else None)
            return pa_json.read_json(path, parse_options=options)
        with path.open("rb") as file:
            names = file.readline().decode("utf-8-sig").strip().split(",")
        convert = pa_csv.ConvertOptions(
            column_types=types or {name.strip('"'): pa.string() for name in names},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pa_csv.read_csv(path, convert_options=convert)


def arrow_type(field: Field) -> pa.DataType:
    """The Arrow type of a simple column."""
    if field.decimal:
        return pa.decimal128(*field.decimal)
    simple = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "binary": pa.binary(),
    }
    if field.type not in simple:
        raise DeclarationError(f"a reference cannot hold '{field.name}' of type {field.type}.")
    return simple[field.type]
