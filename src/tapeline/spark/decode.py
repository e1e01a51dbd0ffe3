"""Decoding: from the bytes on the tape to typed columns, with every fault named.

A record is parsed once, all fields as text; numbers and times are checked as text before they
become values, so that nothing is rounded, wrapped or guessed. A fault never stops a batch: the
record goes on with null in that column and the fault in its position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline.books.schemas import (
    FILE_LEAF,
    KEY_SEPARATOR,
    MESSAGE_COLUMNS,
    MESSAGE_LEAF,
    TAPE_LEAF,
)
from tapeline.declare import Field, Table
from tapeline.errors import DeclarationError
from tapeline.formats.faults import FAULT_SEPARATOR, RETYPED, WARNED
from tapeline.formats.records import NEW_FIELDS, Records
from tapeline.spark import nested
from tapeline.spark.csv import parse_csv
from tapeline.spark.json import parse_json

NOTHING = "\x00"
KEPT = ("_part", "_at", "_arrived_at", "_ordinal")
INTEGER_BOUNDS = {
    "tinyint": 2**7,
    "smallint": 2**15,
    "int": 2**31,
    "bigint": 2**63,
}
TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?$"
ZONED = r"(Z|[+-]\d\d:?\d\d)$"


def leaf_of(records: Records) -> pa.Schema:
    """What travels to Spark: of a message no more than its value, unless steps ask for it."""
    if not records.meta:
        return TAPE_LEAF
    return MESSAGE_LEAF if records.messages else FILE_LEAF


def decode(tape: DataFrame, records: Records, table: Table) -> DataFrame:
    """Tape rows -> the declared columns and `_position`.

    `_position` is opaque to steps and carries what must survive them: where the record is, when
    it arrived, its faults, its key and the hash of its content.
    """
    time = table.time
    # Names of the tape's own columns start with '_': a record may have a field of any other name.
    own = tape.select(*[F.col(name).alias(f"_{name}") for name in tape.columns])
    if records.meta:
        own = own.withColumn("_meta", _message() if records.messages else _file())
    text = F.col("_raw").cast("string")
    whole = own.withColumn("_text", F.when(F.is_valid_utf8(text), text))
    inside = {f"_n_{one.name}": _nested(one) for one in records.fields if one.nested}
    parsed = _parse(whole, records).withColumns(inside)
    names = [field.name for field in records.fields]
    # Values first, then what is wrong with them: an expression used twice is computed once.
    texts = [F.col(f"`{field.name}`").alias(f"_t_{field.name}") for field in records.fields]
    values = [_value(field, records.zone).alias(field.name) for field in records.fields]
    said = records.written
    marks = [*([RETYPED] if said.retypes else []), *([WARNED] if said.warns else [])]
    bad = _shape_fault(records).alias("_bad")
    carried: list[Column | str] = [
        *_kept(records),
        "_fault",
        "_text",
        *(F.col(f"`{name}`") for name in inside),
    ]
    typed = parsed.select(*carried, bad, *marks, *texts, *values)
    deletes = F.coalesce(F.expr(table.apply_as_deletes or "false"), F.lit(False))
    faults = _faults(records, records.fields)
    if table.apply_as_deletes:
        # A deletion needs a valid key, sequence and condition, and nothing else.
        needed = [field for field in records.fields if _names(table, field.name)]
        faults = F.when(deletes, _faults(records, needed)).otherwise(faults)
    # The time of a repeat may differ: it is left out of what makes two records the same.
    content = [f for f in records.fields if f.name != time and f.name not in table.content_ignores]
    position = F.struct(
        F.lit(table.stream).alias("source"),
        *[F.col(name).alias(name[1:]) for name in KEPT],
        faults.alias("faults"),
        key_text(table.key).alias("key"),
        key_hash(table.key).alias("key_hash"),
        content_hash(content).alias("content_hash"),
        sequence(typed, table).alias("sequence"),
        deletes.alias("deletes"),
        *([F.col(WARNED).alias("warnings")] if said.warns else []),
    )
    meta = [F.col("_meta").alias(records.meta_column)] if records.meta else []
    own_columns = [F.col(f"`{name}`") for name in names if not name.startswith("_")]
    return typed.select(position.alias("_position"), *own_columns, *meta)


def _kept(records: Records) -> tuple[str, ...]:
    """What of the tape's own columns survives parsing."""
    return (*KEPT, "_meta") if records.meta else KEPT


def _message() -> Column:
    """The message as steps see it: what came with the value, and where it was."""
    names = {"offset" if name == "line" else name: F.col(f"_{name}") for name in MESSAGE_COLUMNS}
    order = ("key", "headers", "topic", "partition", "offset", "timestamp")
    return F.struct(*[names[name].alias(name) for name in order])


