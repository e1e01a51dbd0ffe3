"""Days of a market as its own people know them, and a settlement calendar that reaches further.

A CSV file with the columns `day` and `what`: a day without a session, a session on which nothing
is paid, or a session on a day that has none as a rule. In the years that no published calendar
holds, every weekday that is not named is a session.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from tapeline import OperationError
from tapeline.trades.markets import Market
from tapeline.trades.reference import write_csv
from tapeline.trades.settlement import OwnDays, known_until, settlements

KINDS = {"no session": "closed", "no payment": "unpaid", "session": "opened"}
COLUMNS = ("venue", "trade_date", "settlement_id", "settles_on")
Row = dict[str, str]


@dataclass(frozen=True)
class Extended:
    """What was added to a calendar: rows by venue, and the days from which to which."""

    rows: int
    venues: tuple[str, ...]
    first: date
    last: date


def read_own_days(path: Path) -> OwnDays:
    """The days that a file names, refused with the line that is wrong."""
    found: dict[str, set[date]] = {name: set() for name in KINDS.values()}
    for number, row in enumerate(_rows(path, ("day", "what")), start=2):
        try:
            found[KINDS[row["what"].strip()]].add(date.fromisoformat(row["day"].strip()))
        except (KeyError, ValueError, AttributeError):
            raise OperationError(
                f"{path}, line {number}: write a date such as 2027-01-26 and one of "
                f"{', '.join(KINDS)}."
            ) from None
    if not any(found.values()):
        raise OperationError(f"{path} contains no day. Write the days of whole years.")
    return OwnDays(**{name: frozenset(days) for name, days in found.items()})


def extend_calendar(
    calendar: Path, market: Market, own: OwnDays, since: date | None = None
) -> Extended:
    """Add the days that a settlement calendar lacks; rebuild those from `since` on."""
    rows = list(_rows(calendar, COLUMNS))
    venues = tuple(venue.code for venue in market.venues)
    last = date(max(own.years), 12, 31)
    first = since or min(_end(rows, venue, own) for venue in venues) + timedelta(days=1)
    _refuse(market, own, first, last)
    kept = [
        row
        for row in rows
        if row["venue"] not in venues or date.fromisoformat(row["trade_date"]) < first
    ]
    made = [row for venue in venues for row in _made(venue, first, last, own)]
    if not made:
        raise OperationError(
            f"{calendar} already ends on {first - timedelta(days=1)}. Give later days, or use "
            "--since to rebuild some."
        )
    names = list(rows[0]) if rows else list(COLUMNS)
    listed = [[row.get(name) or "" for name in names] for row in (*kept, *made)]
    write_csv(calendar, [names, *listed])
    return Extended(len(made), venues, first, date.fromisoformat(made[-1]["trade_date"]))


def _end(rows: list[Row], venue: str, own: OwnDays) -> date:
    """The last day of a venue in a calendar; of one that has none, that before the days named."""
    days = (date.fromisoformat(row["trade_date"]) for row in rows if row["venue"] == venue)
    return max(days, default=date(min(own.years) - 1, 12, 31))


def _made(venue: str, first: date, last: date, own: OwnDays) -> Iterator[Row]:
    for one in settlements(first, last, venue, own):
        values = (venue, str(one.trade_date), one.settlement_id, str(one.settles_on))
        yield dict(zip(COLUMNS, values, strict=True))


def _refuse(market: Market, own: OwnDays, first: date, last: date) -> None:
    """A year of which nobody says anything would be one without a holiday."""
    known = known_until(market)
    for year in range(max(first.year, known + 1), last.year + 1):
        if year not in own.years:
            raise OperationError(
                f"the sessions of {market.name} are known until {known}, but the file has no day "
                f"of {year}. Add the days of that year."
            )


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise OperationError(f"{path} has no column '{missing[0]}' in its first line.")
            yield from reader
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OperationError(f"{path} cannot be read: {error}.") from None
