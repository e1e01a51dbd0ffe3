"""Rows as people and programs want to see them: a table, CSV, or JSON with exact numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from tapeline.errors import OperationError, QuestionError

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")
# The last four are their wide forms, which spreadsheets take for the same.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

SHOWN_CHARACTERS = 80
# Control characters but tab and line end, and those that turn the direction of writing.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(value: Any) -> Any:
    """A value as JSON holds it: money is text, never a float."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def as_json(rows: pa.Table) -> str:
    return json.dumps([plain(row) for row in rows.to_pylist()], indent=2, ensure_ascii=False)


def as_csv(rows: pa.Table) -> str:
    """CSV whose text cells cannot start a formula in a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([_cell(name) for name in rows.column_names])
    for row in rows.to_pylist():
        writer.writerow([_cell(value) for value in row.values()])
    return out.getvalue()


def write_file(rows: pa.Table, path: Path) -> None:
    """Rows as a file, by its suffix; whoever reads it sees all of them or none."""
    if path.suffix == ".csv":
        write_text(as_csv(rows), path)
    elif path.suffix == ".json":
        write_text(as_json(rows) + "\n", path)
    elif path.suffix == ".parquet":
        with _whole(path) as hidden:
            pq.write_table(rows, hidden)
    else:
        raise QuestionError(f"'{path.name}' ends with none of .csv, .json and .parquet.")


def write_text(text: str, path: Path) -> None:
    """A text as a file; whoever reads it sees all of it or the one before."""
    with _whole(path) as hidden:
        hidden.write_text(text, encoding="utf-8", newline="")


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file beside the one to be written, which takes its place when it is whole."""
    hidden = path.with_name(f".{path.name}.part")
    try:
        yield hidden
        hidden.replace(path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise OperationError(
            f"{path} cannot be written: {error.strerror}. Make its folder, or name another one."
        ) from None


def as_table(rows: pa.Table, title: str = "") -> Table:
    """A terminal table: numbers to the right, thousands apart."""
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for field in rows.schema:
        right = pa.types.is_decimal(field.type) or pa.types.is_integer(field.type)
        table.add_column(field.name, justify="right" if right else "left")
    for row in rows.to_pylist():
        table.add_row(*[readable(value) for value in row.values()])
    return table


def shortened(value: Any) -> str:
    """A value as text, cut where a line would be hard to read."""
    text = str(plain(value))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def readable(value: Any) -> str:
    """A value for people; never markup, and nothing that a terminal obeys."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal | int):
        return f"{value:,}" if isinstance(value, int) else f"{_short(value):,f}"
    if isinstance(value, datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S")
        return text.removesuffix(":00")
    return OBEYED.sub(_told, str(plain(value))).replace("[", r"\[")


def _told(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def as_words(fact: Any) -> str:
    """A fact of a status, for people: its parts apart by commas, those with parts on lines."""
    if isinstance(fact, dict):
        said = {name: part for name, part in fact.items() if part not in (None, {}, [])}
        deep = {name: part for name, part in said.items() if isinstance(part, dict)}
        flat = ", ".join(f"{name} {as_words(said[name])}" for name in said if name not in deep)
        lines = [f"{name}: {as_words(part)}" for name, part in deep.items()]
        return "\n".join([flat, *lines] if flat else lines)
    if isinstance(fact, list):
        return "\n".join(as_words(part) for part in fact)
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int | float):
        return f"{fact:,}"
    if isinstance(fact, str) and MOMENT.match(fact):
        return readable(datetime.fromisoformat(fact))
    return str(fact)


def _short(value: Decimal) -> Decimal:
    """Without zeros behind the second decimal."""
    exponent = value.normalize().as_tuple().exponent
    places = max(2, -exponent) if isinstance(exponent, int) else 2
    return value.quantize(Decimal(1).scaleb(-places))


def _cell(value: Any) -> Any:
    text = plain(value)
    if isinstance(text, dict | list):
        return json.dumps(text, ensure_ascii=False)
    if isinstance(value, str | bytes) and text.startswith(FORMULA):
        return "'" + text
    return text
