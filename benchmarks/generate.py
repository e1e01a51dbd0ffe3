"""Makes the inputs of the benchmarks, with their truth, and keeps them for the next run.

    python -m benchmarks.generate million --scale 0.1

An input is a folder: `drop/` (the files), `reference/` (the CSV files), `truth.jsonl` (written
before any line is formatted) and `expected.json` (the window sums, by the oracle). Inputs live
under $TAPELINE_BENCH, else under `.bench/` of the repository. Write nothing into them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks import sums

REPOSITORY = Path(__file__).resolve().parent.parent
# Long past on every machine: a record from the future is a broken one.
FIRST_DAY = date(2025, 6, 2)
SEED = 7
# Raise it when the layout of an input or the simulator changes: old ones are then made anew.
LAYOUT = 1


@dataclass(frozen=True)
class Shape:
    """The size of an input: trades a day, days, and lines a file (or files a day)."""

    trades_per_day: int
    days: int = 1
    lines_per_file: int | None = None
    files_per_day: int | None = None


SHAPES = {
    "million": Shape(1_000_000, files_per_day=100),
    "ten_million": Shape(200_000, days=50, lines_per_file=50_000),
    "stream": Shape(60_000, lines_per_file=200),
    "history": Shape(200_000, days=21, lines_per_file=10_000),
    "hundred_days": Shape(20_000, days=101, lines_per_file=10_000),
    "backlog": Shape(200_000, days=114, lines_per_file=50_000),
    "large_batches": Shape(400_000, lines_per_file=20_000),
    "burst": Shape(100_000, days=5, lines_per_file=200),
    "day1": Shape(200_000, lines_per_file=10_000),
}


@dataclass(frozen=True)
class Input:
    """An input on disk. `cumulative` says how many trades are counted after each file."""

    folder: Path
    files: tuple[Path, ...]
    lines: int
    trades: int
    checksum: str
    sums: tuple[sums.Row, ...]
    cumulative: tuple[int, ...]
    verdicts: dict[str, int]

    @property
    def drop(self) -> Path:
        return self.folder / "drop"

    @property
    def reference(self) -> Path:
        return self.folder / "reference"

    @classmethod
    def load(cls, folder: Path | str) -> Input:
        folder = Path(folder)
        stored = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        return cls(
            folder=folder,
            files=tuple(folder / "drop" / name for name in stored["files"]),
            lines=stored["lines"],
            trades=stored["trades"],
            checksum=stored["checksum"],
            sums=tuple(tuple(one) for one in stored["sums"]),
            cumulative=tuple(stored["cumulative"]),
            verdicts=stored["verdicts"],
        )


def bench_folder() -> Path:
    """Where inputs and runs live. It ignores itself in git."""
    folder = Path(os.environ.get("TAPELINE_BENCH") or REPOSITORY / ".bench").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    return folder


def make(name: str, scale: float = 1.0, corrections: float = 0.0, clean: bool = False) -> Input:
    """The input of a name, made if it is not there yet.

    `scale` multiplies the trades of a day. A `clean` input has no repeats and no broken or late
    records. With corrections the counts after each file are not known: they may fall.
    """
    shape = SHAPES[name]
    variant = f"{'-clean' * clean}{f'-c{corrections:g}' if corrections else ''}"
    folder = bench_folder() / "inputs" / f"{name}-x{scale:g}{variant}-s{SEED}-v{LAYOUT}"
    if not (folder / "expected.json").exists():
        _make(folder, shape, _days(shape, scale, corrections, clean))
    return Input.load(folder)


def deliver(made: Input, drop: Path | str) -> None:
    """Copy an input's files to a drop folder, in order and each by a rename: a backlog."""
    target = Path(drop)
    target.mkdir(parents=True, exist_ok=True)
    for path in made.files:
        hidden = target / f".{path.name}.part"
        shutil.copyfile(path, hidden)
        hidden.rename(target / path.name)


def _days(shape: Shape, scale: float, corrections: float, clean: bool) -> list[Any]:
    from tapeline.trades.settlement import sessions
    from tapeline.trades.simulator import Day

    reach = FIRST_DAY + timedelta(days=2 * shape.days + 7)
    dates = [session.date for session in sessions(FIRST_DAY, reach)][: shape.days]
    rates = {"duplicates": 0.0, "broken": 0.0, "late": 0.0} if clean else {}
    trades = max(1, round(shape.trades_per_day * scale))
    return [Day(SEED, day, trades, corrections=corrections, **rates) for day in dates]