def _file() -> Column:
    """The file of a record as steps see it, and the record's line in it."""
    return F.struct(
        F.regexp_extract("_path", "[^/]*$", 0).alias("name"),
        F.col("_path").alias("path"),
        F.col("_modified").alias("modified_at"),
        F.col("_line").alias("line"),
    )


def _faults(records: Records, fields: Iterable[Field]) -> Column:
    """What is wrong with a record: as a whole, and with each of these fields."""
    return F.concat_ws(
        FAULT_SEPARATOR,
        F.col("_fault"),
        F.when(F.col("_text").isNull(), F.lit(f"the record is not {_encoding(records)}")),
        F.col("_bad"),
        *[_retyped(field) for field in fields if records.written.retypes],
        *[_missing(field, records) for field in fields if field.required],
        *[_fault(field, records.zone) for field in fields if field.type != "string"],
        *[one for field in fields if field.nested for one in _misfits(field, records.zone)],
    )


def _encoding(records: Records) -> str:
    """What the sender writes; on the tape it is UTF-8, whatever it was."""
    said = records.written.encoding
    return "UTF-8" if said == "utf-8" else said


def _retyped(field: Field) -> Column:
    """A field whose writer says another type, which is not read as the declared one."""
    came = F.try_element_at(F.col(RETYPED), F.lit(field.name))
    return F.concat(F.lit(f"{field.name} is declared {field.type}, it came as "), came)


def _missing(field: Field, records: Records) -> Column:
    """A record that can be read and lacks a field that it must have."""
    readable = F.col("_text").isNotNull() & F.col("_fault").isNull() & F.col("_bad").isNull()
    lacks = readable & F.col(f"`_t_{field.name}`").isNull()
    if records.written.retypes:
        lacks &= _retyped(field).isNull()
    return F.when(lacks, F.lit(f"{field.name} is missing: it is declared {field.type} not null"))


def _names(table: Table, field: str) -> bool:
    """Whether a table's identity reads a field."""
    said = f"{table.sequence_by} {table.apply_as_deletes}"
    return field in table.key or re.search(rf"\b{re.escape(field)}\b", said) is not None


def sequence(typed: DataFrame, table: Table) -> Column:
    """What orders the records of a key, as a whole number."""
    if table.sequence_by is None:
        return F.lit(0).cast("bigint")
    value = F.expr(table.sequence_by)
    kind = typed.select(value).schema[0].dataType.typeName()
    if kind in ("byte", "short", "integer", "long"):
        return value.cast("bigint")
    if kind == "timestamp":
        return F.unix_micros(value)
    if kind == "date":
        return F.unix_date(value).cast("bigint")
    raise DeclarationError(
        f"{table.where}: {table.name}() has sequence_by '{table.sequence_by}' of type {kind}. "
        "Use an integer, a date or a timestamp."
    )


def _parse(tape: DataFrame, records: Records) -> DataFrame:
    """One column of text per field, `_shape` saying what is wrong with the whole record."""
    kept = [*_kept(records), "_fault", "_text"]
    names = [field.name for field in records.fields if field != NEW_FIELDS]
    if records.written.text == "line":
        return tape.select(*kept, F.col("_text").alias(names[0]))
    if records.written.text == "csv":
        return parse_csv(tape, kept, names, records)
    return parse_json(tape, kept, names, records)


def _shape_fault(records: Records) -> Column:
    if records.written.text == "line":
        return F.lit(None).cast("string")
    return F.when(F.col("_shape") != "", F.col("_shape"))


def _value(field: Field, zone: str) -> Column:
    """The typed value, or null where the text is not one."""
    if field.nested:
        return nested.value_of(F.col(f"`_n_{field.name}`"), field.type, _leaf(zone))
    return _simple(F.col(f"`{field.name}`"), field, zone)


def _leaf(zone: str) -> nested.Leaf:
    """How a text inside a nested column becomes a value: as at the top."""
    return lambda text, kind: _simple(text, Field("", kind), zone)


def _simple(text: Column, field: Field, zone: str) -> Column:
    if field.type == "string":
        return text
    trimmed = F.trim(text)
    if field.decimal:
        return F.when(trimmed.rlike(_decimal_pattern(*field.decimal)), trimmed.try_cast(field.type))
    if field.type in INTEGER_BOUNDS:
        return F.when(trimmed.rlike(r"^[+-]?\d{1,19}$"), trimmed.try_cast(field.type))
    if field.type == "timestamp":
        return _moment(trimmed, zone)
    if field.type == "date":
        return F.when(trimmed.rlike(r"^\d{4}-\d\d-\d\d$"), trimmed.try_cast("date"))
    if field.type == "boolean":
        return F.when(F.lower(trimmed).isin("true", "false"), trimmed.try_cast("boolean"))
    if field.type in ("double", "float"):
        number = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
        value = trimmed.try_cast(field.type)
        finite = F.abs(value) < F.lit(float("inf"))
        return F.when(trimmed.rlike(number) & finite, value)
    if field.type == "binary":
        return F.try_to_binary(text, F.lit("base64"))
    return trimmed.try_cast(field.type)  # of a nested column, such as timestamp_ntz


