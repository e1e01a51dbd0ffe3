"""The independent oracle: what the books must say, by plain Decimals over the truth.

It shares no code with the product, on purpose, and reads nothing but the simulator's truth (what
was decided before any line was formatted) and the reference files.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
WINDOW = timedelta(minutes=15)
# A quantity of 18 digits times a price of 18 digits, summed over any number of trades.
PRECISION = 60

Truth = dict[str, str | int | float | None]


@dataclass
class Window:
    """The money of one quarter of an hour, of one terminal in one currency."""

    total_buy: Decimal = Decimal(0)
    total_sell: Decimal = Decimal(0)
    fees: Decimal = Decimal(0)
    trades: int = 0


@dataclass
class Part:
    """One client's part of a settlement in one currency."""

    bought: Decimal = Decimal(0)
    sold: Decimal = Decimal(0)
    fees: Decimal = Decimal(0)
    trades: int = 0


@dataclass
class Expected:
    """What the books must say: records by verdict, windows, and the money due."""

    trades: Counter[str] = field(default_factory=Counter)
    enriched_trades: Counter[str] = field(default_factory=Counter)
    windows: dict[tuple[datetime, str, str], Window] = field(
        default_factory=lambda: defaultdict(Window)
    )
    due: dict[tuple[str, str], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    clients: dict[tuple[str, str, str], Part] = field(default_factory=lambda: defaultdict(Part))

    @property
    def client_totals(self) -> dict[tuple[str, str], tuple[Decimal, Decimal, int]]:
        """Payable, receivable and clients of each settlement and currency, never netted."""
        owed: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
        for (settlement_id, _, currency), part in self.clients.items():
            owed[settlement_id, currency].append(part.bought + part.fees - part.sold)
        return {
            key: (
                sum((one for one in each if one > 0), Decimal(0)),
                sum((-one for one in each if one < 0), Decimal(0)),
                len(each),
            )
            for key, each in owed.items()
        }


@dataclass(frozen=True)
class Reference:
    """The reference files, as dictionaries by what they are looked up by."""

    instruments: dict[str, dict[str, str]]
    minor_units: dict[str, int]
    settlements: dict[tuple[str, str], str]

    @classmethod
    def read(cls, folder: Path | str) -> Reference:
        instruments = _rows(Path(folder) / "instruments.csv")
        currencies = _rows(Path(folder) / "currencies.csv")
        calendar = _rows(Path(folder) / "settlement_calendar.csv")
        return cls(
            {row["instrument"]: row for row in instruments},
            {row["currency"]: int(row["minor_units"]) for row in currencies},
            {(row["venue"], row["trade_date"]): row["settlement_id"] for row in calendar},
        )


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_truth(*paths: Path | str) -> Iterator[Truth]:
    """The records of truth files, in the order of arrival within and across the files."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            yield from map(json.loads, file)


def expect(records: Iterable[Truth], reference: Reference) -> Expected:
    """What the books must say after these records, whatever the batches they came in."""
    expected = Expected()
    standing = _identify(records, expected.trades)
    with localcontext() as context:
        context.prec = PRECISION
        for record in standing:
            expected.enriched_trades[_book(record, reference, expected)] += 1
    expected.windows = dict(expected.windows)
    expected.due = dict(expected.due)
    expected.clients = dict(expected.clients)
    return expected


def _identify(records: Iterable[Truth], verdicts: Counter[str]) -> list[Truth]:
    """Count every record's verdict in the trades table, and return those that are kept.

    Of the versions of a trade the highest stands; the first arrival of a version is the version.
    """
    versions: dict[str, dict[int, Truth]] = defaultdict(dict)
    for record in records:
        if str(record["fate"]).startswith("broken:"):
            verdicts["quarantined"] += 1
            continue
        known = versions[str(record["trade_id"])]
        version = int(record["version"] or 1)
        if version not in known:
            known[version] = record
        else:
            same = _content(known[version]) == _content(record)
            verdicts["duplicate" if same else "quarantined"] += 1
    kept = []
    for known in versions.values():
        highest = known[max(known)]
        cancelled = highest["event"] == "CANCEL"
        verdicts["applied" if cancelled else "kept"] += 1
        verdicts["superseded"] += len(known) - 1
        if not cancelled:
            kept.append(highest)
    # Adding zero to a Counter leaves the key behind.
    for verdict in [verdict for verdict, count in verdicts.items() if not count]:
        del verdicts[verdict]
    return kept


def _content(record: Truth) -> Truth:
    return {key: record[key] for key in record if key not in ("fate", "offset_seconds")}


def _book(record: Truth, reference: Reference, expected: Expected) -> str:
    """Add a kept trade to its window and its settlement; return its verdict once enriched."""
    instrument = reference.instruments.get(str(record["instrument"]))
    if instrument is None:
        return "quarantined"
    currency = str(record["currency"] or instrument["currency"])
    traded_at = datetime.fromisoformat(str(record["traded_at"]))
    zone = ZoneInfo(instrument["zone"]) if instrument.get("zone") else NEW_YORK
    trade_date = str(record["trade_date"] or local_date(traded_at, zone))
    settlement_id = reference.settlements.get((instrument["venue"], trade_date))
    if settlement_id is None or currency not in reference.minor_units:
        return "quarantined"
    amount = round_money(
        Decimal(str(record["quantity"])) * Decimal(str(record["price"])),
        reference.minor_units[currency],
    )
    fees = Decimal(str(record["fees"]))
    window = expected.windows[window_start(traded_at), str(record["terminal"]), currency]
    part = expected.clients[settlement_id, str(record["client"]), currency]
    for each in (window, part):
        each.trades += 1
        each.fees += fees
    if record["side"] == "BUY":
        window.total_buy += amount
        part.bought += amount
        expected.due[settlement_id, currency] += amount + fees
    else:
        window.total_sell += amount
        part.sold += amount
        expected.due[settlement_id, currency] -= amount - fees
    return "kept"


def round_money(amount: Decimal, minor_units: int) -> Decimal:
    """An amount rounded half up to its currency's minor unit."""
    return amount.quantize(Decimal(1).scaleb(-minor_units), rounding=ROUND_HALF_UP)


def window_start(moment: datetime) -> datetime:
    """The start, in UTC, of the quarter of an hour that a moment is in."""
    moment = moment.astimezone(UTC)
    return moment - (moment - datetime.min.replace(tzinfo=UTC)) % WINDOW


def local_date(moment: datetime, zone: ZoneInfo = NEW_YORK) -> date:
    """The date of a moment on the exchange's wall calendar."""
    return moment.astimezone(zone).date()
