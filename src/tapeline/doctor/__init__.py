"""The doctor: what a pipeline needs from its machine and its books, each finding with its remedy.

It changes nothing and needs no Spark; a running pipeline is not disturbed.
"""

from __future__ import annotations

from datetime import datetime

from tapeline.books import Books
from tapeline.doctor.calendars import references
from tapeline.doctor.finding import Finding
from tapeline.doctor.machine import clock, disk, jars, java, memory
from tapeline.doctor.places import places
from tapeline.doctor.tables import positions, tables
from tapeline.doctor.work import pulls, work
from tapeline.settings import Settings

__all__ = ["Finding", "examine"]


def examine(books: Books, settings: Settings, now: datetime) -> list[Finding]:
    """Everything that can be looked at, in the order in which one would mend it."""
    found = [*java(), *memory(settings), *jars(), *places(books, settings)]
    found += [*disk(books, now), *clock(books, now), *references(books, settings, now.date())]
    return [*found, *tables(books), *positions(books), *pulls(books), *work(books)]
