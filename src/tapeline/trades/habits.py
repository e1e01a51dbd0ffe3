"""The habits of a market: when it trades, what is liked, how long a terminal takes to report.

Everything is drawn in advance into pools, from which the simulator picks by a few random bits:
a million trades are then a matter of seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import exp
from random import Random
from typing import TypeVar

Item = TypeVar("Item")

MICROSECONDS = 1_000_000
MINUTE = 60 * MICROSECONDS

TERMINALS = ("DESKTOP", "WEB", "MOBILE")
TERMINAL_WEIGHTS = (45, 30, 25)

POOL_SIZE = 4096


def moments(minutes: int, count: int, chance: Random) -> list[int]:
    """When `count` trades happen, in microseconds since the opening, in order of time."""
    weights = [_activity(minute, minutes) for minute in range(minutes)]
    draw = chance.random
    chosen = chance.choices(range(minutes), weights=weights, k=count)
    return sorted(minute * MINUTE + int(draw() * MINUTE) for minute in chosen)


def _activity(minute: int, minutes: int) -> float:
    """How busy a minute is: an opening burst, a lull at lunch, a closing burst."""
    opening = 2.6 * exp(-minute / 14)
    closing = 3.2 * exp(-(minutes - 1 - minute) / 11)
    lunch = 0.5 * exp(-(((minute / minutes) - 0.48) ** 2) / 0.02)
    return 1 + opening + closing - lunch


def normal_delays(chance: Random) -> dict[str, list[int]]:
    """Microseconds from a trade to its arrival, by terminal, when nothing is wrong."""
    return {
        "DESKTOP": [int(chance.uniform(0.02, 0.9) * MICROSECONDS) for _ in range(POOL_SIZE)],
        "WEB": [int(chance.uniform(1, 3) * MICROSECONDS) for _ in range(POOL_SIZE)],
        # Most phones answer within seconds; some sit in a lift.
        "MOBILE": [
            int((2 + 38 * chance.betavariate(1, 5)) * MICROSECONDS) for _ in range(POOL_SIZE)
        ],
    }


def late_delay(chance: Random) -> int:
    """Microseconds by which a late trade of the same day is late: minutes to hours."""
    if chance.random() < 0.7:
        return int(chance.uniform(6, 60) * MINUTE)
    return int(chance.uniform(60, 360) * MINUTE)


def late_sessions(chance: Random, most: int) -> int:
    """How many sessions ago a trade of the long tail happened: mostly a few, at most `most`."""
    return min(1 + int(chance.expovariate(1 / 3)), most)


def repeat_delay(chance: Random) -> int:
    """Microseconds after which a terminal sends the same bytes again."""
    kind = chance.random()
    if kind < 0.80:
        return int(chance.uniform(0.05, 10) * MINUTE)
    if kind < 0.95:
        return int(chance.uniform(60, 120) * MINUTE)
    return int(chance.uniform(20 * 60, 28 * 60) * MINUTE)


def popular(items: Sequence[Item], steepness: float, chance: Random) -> list[Item]:
    """A pool in which every item occurs and the first ones occur most."""
    weights = [(rank + 1) ** -steepness for rank in range(len(items))]
    extra = max(POOL_SIZE, 3 * len(items))
    return [*items, *chance.choices(items, weights=weights, k=extra)]


def terminals(chance: Random) -> list[str]:
    """A pool of terminals in proportion to their use."""
    return chance.choices(TERMINALS, weights=TERMINAL_WEIGHTS, k=POOL_SIZE)


def quantities(chance: Random) -> list[Decimal]:
    """A pool of quantities: round lots, odd lots, and fractions of up to six decimals."""
    return [_quantity(chance) for _ in range(POOL_SIZE)]


def _quantity(chance: Random) -> Decimal:
    kind = chance.random()
    if kind < 0.55:
        return Decimal(100 * min(1 + int(chance.expovariate(1 / 4)), 200))
    if kind < 0.93:
        return Decimal(chance.randint(1, 99))
    decimals = chance.randint(1, 6)
    return Decimal(chance.randint(1, 20 * 10**decimals)).scaleb(-decimals)


def fees(minor_units: int, chance: Random) -> list[Decimal]:
    """A pool of fees: often none, mostly whole minor units, some finer than the currency."""
    if minor_units == 0:
        return [Decimal(chance.choice((0, chance.randint(50, 900)))) for _ in range(POOL_SIZE)]
    return [_fee(minor_units, chance) for _ in range(POOL_SIZE)]


def _fee(minor_units: int, chance: Random) -> Decimal:
    kind = chance.random()
    if kind < 0.2:
        return Decimal(0)
    if kind < 0.85:
        return Decimal(chance.randint(1, 1500)).scaleb(-minor_units)
    return Decimal(chance.randint(1, 99_999)).scaleb(-4)
