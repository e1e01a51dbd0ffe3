"""The United States settlement calendar: when a trade of a date is paid.

The rule. A trade settles one, two or three settlement days after its trade date (`CYCLES`). A
settlement day is a weekday on which the banks are open (no Federal Reserve holiday) and the
exchange is not on a scheduled holiday. So:

- Columbus Day and Veterans Day: the exchange trades, nothing settles. The trades of that day
  and of the session before settle together.
- Good Friday, and the Friday before a Saturday holiday: the banks are open, the exchange is on
  holiday, nothing settles.
- An unscheduled closure (a day of mourning, a storm): no session, but what was traded before
  settles on that day, as the clearing houses do.
- A date that is no session settles as the next session does, so every date has a settlement.

The netting key is the settlement day itself: trade dates that settle together share the id.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

EXCHANGE = "XNYS"
EXCHANGE_ZONE = ZoneInfo("America/New_York")

# Settlement days from trade to payment, by the trade date from which each cycle applies. Before
# June 1995 the cycle was five days; no one asks this product for those years.
CYCLES = (
    (date(1995, 6, 7), 3),
    (date(2017, 9, 5), 2),
    (date(2024, 5, 28), 1),
)
FIRST_YEAR = 1996

# The next session after a date, and the longest cycle after that, are within this distance.
LOOK_AHEAD_DAYS = 31


@dataclass(frozen=True)
class Session:
    """A day of trading: its date in New York, and its opening and close in UTC."""

    date: date
    opens_at: datetime
    closes_at: datetime


@dataclass(frozen=True)
class Settlement:
    """What a trade date leads to: the day of payment and the key under which it is netted."""

    trade_date: date
    settlement_id: str
    settles_on: date


def sessions(first: date, last: date) -> tuple[Session, ...]:
    """The exchange's sessions from `first` to `last`, both included, early closes respected."""
    schedule = _calendar(first.year, last.year).schedule
    return tuple(
        Session(day.date(), opens_at.to_pydatetime(), closes_at.to_pydatetime())
        for day, opens_at, closes_at in zip(
            schedule.index, schedule["open"], schedule["close"], strict=True
        )
        if first <= day.date() <= last
    )


def latest_session(before: date) -> date:
    """The date of the last session that lies before a date."""
    return sessions(before - timedelta(days=LOOK_AHEAD_DAYS), before - timedelta(days=1))[-1].date


def settlements(first: date, last: date) -> Iterator[Settlement]:
    """One settlement for every calendar date from `first` to `last`, both included."""
    if first.year < FIRST_YEAR:
        raise ValueError(f"settlements before {FIRST_YEAR} are not known, {first} was asked for")
    horizon = last + timedelta(days=LOOK_AHEAD_DAYS)
    trading_days = [session.date for session in sessions(first, horizon)]
    payment_days = settlement_days(first, horizon)
    for trade_date in _dates(first, last):
        session = trading_days[bisect_left(trading_days, trade_date)]
        days_after = bisect_right(payment_days, session) + cycle_days(session) - 1
        settles_on = payment_days[days_after]
        yield Settlement(trade_date, f"US-{settles_on}", settles_on)


def settlement_days(first: date, last: date) -> list[date]:
    """The days from `first` to `last`, both included, on which trades are paid."""
    calendar = _calendar(first.year, last.year)
    trading_days = {session.date for session in sessions(first, last)}
    unscheduled = {closure.date() for closure in calendar.adhoc_holidays}
    closed = {day for year in range(first.year, last.year + 1) for day in bank_holidays(year)}
    return [
        day
        for day in _dates(first, last)
        if day not in closed and (day in trading_days or (day in unscheduled and day.weekday() < 5))
    ]


def cycle_days(trade_date: date) -> int:
    """How many settlement days lie between a trade and its payment, on a trade date."""
    return next(days for start, days in reversed(CYCLES) if start <= trade_date)


def bank_holidays(year: int) -> frozenset[date]:
    """The weekdays of a year on which the Federal Reserve is closed.

    A holiday on a Sunday is kept on the Monday. One on a Saturday is not kept on the Friday.
    """
    fixed = [date(year, 1, 1), date(year, 7, 4), date(year, 11, 11), date(year, 12, 25)]
    if year >= 2022:
        fixed.append(date(year, 6, 19))
    kept = {day + timedelta(days=1) if day.weekday() == 6 else day for day in fixed}
    floating = {
        _nth_weekday(date(year, 1, 1), 0, 3),  # Martin Luther King
        _nth_weekday(date(year, 2, 1), 0, 3),  # Washington
        _nth_weekday(date(year, 5, 25), 0, 1),  # Memorial Day: the Monday among the last seven
        _nth_weekday(date(year, 9, 1), 0, 1),  # Labor Day
        _nth_weekday(date(year, 10, 1), 0, 2),  # Columbus Day
        _nth_weekday(date(year, 11, 1), 3, 4),  # Thanksgiving
    }
    return frozenset(day for day in kept | floating if day.weekday() < 5)


def _nth_weekday(start: date, weekday: int, nth: int) -> date:
    """The nth given weekday (Monday is 0) on or after a date."""
    return start + timedelta(days=(weekday - start.weekday()) % 7 + 7 * (nth - 1))


def _dates(first: date, last: date) -> Iterator[date]:
    for days in range((last - first).days + 1):
        yield first + timedelta(days=days)


@lru_cache(maxsize=8)
def _calendar(first_year: int, last_year: int) -> Any:
    """The exchange's calendar. Its bounds are always given: the default ones follow the clock."""
    # Imported late: it brings pandas, half a second that a reader of CSV files need not pay.
    import exchange_calendars

    return exchange_calendars.get_calendar(
        EXCHANGE, start=f"{first_year}-01-01", end=f"{last_year}-12-31"
    )