def _make(folder: Path, shape: Shape, days: list[Any]) -> None:
    from tapeline.trades.delivery import write_files
    from tapeline.trades.reference import write_reference
    from tapeline.trades.simulator import simulate

    # In a hidden folder first: what stands under its name is whole.
    hidden = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(hidden, ignore_errors=True)
    write_reference(hidden / "reference", (FIRST_DAY.year, FIRST_DAY.year))
    answer = _Answer(hidden)
    for day in days:
        lines = answer.add_truth(day)
        per_file = shape.lines_per_file or ceil(lines / (shape.files_per_day or 1))
        files = write_files(simulate(day), hidden / "drop", per_file)
        answer.add_files(files, per_file)
    answer.store(days)
    (hidden / ".day.jsonl").unlink()
    shutil.rmtree(folder, ignore_errors=True)
    hidden.rename(folder)


class _Answer:
    """Collects the truth and what follows from it, a day at a time to stay small in memory.

    No trade is sent on two days, so the sums of the days add up to the sums of the input.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.day_truth = folder / ".day.jsonl"
        self.oracle = _oracle()
        self.reference = self.oracle.Reference.read(folder / "reference")
        self.windows: dict[tuple[Any, ...], list[Any]] = {}
        self.verdicts: dict[str, int] = {}
        self.files: list[str] = []
        self.cumulative: list[int] = []
        self.lines = 0
        self.counted = 0

    def add_truth(self, day: Any) -> int:
        """Write a day's truth, book it, and return its number of records."""
        from tapeline.trades.delivery import write_truth
        from tapeline.trades.simulator import simulate

        lines = write_truth(simulate(day), self.day_truth)
        self.lines += lines
        with (
            open(self.folder / "truth.jsonl", "ab") as whole,
            open(self.day_truth, "rb") as part,
        ):
            shutil.copyfileobj(part, whole)
        expected = self.oracle.expect(self.oracle.read_truth(self.day_truth), self.reference)
        for key, window in expected.windows.items():
            totals = self.windows.setdefault(key, [0, 0, 0])
            for place, name in enumerate(("total_buy", "total_sell", "trades")):
                totals[place] += getattr(window, name)
        for verdict, count in expected.trades.items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + count
        return lines

    def add_files(self, files: list[Path], per_file: int) -> None:
        """Count the trades that each file brings."""
        self.files += [path.name for path in files]
        seen: set[str] = set()
        records = self.oracle.read_truth(self.day_truth)
        for chunk in _chunks(records, per_file):
            for record in chunk:
                known = record["instrument"] in self.reference.instruments
                if known and not record["fate"].startswith("broken:"):
                    seen.add(record["trade_id"])
            self.cumulative.append(self.counted + len(seen))
        self.counted += len(seen)

    def store(self, days: list[Any]) -> None:
        rows = [sums.row((*key, *totals)) for key, totals in sorted(self.windows.items())]
        exact = self.cumulative[-1] == sums.trades(rows)
        if not exact and not any(day.corrections for day in days):
            raise AssertionError(f"{self.cumulative[-1]} counted, {sums.trades(rows)} expected")
        content = {
            "days": [asdict(day) for day in days],
            "lines": self.lines,
            "trades": sums.trades(rows),
            "verdicts": self.verdicts,
            "checksum": sums.checksum(rows),
            "files": self.files,
            "cumulative": self.cumulative if exact else [],
            "sums": rows,
        }
        text = json.dumps(content, default=str)
        (self.folder / "expected.json").write_text(text, encoding="utf-8")


def _chunks(records: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(records)
    while chunk := list(islice(rest, size)):
        yield chunk


def _oracle() -> Any:
    from tapeline.trades import oracle

    return oracle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--corrections", type=float, default=0.0)
    parser.add_argument("--clean", action="store_true")
    asked = parser.parse_args()
    made = make(asked.name, asked.scale, asked.corrections, asked.clean)
    facts = {"lines": made.lines, "trades": made.trades, "checksum": made.checksum}
    print(json.dumps({"folder": str(made.folder), "files": len(made.files), **facts}))


if __name__ == "__main__":
    main()
