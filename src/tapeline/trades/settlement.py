"""The settlement calendar: when a trade of a venue and a date is paid, and with what.

The rule. A trade settles a number of settlement days after its trade date: the cycle of its market.
Which days those are differs by market (`Market.paid_on`). In the United States it is a weekday on
which the banks are open (no Federal Reserve holiday) and the exchange is not on a scheduled
holiday. So:

- Columbus Day and Veterans Day: the exchange trades, nothing settles. The trades of that day
  and of the session before settle together.
- Good Friday, and the Friday before a Saturday holiday: the banks are open, the exchange is on
  holiday, nothing settles.
- An unscheduled closure (a day of mourning, a storm): no session, but what was traded before
  settles on that day, as the clearing houses do.
- A date that is no session settles as the next session does, so every date has a settlement.

The netting key is the settlement day itself: trade dates that settle together share the id. In
India it is the trade date: two of them that are paid on one day are two settlements.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

from tapeline.trades.markets import US, VENUES, Market

HOME_VENUE = US.venues[0].code
EXCHANGE_ZONE = US.clock

# The next session after a date, and the longest cycle after that, are within this distance.
LOOK_AHEAD_DAYS = 31


@dataclass(frozen=True)
class Session:
    """A day of trading: its local date, and its opening and close in UTC."""

    date: date
    opens_at: datetime
    closes_at: datetime


@dataclass(frozen=True)
class Settlement:
    """What a trade date leads to: the day of payment and the key under which it is netted."""

    trade_date: date
    settlement_id: str
    settles_on: date


@dataclass(frozen=True)
class OwnDays:
    """Days that somebody named: without a session, without payment, or a session after all."""

    closed: frozenset[date] = frozenset()
    unpaid: frozenset[date] = frozenset()
    opened: frozenset[date] = frozenset()

    @property
    def years(self) -> frozenset[int]:
        return frozenset(day.year for day in self.closed | self.unpaid | self.opened)


def sessions(first: date, last: date, venue: str = HOME_VENUE) -> tuple[Session, ...]:
    """The venue's sessions from `first` to `last`, both included, early closes respected."""
    name = VENUES[venue][1].calendar
    if first.year > _last_year(name):
        return ()
    schedule = _calendar(name, first.year, last.year).schedule
    return tuple(
        Session(day.date(), opens_at.to_pydatetime(), closes_at.to_pydatetime())
        for day, opens_at, closes_at in zip(
            schedule.index, schedule["open"], schedule["close"], strict=True
        )
        if first <= day.date() <= last
    )


def latest_session(before: date, venue: str = HOME_VENUE) -> date:
    """The date of the venue's last session before a date."""
    first, last = before - timedelta(days=LOOK_AHEAD_DAYS), before - timedelta(days=1)
    return sessions(first, last, venue)[-1].date


def trading_days(first: date, last: date, venue: str, own: OwnDays | None = None) -> list[date]:
    """The dates of a venue's sessions; in years that no calendar has, as somebody named them."""
    found = {session.date for session in sessions(first, last, venue)}
    if own is None:
        return sorted(found)
    known = _last_year(VENUES[venue][1].calendar)
    further = {
        day for day in _dates(first, last) if day.year > known and day.year in own.years
        and day.weekday() < 5
    }  # fmt: skip
    opened = {day for day in own.opened if first <= day <= last}
    return sorted((found | further | opened) - own.closed)


def known_until(market: Market) -> int:
    """The last year of which the sessions of a market are known."""
    return min(_last_year(venue.calendar) for venue in market.venues)


def settlements(
    first: date, last: date, venue: str = HOME_VENUE, own: OwnDays | None = None
) -> Iterator[Settlement]:
    """One settlement for every calendar date from `first` to `last`, both included.

    It ends early where the sessions of the venue are not known any more: nothing is guessed.
    """
    market = VENUES[venue][0]
    if first.year < market.first_year:
        raise ValueError(
            f"settlements before {market.first_year} are not known in {market.name}, "
            f"{first} was asked for"
        )
    horizon = last + timedelta(days=LOOK_AHEAD_DAYS)
    traded = trading_days(first, horizon, venue, own)
    payment_days = settlement_days(first, horizon, market, own)
    moved = dict(market.moved)
    for trade_date in _dates(first, last):
        place = bisect_left(traded, trade_date)
        if place == len(traded):
            return
        session = traded[place]
        days_after = bisect_right(payment_days, session) + market.cycle_days(session) - 1
        if days_after >= len(payment_days):
            return
        settles_on = moved.get(session, payment_days[days_after])
        yield Settlement(trade_date, market.settlement_id(session, settles_on), settles_on)


def settlement_days(
    first: date, last: date, market: Market = US, own: OwnDays | None = None
) -> list[date]:
    """The days from `first` to `last`, both included, on which trades are paid."""
    closed = {
        day for year in range(first.year, last.year + 1) for day in market.bank_holidays(year)
    } | (own.unpaid if own else frozenset())
    weekdays = [day for day in _dates(first, last) if day.weekday() < 5 and day not in closed]
    if market.paid_on == "weekdays":
        return weekdays
    home = market.venues[0]
    paid = set(trading_days(first, last, home.code, own))
    if market.paid_on == "sessions and closures":
        closures = _calendar(home.calendar, first.year, last.year).adhoc_holidays
        paid |= {closure.date() for closure in closures}
    return [day for day in weekdays if day in paid]


def _dates(first: date, last: date) -> Iterator[date]:
    for days in range((last - first).days + 1):
        yield first + timedelta(days=days)


@lru_cache(maxsize=16)
def _calendar(name: str, first_year: int, last_year: int) -> Any:
    """An exchange's calendar. Its bounds are always given: the default ones follow the clock."""
    # Imported late: it brings pandas, half a second that a reader of CSV files need not pay.
    import exchange_calendars

    last_year = min(last_year, _last_year(name))
    return exchange_calendars.get_calendar(
        name, start=f"{first_year}-01-01", end=f"{last_year}-12-31"
    )


@lru_cache(maxsize=16)
def _last_year(name: str) -> int:
    """The last year of an exchange's calendar; only holidays that are listed come to an end."""
    import exchange_calendars

    bound = exchange_calendars.get_calendar(name, start="2024-01-01", end="2024-12-31").bound_max()
    return date.max.year if bound is None else int(bound.year)
