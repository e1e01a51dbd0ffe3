"""Ingest: one Structured Streaming query per source, which feeds the tape and lets the flow go on.

Offsets, limits, triggers and progress are Spark's, with an ordinary checkpoint. The checkpoint is
disposable: the tape itself knows which pieces it holds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tapeline.books.tape import Tape, TapeBatch
from tapeline.errors import OperationError
from tapeline.failpoints import hit
from tapeline.flow.batch_size import BatchSize
from tapeline.settings import Settings
from tapeline.store.files import make_folder

PIECE_DDL = (
    "part bigint, at bigint, delivery bigint, line bigint, arrived_at timestamp, "
    "raw binary, header binary, fault string"
)
OWNER = "tapeline-owner.json"


class Ingest:
    """Follows the accepted pieces of one source."""

    def __init__(
        self,
        session: SparkSession,
        tape: Tape,
        accepted: Path,
        checkpoint: Path,
        settings: Settings,
        room: BatchSize,
    ) -> None:
        self._session = session
        self._tape = tape
        self._accepted = accepted
        self._checkpoint = checkpoint
        self._settings = settings
        self._room = room
        self._previous: list[TapeBatch] = []
        self.batches = 0

    def start(self, then: Callable[[TapeBatch], None]) -> StreamingQuery:
        """Follow the pieces; `then` is called after each tape commit."""
        self._own_checkpoint()
        make_folder(self._accepted)
        stream: Any = (
            self._session.readStream.schema(PIECE_DDL)
            .option("maxBytesPerTrigger", self._settings.flow.bytes_per_tape_batch)
            .option("maxFileAge", "36500d")
            .parquet(str(self._accepted))
            .writeStream.foreachBatch(lambda frame, batch: self._on_batch(frame, batch, then))
            .option("checkpointLocation", str(self._checkpoint))
            .queryName(f"ingest_{self._tape.source}")
        )
        interval = f"{self._settings.spark.trigger_milliseconds} milliseconds"
        query: StreamingQuery = stream.trigger(processingTime=interval).start()
        return query

    def roll(self) -> None:
        """Forget the checkpoint, so that the file source's log does not grow with history."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self.batches = 0

    def _on_batch(self, _: DataFrame, number: int, then: Callable[[TapeBatch], None]) -> None:
        for before in self._previous:
            self._tape.release(before)  # Spark has committed the batch before this one
        self._previous = []
        for recovered in self._tape.recover():
            then(recovered)
        self.batches += 1
        pieces = self._pieces(number)
        # Where a batch's time is limited, so is the tape's: the flow never splits its batches.
        most = self._room.records if self._room.follows else None
        for some in self._tape.portions(pieces, most) if most else [pieces]:
            batch = self._tape.commit(some)
            hit("tape_committed")
            if batch is not None:
                self._previous.append(batch)
                then(batch)

    def _pieces(self, number: int) -> list[Path]:
        """The pieces of one of Spark's batches, from the checkpoint's own logs."""
        first = self._offset(number - 1) + 1 if number else 0
        entries = []
        for offset in range(first, self._offset(number) + 1):
            log = self._checkpoint / "sources" / "0" / str(offset)
            if not log.exists():
                log = log.with_name(f"{offset}.compact")
            found = [json.loads(line) for line in log.read_text().splitlines()[1:]]
            entries += [e["path"] for e in found if e["batchId"] == offset]
        return [Path(unquote(urlparse(path).path)) for path in entries]

    def _offset(self, number: int) -> int:
        lines = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()
        return int(json.loads(lines[2])["logOffset"])

    def _is_sound(self) -> bool:
        """Whether Spark can read its own notes; a torn one would stop every start."""
        if not (self._checkpoint / OWNER).exists():
            return False
        if not any((self._checkpoint / "offsets").glob("[0-9]*")):
            # Nothing was noted yet. Spark refuses to begin where a kill left a half-written note.
            logs = (self._checkpoint / log for log in ("offsets", "commits", "state"))
            return not any(path.is_file() for log in logs for path in log.rglob("*"))
        try:
            json.loads((self._checkpoint / "metadata").read_text())
            for log in ("offsets", "commits", "sources/0"):
                notes = [p for p in (self._checkpoint / log).glob("*") if p.name[0].isdigit()]
                for note in sorted(notes, key=lambda path: path.stat().st_mtime)[-2:]:
                    if len(note.read_text().splitlines()) < (3 if log == "offsets" else 2):
                        return False
        except (OSError, ValueError):
            return False
        return True

    def _own_checkpoint(self) -> None:
        """A checkpoint that does not belong here is refused; one that is broken is rolled."""
        mine = {"source": self._tape.source, "accepted": str(self._accepted)}
        note = self._checkpoint / OWNER
        if note.exists():
            owner = json.loads(note.read_text())
            if owner != mine and _same_place(owner, mine):
                self.roll()  # the books were moved or copied; Spark's notes hold the old paths
            elif owner != mine:
                raise OperationError(
                    f"FOREIGN_CHECKPOINT: {self._checkpoint} belongs to {owner}. Remove that "
                    "folder; nothing is lost."
                )
        if self._checkpoint.exists() and not self._is_sound():
            self.roll()
        make_folder(self._checkpoint)
        note.write_text(json.dumps(mine))


def _same_place(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two notes name one source of one pipeline, wherever its books are."""
    ends = [Path(note.get("accepted", "")).parts[-4:] for note in (one, other)]
    return one.get("source") == other["source"] and ends[0] == ends[1]
