"""The markets: their venues, hours, money, and the rules by which their trades are paid.

What is known of each, and where it comes from:

- Sessions are those of exchange_calendars. Bombay's end with 2026: later dates have no settlement
  until a newer release, or a calendar of your own, brings them.
- US: three, two, then one settlement day after the trade date, by date.
- IN: T+2 from April 2003, T+1 from 27 January 2023. From February 2022 on, groups of shares went
  over month by month; a calendar has one settlement per venue and date, so until the last group
  had gone all are T+2 here. Days on which the exchanges trade and the banks do not pay are known
  for 2024 to 2026 (`holidays.mumbai`).
- EU, GB, CH: T+2 from 6 October 2014, T+1 from 11 October 2027. Euros are paid on T2's days; for
  pounds and francs every session is taken for a day of payment.

A calendar of your own, in place of reference/settlement_calendar.csv, takes precedence; days of
your own let it reach further (`own_days`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal
from zoneinfo import ZoneInfo

from tapeline import DeclarationError, option
from tapeline.trades import holidays


@dataclass(frozen=True)
class Venue:
    """A place of trading: its code, its calendar, and what is listed there."""

    code: str
    calendar: str  # the name by which exchange_calendars knows it
    country: str  # of the ISINs
    tick: str


@dataclass(frozen=True)
class Market:
    """Venues whose trades are paid by the same rules."""

    name: str
    zone: str
    currency: str
    venues: tuple[Venue, ...]
    # Settlement days from trade to payment, by the trade date from which each cycle applies.
    cycles: tuple[tuple[date, int], ...]
    bank_holidays: Callable[[int], frozenset[date]] = holidays.none_of_its_own
    # Trades are paid when the banks are open and it is a session; or also on unscheduled closures
    # of the exchange; or on every weekday, whatever the exchange does.
    paid_on: Literal["sessions", "sessions and closures", "weekdays"] = "sessions"
    # Trade dates that are paid on one day are one settlement, or one each.
    netted_by: Literal["settlement day", "trade date"] = "settlement day"
    # Trade dates whose payment the clearing houses moved.
    moved: tuple[tuple[date, date], ...] = ()

    @property
    def clock(self) -> ZoneInfo:
        """The zone in which its days begin and end."""
        return ZoneInfo(self.zone)

    @property
    def first_year(self) -> int:
        """The first whole year for which a cycle is known."""
        return self.cycles[0][0].year + 1

    def cycle_days(self, trade_date: date) -> int:
        """How many settlement days lie between a trade and its payment, on a trade date."""
        return next(days for start, days in reversed(self.cycles) if start <= trade_date)

    def settlement_id(self, session: date, settles_on: date) -> str:
        """The netting key. A trade date is marked: no settlement day can be taken for it."""
        if self.netted_by == "trade date":
            return f"{self.name}-T{session}"
        return f"{self.name}-{settles_on}"


EUROPEAN_CYCLES = ((date(2014, 10, 6), 2), (date(2027, 10, 11), 1))

US = Market(
    "US",
    "America/New_York",
    "USD",
    (Venue("XNYS", "XNYS", "US", "0.01"), Venue("XNAS", "XNYS", "US", "0.01")),
    # Before June 1995 the cycle was five days; no one asks this product for those years.
    ((date(1995, 6, 7), 3), (date(2017, 9, 5), 2), (date(2024, 5, 28), 1)),
    holidays.federal_reserve,
    paid_on="sessions and closures",
)
IN = Market(
    "IN",
    "Asia/Kolkata",
    "INR",
    (Venue("XNSE", "XBOM", "IN", "0.05"), Venue("XBOM", "XBOM", "IN", "0.05")),
    ((date(2003, 4, 1), 2), (date(2023, 1, 27), 1)),
    holidays.mumbai,
    netted_by="trade date",
    # A third trade date on the 9th was too much.
    moved=((date(2025, 9, 8), date(2025, 9, 10)),),
)
EU = Market(
    "EU",
    "Europe/Berlin",
    "EUR",
    (
        Venue("XETR", "XETR", "DE", "0.01"),
        Venue("XPAR", "XPAR", "FR", "0.01"),
        Venue("XAMS", "XAMS", "NL", "0.01"),
    ),
    EUROPEAN_CYCLES,
    holidays.t2,
    paid_on="weekdays",
)
GB = Market("GB", "Europe/London", "GBP", (Venue("XLON", "XLON", "GB", "0.001"),), EUROPEAN_CYCLES)
CH = Market("CH", "Europe/Zurich", "CHF", (Venue("XSWX", "XSWX", "CH", "0.02"),), EUROPEAN_CYCLES)

KNOWN = {market.name: market for market in (US, IN, EU, GB, CH)}
HOME = (US,)  # unless others are chosen
VENUES = {venue.code: (market, venue) for market in KNOWN.values() for venue in market.venues}


def market_of(venue: str) -> Market:
    """The market of a venue; one that nobody knows is taken for a venue at home."""
    return VENUES[venue][0] if venue in VENUES else US


def named(text: str) -> tuple[Market, ...]:
    """The markets that a text names, separated by commas, such as "US,IN,EU"."""
    names = list(dict.fromkeys(name.strip().upper() for name in text.split(",")))
    for name in names:
        if name not in KNOWN:
            raise DeclarationError(
                f"trades.markets: '{name}' is not a market. Use some of {', '.join(KNOWN)}, "
                "comma-separated; the first one is home."
            )
    return tuple(KNOWN[name] for name in names)


def checked_zone(zone: str) -> str:
    """A time zone by its name, refused if nobody knows it."""
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise DeclarationError(
            f"trades.zone: '{zone}' is not a time zone. Write for example Asia/Kolkata."
        ) from None
    return zone


def chosen() -> tuple[Market, ...]:
    """The markets of the option trades.markets. The first one is home."""
    return named(option("trades.markets", "US"))
