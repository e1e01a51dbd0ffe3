"""What goes in: the simulator's trades or files of the user's, shuffled, repeated and delayed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from tapeline.declare.source import SomeIntakes
from tapeline.errors import OperationError
from tapeline.operate.drill.options import DrillOptions
from tapeline.plan import Plan
from tapeline.trades.delivery import write_truth
from tapeline.trades.lines import line
from tapeline.trades.markets import chosen
from tapeline.trades.records import Day, Sent
from tapeline.trades.reference import make_instruments, write_reference
from tapeline.trades.settlement import latest_session
from tapeline.trades.simulator import simulate

REPEATED_FILES = 0.05
DELAYED_LINES = 0.05
LINES_PER_FILE = 2_000


@dataclass(frozen=True)
class DrillInput:
    """The files to deliver, by name, in the order of delivery."""

    files: list[tuple[str, bytes]]
    records: int


def make_feed(asked: DrillOptions, chance: Random) -> DrillInput:
    if asked.given is not None:
        return _given(asked.given, chance)
    return _simulated(asked, chance)


def take_project(asked: DrillOptions) -> None:
    """Copy the pipeline's own files, next to which the drilled books are kept."""
    asked.project.mkdir(parents=True)
    if asked.given is None:
        return
    here = Path(asked.target).absolute().parent
    for path in here.iterdir():
        if path.suffix in (".py", ".toml", ".csv"):
            shutil.copy(path, asked.project / path.name)
    if (here / "reference").is_dir():
        shutil.copytree(here / "reference", asked.project / "reference")


def drop_folder(plan: Plan, project: Path) -> Path:
    """Where the one source of a pipeline takes its files from."""
    if len(plan.pipeline.sources) != 1:
        raise OperationError(
            "a drill works with one source; this pipeline has several. Use a pipeline with one "
            "source."
        )
    (source,) = plan.pipeline.sources.values()
    drop: Path = project / source.connector.taken_by(_DropFolder())
    drop.mkdir(parents=True, exist_ok=True)
    return drop


class _DropFolder(SomeIntakes):
    """The folder that a source is taken from."""

    def from_folder(self, files: Any) -> str:
        return str(files.path)

    def other(self, path: str) -> str:
        raise OperationError(
            f"a drill works with files; this pipeline reads {path}. Use a pipeline that reads "
            "files."
        )


def deliver(drop: Path, name: str, content: bytes) -> None:
    """Put a whole file into the drop folder, at once."""
    hidden = drop / f".{name}"
    hidden.write_bytes(content)
    hidden.rename(drop / name)


def _given(folder: Path, chance: Random) -> DrillInput:
    paths = sorted(folder.iterdir())
    if not paths:
        raise OperationError(
            f"{folder} contains no files. Give a folder with input files: --input."
        )
    whole = [path.read_bytes() for path in paths]
    contents = whole + [one for one in whole if chance.random() < REPEATED_FILES]
    chance.shuffle(contents)
    return DrillInput(
        _named(contents, paths[0].suffix), sum(len(one.splitlines()) for one in whole)
    )


def _simulated(asked: DrillOptions, chance: Random) -> DrillInput:
    markets = chosen()
    write_reference(asked.project / "reference", years=(2024, 2027), markets=markets)
    day = Day(
        asked.seed,
        latest_session(datetime.now(UTC).date(), markets[0].venues[0].code),
        asked.trades,
        duplicates=0.02,
        broken=0.01,
        late=0.03,
        corrections=0.02,
    )
    groups = _shuffled(list(simulate(day, make_instruments(day.instruments, markets))), chance)
    records = write_truth([one for group in groups for one in group], asked.truth)
    contents = [b"\n".join(map(line, group)) + b"\n" for group in groups]
    return DrillInput(_named(contents, ".jsonl"), records)


def _shuffled(sent: list[Sent], chance: Random) -> list[list[Sent]]:
    """Cut into files: some lines come last of all, some files come twice, none in order."""
    delayed = [one for one in sent if chance.random() < DELAYED_LINES]
    apart = {id(one) for one in delayed}
    chance.shuffle(delayed)
    order = [one for one in sent if id(one) not in apart] + delayed
    groups = []
    while order:
        size = chance.randint(1, LINES_PER_FILE)
        group, order = order[:size], order[size:]
        chance.shuffle(group)
        groups.append(group)
    groups += [group for group in groups if chance.random() < REPEATED_FILES]
    chance.shuffle(groups)
    return groups


def _named(contents: list[bytes], suffix: str) -> list[tuple[str, bytes]]:
    return [(f"{number:06}{suffix}", content) for number, content in enumerate(contents)]
