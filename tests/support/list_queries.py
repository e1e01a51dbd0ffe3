"""Queries without Spark, which keep Spark's promises: a batch begun is repeated as it was.

The checkpoint is Spark's: `metadata` has the id, `offsets/N` is written before batch N is offered
and `commits/N` after it is done. Input is a list that the test fills; a word is a row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tapeline.connect.query import Query
from tapeline.connect.running_query import QueryBatch, QueryStart
from tapeline.errors import OperationError

AT_ONCE = 3


class ListQueries:
    """Starts queries over a list of words."""

    def __init__(self, words: list[str], can_replay: bool = True) -> None:
        self.words = words
        self.can_replay = can_replay
        self.fails = False
        self.starts = 0

    def replays(self, query: Query) -> bool:
        return self.can_replay

    def start(self, what: QueryStart) -> ListQuery:
        self.starts += 1
        return ListQuery(self, what)


class ListQuery:
    """One start of a query."""

    def __init__(self, queries: ListQueries, what: QueryStart) -> None:
        self._queries = queries
        self._what = what
        self._folder = what.checkpoint
        for part in ("offsets", "commits"):
            (self._folder / part).mkdir(parents=True, exist_ok=True)
        metadata = self._folder / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": str(uuid4())}))
        self.id = json.loads(metadata.read_text())["id"]
        self._batch: QueryBatch | None = None

    def next(self, seconds: float) -> QueryBatch | None:
        if self._queries.fails:
            self._queries.fails = False
            raise OperationError("QUERY_FAILED: as the test asked")
        if self._batch is None:
            self._batch = self._plan()
        return self._batch

    def _plan(self) -> QueryBatch | None:
        begun, done = _numbers(self._folder / "offsets"), _numbers(self._folder / "commits")
        if begun > done:
            return self._offer(begun)
        start = self._end(begun)
        end = min(start + AT_ONCE, len(self._queries.words))
        if start == end:
            return None
        (self._folder / "offsets" / str(begun + 1)).write_text(str(end))
        return self._offer(begun + 1)

    def _offer(self, number: int) -> QueryBatch:
        start, end = self._end(number - 1), self._end(number)
        words = self._queries.words[start:end]
        if self._what.query.mode == "append":
            rows = [{"word": word} for word in words if word != "late"]
        else:
            rows = counted(self._queries.words[:end])
        dropped = words.count("late")
        schema = self._what.query.records.fields and pa.schema(
            [("word", pa.string())] + [("count", pa.int64())] * (self._what.query.mode != "append")
        )
        return QueryBatch(self.id, number, pa.Table.from_pylist(rows, schema), dropped)

    def _end(self, number: int) -> int:
        return int((self._folder / "offsets" / str(number)).read_text()) if number >= 0 else 0

    def done(self) -> None:
        assert self._batch is not None
        (self._folder / "commits" / str(self._batch.number)).touch()
        self._batch = None

    @property
    def ended(self) -> bool:
        return self._what.to_the_end and self._plan() is None

    def stop(self) -> None:
        self._batch = None


def counted(words: list[str]) -> list[dict[str, Any]]:
    """The result of a complete query: how often each word came; 'none' makes all vanish."""
    since = max((at for at, word in enumerate(words) if word == "none"), default=-1)
    found = Counter(words[since + 1 :])
    return [{"word": word, "count": count} for word, count in found.items()]


def _numbers(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir()), default=-1)


def never(session: Any) -> Any:
    """The function of a query that these tests do not call."""
    raise AssertionError("Spark is not here")


def query(mode: Any = "append", make: Callable[..., Query] = Query) -> Query:
    """A query whose columns are known, as after Spark's analysis."""
    if mode == "append":
        return make(never).with_schema("word string")
    key = "word" if mode == "complete" else ()
    return make(never, mode=mode, key=key).with_schema("word string, count bigint")
