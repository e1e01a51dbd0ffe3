"""Bringing simulated records to a drop folder, and their truth to a file of its own.

A file appears in the drop folder whole, by a rename from a hidden name (one that starts with a
dot). `play` delivers every record exactly once, also when its process is killed at any moment.
"""

from __future__ import annotations

import gzip as gzip_format
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from pathlib import Path

from tapeline import OperationError
from tapeline.trades.lines import line, truth
from tapeline.trades.records import Day, Sent
from tapeline.trades.reference import Instrument
from tapeline.trades.simulator import hours, simulate

# How often a played day delivers, in seconds of the player's clock.
TICK_SECONDS = 0.25
# A played day ends this long after the close; what arrives later comes with its last files.
EVENING_SECONDS = 900


def write_truth(sents: Iterable[Sent], path: Path | str) -> int:
    """Write the records and their fates as JSON lines, and return how many there are.

    Call it before any line is formatted: the truth must not depend on the formatter.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}.part")
    count = 0
    with open(hidden, "w", encoding="utf-8") as file:
        for sent in sents:
            file.write(f"{truth(sent)}\n")
            count += 1
    os.replace(hidden, target)
    return count


def write_files(
    sents: Iterable[Sent], folder: Path | str, lines_per_file: int, gzip: bool = False
) -> list[Path]:
    """Write the records to files of `lines_per_file` lines in a drop folder; return their paths.

    Names carry the first record's trade, so that other days and seeds use other names and the
    same call uses the same ones.
    """
    if lines_per_file < 1:
        raise ValueError(f"a file needs at least one line, not {lines_per_file}")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    ending = "jsonl.gz" if gzip else "jsonl"
    paths: list[Path] = []
    rest = iter(sents)
    while chunk := list(islice(rest, lines_per_file)):
        path = target / f"trades-{chunk[0].trade_id}-{len(paths):06d}.{ending}"
        hidden = path.with_name(f".{path.name}.part")
        hidden.write_bytes(_content(chunk, gzip))
        os.replace(hidden, path)
        paths.append(path)
    return paths


def play(
    day: Day,
    folder: Path | str,
    seconds: float,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    instruments: Sequence[Instrument] | None = None,
) -> int:
    """Play a day into a drop folder within `seconds`, and return how many records it delivered.

    Every quarter second of `clock` each terminal that has something to send gets one small file.
    A second call goes on where the first one was stopped, and a finished day delivers nothing.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    progress = _Progress.load(target, day)
    progress.finish(target)
    if progress.done:
        return 0
    before = progress.sent
    for group in paced(day, before, seconds, sleep, clock, instruments):
        progress = _deliver(group, target, progress)
    replace(progress, renames=(), done=True).store(target)
    return progress.sent - before


def paced(
    day: Day,
    sent_before: int,
    seconds: float,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    instruments: Sequence[Instrument] | None = None,
) -> Iterator[list[Sent]]:
    """A day's records after the first `sent_before`, a quarter of a second of `clock` at a time.

    Each group comes at the end of its tick: what it holds has all been sent by then.
    """
    due = _due(hours(day, instruments), seconds)
    rest = islice(simulate(day, instruments), sent_before, None)
    started: float | None = None
    for tick, group in groupby(rest, key=lambda sent: int(due(sent) / TICK_SECONDS)):
        if started is None:
            started = clock() - tick * TICK_SECONDS
        wait_seconds = started + (tick + 1) * TICK_SECONDS - clock()
        if wait_seconds > 0:
            sleep(wait_seconds)
        yield list(group)


@dataclass(frozen=True)
class _Progress:
    """How far a day was played. Stored before the files it names appear under their names."""

    day: Day
    sent: int = 0
    renames: tuple[tuple[str, str], ...] = ()
    done: bool = False

    @staticmethod
    def path(folder: Path, day: Day) -> Path:
        return folder / f".simulator-{day.date:%Y%m%d}-{day.seed}.json"

    @classmethod
    def load(cls, folder: Path, day: Day) -> _Progress:
        path = cls.path(folder, day)
        if not path.exists():
            return cls(day)
        stored = json.loads(path.read_text(encoding="utf-8"))
        wanted = as_json(day)
        if stored["day"] != wanted:
            other = {name: was for name, was in stored["day"].items() if wanted.get(name) != was}
            raise OperationError(
                f"{path} belongs to another day: {other}. Use another seed, or remove the file to "
                "play this day from the start."
            )
        renames = tuple((hidden, name) for hidden, name in stored["renames"])
        return cls(day, stored["sent"], renames, stored["done"])

    def store(self, folder: Path) -> None:
        path = self.path(folder, self.day)
        content = {
            "day": as_json(self.day),
            "sent": self.sent,
            "renames": self.renames,
            "done": self.done,
        }
        hidden = path.with_name(f"{path.name}.part")
        hidden.write_text(json.dumps(content), encoding="utf-8")
        os.replace(hidden, path)

    def finish(self, folder: Path) -> None:
        """Give the decided files their names. A hidden file that is gone has been given its."""
        for hidden, name in self.renames:
            if (folder / hidden).exists():
                os.replace(folder / hidden, folder / name)


def _deliver(sents: list[Sent], folder: Path, progress: _Progress) -> _Progress:
    """Write one file per terminal, decide them by storing the progress, then rename them."""
    renames = []
    for terminal in sorted({sent.terminal for sent in sents}):
        # Named by the count so far, so that a change of speed cannot reuse a name.
        day = progress.day
        name = f"{terminal.lower()}-{day.date:%Y%m%d}-{day.seed}-{progress.sent:09d}.jsonl"
        hidden = f".{name}.part"
        own = [sent for sent in sents if sent.terminal == terminal]
        (folder / hidden).write_bytes(_content(own, gzip=False))
        renames.append((hidden, name))
    decided = replace(progress, sent=progress.sent + len(sents), renames=tuple(renames))
    decided.store(folder)
    decided.finish(folder)
    return decided


def _due(hours: tuple[float, float], seconds: float) -> Callable[[Sent], float]:
    """When a record is due on the player's clock, in seconds since the start of the day."""
    opens_seconds, closes_seconds = hours
    length = closes_seconds - opens_seconds + EVENING_SECONDS

    def due(sent: Sent) -> float:
        return seconds * min((sent.offset_seconds - opens_seconds) / length, 1.0)

    return due


def _content(sents: Sequence[Sent], gzip: bool) -> bytes:
    content = b"".join([line(sent) + b"\n" for sent in sents])
    # Without the time of writing in its header, the same records give the same bytes.
    return gzip_format.compress(content, compresslevel=6, mtime=0) if gzip else content


def as_json(day: Day) -> dict[str, str | int | float]:
    return {**asdict(day), "date": str(day.date)}
