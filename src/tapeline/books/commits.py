"""The commits table: two rows per micro-batch, decided and published. The first one decides."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from tapeline.books.commit import Commit
from tapeline.books.layout import Layout
from tapeline.books.schemas import COMMITS
from tapeline.store.decisions import decide
from tapeline.store.delta import StagedFile, TableWriter
from tapeline.store.duckdb import LAST_BATCH, connect, newest_batch, register_table, rows_of
from tapeline.store.files import read_json

EPOCH_STRIDE = 2**40
DECIDED, PUBLISHED = "decided", "published"


@dataclass(frozen=True)
class Decision:
    """A batch that is decided."""

    batch: int
    epoch: int
    hash: str
    commit: Commit = field(default_factory=Commit)

    @property
    def version(self) -> int:
        """The transaction version of every table's commit for this batch."""
        return self.epoch * EPOCH_STRIDE + self.batch

    @property
    def staged(self) -> dict[str, list[StagedFile]]:
        """The staged files by table."""
        found: dict[str, list[StagedFile]] = {}
        for file in self.commit.files:
            found.setdefault(file.table, []).append(file)
        return found


@dataclass(frozen=True)
class CommitRow:
    """A row of the commits table. Its hash is computed over the text of its body as it is."""

    batch: int
    event: str
    at: datetime
    epoch: int
    hash: str
    body: str  # of a row that decides, a Commit as JSON

    @property
    def decides(self) -> bool:
        return self.event == DECIDED

    @property
    def publishes(self) -> bool:
        return self.event == PUBLISHED

    @cached_property
    def commit(self) -> Commit:
        """What a row that decides a batch says."""
        return Commit.from_json(self.body)

    @property
    def decision(self) -> Decision:
        return Decision(self.batch, self.epoch, self.hash, self.commit)


class Commits:
    """The writer's side of the commits table, and the state that follows from its last rows."""

    def __init__(self, folder: Path, first: int = 1) -> None:
        self._first = first  # the number of the first batch
        self.book = TableWriter(folder, COMMITS, "commits")
        rows = read_tail(folder)
        decided = [row for row in rows if row.decides]
        published = [row for row in rows if row.publishes]
        self.last: Decision | None = decided[-1].decision if decided else None
        self.published_batch: int = published[-1].batch if published else 0
        self.published_at: datetime | None = published[-1].at if published else None
        known: int = decided[-1].epoch if decided else 1
        self.epoch = max(known, restored_epoch(folder.parent))

    @property
    def next_batch(self) -> int:
        return self.last.batch + 1 if self.last else self._first

    @property
    def unfinished(self) -> Decision | None:
        """A batch that was decided and not published: it is only finished, never computed again."""
        if self.last is not None and self.last.batch > self.published_batch:
            return self.last
        return None

    def decide(self, commit: Commit, now: datetime) -> Decision:
        """Append the row that decides a batch."""
        previous = self.last.hash if self.last else ""
        text = commit.to_json()
        link = hashlib.sha256(f"{previous}{text}".encode()).hexdigest()
        decision = Decision(self.next_batch, self.epoch, link, commit)
        self._append(decision, DECIDED, now, text)
        self.last = decision
        return decision

    def publish(self, decision: Decision, now: datetime) -> datetime:
        """Append the row that makes a batch readable; its time never goes back."""
        if self.published_at is not None:
            now = max(now, self.published_at + timedelta(microseconds=1))
        self._append(decision, PUBLISHED, now, "")
        self.published_batch, self.published_at = decision.batch, now
        return now

    def _append(self, decision: Decision, event: str, now: datetime, body: str) -> None:
        values = {
            "batch": [decision.batch],
            "event": [event],
            "at": [now],
            "epoch": [decision.epoch],
            "hash": [decision.hash],
            "body": [body],
        }
        version = decision.version * 2 + (event == PUBLISHED)
        row = pa.table(values, schema=COMMITS)
        decide(self.book, [(decision.batch, row)], version, f"-{event}")


def read_commits(folder: Path, since: int = 0, until: int = LAST_BATCH) -> list[CommitRow]:
    """All commits rows from a batch on, in order, bodies still as text."""
    rows = rows_of(folder, 'batch, event, "at", epoch, hash, body', since, until)
    return sorted((CommitRow(**row) for row in rows), key=lambda row: (row.batch, row.publishes))


def published_by(folder: Path, moment: datetime) -> int:
    """The last batch that was published by a moment; 0 when there was none."""
    with connect() as connection:
        if not register_table(connection, "commits", folder):
            return 0
        query = "select max(batch) from commits where event = 'published' and \"at\" <= ?"
        (found,) = connection.execute(query, [moment]).fetchall()
    return int(found[0] or 0)


def read_tail(folder: Path) -> list[CommitRow]:
    """The rows of the last two batches: enough to know what is decided and what is published."""
    return read_commits(folder, newest_batch(folder) - 1)


def restored_epoch(home: Path) -> int:
    """The epoch that began when these books were restored from a backup, if they were."""
    try:
        return int(read_json(Layout(home).restored)["epoch"])
    except FileNotFoundError:
        return 0
