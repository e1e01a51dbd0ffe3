"""The brokerage's reference data as CSV files: instruments, clients, currencies, settlements.

All of it is invented and made from its own position in the list, so that the same call gives
the same files on every machine. A file that exists is left alone: to use your own instruments
or your own calendar, put your CSV in its place.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zlib import crc32
from zoneinfo import ZoneInfo

from tapeline.trades.markets import HOME, US, Market, market_of
from tapeline.trades.settlement import settlements

INSTRUMENTS_LIMIT = 10_000
CLIENTS_LIMIT = 1_000_000

# ISO 4217 minor units of the currencies that the report can meet.
MINOR_UNITS = {
    **dict.fromkeys(("AED", "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP"), 2),
    **dict.fromkeys(("HKD", "HUF", "IDR", "ILS", "INR", "MXN", "MYR", "NOK", "NZD", "PHP"), 2),
    **dict.fromkeys(("PLN", "RON", "SAR", "SEK", "SGD", "THB", "TRY", "TWD", "USD", "ZAR"), 2),
    **dict.fromkeys(("CLP", "ISK", "JPY", "KRW", "VND"), 0),
    **dict.fromkeys(("BHD", "JOD", "KWD", "OMR", "TND"), 3),
}

# One instrument in twenty is quoted in another currency: country of the ISIN, currency, tick.
ABROAD = (("DE", "EUR", "0.01"), ("GB", "GBP", "0.001"), ("JP", "JPY", "1"), ("FR", "EUR", "0.01"))
TICKS = ("0.01", "0.01", "0.01", "0.01", "0.01", "0.01", "0.01", "0.005", "0.0001")

NAMES = ("Alder", "Beacon", "Cobalt", "Delta", "Ember", "Fathom", "Granite", "Harbour", "Iris")
TRADES_OF = ("Foods", "Energy", "Systems", "Holdings", "Logistics", "Materials", "Therapeutics")

SEGMENTS = ("retail", "retail", "retail", "retail", "retail", "professional", "institutional")
HOME_CURRENCIES = ("USD", "USD", "USD", "USD", "USD", "USD", "USD", "EUR", "GBP", "JPY")


@dataclass(frozen=True)
class Instrument:
    """Something that can be traded: two names (ISIN and symbol), a currency, a venue, a tick."""

    isin: str
    symbol: str
    name: str
    currency: str
    venue: str
    tick: Decimal

    @property
    def spellings(self) -> tuple[str, str]:
        """The texts by which a trade may name the instrument."""
        return (self.isin, self.symbol)


def write_reference(
    folder: Path | str,
    years: tuple[int, int],
    instruments: int = 500,
    clients: int = 10_000,
    markets: Sequence[Market] = HOME,
) -> tuple[Path, ...]:
    """Write the reference files that `folder` lacks, and return the paths of those written.

    The settlement calendar covers every date of the years from the first to the last, as far as
    the sessions of its venues are known.
    """
    first_year, last_year = years
    if first_year > last_year:
        raise ValueError(f"the first year, {first_year}, is after the last one, {last_year}")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    # Under another name, since files are left alone: days at home are not those of other markets.
    days = "market_days.csv" if tuple(markets) == HOME else "market_days_by_zone.csv"
    makers: dict[str, Callable[[], list[Sequence[str]]]] = {
        "instruments.csv": lambda: instrument_rows(make_instruments(instruments, markets)),
        "clients.csv": lambda: client_rows(clients),
        "currencies.csv": currency_rows,
        "settlement_calendar.csv": lambda: settlement_rows(first_year, last_year, markets),
        days: lambda: market_day_rows(first_year, last_year, markets),
    }
    missing = [name for name in makers if not (target / name).exists()]
    for name in missing:
        write_csv(target / name, makers[name]())
    return tuple(target / name for name in missing)


def make_instruments(count: int, markets: Sequence[Market] = HOME) -> tuple[Instrument, ...]:
    """The first `count` invented instruments, of the markets in turn.

    A longer list begins with the shorter one.
    """
    if not 1 <= count <= INSTRUMENTS_LIMIT:
        raise ValueError(
            f"between 1 and {INSTRUMENTS_LIMIT:,} instruments can be made, not {count}"
        )
    return tuple(_instrument(number, markets[number % len(markets)]) for number in range(count))


def make_clients(count: int) -> tuple[str, ...]:
    """The pseudonyms of the first `count` clients."""
    if not 1 <= count <= CLIENTS_LIMIT - 1:
        raise ValueError(f"between 1 and {CLIENTS_LIMIT - 1:,} clients can be made, not {count}")
    return tuple(f"C{number:06d}" for number in range(1, count + 1))


def read_instruments(path: Path | str) -> tuple[Instrument, ...]:
    """The instruments of an instruments.csv, each once. The file holds both spellings of each."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = {row["isin"]: row for row in csv.DictReader(file)}
    return tuple(
        Instrument(
            isin=isin,
            symbol=row["symbol"],
            name=row.get("name") or row["symbol"],
            currency=row["currency"],
            venue=row["venue"],
            tick=Decimal(row.get("tick") or "0.01"),
        )
        for isin, row in rows.items()
    )


