"""Rows as people and programs want to see them: a table, CSV, or JSON with exact numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tapeline.errors import OperationError, QuestionError
from tapeline.store.files import replacing, write_bytes
from tapeline.terminal import json_text, moment, one_line

if TYPE_CHECKING:
    import pyarrow as pa

# The last four are their wide forms, which spreadsheets take for the same.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

SHOWN_CHARACTERS = 80
# Beyond it readers of JSON that know only floats, browsers among them, round a number.
MOST_EXACT_IN_JSON = 2**53 - 1


def plain(value: Any) -> Any:
    """A value as JSON holds it: money is text, never a float, and so is an integer too long."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int) and abs(value) > MOST_EXACT_IN_JSON:
        return str(value)
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
    return json_text([plain(row) for row in rows.to_pylist()])


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
    import pyarrow.parquet as pq

    if path.suffix == ".csv":
        write_text(as_csv(rows), path)
    elif path.suffix == ".json":
        write_text(as_json(rows) + "\n", path)
    elif path.suffix == ".parquet":
        with _whole(path) as hidden:
            pq.write_table(rows, hidden)
    else:
        raise QuestionError(f"'{path.name}' must end with .csv, .json or .parquet.")


def write_text(text: str, path: Path) -> None:
    """A text as a file; whoever reads it sees all of it or the one before."""
    with _whole(path) as hidden:
        write_bytes(hidden, text.encode())


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file beside the one to be written, which takes its place when it is whole."""
    try:
        with replacing(path, lasting=False) as partial:
            yield partial
    except OSError as error:
        raise OperationError(
            f"{path} cannot be written: {error.strerror}. Create its folder, or choose another one."
        ) from None


def as_table(rows: pa.Table, title: str = "") -> Table:
    """A terminal table: numbers to the right, thousands apart."""
    import pyarrow as pa

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for field in rows.schema:
        right = pa.types.is_decimal(field.type) or pa.types.is_integer(field.type)
        table.add_column(one_line(field.name), justify="right" if right else "left")
    for row in rows.to_pylist():
        table.add_row(*[readable(value) for value in row.values()])
    return table


def shortened(value: Any) -> str:
    """A value as text, cut where a line would be hard to read."""
    text = str(plain(value))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def readable(value: Any) -> str:
    """A value for people, on one line; nothing in it is obeyed by a terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal | int):
        return f"{value:,}" if isinstance(value, int) else f"{_short(value):,f}"
    if isinstance(value, datetime):
        return moment(value)
    from tapeline.books.schemas import key_words

    return one_line(key_words(str(plain(value))))


def _short(value: Decimal) -> Decimal:
    """Trailing zeros after the second decimal removed."""
    from tapeline.books.exact import EXACT

    if value.as_tuple().exponent == 0:
        return value  # a whole number
    exponent = EXACT.normalize(value).as_tuple().exponent
    places = max(2, -exponent) if isinstance(exponent, int) else 2
    return EXACT.quantize(value, Decimal(1).scaleb(-places))


def _cell(value: Any) -> Any:
    text = plain(value)
    if isinstance(text, dict | list):
        return json.dumps(text, ensure_ascii=False)
    if isinstance(value, str | bytes) and text.startswith(FORMULA):
        return "'" + text
    return text
