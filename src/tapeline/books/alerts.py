"""Alerts that the engine raises itself: for rejected and missing deliveries, lag and overruns.

They have the form of the alerts that a pipeline declares: name, key, severity, when raised and when
closed. Each is raised when its condition begins and closed when that ends, once, also across
restarts: what was raised is kept in a small file.
"""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tapeline.books.deliveries import Delivery
from tapeline.books.status import Status, Tick, read_document
from tapeline.declare import Pipeline
from tapeline.declare.alert import Severity
from tapeline.declare.duration import parse_duration
from tapeline.store.document import Document, Text
from tapeline.store.files import replace_file

# No function has such a name, so no alert of a pipeline has it.
REJECTED, MISSING = "delivery-rejected", "delivery-missing"
LAGS, OVERRUNS = "flow-lags", "tick-overruns"
MOST_CLOSED = 1_000  # then the oldest closed alert is forgotten
MOST_REJECTED = 100  # of more rejected files, the newest have an alert each


class EngineAlert(Document):
    """One alert, active until it is closed."""

    alert: Text = ""
    severity: Text = ""
    about: Text = ""
    key: Text = ""
    what: dict[Text, Any] = {}
    raised_at: Text = ""
    closed_at: Text | None = None


class KnownAlerts(Document):
    """What was raised so far, and since when each source is watched."""

    alerts: list[EngineAlert] = []
    watched_since: dict[Text, Text] = {}

    @property
    def active(self) -> list[EngineAlert]:
        return [one for one in self.alerts if one.closed_at is None]


@dataclass(frozen=True)
class Condition:
    """Something that is as it should not be, and since when."""

    alert: str
    key: str
    about: str
    since: datetime
    what: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "warning"


def read_alerts(path: Path) -> KnownAlerts:
    return read_document(path, KnownAlerts) or KnownAlerts()


def write_alerts(path: Path, known: KnownAlerts) -> None:
    """Replace the file. On a full disk the process continues without it."""
    with suppress(OSError):
        replace_file(path, json.dumps(known.as_dict()).encode())


def reconcile(
    known: KnownAlerts, conditions: Iterable[Condition], now: datetime
) -> tuple[KnownAlerts, list[EngineAlert]]:
    """The alerts with what begins and ends now, and those that were raised or closed by it."""
    holding = {(one.alert, one.key): one for one in conditions}
    changed: list[EngineAlert] = []
    alerts: list[EngineAlert] = []
    for one in known.alerts:
        if one.closed_at is not None or holding.pop((one.alert, one.key), None) is not None:
            alerts.append(one)
        else:
            changed.append(one.model_copy(update={"closed_at": now.isoformat()}))
            alerts.append(changed[-1])
    for condition in holding.values():
        changed.append(_raised(condition))
        alerts.append(changed[-1])
    closed = [one for one in alerts if one.closed_at is not None]
    forgotten = {id(one) for one in closed[: max(0, len(closed) - MOST_CLOSED)]}
    kept = [one for one in alerts if id(one) not in forgotten]
    return known.model_copy(update={"alerts": kept}), changed


def _raised(condition: Condition) -> EngineAlert:
    return EngineAlert(
        alert=condition.alert,
        severity=condition.severity,
        about=condition.about,
        key=condition.key,
        what=dict(condition.what),
        raised_at=condition.since.isoformat(),
        closed_at=None,
    )


def rejected(deliveries: Iterable[Delivery]) -> list[Condition]:
    """One condition for each rejected delivery that nobody has decided about."""
    return [
        Condition(
            REJECTED,
            one.id or f"{one.source}/{one.name}",
            f"{one.name} was rejected: {one.problem}",
            one.arrived_at,
            {"source": one.source, "name": one.name, "id": one.id},
        )
        for one, _ in zip(deliveries, range(MOST_REJECTED), strict=False)
        if one.arrived_at is not None
    ]


def missing(
    pipeline: Pipeline, arrived: Mapping[str, datetime | None], now: datetime
) -> list[Condition]:
    """Sources with `expect_every` whose next delivery is late. `arrived` has the last arrivals."""
    found = []
    for name, source in pipeline.sources.items():
        last = arrived.get(name)
        if source.expect_every is None or last is None:
            continue
        late = last + parse_duration(source.expect_every)
        if now > late:
            about = f"{name} has no delivery since {last:%Y-%m-%d %H:%M:%S} UTC; one is expected "
            found.append(
                Condition(MISSING, name, f"{about}every {source.expect_every}", late,
                          {"source": name, "last_delivery_at": last.isoformat()})
            )  # fmt: skip
    return found


def lagging(status: Status, limit_seconds: float, now: datetime) -> list[Condition]:
    """Sources whose oldest record that is not in the books is older than the limit."""
    if not limit_seconds or status.at is None:
        return []
    # While a batch runs nothing is published, so the lag grows with the clock.
    since = (now - datetime.fromisoformat(status.at)).total_seconds()
    lags = {
        name: one.lag_seconds + max(0.0, since)
        for name, one in status.sources.items()
        if one.lag_records
    }
    return [
        Condition(
            LAGS,
            name,
            f"{name} lags by {seconds:,.0f} seconds; notify.lag_seconds is {limit_seconds:,.0f}",
            now,
            {"source": name, "lag_seconds": round(seconds, 1)},
        )
        for name, seconds in lags.items()
        if seconds > limit_seconds
    ]


def overrunning(tick: Tick | None, now: datetime) -> list[Condition]:
    """A run by ticks whose work takes longer than its interval."""
    if tick is None:
        return []
    used = tick.used(now)
    if used <= tick.interval_seconds:
        return []
    about = f"a tick uses {words_of_tick(tick, now)}; the flow does not keep up"
    return [
        Condition(OVERRUNS, "flow", about, now, {"share": round(used / tick.interval_seconds, 3)})
    ]


def words_of_tick(tick: Tick, now: datetime) -> str:
    """How much of its interval a tick uses: '17 minutes of 15 (113 %), rising'."""
    used = tick.used(now)
    size, unit = next(
        ((size, unit) for size, unit in ((3600, "hours"), (60, "minutes"))
         if tick.interval_seconds >= size), (1, "seconds"),
    )  # fmt: skip
    share = used / tick.interval_seconds
    words = f"{used / size:,.3g} {unit} of {tick.interval_seconds / size:,.3g} ({share:.0%})"
    return f"{words}, {tick.trend}" if tick.trend else words


def first_watched(known: KnownAlerts, sources: Iterable[str], now: datetime) -> KnownAlerts:
    """The same, with the time from which each source is watched."""
    since = {name: now.isoformat() for name in sources} | known.watched_since
    return known.model_copy(update={"watched_since": since})


def since_of(known: KnownAlerts, name: str) -> datetime | None:
    """Since when a source is watched that never delivered anything."""
    said = known.watched_since.get(name)
    return datetime.fromisoformat(said) if said else None
