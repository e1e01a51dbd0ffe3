"""Power cuts, kills and failing disks against the real tape and ledger, without Spark.

Every write that was not fsynced may be lost: contents come back as of their last fsync or as
nothing, names as of the last fsync of their folder. Whatever was promised must be there after it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tapeline.books.commit import Commit, TapePosition
from tapeline.books.commits import read_commits
from tapeline.books.layout import Layout
from tapeline.books.meanings import Code
from tapeline.books.pieces import DeliveryPart, PiecePart
from tapeline.books.table_id import TableId
from tapeline.books.tape import Tape
from tapeline.books.tape_batches import BatchLimits
from tapeline.errors import OperationError
from tapeline.flow.ledger import Ledger, LedgerPlace
from tapeline.formats.lines import Lines
from tapeline.settings import HousekeepingSettings
from tapeline.store import delta, delta_files
from tapeline.store.duckdb import rows_of
from tapeline.store.files import sync
from tapeline.store.housekeeping import tidy

NOW = datetime(2026, 11, 13, 10, tzinfo=UTC)
TABLES = {
    TableId.register("rows"): pa.schema(
        [("part", pa.int64()), ("at", pa.int64()), ("_batch", pa.int64())]
    ),
    TableId.journal("sums"): pa.schema([("records", pa.int64()), ("_batch", pa.int64())]),
}
TIDY = HousekeepingSettings(removed_files_hours=0)


class DiedError(BaseException):
    """The process is gone: nothing may catch this."""


class BrokenError(OSError):
    """What the disk says when it is broken for a moment."""


class Disk:
    """Knows what of a folder would survive a power cut, and lets processes die at an fsync."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.deaths = 0
        self._left: int | None = None
        self._failing: int | None = None
        self._contents: dict[int, tuple[int, bytes]] = {}  # by inode, held open so that it stays
        self._names: dict[Path, dict[str, int]] = {}
        self._fsync = os.fsync
        os.fsync = self._sync  # type: ignore[assignment]

    def close(self) -> None:
        os.fsync = self._fsync
        self._forget()

    def die_after(self, syncs: int) -> None:
        self._left = syncs

    def fail_after(self, syncs: int) -> None:
        """One fsync will say EIO."""
        self._failing = syncs

    def alive_again(self) -> None:
        self._left = self._failing = None

    def _sync(self, handle: int) -> None:
        if self._left is not None:
            if self._left == 0:
                raise DiedError
            self._left -= 1
        if self._failing is not None:
            self._failing -= 1
            if self._failing < 0:
                self._failing = None
                raise BrokenError(5, "Input/output error")
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self._names[path] = _names(path)
        else:
            self._keep(os.open(path, os.O_RDONLY))

    def _keep(self, handle: int) -> None:
        facts = os.fstat(handle)
        content = os.pread(handle, facts.st_size, 0)
        held = self._contents.pop(facts.st_ino, None)
        if held:
            os.close(held[0])
        self._contents[facts.st_ino] = (handle, content)

    def cut(self, chance: Random) -> None:
        """The power goes: what was not synced is lost, or not, as it comes."""
        self._rebuild(self.root, chance)
        self._forget()
        for folder, _, files in os.walk(self.root):
            self._names[Path(folder)] = _names(Path(folder))
            for name in files:
                self._keep(os.open(Path(folder) / name, os.O_RDONLY))

    def _rebuild(self, folder: Path, chance: Random) -> None:
        durable, now = self._names.get(folder, {}), _names(folder)
        for name in sorted({*durable, *now}):
            path = folder / name
            if durable.get(name) != now.get(name) and chance.random() < 0.5:
                self._put_back(path, durable.get(name))
            if path.is_dir():
                self._rebuild(path, chance)
            elif path.exists():
                held = self._contents.get(path.stat().st_ino)
                if held and held[1] != path.read_bytes():
                    path.write_bytes(held[1])
                elif not held and chance.random() < 0.5:
                    path.write_bytes(b"")

    def _put_back(self, path: Path, inode: int | None) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if inode is not None:
            held = self._contents.get(inode)
            path.write_bytes(held[1] if held else b"")
            self._keep(os.open(path, os.O_RDONLY))

    def _forget(self) -> None:
        for handle, _ in self._contents.values():
            os.close(handle)
        self._contents.clear()
        self._names.clear()


