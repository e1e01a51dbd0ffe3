"""The books of the trades application, held against the oracle."""

from __future__ import annotations

from pathlib import Path

from tapeline.testing import Books, unbalanced
from tapeline.trades import oracle


def equals_the_oracle(books: Books, reference: Path) -> None:
    truth = next(reference.glob("truth-*.jsonl"))
    expected = oracle.expect(oracle.read_truth(truth), oracle.Reference.read(reference))
    totals = books.totals()
    assert totals["trades"].verdicts == dict(expected.trades)
    assert totals["enriched_trades"].verdicts == dict(expected.enriched_trades)
    windows = {
        (r["window_start"], r["terminal"], r["currency"]): (r["total_buy"], r["total_sell"])
        for r in books.read("trade_summary").to_pylist()
    }
    assert windows == {k: (w.total_buy, w.total_sell) for k, w in expected.windows.items()}
    due = books.read("due").to_pylist()
    assert {(r["settlement_id"], r["currency"]): r["due"] for r in due} == dict(expected.due)
    assert unbalanced(books) == []
