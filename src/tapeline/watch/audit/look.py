"""A look at the tables from one batch on: what all checks ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tapeline.books import Books
from tapeline.books.proof import hash_of
from tapeline.watch.audit.checks import Check, equal

Bodies = dict[int, dict[str, Any]]
ROWS_AT_ONCE = 500_000


class Look:
    """Looks at the tables from one batch on."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, books: Books, bodies: Bodies, since: int
    ) -> None:
        self.connection = connection
        self.books = books
        self.bodies = bodies
        self.range = (since + 1, max(bodies, default=0))
        self.within = f"_batch between {self.range[0]} and {self.range[1]}"

    def sums(self, view: str, aggregate: str) -> dict[int, Any]:
        """An aggregate of a table, by batch."""
        try:
            rows = self.connection.execute(
                f"select _batch, {aggregate} from {view} where {self.within} group by _batch"
            ).fetchall()
        except duckdb.CatalogException:
            return {}  # the table is gone, which another check says
        return {batch: total or 0 for batch, total in rows}

    def gone(self, name: str, what: str = "rows") -> Iterator[Check]:
        """A table without a file, although batches wrote to it."""
        wrote = [b for b, body in self.bodies.items() if body["tables"].get(name, {}).get("rows")]
        if wrote:
            yield Check(f"{name}: its {what} are there", "True", "False", wrote[0])

    def proved(self, view: str, table: str, words: str) -> Check:
        """Rows and their hash, as the staged files of the commits rows said."""
        said: dict[int, str] = {}
        for batch, body in self.bodies.items():
            for file in body["files"]:
                if file["table"] == table:
                    said[batch] = file["hash"]
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
