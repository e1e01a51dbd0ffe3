"""The alerts that stand and those that are over, from the books alone."""

from __future__ import annotations

from datetime import datetime

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.declare import Alert, Sink
from tapeline.deliver.outbox import Outbox, Row


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
        found += _folded(outbox.all_rows(max(at, default=0)), at)
    return sorted(found, key=lambda one: (one["raised_at"], one["alert"], one["key"]))


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
