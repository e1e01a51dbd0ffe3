"""A seeded simulator of trading days: decides what every terminal sends, and when it arrives.

`simulate` decides; nothing here formats. The same day gives the same records on every machine,
so a truth file can be written from one pass and the deliveries from another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush, merge
from random import Random
from zlib import crc32

from tapeline.trades import habits
from tapeline.trades.faults import KINDS, damaged
from tapeline.trades.markets import Market, market_of
from tapeline.trades.records import Day, Sent
from tapeline.trades.reference import MINOR_UNITS, Instrument, make_clients, make_instruments
from tapeline.trades.settlement import Session, latest_session, sessions

__all__ = ["Day", "Sent", "hours", "simulate"]

# How far the tail of late trades reaches back, in calendar days.
LATE_REACH_DAYS = 45
# Of the late trades, those that happened on an earlier day.
LATE_BY_DAYS = 0.15
# A correction of a correction, and a correction that overtakes what it corrects.
CORRECTED_AGAIN = 0.2
OVERTAKES = 0.1

STYLE_BITS = 8


def simulate(day: Day, instruments: Sequence[Instrument] | None = None) -> Iterator[Sent]:
    """What the terminals send on a day, in order of arrival.

    The instruments are the invented ones of the reference, unless others are given. Each trades
    in the hours of its own market, if that has a session on the day; the market of the first one
    must. Memory holds the day's moments and the records under way, not the day.
    """
    desks = _desks(day, instruments or make_instruments(day.instruments))
    under_way: list[tuple[float, int, Sent]] = []
    order = 0
    for now_seconds, place, number, moment in merge(*(desk.agenda() for desk in desks)):
        while under_way and under_way[0][0] <= now_seconds:
            yield heappop(under_way)[2]
        for sent in desks[place].decide(number, moment):
            order += 1
            heappush(under_way, (sent.offset_seconds, order, sent))
    while under_way:
        yield heappop(under_way)[2]


def hours(day: Day, instruments: Sequence[Instrument] | None = None) -> tuple[float, float]:
    """When the first market opens and the last one closes, in seconds as those of a record."""
    opened = _opened(day, instruments or make_instruments(day.instruments))
    midnight = _midnight(day, opened[0][0])
    offsets = [(s.opens_at - midnight, s.closes_at - midnight) for _, _, (s, _) in opened]
    return min(o.total_seconds() for o, _ in offsets), max(c.total_seconds() for _, c in offsets)


Opened = tuple[Market, list[Instrument], tuple[Session, tuple[Session, ...]]]


def _opened(day: Day, instruments: Sequence[Instrument]) -> list[Opened]:
    """The markets of the instruments that have a session on the day, the first one's first."""
    listed: dict[str, list[Instrument]] = {}
    for one in instruments:
        listed.setdefault(market_of(one.venue).name, []).append(one)
    opened: list[Opened] = []
    for own in listed.values():
        market = market_of(own[0].venue)
        found = _session_of(day.date, market)
        if found is not None:
            opened.append((market, own, found))
        elif not opened:
            before = latest_session(day.date, market.venues[0].code)
            raise ValueError(f"{day.date} is not a trading day; the one before it is {before}")
    return opened


