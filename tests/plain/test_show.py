"""Output: exact numbers, no formulas, no markup."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa

from tapeline.show import as_csv, as_json, readable

ROWS = pa.table(
    {"symbol": ["=cmd()", "[red]x"], "amount": [Decimal("1.10"), Decimal("12345678901.00")]}
)


def test_json_holds_money_as_text() -> None:
    assert json.loads(as_json(ROWS))[1] == {"symbol": "[red]x", "amount": "12345678901.00"}


def test_a_csv_cell_never_starts_a_formula() -> None:
    assert as_csv(ROWS).splitlines()[1] == "'=cmd(),1.10"


def test_numbers_are_readable_and_markup_is_text() -> None:
    assert readable(Decimal("12345678.5000")) == "12,345,678.50"
    assert readable(Decimal("0.12345")) == "0.12345"
    assert readable("[red]x") == r"\[red]x"
