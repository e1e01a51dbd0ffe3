"""The doctor: what a pipeline needs from its machine and its books, each finding with its remedy.

It changes nothing and needs no Spark; a running pipeline is not disturbed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.delta import refuse_empty_log
from tapeline.books.query import newest_batch
from tapeline.connect import Kafka
from tapeline.errors import OperationError, TapelineError
from tapeline.java import OLDEST_JAVA, jars_folder, java_version, listed_jars, wrong_jars
from tapeline.run.references import rows_by_name
from tapeline.run.topics.cluster import find_partitions
from tapeline.settings import Settings
from tapeline.watch.sizes import sizes_of
from tapeline.watch.status import read_status

LEAST_DISK_BYTES = 2 * 1024**3
LEAST_DISK_DAYS = 14
CALENDARS_IN_A_TABLE = 50
REFERENCE_DAYS = 30
CLOCK_SLACK = timedelta(seconds=2)
UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}
State = Literal["well", "soon", "ill"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    words: str
    remedy: str = ""

    def facts(self) -> dict[str, str]:
        return asdict(self)


def examine(books: Books, settings: Settings, now: datetime) -> list[Finding]:
    """Everything that can be looked at, in the order in which one would mend it."""
    found = [*_java(), *_memory(settings), *_jars(), *_places(books, settings)]
    found += [*_disk(books, now), *_clock(books, now), *_references(books, settings, now.date())]
    return [*found, *_tables(books), *_positions(books), *_work(books)]


def _java() -> Iterator[Finding]:
    version = java_version()
    if version is not None and version >= OLDEST_JAVA:
        yield Finding("Java", "well", f"version {version}")
    else:
        seen = f"version {version}" if version else "none"
        yield Finding(
            "Java", "ill", f"found: {seen}", "Install Java 17 or newer: 'make setup' does."
        )


def _memory(settings: Settings) -> Iterator[Finding]:
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


def _jars() -> Iterator[Finding]:
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


def _places(books: Books, settings: Settings) -> Iterator[Finding]:
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


def _disk(books: Books, now: datetime) -> Iterator[Finding]:
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


def _clock(books: Books, now: datetime) -> Iterator[Finding]:
    last = books.cut().at
    if last is not None and last > now + CLOCK_SLACK:
        words = f"it is {now:%Y-%m-%d %H:%M:%S}, the last batch is of {last:%Y-%m-%d %H:%M:%S}"
        remedy = "Set the clock. Until it has caught up, publication times run ahead of it."
        yield Finding("clock", "ill", words, remedy)
    else:
        yield Finding("clock", "well", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def _references(books: Books, settings: Settings, today: date) -> Iterator[Finding]:
    if not books.plan.pipeline.references:
        return
    try:
        rows = rows_by_name(books.plan, settings.project)
    except TapelineError as error:
        yield Finding("references", "ill", str(error), "Put the file there.")
        return
    for name, table in rows.items():
        last = _last_day(table)
        if last is None:
            continue
        words = f"reaches to {last}"
        if last < today:
            yield Finding(f"reference {name}", "ill", words, "It has run out: bring a newer one.")
        elif last < today + timedelta(days=REFERENCE_DAYS):
            yield Finding(
                f"reference {name}", "soon", words, "Bring a newer one before it runs out."
            )
        else:
            yield Finding(f"reference {name}", "well", words)


def _last_day(table: pa.Table) -> date | None:
    """The last day of a calendar: a table that names most of the days between its ends.

    Of several calendars in one table, by venue for example, the one that ends first.
    """
    for column in table.schema:
        if not pa.types.is_date(column.type) or _reach(table[column.name]) is None:
            continue
        ends = [_reach(table[column.name])]
        for text in (field.name for field in table.schema if pa.types.is_string(field.type)):
            values = pc.unique(table[text].drop_null())
            if len(values) <= CALENDARS_IN_A_TABLE:
                parts = (table.filter(pc.equal(table[text], one)) for one in values)
                ends += [_reach(part[column.name]) for part in parts]
        return min(end for end in ends if end is not None)
    return None


def _reach(days: pa.ChunkedArray) -> date | None:
    """The last of many days between which few are missing, else none."""
    named = pc.unique(days.drop_null())
    if len(named) < REFERENCE_DAYS:
        return None
    low, high = (one.as_py() for one in pc.min_max(named).values())
    found: date = high
    return found if len(named) > 0.6 * ((high - low).days + 1) else None


def _tables(books: Books) -> Iterator[Finding]:
    home = books.layout.home
    folders = sorted(log.parent for log in home.rglob("_delta_log")) if home.exists() else []
    wrong = [(folder, words) for folder in folders if (words := _damage(folder))]
    for folder, words in wrong:
        yield Finding(f"table {folder.relative_to(home)}", "ill", words,
                      "See docs/operate.md, 'What to do on each error'.")  # fmt: skip
    if folders and not wrong:
        yield Finding("tables", "well", f"{len(folders)}: logs can be read, files are whole")


def _damage(folder: Path) -> str:
    """What is wrong with a table's log or files, from the log alone."""
    try:
        refuse_empty_log(folder)
        adds: Any = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True))
    except OperationError as error:
        return str(error)
    except (DeltaError, OSError) as error:
        return f"its log cannot be read: {error}"
    for name, size in zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True):
        path = folder / name
        if not path.exists():
            return f"{name} is gone"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes, not {size:,}"
    return ""


def _positions(books: Books) -> Iterator[Finding]:
    cut = books.cut()
    if not cut.batch:
        yield Finding("positions", "well", "no batch has been published yet")
        return
    rows = read_commits(books.layout.commits, cut.batch)
    open_batches = {r["batch"] for r in rows if r["event"] == "decided"} - {
        r["batch"] for r in rows if r["event"] == "published"
    }
    if open_batches:
        words = f"batch {max(open_batches)} is decided and not published"
        remedy = "The next start finishes it; a running pipeline is just doing so."
        yield Finding("positions", "soon", words, remedy)
    for source, position in cut.body.get("positions", {}).items():
        last = newest_batch(books.layout.tape_batches(source))
        words = f"the flow has taken batch {position['last']} of {last} on the tape"
        if position["last"] > last:
            yield Finding(f"tape {source}", "ill", words, "Restore the tape from a backup.")
        else:
            yield Finding(f"tape {source}", "well", words)


def _work(books: Books) -> Iterator[Finding]:
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
