"""What a batch is: its input, its outputs, and in totals all batches up to it."""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from tapeline.store.delta import StagedFile
from tapeline.store.document import Document, Text

Count = dict[Text, int]  # by a word: a verdict, a cause, a reason


class TapeRange(Document):
    """What a batch took from one tape: its batches, and the hash of their records."""

    first: int
    last: int
    records: int = 0
    arrived_at: Text | None = None
    listed: Text = ""  # the hashes of the tape's batches, added up
    hash: Text = ""
    columns: list[Text] = []  # those that only some tapes have


class TapePosition(Document):
    """The last batch of a tape that is in the books."""

    last: int


class Counts(Document):
    """What a batch, or all of them, added to a table: verdicts; to a summary: entries."""

    rows: int = 0
    records: int = 0  # of a table whose records are rows of messages
    verdicts: Count = {}
    causes: Count = {}
    reasons: Count = {}
    warnings: Count = {}
    entries: int = 0
    counted: int = 0
    left_out: int = 0
    measures: dict[Text, Text] | None = None

    @property
    def of_summary(self) -> bool:
        return self.measures is not None


class Stood(Document):
    """Since which batch a generation of a table has been the one that readers see."""

    generation: int  # 0: the table is retired
    since: int  # a batch of its own, which takes nothing from the tapes


class Applied(Document):
    """Who changed the code of the books, and what became of each step."""

    who: Text
    note: Text = ""
    steps: dict[Text, Text] = {}  # added, retired, changed or rebuilt
    built: Text = ""  # the hash of the last row of what was built


FIRST = Stood(generation=1, since=0)


class Commit(Document):
    """What the row that decides a batch says."""

    tapes: dict[Text, TapeRange] = {}
    positions: dict[Text, TapePosition] = {}
    references: dict[Text, int] = {}  # the version of each that the batch saw
    files: list[StagedFile] = []
    tables: dict[Text, Counts] = {}
    clocks: dict[Text, int] = {}  # the highest event time so far by table, in microseconds
    totals: dict[Text, Counts] = {}
    acted: int = 0  # the last act of an operator that is in the books
    milliseconds: int | None = None
    shape: int | None = None  # of the books; None in those that are older than shapes
    fingerprints: dict[Text, Text] = {}
    code: Text = ""  # the description of the steps that made it, see books/code.py
    generation: int = 1  # how often the code of the books was changed, and one
    generations: dict[Text, list[Stood]] = {}  # of tables that were changed, added or retired
    applied: Applied | None = None  # of a batch that does nothing but change the code

    @property
    def records(self) -> int:
        """Records that it took from its tapes."""
        return sum(tape.records for tape in self.tapes.values())

    def total(self, name: str) -> Counts:
        """What all batches up to it added to a table or summary."""
        return self.totals.get(name, Counts())

    def stood(self, name: str) -> list[Stood]:
        """The generations that a table or summary has had, in the order in which they stood."""
        return self.generations.get(name) or [FIRST]

    def generation_of(self, name: str, batch: int | None = None) -> int:
        """The generation of a table or summary that readers see, now or at an earlier batch."""
        found = [one for one in self.stood(name) if batch is None or one.since <= batch]
        return found[-1].generation if found else 0

    def made_by(self, shape: int, fingerprints: Mapping[str, str], code: str = "") -> Self:
        """The same, with what it was made by."""
        named = {"code": code} if code else {}
        made = {"shape": shape, "fingerprints": dict(fingerprints), **named}
        return self.model_copy(update=made)
