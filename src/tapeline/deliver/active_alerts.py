"""The alerts that stand and those that are over, from the books alone."""

from __future__ import annotations

from datetime import UTC, datetime

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.declare import Alert, Sink
from tapeline.deliver.outbox import Outbox, Row

# What was raised on a view before these batches has no time: `raised_at` is None.
BATCHES_OF_VIEWS = 200


def _all_of(alert: Alert) -> Sink:
    """The alert's events as a sink would get them all."""
    return Sink(alert.name, lambda events: events, None, alert.name, "alerts", alert.where)


def alerts(books: Books) -> list[Row]:
    """Every alert that was raised, in order, with when that was and when it was closed."""
    commits = read_commits(books.layout.commits)
    at = {row.batch: row.at for row in commits if row.publishes}
    found: list[Row] = []
    for alert in books.plan.pipeline.alerts.values():
        outbox = Outbox(books.plan, books.layout, _all_of(alert))
        last = max(at, default=0)
        if alert.reads in books.plan.pipeline.views:
            found += _on_view(outbox, last, at)
        else:
            found += _folded(outbox.all_rows(last), at)
    first = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda one: (one["raised_at"] or first, one["alert"], one["key"]))


def _on_view(outbox: Outbox, last: int, at: dict[int, datetime]) -> list[Row]:
    """Of a view only the last batches are compared: each one costs as much as the view."""
    start = max(0, last - BATCHES_OF_VIEWS)
    earlier = outbox.events_at(start) if start else []
    untold = {batch: moment for batch, moment in at.items() if batch > start}
    return _folded([*earlier, *outbox.all_rows(last, start)], untold)


def _folded(events: list[Row], at: dict[int, datetime]) -> list[Row]:
    raised: list[Row] = []
    opened: dict[str, Row] = {}
    for event in events:
        moment = at.get(event["_batch"])
        if event["event"] == "raised":
            one = {name: event[name] for name in ("alert", "severity", "about", "key", "what")}
            opened[event["key"]] = {**one, "raised_at": moment, "closed_at": None}
            raised.append(opened[event["key"]])
        elif event["key"] in opened:
            opened.pop(event["key"])["closed_at"] = moment
    return raised
