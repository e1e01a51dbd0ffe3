"""Alerts as events: raised when a condition begins to hold for a key, closed when it ends.

Nothing is remembered between batches. The books say what a number was and is, and which rows came
and were taken back, so an alert whose cause is corrected away closes itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tapeline.declare import Alert
from tapeline.errors import OperationError

Row = dict[str, Any]


def events(alert: Alert, came: list[Row]) -> Iterator[Row]:
    """What one batch means for an alert: at most one event per key, in the order of the books."""
    sides: dict[str, tuple[Row | None, Row | None]] = {}
    told: dict[str, Row] = {}
    for row in came:
        before, after = (one if one and _holds(alert, one) else None for one in _sides(row))
        was, stands = sides.get(row["_key"], (None, None))
        sides[row["_key"]] = (was or before, stands or after)
        told[row["_key"]] = row
    for key, (was, stands) in sides.items():
        if bool(was) == bool(stands):
            continue  # it goes on, or never held
        yield {
            "alert": alert.name,
            "event": "raised" if stands else "closed",
            "severity": alert.severity,
            "about": alert.about,
            "key": key,
            "what": stands or was,
            "_cause": told[key]["_cause"],
            "_batch": told[key]["_batch"],
            "_key": f"{alert.name}/{key}",
        }


def shape(came: pa.Schema) -> pa.Schema:
    """The types of an event, from those of what the alert looks at."""
    own = [field for field in came if not field.name.startswith("_")]
    measures = list(came.field("_new").type) if "_new" in came.names else []
    texts = [(name, pa.string()) for name in ("alert", "event", "severity", "about", "key")]
    more = [("what", pa.struct([*own, *measures])), ("_cause", pa.string()), ("_batch", pa.int64())]
    return pa.schema([*texts, *more])


def _sides(row: Row) -> tuple[Row | None, Row | None]:
    """The values before and after a row of the outbox."""
    own = {name: value for name, value in row.items() if not name.startswith("_")}
    if "_sign" in row:
        return (None, own) if row["_sign"] > 0 else (own, None)
    old, new = row["_old"], row["_new"]
    return {**own, **old} if old else None, {**own, **new} if new else None


def _holds(alert: Alert, one: dict[str, Any]) -> bool:
    try:
        return bool(alert.function(one))
    except Exception as error:
        raise OperationError(
            f"{alert.where}: {alert.name}() failed: {type(error).__name__}: {error}. Correct it "
            "and start again; nothing of this batch was sent."
        ) from error
