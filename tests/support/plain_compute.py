"""Steps in plain Python over Arrow, which stand in for Spark through the protocol `Compute`.

A test says in Python what its pipeline says in Spark: a `Twin` for each table and summary. The
flow, the verdicts, the books and the audit are the real ones, so laws, corrections and crashes run
hundreds of times without a JVM. tests/steps/test_plain_twins.py holds twins equal to their steps.

Decoding stands for JSON lines with strings, whole numbers, decimals and timestamps, in UTC.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tapeline import Pipeline
from tapeline.books.schemas import KEY_SEPARATOR
from tapeline.declare import Field, Summary, Table
from tapeline.declare.duration import parse_duration
from tapeline.flow.steps import Compile, Steps, SummaryStep, TableStep
from tapeline.formats.faults import FAULT_SEPARATOR
from tapeline.formats.reference_file import arrow_type
from tapeline.plan import resolve
from tests.support.xxhash64 import xxhash64

Row = dict[str, Any]
JUDGED = {"quarantine": "_quarantine", "drop": "_drop", "fail": "_fail", "keep": "_warn"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ARRIVES = [
    ("source", pa.string()), ("part", pa.int64()), ("at", pa.int64()),
    ("arrived_at", pa.timestamp("us", "UTC")), ("ordinal", pa.int64()), ("faults", pa.string()),
    ("key", pa.string()), ("key_hash", pa.int64()), ("content_hash", pa.binary()),
    ("sequence", pa.int64()), ("deletes", pa.bool_()),
]  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?")


def unchanged(row: Row) -> Iterable[Row]:
    return [row]


@dataclass(frozen=True)
class Twin:
    """What a step does, in Python: the rows that it makes of a row, and the columns it adds."""

    makes: Callable[[Row], Iterable[Row]] = unchanged
    columns: tuple[tuple[str, pa.DataType], ...] = ()
    holds: Mapping[str, Callable[[Row], bool | None]] = field(default_factory=dict)  # by sentence
    sequence: Callable[[Row], int | None] = lambda _: 0
    deletes: Callable[[Row], bool | None] = lambda _: False
    version: str = ""  # steps of one name that do something else have another one


@dataclass(frozen=True)
class PlainCompute:
    """A Compute in Python: each row becomes some rows."""

    arrow_schema: pa.Schema
    makes: Callable[[Row], Iterable[Row]]

    def run(self, rows: pa.Table) -> pa.Table:
        made = [one for row in rows.to_pylist() for one in self.makes(row)]
        return pa.Table.from_pylist(made, self.arrow_schema)

    def warm(self) -> None: ...


def plain_compiler(pipeline: Pipeline, twins: Mapping[str, Twin]) -> Compile:
    """What makes the steps of a pipeline ready to run without Spark."""
    plan = resolve(pipeline)
    tables: dict[str, TableStep] = {}
    for table in plan.tables:
        source = pipeline.sources.get(table.stream)
        if source is not None:
            tables[table.name] = _first(table, source.connector.fields, twins[table.name])
        else:
            tables[table.name] = _later(table, tables[table.stream], twins[table.name])
    summaries = tuple(_summary(s, tables[s.stream], twins[s.name]) for s in plan.summaries)
    steps = Steps(tuple(tables.values()), summaries)
    return lambda _: steps


def _first(table: Table, fields: tuple[Field, ...], twin: Twin) -> TableStep:
    """A table that reads a source: decoding, then its function, then the rules."""
    own = [pa.field(one.name, arrow_type(one)) for one in fields]
    columns = pa.schema([*own, *(pa.field(name, kind) for name, kind in twin.columns)])
    position = pa.struct(ARRIVES)

    def decoded(row: Row) -> Row:
        return _decoded(row, table, fields, twin)

    def makes(row: Row) -> Iterable[Row]:
        for made in twin.makes(decoded(row)):
            yield {**made, **_broken(made, table, twin, arrives=True)}

    prepared = PlainCompute(_with_rules(columns, position), makes)
    faults = PlainCompute(
        pa.schema([("_position", position)]), lambda row: [{"_position": decoded(row)["_position"]}]
    )
    return TableStep(table, prepared, faults, columns, False, f"99:{table.name}{twin.version}")


def _later(table: Table, above: TableStep, twin: Twin) -> TableStep:
    """A table that reads another one."""
    columns = pa.schema([*above.columns, *(pa.field(name, kind) for name, kind in twin.columns)])

    def makes(row: Row) -> Iterable[Row]:
        for made in twin.makes(row):
            yield {**made, **_broken(made, table, twin, arrives=False)}

    schema = _with_rules(columns, above.carried)
    prepared = PlainCompute(schema, makes)
    return TableStep(table, prepared, None, columns, False, f"99:{table.name}{twin.version}")


def _summary(summary: Summary, above: TableStep, twin: Twin) -> SummaryStep:
    """A summary: each record's key and its share of every measure."""
    columns = pa.schema([pa.field(name, kind) for name, kind in twin.columns])
    schema = columns.append(pa.field("_position", above.carried))

    def makes(row: Row) -> Iterable[Row]:
        for share in twin.makes(row):
            yield {**share, "_position": row["_position"]}

    measures = tuple(name for name in columns.names if name not in summary.key)
    needs = tuple(above.leaf_schema.names)
    prepared = PlainCompute(schema, makes)
    return SummaryStep(
        summary, prepared, columns, measures, needs, f"99:{summary.name}{twin.version}"
    )


