"""What is simulated: a day of trading, and the records that its terminals send."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Day:
    """A trading day to simulate. The rates are shares of `trades`.

    `trades` counts different trades, broken ones included; what is sent again (duplicates) or
    sent to change a trade (corrections and cancellations) comes on top.
    """

    seed: int
    date: date
    trades: int
    instruments: int = 500
    clients: int = 10_000
    duplicates: float = 0.01
    broken: float = 0.005
    late: float = 0.02
    corrections: float = 0.0

    def __post_init__(self) -> None:
        if self.trades < 0:
            raise ValueError(f"a day needs 0 or more trades, not {self.trades}")
        for name in ("duplicates", "broken", "late", "corrections"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as a terminal sent it, with its fate.

    The fate is kept, duplicate, correct, cancel, unknown_instrument (good until it is joined to
    its instrument) or broken:<kind>. Fields are None where the record leaves them to a default.
    """

    fate: str
    offset_seconds: float  # arrival, since midnight of the day in the zone of the first market
    trade_id: str
    version: int
    event: str
    traded_at: datetime  # in UTC
    side: str
    instrument: str
    quantity: Decimal
    price: Decimal
    currency: str | None
    client: str
    terminal: str
    fees: Decimal
    trade_date: date | None
    style: int  # which of the accepted spellings the line uses; a repeat repeats it