def _names(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


class InLine(Executor):
    """Runs everything where it is asked to."""

    def submit(self, call: Callable[..., Any], /, *words: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*words, **named))
        return done


class Process:
    """What a process holds in memory: a tape, a ledger, and a flow that copies records."""

    def __init__(self, home: Path) -> None:
        delta_files._followed.clear()
        self.layout = Layout(home)
        self.tape = Tape(self.layout, "raw", lambda: NOW)
        self.open_ledger()

    def open_ledger(self) -> None:
        place = LedgerPlace(self.layout.home, "copies")
        self.ledger = Ledger(place, TABLES, Code({"rows": "1"}), InLine(), NOW)

    def ingest(self, files: dict[int, int], batch_bytes: int) -> None:
        """What intake does with files that it has claimed: those that the tape lacks, at once."""
        self.tape.discard()
        self.tape.recover()
        for number in sorted(number for number in files if number > self.tape.last_delivery):
            records = files[number]
            whole = Lines(b"x" * records, np.ones(records, np.int64), np.arange(1, records + 1), {})
            facts = DeliveryPart(number, "f", None, records, records, 1, records, True)
            self.tape.stage([PiecePart(facts, (whole,), None)], NOW)
        self.tape.append(BatchLimits(batch_bytes))

    @property
    def through(self) -> int:
        """The last tape batch that is in the books."""
        last = self.ledger.commits.last
        return last.commit.positions["raw"].last if last else 0

    def advance(self) -> int | None:
        """One batch of everything that is new on the tape; gives back its number."""
        batches = self.tape.since(self.through)
        if not batches:
            return None
        number = self.ledger.commits.next_batch
        rows = self.tape.read(batches).select(["part", "at"])
        rows = rows.append_column("_batch", pa.array([number] * len(rows), pa.int64()))
        sums = pa.table(
            {"records": [len(rows)], "_batch": [number]}, TABLES[TableId.journal("sums")]
        )
        staged = [
            self.ledger.stage(TableId.register("rows"), rows, number),
            self.ledger.stage(TableId.journal("sums"), sums, number),
        ]
        reached = TapePosition(last=batches[-1].number)
        decision = self.ledger.decide(Commit(files=staged, positions={"raw": reached}), NOW)
        self.ledger.finish(decision)
        self.ledger.publish(decision, NOW)
        self.ledger.shorten()
        return number

    def tidy(self) -> None:
        for book in (*self.ledger.books.values(), self.ledger.commits.book):
            tidy(book, TIDY)
        self.tape.tidy(TIDY, self.through)


