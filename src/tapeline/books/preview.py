"""What a change of code would move, before it is applied: numbers, totals and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tapeline.books import Books
from tapeline.books.builds import Build
from tapeline.books.commit import Commit, Counts
from tapeline.books.position import position_of
from tapeline.books.reader import ReadPoint
from tapeline.books.revisions import changed_between
from tapeline.books.table_id import TableId
from tapeline.declare import Summary
from tapeline.store.duckdb import connect, register_table

Row = dict[str, Any]
LARGEST, EXAMPLES = 20, 5


@dataclass(frozen=True)
class Preview:
    """Books, and what they would be with a build."""

    books: Books
    then: ReadPoint  # as they are
    now: ReadPoint  # as they would be
    build: Build
    days: int | None = None  # of summaries with a time, only the windows of the last days

    def facts(self) -> Row:
        return {
            "generation": self.build.generation,
            "batch": self.then.batch,
            "summaries": list(self.summaries()),
            "tables": list(self.tables()),
        }

    def summaries(self) -> Iterator[Row]:
        """Of every summary that is built: the numbers that move, totals, the largest moves."""
        for summary in self.books.plan.summaries:
            if summary.name not in self.build.built:
                continue
            moves = [
                row
                for row in changed_between(self.books, summary, self.then, self.now)
                if self._recent(summary, row["key"])
            ]
            moves.sort(key=_size, reverse=True)
            yield {
                "summary": summary.name,
                "change": self.build.steps[summary.name],
                "moved": len(moves),
                "totals": _totals(self.then.commit, self.now.commit, summary.name),
                "largest": [
                    {name: row[name] for name in ("key", "old", "new")} for row in moves[:LARGEST]
                ],
            }

    def _recent(self, summary: Summary, key: Mapping[str, Any]) -> bool:
        if self.days is None or summary.time is None or key.get(summary.time) is None:
            return True
        clock = self.then.clock(self.books.plan, summary)
        since = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=max(clock, 0))
        since -= timedelta(days=self.days)
        started = key[summary.time]
        if not isinstance(started, datetime):
            return started >= since.date() if hasattr(started, "year") else True
        return (started if started.tzinfo else started.replace(tzinfo=UTC)) >= since

    def tables(self) -> Iterator[Row]:
        """Of every table that is built: how many records change their verdict, with examples."""
        for table in self.books.plan.tables:
            if table.name in self.build.built:
                rows = list(self._verdicts(table.name))
                yield {
                    "table": table.name,
                    "change": self.build.steps[table.name],
                    "verdicts": rows,
                }

    def _verdicts(self, name: str) -> Iterator[Row]:
        with connect() as connection:
            for view, point in (("before_", self.then), ("after_", self.now)):
                generation = point.commit.generation_of(name)
                folder = self.books.layout.table(TableId.register(name, generation))
                if not generation or not register_table(connection, view, folder):
                    return  # an added table, or one without a record
            rows = connection.execute(
                f"select b._verdict, a._verdict, count(*), list(a._position)[:{EXAMPLES}] from "
                f"({_standing('before_')}) b join ({_standing('after_')}) a using (_position) "
                "where a._verdict <> b._verdict group by all order by 3 desc, 1, 2"
            ).fetchall()
        for before, after, count, places in rows:
            examples = [position_of(place).text for place in places]
            yield {"from": before, "to": after, "records": count, "examples": examples}


def _standing(view: str) -> str:
    """The verdict that each record has now."""
    return (
        f"select _position, _verdict from {view} where _row = 0 "
        "group by _position, _verdict having sum(_sign) > 0"
    )


def _size(row: Row) -> float:
    """How far a number moves: by the measure that moves most."""
    old, new = row["old"] or {}, row["new"] or {}
    return max((abs(float(new[m] or 0) - float(old.get(m) or 0)) for m in new), default=0.0)


def _totals(before: Commit, after: Commit, name: str) -> dict[str, dict[str, str | None]]:
    """Every measure added up over all keys, before and after."""
    sides = [commit.totals.get(name, Counts()).measures or {} for commit in (before, after)]
    return {
        measure: {"before": sides[0].get(measure), "after": sides[1].get(measure)}
        for measure in sorted({*sides[0], *sides[1]})
    }
