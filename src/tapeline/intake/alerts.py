"""The engine's own alerts as they stand, also while no pipeline runs."""

from __future__ import annotations

from datetime import datetime

from tapeline.books.alerts import (
    MISSING,
    REJECTED,
    EngineAlert,
    missing,
    read_alerts,
    reconcile,
    rejected,
    since_of,
)
from tapeline.books.status import read_status
from tapeline.intake.deliveries import Deliveries


def engine_alerts(deliveries: Deliveries, now: datetime) -> list[EngineAlert]:
    """Active and closed alerts of the engine, in the order in which they were raised.

    A running pipeline keeps them up to date. Without one, deliveries are looked at here: a file may
    have been retried, and the next delivery may be late by now.
    """
    books = deliveries.books
    known = read_alerts(books.layout.alerts)
    status = read_status(books.layout.status)
    if status is None or not status.running:
        of_deliveries = [one for one in known.alerts if one.alert in (REJECTED, MISSING)]
        others = [one for one in known.alerts if one not in of_deliveries]
        arrived = {
            name: last or since_of(known, name) for name, last in deliveries.last_arrivals().items()
        }
        conditions = [
            *rejected(deliveries.undecided()),
            *missing(books.plan.pipeline, arrived, now),
        ]
        looked = known.model_copy(update={"alerts": of_deliveries})
        known = known.model_copy(
            update={"alerts": [*others, *reconcile(looked, conditions, now)[0].alerts]}
        )
    return sorted(known.alerts, key=lambda one: one.raised_at)