def _desks(day: Day, instruments: Sequence[Instrument]) -> list[_Desk]:
    """One desk per market. Trades are shared out by instruments; what is left over goes home."""
    opened = _opened(day, instruments)
    midnight = _midnight(day, opened[0][0])
    total = sum(len(own) for _, own, _ in opened)
    shares = [day.trades * len(own) // total for _, own, _ in opened]
    shares[0] += day.trades - sum(shares)
    return [
        _Desk(place, replace(day, trades=share), each, midnight)
        for place, (share, each) in enumerate(zip(shares, opened, strict=True))
    ]


def _midnight(day: Day, market: Market) -> datetime:
    return datetime(day.date.year, day.date.month, day.date.day, tzinfo=market.clock)


class _Desk:
    """Decides one trade after the other. Holds the day's prices, its pools and its chance."""

    def __init__(self, place: int, day: Day, opened: Opened, midnight: datetime) -> None:
        market, instruments, (self.session, self.earlier) = opened
        self.place = place
        self.day = day
        # The desk at home draws as it does alone; each other one has a chance of its own.
        name = f" {market.name}" if place else ""
        self.chance = Random(f"{day.seed} {day.date}{name}")
        self.opens_seconds = int((self.session.opens_at - midnight).total_seconds())
        self.instruments = instruments
        self.price_ticks = [_opening_ticks(one, self.chance) for one in instruments]
        # Sorted: a set's order differs between processes, and each pool draws from the chance.
        currencies = sorted({one.currency for one in instruments})
        pools = {code: habits.fees(MINOR_UNITS.get(code, 2), self.chance) for code in currencies}
        self.fees = [pools[one.currency] for one in instruments]
        # Popularity must not follow the list's order, in which currencies come at fixed places.
        ranked = self.chance.sample(range(len(instruments)), len(instruments))
        self.popular = habits.popular(ranked, 0.8, self.chance)
        self.clients = habits.popular(make_clients(day.clients), 0.5, self.chance)
        self.terminals = habits.terminals(self.chance)
        self.quantities = habits.quantities(self.chance)
        self.delays = habits.normal_delays(self.chance)
        self.prefix = f"T{day.date:%Y%m%d}-{market.name}-" if place else f"T{day.date:%Y%m%d}-"
        self.suffix = f"-{day.seed}"

    def agenda(self) -> Iterator[tuple[float, int, int, int]]:
        """The day's trades, by the second of arrival: this desk, the trade's number, its moment."""
        for number, moment in enumerate(self.moments(), start=1):
            yield self.offset_seconds(moment), self.place, number, moment

    def moments(self) -> list[int]:
        """When the day's trades happen, in microseconds since the opening."""
        length = self.session.closes_at - self.session.opens_at
        return habits.moments(int(length.total_seconds() // 60), self.day.trades, self.chance)

    def offset_seconds(self, microseconds: int) -> float:
        """Seconds since midnight in the zone at home, of microseconds since the opening."""
        return self.opens_seconds + microseconds / habits.MICROSECONDS

    def decide(self, number: int, moment: int) -> list[Sent]:
        """A trade and all that follows from it: repeats, corrections, a cancellation."""
        day, draw = self.day, self.chance.random
        fate = draw()
        if fate < day.broken:
            return [damaged(self.trade(number, moment, 0), self.chance.choice(KINDS))]
        late = fate < day.broken + day.late
        sent = self.late(number, moment) if late else self.trade(number, moment, 0)
        follow_up = draw()
        if follow_up >= day.duplicates + day.corrections:
            return [sent]
        if follow_up < day.duplicates:
            return [sent, self.repeat(sent)]
        return [sent, *self.changes(sent)]

    def trade(self, number: int, moment: int, delay: int) -> Sent:
        """A good trade of the day; its terminal's own delay comes on top of `delay`."""
        bits = self.chance.getrandbits(116)
        index = self.popular[(bits & 0xFFFFF) % len(self.popular)]
        instrument = self.instruments[index]
        ticks = self.price_ticks[index] + _STEPS[bits >> 20 & 15]
        self.price_ticks[index] = ticks = max(ticks, 1)
        terminal = self.terminals[bits >> 24 & 4095]
        arrival = moment + delay + self.delays[terminal][bits >> 36 & 4095]
        return Sent(
            "kept",
            self.opens_seconds + arrival / habits.MICROSECONDS,
            f"{self.prefix}{number:07d}{self.suffix}",
            1,
            "NEW",
            self.session.opens_at + timedelta(microseconds=moment),
            "BUY" if bits >> 48 & 63 < 33 else "SELL",
            instrument.isin if bits >> 54 & 1 else instrument.symbol,
            self.quantities[bits >> 55 & 4095],
            ticks * instrument.tick,
            instrument.currency if bits >> 67 & 1 else None,
            self.clients[(bits >> 68 & 0xFFFFF) % len(self.clients)],
            terminal,
            self.fees[index][bits >> 96 & 4095],
            self.stated_date(bits >> 108),
            bits >> 88 & 255,
        )

    def stated_date(self, bits: int) -> date | None:
        """The trade date if the terminal states one; now and then it is as of the day before."""
        if bits >= 16:
            return None
        return self.earlier[-1].date if bits == 0 else self.day.date

    def late(self, number: int, moment: int) -> Sent:
        """A trade reported minutes, hours or days after it happened."""
        if self.chance.random() >= LATE_BY_DAYS:
            return self.trade(number, moment, habits.late_delay(self.chance))
        sent = self.trade(number, moment, 0)
        back = habits.late_sessions(self.chance, len(self.earlier))
        session = self.earlier[-back]
        # Within the shortest session there is, so that an early close is respected.
        opened_for = timedelta(microseconds=moment % (210 * habits.MINUTE))
        return replace(sent, traded_at=session.opens_at + opened_for, trade_date=None)

    def repeat(self, sent: Sent) -> Sent:
        """The same record, sent again."""
        delay = habits.repeat_delay(self.chance) / habits.MICROSECONDS
        return replace(sent, fate="duplicate", offset_seconds=sent.offset_seconds + delay)

    def changes(self, sent: Sent) -> Iterator[Sent]:
        """What takes a trade back or replaces it: higher versions of the same trade."""
        change = self.chance.choice((self.correct, self.correct, self.cancel))(sent, sent)
        yield change
        if change.event == "CORRECT" and self.chance.random() < CORRECTED_AGAIN:
            yield self.chance.choice((self.correct, self.cancel))(change, sent)

    def cancel(self, sent: Sent, first: Sent) -> Sent:
        """A cancellation of a trade."""
        return self._next_version(sent, first, "cancel", "CANCEL")

    def correct(self, sent: Sent, first: Sent) -> Sent:
        """A whole new version of a trade: another price, quantity, side or time."""
        fixed = self._next_version(sent, first, "correct", "CORRECT")
        what = self.chance.random()
        if what < 0.5:
            raised = fixed.price * Decimal("1.01")
            return replace(fixed, price=raised.quantize(fixed.price))
        if what < 0.8:
            return replace(fixed, quantity=fixed.quantity + self.chance.randint(1, 50))
        if what < 0.9:
            return replace(fixed, side="SELL" if fixed.side == "BUY" else "BUY")
        earlier = timedelta(seconds=self.chance.randint(60, 1800))
        return replace(fixed, traded_at=fixed.traded_at - earlier)

    def _next_version(self, sent: Sent, first: Sent, fate: str, event: str) -> Sent:
        delay = self.chance.uniform(30, 7200)
        # Arrives a moment before the version it changes, if that one is slow enough for it.
        if sent is first and self.chance.random() < OVERTAKES:
            delay = -0.01
        offset, version = sent.offset_seconds + delay, sent.version + 1
        style = self.chance.getrandbits(STYLE_BITS)
        return replace(
            sent, fate=fate, offset_seconds=offset, version=version, event=event, style=style
        )


def _session_of(day: date, market: Market) -> tuple[Session, tuple[Session, ...]] | None:
    """A market's session of a day, and those before it from which late trades come."""
    found = sessions(day - timedelta(days=LATE_REACH_DAYS), day, market.venues[0].code)
    if not found or found[-1].date != day:
        return None
    return found[-1], found[:-1]


def _opening_ticks(instrument: Instrument, chance: Random) -> int:
    """The first price of a day, in ticks: near the instrument's own level."""
    level = 2_000 + crc32(instrument.isin.encode()) % 48_000
    return int(level * chance.uniform(0.97, 1.03))


# Ticks by which a price moves from one trade to the next.
_STEPS = (-3, -2, -1, -1, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2)
