"""Where data comes from and goes to: folders that can be used, topics that answer."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tapeline.books import Books
from tapeline.connect import Kafka
from tapeline.doctor.finding import Finding
from tapeline.errors import TapelineError
from tapeline.run.topics.cluster import find_partitions
from tapeline.settings import Settings


def places(books: Books, settings: Settings) -> Iterator[Finding]:
    home = books.layout.home
    place = next(p for p in (home, *home.parents) if p.exists())
    if os.access(place, os.W_OK | os.X_OK):
        yield Finding("books", "well", f"{home} can be written")
    else:
        yield Finding("books", "ill", f"{place} cannot be written",
                      "Let this user write there, or choose another root.")  # fmt: skip
    for name, sink in books.plan.pipeline.sinks.items():
        if isinstance(sink.connector, Kafka):
            yield _topics(f"topic of sink {name}", sink.connector, settings)
    for name, source in books.plan.pipeline.sources.items():
        if isinstance(source.connector, Kafka):
            yield _topics(f"source {name}", source.connector, settings)
            continue
        drop = settings.within(source.connector.path)
        if not drop.exists():
            yield Finding(f"source {name}", "soon", f"{drop} is not there yet",
                          "The pipeline makes it when it starts.")  # fmt: skip
        elif os.access(drop, os.R_OK | os.W_OK | os.X_OK):
            yield Finding(f"source {name}", "well", f"{drop} can be read and taken from")
        else:
            yield Finding(f"source {name}", "ill", f"{drop} cannot be taken from",
                          "Let this user read and write there.")  # fmt: skip


def _topics(what: str, kafka: Kafka, settings: Settings) -> Finding:
    try:
        found = find_partitions(kafka, settings.kafka)
    except TapelineError as error:
        return Finding(what, "ill", str(error), "The message says what to do.")
    return Finding(what, "well", f"{kafka.path}: {len(found)} partitions answer")
