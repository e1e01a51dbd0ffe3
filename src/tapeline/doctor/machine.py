"""The machine: Java, memory, jars, room on the disk, and its clock."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from tapeline.books import Books
from tapeline.doctor.finding import Finding
from tapeline.java import OLDEST_JAVA, jars_folder, java_version, listed_jars, wrong_jars
from tapeline.settings import Settings
from tapeline.watch.sizes import sizes_of

LEAST_DISK_BYTES = 2 * 1024**3
LEAST_DISK_DAYS = 14
CLOCK_SLACK = timedelta(seconds=2)
UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


def java() -> Iterator[Finding]:
    version = java_version()
    if version is not None and version >= OLDEST_JAVA:
        yield Finding("Java", "well", f"version {version}")
    else:
        seen = f"version {version}" if version else "none"
        yield Finding(
            "Java", "ill", f"found: {seen}", "Install Java 17 or newer: 'make setup' does."
        )


def memory(settings: Settings) -> Iterator[Finding]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return  # this system does not say
    said = settings.spark.driver_memory.lower()
    match = re.fullmatch(r"(\d+)([kmg])b?", said)
    wanted = int(match[1]) * UNITS[match[2]] if match else 0
    # Python, Arrow and DuckDB need about as much again as Java's heap.
    words = f"{free >> 20:,} MB free, {2 * wanted >> 20:,} MB wanted"
    if free >= 2 * wanted:
        yield Finding("memory", "well", words)
    else:
        yield Finding("memory", "soon", words, "Lower spark.driver_memory, or free some memory.")


def jars() -> Iterator[Finding]:
    folder = jars_folder()
    if folder is None:
        yield Finding("jars", "ill", "there are none", "Run 'make setup', or set TAPELINE_JARS.")
        return
    listed = listed_jars()
    wrong = wrong_jars(folder, listed)
    if not listed:
        words = f"{len(list(folder.rglob('*.jar')))}; no list to check against"
        yield Finding("jars", "well", words)
    elif wrong:
        yield Finding("jars", "ill", f"missing or other: {', '.join(wrong)}", "Run 'make setup'.")
    else:
        yield Finding("jars", "well", f"{len(listed)}, as listed")


def disk(books: Books, now: datetime) -> Iterator[Finding]:
    home = books.layout.home
    place = next(p for p in (home, *home.parents) if p.exists())
    free = shutil.disk_usage(place).free
    sizes = sizes_of(books.layout, now)
    words = f"{free / 1024**3:,.1f} GB free, {sizes['total'] / 1024**2:,.1f} MB used"
    if free < LEAST_DISK_BYTES:
        yield Finding("disk", "ill", words, "Free some space: the pipeline stops when it is full.")
        return
    left = free / sizes["growth_per_day"] if sizes["growth_per_day"] else None
    if left is not None:
        words += f", full in about {left:,.0f} days at the pace so far"
    if left is not None and left < LEAST_DISK_DAYS:
        remedy = "Add space, or keep archives for a shorter time (housekeeping.keep_archive)."
        yield Finding("disk", "soon", words, remedy)
    else:
        yield Finding("disk", "well", words)


def clock(books: Books, now: datetime) -> Iterator[Finding]:
    last = books.cut().at
    if last is not None and last > now + CLOCK_SLACK:
        words = f"it is {now:%Y-%m-%d %H:%M:%S}, the last batch is of {last:%Y-%m-%d %H:%M:%S}"
        remedy = "Set the clock. Until it has caught up, publication times run ahead of it."
        yield Finding("clock", "ill", words, remedy)
    else:
        yield Finding("clock", "well", f"{now:%Y-%m-%d %H:%M:%S} UTC")