def _with_rules(columns: pa.Schema, position: pa.StructType) -> pa.Schema:
    rules = [pa.field(name, pa.string()) for name in JUDGED.values()]
    return pa.schema([*columns, pa.field("_position", position), *rules])


def _broken(row: Row, table: Table, twin: Twin, arrives: bool) -> Row:
    """The sentences that a row breaks; what is not known to be true is broken."""
    found: dict[str, list[str]] = {name: [] for name in JUDGED.values()}
    for rule in table.expectations:
        if not twin.holds[rule.sentence](row):
            found[JUDGED[rule.action]].append(rule.sentence)
    if arrives and table.time and row[table.time] is not None:
        latest = row["_position"]["arrived_at"] + parse_duration(table.future_after)
        if row[table.time] > latest:
            words = f"{table.time} is more than {table.future_after} in the future"
            found["_quarantine"].append(words)
    return {name: FAULT_SEPARATOR.join(words) for name, words in found.items()}


def _decoded(row: Row, table: Table, fields: tuple[Field, ...], twin: Twin) -> Row:
    """A tape row as typed columns, and what of it survives the step."""
    texts, whole = _parsed(row)
    values = {one.name: _value(one, texts.get(one.name)) for one in fields}
    deletes = bool(twin.deletes(values))
    needed = [one for one in fields if not deletes or _names(table, one.name)]
    faults = [*whole, *(words for one in needed if (words := _fault(one, texts, values)))]
    key = _key(table, values)
    content = [_canonical(values[f.name]) for f in fields if f.name != table.time]
    digest = hashlib.sha256(KEY_SEPARATOR.join(content).encode()).digest()
    position = {
        "source": table.stream,
        **{name: row[name] for name in ("part", "at", "arrived_at", "ordinal")},
        "faults": FAULT_SEPARATOR.join(faults),
        "key": key,
        "key_hash": None if key is None else xxhash64(key.encode()),
        "content_hash": digest[:16],
        "sequence": twin.sequence(values),
        "deletes": deletes,
    }
    return {**values, "_position": position}


def _parsed(row: Row) -> tuple[Row, list[str]]:
    """The fields of a record as texts, and what is wrong with the record as a whole."""
    faults = [row["fault"]] if row["fault"] else []
    try:
        found = json.loads(row["raw"].decode(), parse_int=str, parse_float=str)
    except UnicodeDecodeError:
        return {}, [*faults, "the record is not UTF-8"]
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return {}, [*faults, "the record is not a JSON object"]
    return found, faults


def _value(one: Field, text: str | None) -> Any:
    """The typed value, or None where the text is not one."""
    if text is None or one.type == "string":
        return text
    if one.decimal:
        precision, scale = one.decimal
        digits = rf"[+-]?0*\d{{1,{precision - scale}}}(\.\d{{0,{scale}}}0*)?"
        fits = re.fullmatch(digits, text.strip())
        return Decimal(text.strip()).quantize(Decimal(1).scaleb(-scale)) if fits else None
    if one.type == "int":
        fits = re.fullmatch(r"[+-]?\d{1,19}", text.strip())
        return int(text) if fits and -(2**31) <= int(text) < 2**31 else None
    assert one.type == "timestamp", f"no twin of {one.type}"
    if not TIME.fullmatch(text.strip()):
        return None
    moment = datetime.fromisoformat(text.strip())
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _fault(one: Field, texts: Row, values: Row) -> str:
    """What is wrong with a field's text."""
    text = texts.get(one.name)
    if text is None or values[one.name] is not None:
        return ""
    if one.type == "timestamp":
        return f"{one.name} is not a timestamp"
    if not one.decimal:
        return f"{one.name} is not an integer of its type's range"
    precision, scale = one.decimal
    if not re.fullmatch(r"[+-]?\d+(\.\d*)?", text.strip()):
        return f"{one.name} is not a plain decimal number"
    if re.search(rf"\.\d{{{scale}}}\d*[1-9]", text):
        return f"{one.name} has more than {scale} decimals"
    return f"{one.name} is too large for decimal({precision},{scale})"


def _names(table: Table, name: str) -> bool:
    said = f"{table.sequence_by} {table.apply_as_deletes}"
    return name in table.key or re.search(rf"\b{re.escape(name)}\b", said) is not None


def _key(table: Table, values: Row) -> str | None:
    parts = [values[name] for name in table.key]
    return None if not parts or None in parts else KEY_SEPARATOR.join(map(str, parts))


def _canonical(value: Any) -> str:
    if value is None:
        return "\x00"
    if isinstance(value, datetime):
        return str((value - EPOCH) // timedelta(microseconds=1))
    return str(value)
