"""The machine: Java, memory, jars, room on the disk, and its clock."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from tapeline.books import Books
from tapeline.books.sizes import sizes_of
from tapeline.errors import OperationError
from tapeline.java import OLDEST_JAVA, jars_folder, java_version, listed_jars, wrong_jars
from tapeline.operate.doctor.finding import Finding
from tapeline.settings import Settings
from tapeline.spark.class_archive import is_trusted
from tapeline.spark.jvm import class_archive as archive_here
from tapeline.words import counted

LEAST_DISK_BYTES = 2 * 1024**3
LEAST_DISK_DAYS = 14
CLOCK_SLACK = timedelta(seconds=2)
UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


def java() -> Iterator[Finding]:
    version = java_version()
    if version is not None and version >= OLDEST_JAVA:
        yield Finding("Java", "ok", f"version {version}")
    else:
        seen = f"version {version}" if version else "none"
        remedy = "Install Java 17 or newer, or run: pip install 'tapeline[java]'"
        yield Finding("Java", "error", f"found: {seen}", remedy)


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
    words = f"{free >> 20:,} MB free, {2 * wanted >> 20:,} MB needed"
    if free >= 2 * wanted:
        yield Finding("memory", "ok", words)
    else:
        yield Finding("memory", "warning", words, "Lower spark.driver_memory, or free some memory.")


def jars() -> Iterator[Finding]:
    folder = jars_folder()
    if folder is None:
        yield Finding(
            "jars", "error", "no jars found", "Run 'tapeline setup', or set TAPELINE_JARS."
        )
        return
    try:
        listed = listed_jars()
    except OperationError as error:
        yield Finding("jars", "error", str(error), "See the message.")
        return
    wrong = wrong_jars(folder, listed)
    unlisted = {str(p.relative_to(folder)) for p in folder.rglob("*.jar")} - listed.keys()
    if wrong:
        words = f"missing or changed: {', '.join(wrong)}"
        yield Finding("jars", "error", words, "Run 'tapeline setup'.")
    elif unlisted:
        words = f"not on the list, so never loaded: {', '.join(sorted(unlisted))}"
        remedy = f"Find out who put them into {folder}, then remove them."
        yield Finding("jars", "warning", words, remedy)
    else:
        yield Finding("jars", "ok", f"all {len(listed)} jars match the list")


def class_archive() -> Iterator[Finding]:
    """What makes starts quick; without it all else works."""
    version = java_version()
    if jars_folder() is None or version is None or version < OLDEST_JAVA:
        return  # said above
    try:
        archive = archive_here()
    except OperationError:
        return  # a jar is not as it should be, which is said above
    if is_trusted(archive):
        yield Finding("class archive", "ok", f"{archive.stat().st_size >> 20:,} MB")
    else:
        words = "missing or made for another Java, or others can write it; Spark starts slowly"
        yield Finding("class archive", "warning", words, "Run 'tapeline setup'.")


def disk(books: Books, now: datetime) -> Iterator[Finding]:
    home = books.layout.home
    place = next(p for p in (home, *home.parents) if p.exists())
    free = shutil.disk_usage(place).free
    sizes = sizes_of(books.layout, now)
    words = f"{free / 1024**3:,.1f} GB free, {sizes['total'] / 1024**2:,.1f} MB used"
    if free < LEAST_DISK_BYTES:
        remedy = "Free some space. The pipeline stops when the disk is full."
        yield Finding("disk", "error", words, remedy)
        return
    left = free / sizes["growth_per_day"] if sizes["growth_per_day"] else None
    if left is not None:
        words += f", full in about {counted(round(left), 'day')} at the current rate"
    if left is not None and left < LEAST_DISK_DAYS:
        remedy = "Add space, or keep archives for a shorter time (housekeeping.keep_archive)."
        yield Finding("disk", "warning", words, remedy)
    else:
        yield Finding("disk", "ok", words)


def clock(books: Books, now: datetime) -> Iterator[Finding]:
    last = books.cut().at
    if last is not None and last > now + CLOCK_SLACK:
        words = f"now {now:%Y-%m-%d %H:%M:%S}, but last batch at {last:%Y-%m-%d %H:%M:%S}"
        remedy = "Set the clock. Until then, publication times are ahead of it."
        yield Finding("clock", "error", words, remedy)
    else:
        yield Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M:%S} UTC")
