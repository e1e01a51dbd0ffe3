"""Checks of the running parts: the flow, its sinks and the pulls."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tapeline.books import Books
from tapeline.books.alerts import LAGS, MISSING, OVERRUNS, REJECTED
from tapeline.books.pulls import read_pulls, words_of
from tapeline.books.reference_ages import read_ages
from tapeline.books.status import Status, read_status
from tapeline.books.stuck import words_of_stuck
from tapeline.intake.alerts import engine_alerts
from tapeline.intake.deliveries import Deliveries
from tapeline.operate.doctor.finding import Finding
from tapeline.settings import Settings
from tapeline.words import counted

REMEDIES = {
    MISSING: "Ask the sender, or see why its files do not arrive.",
    LAGS: "See 'tapeline status' for the lag; a larger machine or a longer limit may help.",
    OVERRUNS: "Choose a longer interval, or make a batch quicker: see docs/performance.md.",
}


def pulls(books: Books) -> Iterator[Finding]:
    """Pulls that have run at least once. A system that does not answer is asked again."""
    pulling = read_pulls(books.layout)
    running = pulling.running
    for pull in pulling.pulls:
        what, words, incident = f"pull {pull.pull}", words_of(pull, running), pull.incident
        if incident and (incident.given_up or not running):
            remedy = "See the message, then start 'tapeline pull' again."
            yield Finding(what, "error", words, remedy)
        elif incident:
            yield Finding(what, "warning", words, "Nothing yet: it is retried automatically.")
        elif pull.drop_folder_full:
            remedy = "Its input folder is full. Check that the pipeline is running."
            yield Finding(what, "warning", words, remedy)
        elif not running and not pull.caught_up:
            remedy = "More records are waiting. Start 'tapeline pull'."
            yield Finding(what, "warning", words, remedy)
        else:
            yield Finding(what, "ok", words)


def deliveries(books: Books, settings: Settings, now: datetime) -> Iterator[Finding]:
    """Rejected files, and the engine's own alerts."""
    known = Deliveries(books, settings.project)
    rejected = known.undecided()
    if rejected:
        words = f"{counted(len(rejected), 'rejected file')}; the newest is {rejected[0].name}: "
        remedy = "Correct it, then 'tapeline deliveries retry NAME', or dismiss it."
        yield Finding("deliveries", "warning", f"{words}{rejected[0].problem}", remedy)
    for one in engine_alerts(known, now):
        if one.closed_at is None and one.alert != REJECTED:
            yield Finding(one.alert, "warning", one.about, REMEDIES.get(one.alert, ""))


def ages(books: Books, now: datetime) -> Iterator[Finding]:
    """References that live elsewhere: how old the version is that batches use."""
    for one in read_ages(books.layout):
        what, words = f"reference {one.reference}", one.words(now)
        if one.reference not in books.plan.pipeline.references:
            continue
        if one.error:
            remedy = "Batches use the last version. Fix what the message names; it is read again."
            yield Finding(what, "warning", words, remedy)
        else:
            yield Finding(what, "ok", words)


def work(books: Books) -> Iterator[Finding]:
    status = read_status(books.layout.status)
    if status is None:
        return
    if status.stuck:
        yield Finding("flow", "error", words_of_stuck(status.stuck), _remedy(status))
    elif status.failure:
        yield Finding("flow", "error", status.failure, "See the message.")
    yield from _sinks(status)
    for name, problem in status.problems.items():
        yield Finding(name, "error", problem, "See the message.")
    if not status.stuck and not status.failure and not status.problems:
        running = "running" if status.running else "not running"
        yield Finding("flow", "ok", f"{running}, last batch {status.batch}")


def _remedy(status: Status) -> str:
    """How to fix a flow that cannot advance."""
    again = "then start the pipeline again"
    if status.running:
        gone = any(one.given_up for one in status.incidents)
        again = "then restart the pipeline" if gone else "the batch is retried automatically"
    return f"Fix what the message names; {again}. Nothing is lost: input is still recorded."


def _sinks(status: Status) -> Iterator[Finding]:
    for name, sink in status.sinks.items():
        if sink.problem:
            remedy = "See the message."
            yield Finding(f"sink {name}", "error", f"stopped: {sink.problem}", remedy)
        elif status.running and sink.lag_batches:
            words = f"lag: {counted(sink.lag_batches, 'batch')}"
            remedy = "Check again later. The destination may be slow."
            yield Finding(f"sink {name}", "warning", words, remedy)
        else:
            words = _delivered(sink.delivered_batch)
            yield Finding(f"sink {name}", "ok", words)


def _delivered(batch: int | None) -> str:
    return f"delivered up to batch {batch}" if batch else "nothing delivered yet"