class Life(RuleBasedStateMachine):
    """Processes that live on one disk, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tapeline-power-"))
        self.home = self.root / "home"
        self.pieces: dict[int, int] = {}
        self.published: set[int] = set()
        self.ends: str = ""
        self.chance = Random(0)
        self.home.mkdir(parents=True)
        self.handle, delta.COMMITS_PER_HANDLE = delta.COMMITS_PER_HANDLE, 3
        self.disk = Disk(self.root)
        for folder, _, _ in os.walk(self.root):
            sync(Path(folder))
        self.process = Process(self.home)

    def teardown(self) -> None:
        try:
            self.disk.alive_again()
            self._live(self._all_of_it)
            self._check()
            listed = [n for batch in self.process.tape.since(0) for n in batch.pieces]
            assert listed == sorted(self.pieces)
        finally:
            self.disk.close()
            delta.COMMITS_PER_HANDLE = self.handle
            shutil.rmtree(self.root)

    @rule(records=st.integers(0, 3))
    def deliver(self, records: int) -> None:
        """Intake has claimed a file: a piece of its own."""
        self.pieces[len(self.pieces) + 1] = records

    @rule(
        syncs=st.integers(0, 40), seed=st.integers(0, 10**6), ends=st.sampled_from(["kill", "cut"])
    )
    def doom(self, syncs: int, seed: int, ends: str) -> None:
        """The process will die at an fsync of its near future, by kill or with the power."""
        self.ends, self.chance = ends, Random(seed)
        self.disk.die_after(syncs)

    @rule(syncs=st.integers(0, 40))
    def break_disk(self, syncs: int) -> None:
        self.disk.fail_after(syncs)

    @rule(batch_bytes=st.sampled_from([1, 10**9]))
    def ingest(self, batch_bytes: int) -> None:
        """All files in one commit, as a batch each or as one."""
        self._live(lambda: self.process.ingest(self.pieces, batch_bytes))

    @rule()
    def advance(self) -> None:
        self._live(lambda: self._note(self.process.advance()))

    @precondition(lambda self: self.published)
    @rule()
    def tidy(self) -> None:
        self._live(self.process.tidy)

    @rule(times=st.integers(1, 5))
    def work(self, times: int) -> None:
        """Enough commits that logs get their checkpoints."""
        for _ in range(times):
            self.deliver(1)
            self._live(self._all_of_it)

    def _all_of_it(self) -> None:
        self.process.ingest(self.pieces, 1)
        while (number := self.process.advance()) is not None:
            self._note(number)

    def _note(self, number: int | None) -> None:
        if number is not None:
            self.published.add(number)

    def _live(self, act: Callable[[], None]) -> None:
        try:
            act()
        except DiedError:
            self._restart()
        except BrokenError:
            self._recover()

    def _recover(self) -> None:
        """The same process goes on, as the supervisor lets it."""
        try:
            self.process.open_ledger()
            self.process.tape.recover()
        except DiedError:
            self._restart()

    def _restart(self) -> None:
        self.disk.deaths += 1
        self.disk.alive_again()
        if self.ends == "cut":
            self.disk.cut(self.chance)
        for _ in range(10):
            try:
                self.process = Process(self.home)
                break
            except OperationError as error:
                named = re.search("COMMIT_EMPTY: (.*) is empty", str(error))
                if named is None:
                    raise
                Path(named[1]).unlink()  # the remedy that the message names
        self._check()

    def _check(self) -> None:
        """What was promised is there, and nothing is there twice."""
        delta_files._followed.clear()
        commits = read_commits(self.home / "commits")
        decided = [row.batch for row in commits if row.decides]
        assert decided == list(range(1, len(decided) + 1))
        assert self.published <= {row.batch for row in commits if row.publishes}
        through = self.process.through
        taken = [n for b in self.process.tape.since(0) if b.number <= through for n in b.pieces]
        rows = arrow_rows(self.home / "silver/rows")
        assert rows == sorted((n, at) for n in taken for at in range(self.pieces[n]))
        assert len(set(taken)) == len(taken)
        sums = rows_of(self.home / "gold/sums", "records, _batch as batch", 0)
        assert sum(row["records"] for row in sums) == len(rows)
        assert sorted(row["batch"] for row in sums) == decided


def arrow_rows(folder: Path) -> list[tuple[int, int]]:
    table = delta.DeltaTable(str(folder)).to_pyarrow_table(columns=["part", "at"])
    return sorted((row["part"], row["at"]) for row in table.to_pylist())


TestLife = pytest.mark.filterwarnings("ignore::ResourceWarning")(Life.TestCase)
TestLife.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a life takes too long to shrink
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("syncs", range(10))
def test_what_an_error_of_the_disk_left_is_durable_before_it_is_used(syncs: int) -> None:
    """An fsync fails, its row of the tape is seen all the same, the flow books it, the power goes.

    Then the tape still has that row.
    """
    for seed in (0, 1, 3):
        life = Life()
        try:
            life.work(1)
            life.deliver(1)
            life.break_disk(syncs)
            life.ingest(1)
            life.advance()
            life.advance()
            life.doom(0, seed, "cut")
            life.deliver(1)
            life.ingest(1)
        finally:
            life.teardown()