def instrument_rows(instruments: Iterable[Instrument]) -> list[Sequence[str]]:
    """One row per accepted spelling, so that a join on a trade's text finds its instrument.

    The zone of its venue, in which its days begin, is named unless all are at home.
    """
    listed = list(instruments)
    abroad = any(market_of(one.venue) is not US for one in listed)
    columns = ("instrument", "isin", "symbol", "name", "currency", "venue", "tick")
    rows: list[Sequence[str]] = [(*columns, "zone") if abroad else columns]
    for one in listed:
        facts = (one.isin, one.symbol, one.name, one.currency, one.venue, str(one.tick))
        zone = (market_of(one.venue).zone,) if abroad else ()
        rows.extend((spelling, *facts, *zone) for spelling in one.spellings)
    return rows


def client_rows(count: int) -> list[Sequence[str]]:
    """The clients, under pseudonyms: names are no part of the product."""
    rows: list[Sequence[str]] = [("client", "segment", "base_currency", "opened_on")]
    for client in make_clients(count):
        chance = crc32(client.encode())
        segment = SEGMENTS[chance % len(SEGMENTS)]
        currency = HOME_CURRENCIES[chance // 7 % len(HOME_CURRENCIES)]
        opened_on = date(2004, 1, 1) + timedelta(days=chance // 70 % 4000)
        rows.append((client, segment, currency, str(opened_on)))
    return rows


def currency_rows() -> list[Sequence[str]]:
    """The currencies, with the number of decimals that their money is rounded to."""
    return [("currency", "minor_units"), *((k, str(v)) for k, v in sorted(MINOR_UNITS.items()))]


def settlement_rows(
    first_year: int, last_year: int, markets: Sequence[Market] = HOME
) -> list[Sequence[str]]:
    """The settlement of every venue and date of the years."""
    rows: list[Sequence[str]] = [("venue", "trade_date", "settlement_id", "settles_on")]
    first, last = date(first_year, 1, 1), date(last_year, 12, 31)
    for venue in (venue for market in markets for venue in market.venues):
        rows.extend(
            (venue.code, str(one.trade_date), one.settlement_id, str(one.settles_on))
            for one in settlements(first, last, venue.code)
        )
    return rows


def market_day_rows(
    first_year: int, last_year: int, markets: Sequence[Market] = HOME
) -> list[Sequence[str]]:
    """When each day of a market's begins and ends, in UTC: days need zones, windows do not.

    The zone is named unless the market is the one at home.
    """
    columns = ("day", "starts_at", "ends_at")
    abroad = tuple(markets) != HOME
    rows: list[Sequence[str]] = [(*columns, "zone") if abroad else columns]
    for zone in dict.fromkeys(market.zone for market in markets):
        day = date(first_year, 1, 1)
        while day.year <= last_year:
            after = day + timedelta(days=1)
            named = (zone,) if abroad else ()
            rows.append((str(day), _midnight(day, zone), _midnight(after, zone), *named))
            day = after
    return rows


def _midnight(day: date, zone: str) -> str:
    local = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    return local.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def isin_check_digit(body: str) -> int:
    """The check digit of an ISIN's first eleven characters (ISO 6166)."""
    digits = "".join(str(int(character, 36)) for character in body)
    doubled = (int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(digits)))
    return -sum(value // 10 + value % 10 for value in doubled) % 10


def cusip_check_digit(body: str) -> int:
    """The check digit of a CUSIP's first eight characters: the American part of an ISIN."""
    values = (int(character, 36) * (1 + place % 2) for place, character in enumerate(body))
    return -sum(value // 10 + value % 10 for value in values) % 10


def _instrument(number: int, market: Market) -> Instrument:
    chance = crc32(f"instrument {number}".encode())
    venue = market.venues[chance // 567 % len(market.venues)]
    country, currency, tick = venue.country, market.currency, venue.tick
    if market is US:
        tick = TICKS[chance % len(TICKS)]
        # Counted rather than drawn, so that a short list too has its share of every currency.
        if number % 20 == 7:
            country, currency, tick = ABROAD[number // 20 % len(ABROAD)]
    body = country + _national_number(country, number)
    return Instrument(
        isin=f"{body}{isin_check_digit(body)}",
        symbol=_symbol(number),
        name=f"{NAMES[chance // 9 % len(NAMES)]} {TRADES_OF[chance // 81 % len(TRADES_OF)]} "
        f"{number + 1}",
        currency=currency,
        venue=venue.code,
        tick=Decimal(tick),
    )


def _national_number(country: str, number: int) -> str:
    """Nine characters that no issuer has: CUSIP keeps numbers from 990000 on for private use."""
    if country != "US":
        return f"00099{number:04d}"
    body = f"99{number:04d}10"
    return f"{body}{cusip_check_digit(body)}"


def _symbol(number: int) -> str:
    """Four letters. The factor shares no divisor with 26, so that no two numbers share one."""
    rest = (number * 150_001 + 101_009) % 26**4
    letters = []
    for _ in range(4):
        rest, letter = divmod(rest, 26)
        letters.append(chr(ord("A") + letter))
    return "".join(letters)


def write_csv(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write a file under a hidden name first: a reader never meets half a calendar."""
    hidden = path.with_name(f".{path.name}.part")
    with open(hidden, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    os.replace(hidden, path)
