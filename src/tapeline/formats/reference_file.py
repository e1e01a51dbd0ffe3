"""One file of facts, read as a whole: CSV, JSON or Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tapeline.declare.format import FileLimits, Format
from tapeline.declare.schema import Field
from tapeline.errors import DeclarationError, OperationError
from tapeline.formats.csv import Csv
from tapeline.formats.encodings import UTF8, as_utf8
from tapeline.formats.json import Json
from tapeline.formats.lines import Lines
from tapeline.words import counted

COMPRESSED = (".gz", ".bz2", ".zst")  # Arrow tells them by their names
JSON = (".json", ".jsonl", ".ndjson")
UTF8_MARK = b"\xef\xbb\xbf"


def read_reference(path: Path, said: str | Format, fields: Sequence[Field]) -> pa.Table:
    """The rows of a file. Raises ValueError if it cannot be understood."""
    import pyarrow.parquet as pq

    types = {field.name: arrow_type(field) for field in fields}
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    if suffix == ".parquet":
        return pq.read_table(path)
    if isinstance(said, Json) or suffix in JSON:
        return _read_json(path, said if isinstance(said, Json) else None, types)
    return _read_csv(path, said if isinstance(said, Csv) else Csv(), types)


def _read_json(path: Path, said: Json | None, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Objects, one per line or in a document. Without a schema Arrow tells their types."""
    import pyarrow.json as pa_json

    with pa.input_stream(str(path)) as stream:
        content = stream.read()
    if said is None:  # a list says of itself that it is one
        said = Json(document=content.lstrip().startswith(b"["))
    records = _records(said, _Whole(content, said.encoding))
    if said.positional:
        records = [_named(one, list(types), path) for one in records]
    lines = b"\n".join(b" ".join(one.splitlines()) for one in records)
    if not lines.strip():
        return pa.schema(types).empty_table()
    options = pa_json.ParseOptions(explicit_schema=pa.schema(types) if types else None)
    whole = pa_json.ReadOptions(block_size=len(lines) + 1)  # a row may be of any length
    found = pa_json.read_json(io.BytesIO(lines), whole, options)
    return found.select(list(types)) if types else found


def _records(said: Json, text: _Whole) -> list[bytes]:
    parts = (some.records() if isinstance(some, Lines) else some for some in said.split(text))
    return [one for some in parts for one in some]


def _named(record: bytes, names: list[str], path: Path) -> bytes:
    """A list of values as an object, every value as it was written."""
    if not names:
        raise OperationError(
            f"reference file {path}: positional=True needs a schema, which names the values."
        )
    inner = _records(Json(document=True), _Whole(record))
    if len(inner) != len(names):
        columns = counted(len(names), "column")
        raise ValueError(f"a row has {len(inner)} values, the schema has {columns}")
    pairs = zip(names, inner, strict=True)
    return b"{%s}" % b",".join(b"%s:%s" % (json.dumps(name).encode(), one) for name, one in pairs)


def _read_csv(path: Path, said: Csv, types: Mapping[str, pa.DataType]) -> pa.Table:
    import pyarrow.csv as pa_csv

    if said.comment is not None or (not said.header and not types):
        raise OperationError(
            f"reference file {path}: a reference cannot have comments, and without a header it "
            "needs a schema. Change the declaration."
        )
    reading = pa_csv.ReadOptions(
        encoding=said.encoding, column_names=None if said.header else list(types)
    )
    parsing = pa_csv.ParseOptions(delimiter=said.separator, quote_char=said.quote or False)
    with pa_csv.open_csv(path, reading, parsing) as file:
        names = file.schema.names
    convert = pa_csv.ConvertOptions(
        column_types=types or {name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        **({"null_values": ["", *said.nulls]} if said.nulls else {}),
    )
    return pa_csv.read_csv(path, reading, parsing, convert)


class _Whole:
    """A text in memory, as a format reads a file."""

    header: bytes | None = None
    lines_before = 0

    def __init__(self, content: bytes, encoding: str = UTF8) -> None:
        self._content = content
        self._encoding = encoding
        self.record_bytes = len(content)
        self.limits = FileLimits(len(content), len(content), len(content))

    def chunks(self) -> Iterator[bytes]:
        if self._encoding != UTF8:
            return as_utf8(iter([self._content]), self._encoding)
        return iter([self._content.removeprefix(UTF8_MARK)])

    def open(self) -> BinaryIO:
        return io.BytesIO(self._content)

    def keep(self, text: bytes) -> bytes:
        return text


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
        raise DeclarationError(
            f"a reference cannot have the column '{field.name}' of type {field.type}. Use another "
            "type."
        )
    return simple[field.type]
