"""Pathway on the same files: trades parsed, judged and counted once, sums kept, both in files.

Its own environment runs it: .venv-peers/pathway/bin/python -m benchmarks.peers.pathway_sums
--drop DIR --reference DIR --out DIR. Its connector to Delta wants a licence key. It keeps no raw
records and no quarantine, and what it wrote is not yet safe from a crash. Pathway has no decimals:
money is counted in ten-thousandths, whole numbers.
"""

from __future__ import annotations

import csv
import json
import os
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

# One worker for each core; it is read when Pathway is imported.
os.environ["PATHWAY_THREADS"] = str(len(os.sched_getaffinity(0)))
import pathway as pw

from benchmarks import sums
from benchmarks.clock import seconds_since_start
from benchmarks.peers.arguments import answer, asked

QUANTITY = re.compile(r"[0-9]{1,12}([.][0-9]{1,6})?").fullmatch
PRICE = re.compile(r"[0-9]{1,10}([.][0-9]{1,8})?").fullmatch
FEES = re.compile(r"[0-9]{1,16}([.][0-9]{1,4})?").fullmatch
QUARTER_SECONDS = 15 * 60


class Trade(pw.Schema):
    """A good trade; money in ten-thousandths."""

    trade_id: str
    window_start: int
    terminal: str
    currency: str
    buy: int
    sell: int


def main() -> None:
    given = asked(__doc__)
    judge = judging(given.reference)
    ready = seconds_since_start()
    lines = pw.io.plaintext.read(given.drop, mode="static", object_pattern="*.jsonl")
    parsed = lines.select(trade=pw.apply_with_type(judge, tuple | None, pw.this.data))
    good = parsed.filter(pw.this.trade.is_not_none())
    named = good.select(
        **{n: pw.this.trade[i] for i, n in enumerate(Trade.column_names())}
    ).update_types(**Trade.typehints())
    trades = named.groupby(pw.this.trade_id).reduce(
        pw.this.trade_id,
        **{n: pw.reducers.any(pw.this[n]) for n in Trade.column_names() if n != "trade_id"},
    )
    found = trades.groupby(pw.this.window_start, pw.this.terminal, pw.this.currency).reduce(
        pw.this.window_start,
        pw.this.terminal,
        pw.this.currency,
        buy=pw.reducers.sum(pw.this.buy),
        sell=pw.reducers.sum(pw.this.sell),
        trades=pw.reducers.count(),
    )
    rows: dict[Any, sums.Row] = {}

    def keep(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            rows[key] = row_of(row)

    given.out.mkdir(parents=True, exist_ok=True)
    pw.io.jsonlines.write(trades, given.out / "trades.jsonl")
    pw.io.jsonlines.write(found, given.out / "sums.jsonl")
    pw.io.subscribe(found, keep)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(answer("pathway", list(rows.values()), ready), flush=True)


def judging(reference: Path) -> Any:
    """What a line is: a trade's cells, or None. The reference tables are held in memory."""
    currency_of = {r["instrument"]: r["currency"] for r in _rows(reference / "instruments.csv")}
    places = {r["currency"]: int(r["minor_units"]) for r in _rows(reference / "currencies.csv")}
    quanta = {currency: Decimal(1).scaleb(-units) for currency, units in places.items()}
    latest = datetime.now(UTC) + timedelta(days=1)

    def judge(line: str) -> tuple[Any, ...] | None:
        try:
            cells = json.loads(line)
            traded_at = datetime.fromisoformat(cells["traded_at"])
            side, terminal = cells["side"].upper(), cells["terminal"].upper()
            currency = cells.get("currency") or currency_of[cells["instrument"]]
            if not (
                1 <= len(cells["trade_id"]) <= 64
                and int(cells.get("version") or 1) >= 1
                and cells.get("event") in (None, "NEW")
                and traded_at <= latest
                and side in ("BUY", "SELL")
                and terminal in ("DESKTOP", "WEB", "MOBILE")
                and cells["instrument"] in currency_of
                and len(cells["client"]) > 0
                and QUANTITY(cells["quantity"])
                and PRICE(cells["price"])
                and (cells.get("fees") is None or FEES(cells["fees"]))
            ):
                return None
            amount = Decimal(cells["quantity"]) * Decimal(cells["price"])
            if not amount:
                return None
            exact = amount.quantize(quanta[currency], ROUND_HALF_UP)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        money = int(exact.scaleb(4))
        start = int(traded_at.timestamp()) // QUARTER_SECONDS * QUARTER_SECONDS
        bought = side == "BUY"
        return (
            cells["trade_id"], start, terminal, currency,
            money if bought else 0, 0 if bought else money,
        )  # fmt: skip

    return judge


def row_of(row: dict[str, Any]) -> sums.Row:
    start = sums.utc(row["window_start"])
    money = [Decimal(row[side]).scaleb(-4) for side in ("buy", "sell")]
    return sums.row((start, row["terminal"], row["currency"], *money, row["trades"]))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
