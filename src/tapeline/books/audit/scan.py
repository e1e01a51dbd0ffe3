"""A look at the tables from one batch on: what all checks ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tapeline.books import Books, exact
from tapeline.books.audit.checks import Check, equal
from tapeline.books.commit import Commit, Counts
from tapeline.books.reader import ReadPoint
from tapeline.books.row_hash import hash_of
from tapeline.books.table_id import TableId
from tapeline.store.duckdb import Connection, NotThere

ROWS_AT_ONCE = 500_000


class AuditScan:
    """Looks at the tables from one batch on."""

    def __init__(
        self,
        connection: Connection,
        books: Books,
        commits: dict[int, Commit],
        since: int,
        cut: ReadPoint,
    ) -> None:
        self.connection = connection
        self.books = books
        self.commits = commits
        self.cut = cut
        self.range = (since + 1, max(commits, default=0))
        self.within = f"_batch between {self.range[0]} and {self.range[1]}"

    def counts(self, name: str) -> dict[int, Counts]:
        """What the commits rows say of a table or summary, by batch."""
        nothing = Counts()
        return {b: commit.tables.get(name, nothing) for b, commit in self.commits.items()}

    def sums(self, view: str, aggregate: str) -> dict[int, Any]:
        """An aggregate of a table, by batch."""
        try:
            rows = self.connection.execute(
                f"select _batch, {aggregate} from {view} where {self.within} group by _batch"
            ).fetchall()
        except NotThere:
            return {}  # the table is gone, which another check says
        return {batch: total or 0 for batch, total in rows}

    def totals(
        self, view: str, column: str, kind: exact.Kind, signed: bool = False
    ) -> dict[int, exact.Number]:
        """A measure of a table added up by batch, to the last digit.

        With `signed` the rows whose `_sign` is negative count against it.
        """

        def query(add: exact.Summing) -> str:
            sides = [""] if not signed else [f" filter (_sign {side} 0)" for side in "><"]
            sums = ", ".join(add(column, kind, side) for side in sides)
            return f"select _batch, {sums} from {view} where {self.within} group by _batch"

        found: dict[int, exact.Number] = {}
        for batch, came, *back in exact.summed(self.connection, query):
            against = (-kind.units(kind.number(one)) for one in back)
            found[batch] = kind.from_units(sum(against, kind.units(kind.number(came))))
        return found

    def gone(self, name: str, what: str = "rows") -> Iterator[Check]:
        """A table without a file, although batches wrote to it."""
        wrote = [batch for batch, counts in self.counts(name).items() if counts.rows]
        if wrote:
            yield Check(f"{name}: its {what} are there", "there", "missing", wrote[0])

    def proved(self, view: str, table: TableId, words: str) -> Check:
        """Rows and their hash, as the staged files of the commits rows said."""
        said: dict[int, str] = {}
        for batch, commit in self.commits.items():
            for file in commit.files:
                if file.table == table.path:
                    said[batch] = file.hash
        counts = self.sums(view, "count(*)")
        wrong = (
            batch
            for some in _portions(sorted({*said, *counts}), counts)
            for batch, found in self._hashes(view, some).items()
            if said.get(batch) != found
        )
        return equal(f"{words}: hash of its rows = its commits rows", next(wrong, None))

    def _hashes(self, view: str, batches: list[int]) -> dict[int, str | None]:
        """The hash of each of some neighbouring batches' rows; None where there are none."""
        within = f"_batch between {batches[0]} and {batches[-1]}"
        rows = self.connection.sql(f"select * from {view} where {within}").to_arrow_table()
        found: dict[int, str | None] = dict.fromkeys(batches)
        numbers = rows["_batch"].to_numpy()
        order = np.argsort(numbers, kind="stable")
        for batch in np.unique(numbers).tolist():
            low, high = np.searchsorted(numbers[order], [batch, batch + 1])
            found[batch] = hash_of(rows.take(pa.array(order[low:high])))
        return found


def _portions(batches: list[int], rows: dict[int, Any]) -> Iterator[list[int]]:
    """Neighbouring batches, as many as are looked at together."""
    some: list[int] = []
    count = 0
    for batch in batches:
        some.append(batch)
        count += rows.get(batch, 0)
        if count > ROWS_AT_ONCE:
            yield some
            some, count = [], 0
    if some:
        yield some
