"""What is at work: the flow, its sinks, and the pulls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tapeline.books import Books
from tapeline.doctor.finding import Finding
from tapeline.watch.pulls import read_pulls, words_of
from tapeline.watch.status import read_status


def pulls(books: Books) -> Iterator[Finding]:
    """Pulls that were ever asked for; a system in trouble is asked again by itself."""
    pulling = read_pulls(books.layout)
    running = pulling["running"]
    for pull in pulling["pulls"]:
        what, words, incident = f"pull {pull['pull']}", words_of(pull, running), pull["incident"]
        if incident and (incident["given_up"] or not running):
            remedy = "The message says what to do; then start 'tapeline pull' again."
            yield Finding(what, "ill", words, remedy)
        elif incident:
            yield Finding(what, "soon", words, "It is tried again by itself: look again.")
        elif pull["drop_folder_full"]:
            remedy = "Its drop folder is full: see whether the pipeline runs."
            yield Finding(what, "soon", words, remedy)
        elif not running and not pull["caught_up"]:
            yield Finding(what, "soon", words, "More has to come: start 'tapeline pull'.")
        else:
            yield Finding(what, "well", words)


def work(books: Books) -> Iterator[Finding]:
    status = read_status(books.layout.status)
    if status is None:
        return
    if status.get("failure"):
        yield Finding("flow", "ill", str(status["failure"]), "The message says what to do.")
    yield from _sinks(status)
    for name, problem in status.get("problems", {}).items():
        yield Finding(name, "ill", problem, "The message says what to do.")
    if not status.get("failure") and not status.get("problems"):
        running = "runs" if status["running"] else "does not run"
        yield Finding("flow", "well", f"{running}, batch {status['batch']}")


def _sinks(status: dict[str, Any]) -> Iterator[Finding]:
    for name, facts in status.get("sinks", {}).items():
        if facts["problem"]:
            remedy = "The message says what to do."
            yield Finding(f"sink {name}", "ill", f"stands still: {facts['problem']}", remedy)
        elif status["running"] and facts["lag_batches"]:
            words = f"{facts['lag_batches']} batches behind"
            remedy = "Look again: what it delivers to may be slow."
            yield Finding(f"sink {name}", "soon", words, remedy)
        else:
            words = f"has delivered batch {facts['delivered_batch']}"
            yield Finding(f"sink {name}", "well", words)
