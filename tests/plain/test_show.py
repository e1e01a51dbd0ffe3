"""Output: exact numbers, no formulas, no markup."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tapeline import OperationError
from tapeline.show import as_csv, as_json, readable, write_file

ROWS = pa.table(
    {"symbol": ["=cmd()", "[red]x"], "amount": [Decimal("1.10"), Decimal("12345678901.00")]}
)


def test_json_holds_money_as_text() -> None:
    assert json.loads(as_json(ROWS))[1] == {"symbol": "[red]x", "amount": "12345678901.00"}


def test_a_csv_cell_never_starts_a_formula() -> None:
    assert as_csv(ROWS).splitlines()[1] == "'=cmd(),1.10"


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_neither_bytes_nor_a_columns_name_start_a_formula(first: str) -> None:
    text = f"{first}cmd()"
    table = pa.table({text: [text.encode()], "minus": [Decimal("-1.5")]})
    header, row = csv.reader(io.StringIO(as_csv(table), newline=""))
    assert (header[0], row) == (f"'{text}", [f"'{text}", "-1.5"])


def test_a_nested_cell_is_json() -> None:
    table = pa.table({"position": [{"source": "a", "part": 1}], "reasons": [["x", "y"]]})
    _, row = csv.reader(io.StringIO(as_csv(table)))
    assert [json.loads(cell) for cell in row] == [{"source": "a", "part": 1}, ["x", "y"]]


def test_numbers_are_readable_and_markup_is_text() -> None:
    assert readable(Decimal("12345678.5000")) == "12,345,678.50"
    assert readable(Decimal("0.12345")) == "0.12345"
    assert readable("[red]x") == "[red]x"  # no console of ours reads markup


def test_a_file_is_written_by_its_suffix(tmp_path: Path) -> None:
    for name in ("a.csv", "a.json", "a.parquet"):
        write_file(ROWS, tmp_path / name)
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == "'=cmd(),1.10"
    assert json.loads((tmp_path / "a.json").read_text())[0]["amount"] == "1.10"
    assert pq.read_table(tmp_path / "a.parquet").equals(ROWS)
    with pytest.raises(OperationError, match=r"\.parquet"):
        write_file(ROWS, tmp_path / "a.xls")
    with pytest.raises(OperationError, match="cannot be written"):
        write_file(ROWS, tmp_path / "nowhere" / "a.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.json", "a.parquet"]


def test_what_a_terminal_obeys_is_shown_and_not_sent() -> None:
    assert readable("\x1b[2J\u202eabc\x07") == r"\x1b[2J\u202eabc\x07"
    assert readable("two\nlines\tand a tab") == r"two\nlines\tand a tab"