def _nested(field: Field) -> Column:
    return nested.parse(F.col(f"`{field.name}`"), field.type)


def _misfits(field: Field, zone: str) -> list[Column]:
    """What is wrong with the values inside a nested column, by their paths."""
    parsed = F.col(f"`_n_{field.name}`")
    found = nested.misfits(parsed, field.name, field.type, _leaf(zone))
    return [F.when(wrong, F.lit(f"{path} is not {_words(kind)}")) for path, kind, wrong in found]


def _moment(text: Column, zone: str) -> Column:
    """A timestamp; without a zone it is of the source's, if it exists there exactly once."""
    value = F.when(text.rlike(TIME), text.try_cast("timestamp"))
    if zone in ("UTC", "Etc/UTC"):
        return value
    instant = F.to_utc_timestamp(value, zone)
    hour = F.expr("interval 1 hour")
    exists = F.from_utc_timestamp(instant, zone) == value
    once = (F.from_utc_timestamp(instant + hour, zone) != value) & (
        F.from_utc_timestamp(instant - hour, zone) != value
    )
    return F.when(text.rlike(ZONED), value).when(exists & once, instant)


def _fault(field: Field, zone: str) -> Column:
    """What is wrong with a field's text, or null."""
    text, value = F.col(f"`_t_{field.name}`"), F.col(f"`{field.name}`")
    given = text.isNotNull() & value.isNull()
    if field.decimal:
        precision, scale = field.decimal
        trimmed = F.trim(text)
        reason = (
            F.when(~trimmed.rlike(r"^[+-]?\d+(\.\d*)?$"), "is not a plain decimal number")
            .when(trimmed.rlike(rf"\.\d{{{scale}}}\d*[1-9]"), f"has more than {scale} decimals")
            .otherwise(f"is too large for decimal({precision},{scale})")
        )
        return F.when(given, F.concat(F.lit(f"{field.name} "), reason))
    if field.type == "timestamp":
        where = "" if zone == "UTC" else f" that exists once in {zone}"
        return F.when(given, F.lit(f"{field.name} is not a timestamp{where}"))
    if field.nested:
        given = given | nested.misshapen(F.col(f"`_n_{field.name}`"))
    return F.when(given, F.lit(f"{field.name} is not {_words(field.type)}"))


def _words(kind: str) -> str:
    """A type in words, of whose values a text is none."""
    names = {"tinyint": "an integer", "smallint": "an integer", "int": "an integer",
             "bigint": "an integer", "date": "a date", "boolean": "true or false",
             "double": "a finite number", "float": "a finite number"}  # fmt: skip
    named = f"an {kind}" if kind.startswith("array") else f"a {kind}"
    return f"{names.get(kind, named)} of its type's range"


def _decimal_pattern(precision: int, scale: int) -> str:
    fraction = rf"(\.\d{{0,{scale}}}0*)?" if scale else r"(\.0*)?"
    return rf"^[+-]?0*\d{{1,{max(1, precision - scale)}}}{fraction}$"


def key_text(key: tuple[str, ...]) -> Column:
    """The key as text; null when any part of it is missing."""
    if not key:
        return F.lit(None).cast("string")
    parts = [F.col(f"`{name}`").cast("string") for name in key]
    if len(parts) == 1:
        return parts[0]
    present: Any = parts[0].isNotNull()
    for part in parts[1:]:
        present = present & part.isNotNull()
    return F.when(present, F.concat_ws(KEY_SEPARATOR, *parts))


def key_hash(key: tuple[str, ...]) -> Column:
    return F.when(key_text(key).isNotNull(), F.xxhash64(key_text(key)))


def content_hash(fields: list[Field]) -> Column:
    """The first 128 bits of the SHA-256 of the decoded record."""
    texts = [F.coalesce(_canonical(field), F.lit(NOTHING)) for field in fields]
    digest = F.sha2(F.concat_ws(KEY_SEPARATOR, *texts), 256)
    return F.unhex(F.substring(digest, 1, 32))


def _canonical(field: Field) -> Column:
    """The one text of a value, however it was written."""
    value = F.col(f"`{field.name}`")
    return (F.unix_micros(value) if field.type == "timestamp" else value).cast("string")
