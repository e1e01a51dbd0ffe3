"""The doctor checks the machine and the books of a pipeline; each problem comes with a fix.

It changes nothing, needs no Spark and does not disturb a running pipeline.
"""

from __future__ import annotations

from datetime import datetime

from tapeline.books import Books
from tapeline.operate.doctor.calendars import references
from tapeline.operate.doctor.finding import Finding
from tapeline.operate.doctor.machine import class_archive, clock, disk, jars, java, memory
from tapeline.operate.doctor.places import places
from tapeline.operate.doctor.tables import numbers, positions, tables
from tapeline.operate.doctor.work import ages, deliveries, pulls, work
from tapeline.settings import Settings

__all__ = ["Finding", "examine"]


def examine(books: Books, settings: Settings, now: datetime) -> list[Finding]:
    """The results of all checks, in the order in which to fix problems."""
    found = [*java(), *memory(settings), *jars(), *class_archive()]
    found += places(books, settings)
    found += [*disk(books, now), *clock(books, now), *references(books, settings, now.date())]
    found += [*tables(books), *positions(books), *numbers(books)]
    found += [*ages(books, now), *pulls(books), *deliveries(books, settings, now)]
    return [*found, *work(books)]
