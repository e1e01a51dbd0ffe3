"""The trial balance: proof, from the tables alone, that nothing is lost and nothing doubled.

Each commits row says what its batch added to every table: how many rows, how much money, and a
hash of the rows, chained to the row before. The audit adds up what the tables hold and compares,
batch by batch. What balanced before is not looked at again, unless the audit is a full one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.delta import read_files
from tapeline.books.fold import measures_of
from tapeline.books.proof import hash_of, listed_hash
from tapeline.books.query import connect, quoted, register_table, view_files
from tapeline.books.schemas import TAPE_LEAF
from tapeline.declare import Summary, Table

Bodies = dict[int, dict[str, Any]]
ROWS_AT_ONCE = 500_000


@dataclass(frozen=True)
class Check:
    """One equation of the trial balance."""

    what: str
    expected: str
    found: str
    batch: int | None = None  # the first batch where it does not hold

    @property
    def balances(self) -> bool:
        return self.expected == self.found and self.batch is None

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "balances": self.balances}


def audit(books: Books, full: bool = False) -> list[Check]:
    """Every equation, from where the last audit that balanced ended to the last published batch."""
    since = 0 if full else _audited(books)
    cut = books.cut()
    rows = [r for r in read_commits(books.layout.commits, since) if r["batch"] <= cut.batch]
    decided = [row for row in rows if row["event"] == "decided"]
    bodies = {r["batch"]: json.loads(r["body"]) for r in decided if r["batch"] > since}
    checks = [_chain(rows, since)]
    with connect() as connection:
        look = _Look(connection, books, bodies, since)
        for source in books.plan.pipeline.sources:
            checks += look.tape(source)
        for table in books.plan.tables:
            checks += look.register(table)
        for summary in books.plan.summaries:
            checks += look.journal(summary)
    if decided and all(check.balances for check in checks):
        mark = {"batch": decided[-1]["batch"], "hash": decided[-1]["hash"]}
        books.layout.audited.write_text(json.dumps(mark))
    return checks


def _audited(books: Books) -> int:
    """The batch through which the books were found to balance; the note is disposable."""
    try:
        mark = json.loads(books.layout.audited.read_text())
        batch, link = int(mark["batch"]), str(mark["hash"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    rows = read_commits(books.layout.commits, batch, batch)
    return batch if any(r["event"] == "decided" and r["hash"] == link for r in rows) else 0


def _chain(rows: list[dict[str, Any]], since: int) -> Check:
    """Each commits row's hash follows from its body and the row before; no number is missing."""
    previous, number = "", since
    wrong = None
    published = {row["batch"] for row in rows if row["event"] == "published"}
    for row in (row for row in rows if row["event"] == "decided"):
        if row["batch"] == since:
            previous = row["hash"]
            continue
        number += 1
        link = hashlib.sha256(f"{previous}{row['body']}".encode()).hexdigest()
        if row["batch"] != number or row["hash"] != link or number not in published:
            wrong = wrong or number
            number = row["batch"]
        previous = row["hash"]
    return _equal("commits: each row follows from the one before", wrong)


class _Look:
    """Looks at the tables from one batch on."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, books: Books, bodies: Bodies, since: int
    ) -> None:
        self._connection = connection
        self._books = books
        self._bodies = bodies
        self._range = (since + 1, max(bodies, default=0))
        self._within = f"_batch between {self._range[0]} and {self._range[1]}"

    def tape(self, source: str) -> Iterator[Check]:
        """The tape holds what its batches list, and the flow has taken what it says."""
        layout = self._books.layout
        taken = {b: body["tapes"][source] for b, body in self._bodies.items()
                 if source in body["tapes"]}  # fmt: skip
        if not taken:
            return
        folders = {"listed": layout.tape_batches(source), "tape": layout.tape(source)}
        for view, folder in folders.items():
            if not register_table(self._connection, view, folder, by_name=view == "tape"):
                yield Check(f"{source}: {folder.name} is there", "True", "False", min(taken))
                return
        first = min(part["first"] for part in taken.values())
        last = max(part["last"] for part in taken.values())
        names = ("batch", "at", "pieces", "records", "bytes", "deliveries")
        rows = [
            dict(zip(names, row, strict=True))
            for row in self._connection.execute(
                f"select {', '.join(quoted(n) for n in names)} from listed "
                f"where batch between {first} and {last} order by batch"
            ).fetchall()
        ]
        numbered = [row["batch"] for row in rows] == list(range(first, last + 1))
        yield Check(f"{source}: batches are numbered without a gap", "True", str(numbered))
        listed = {row["batch"]: row for row in rows}
        by_piece = {piece: row["batch"] for row in rows for piece in row["pieces"]}
        held = self._held(by_piece)
        for words, said, found in (
            ("records listed", "records", lambda n: listed[n]["records"]),
            ("records on the tape", "records", lambda n: held.get(n, 0)),
            ("hash of its batches", "listed", lambda n: listed_hash(listed[n])),
        ):
            check = self._compared(
                f"{source}: {words} = its commits rows",
                {batch: int(part[said]) for batch, part in taken.items()},
                {
                    batch: sum(
                        found(n) for n in range(part["first"], part["last"] + 1) if n in listed
                    )
                    for batch, part in taken.items()
                },
            )
            yield check if said == "records" else _equal(check.what, check.batch)
        wrong = (
            batch
            for batch, part in taken.items()
            if part["hash"] != self._tape_hash([p for p, n in by_piece.items()
                                                if part["first"] <= n <= part["last"]],
                                               part.get("columns", []))
        )  # fmt: skip
        yield _equal(f"{source}: hash of its records = its commits rows", next(wrong, None))

    def _held(self, by_piece: dict[int, int]) -> dict[int, int]:
        """Records that the tape holds, by its own batch; each position counts once."""
        pieces = pa.table({"piece": list(by_piece), "of": list(by_piece.values())})
        self._connection.register("pieces", pieces)
        rows = self._connection.execute(
            'select of, count(distinct (part, "at")) from tape join pieces on part = piece '
            "group by of"
        ).fetchall()
        return dict(rows)

    def _tape_hash(self, pieces: list[int], more: list[str]) -> str:
        """The hash of what the tape holds of some pieces, in more columns where they have them."""
        own = [f.name for f in TAPE_LEAF if f.name != "ordinal"]
        names = ", ".join(map(quoted, [*own, *more]))
        listed = ", ".join(map(str, pieces)) or "null"
        rows = self._connection.sql(f"select {names} from tape where part in ({listed})")
        return hash_of(rows.to_arrow_table())

    def register(self, table: Table) -> Iterator[Check]:
        """The verdicts add up to the input's records, batch by batch, as the commits rows say."""
        name = f"register_{table.name}"
        folder = self._books.layout.register(table.name)
        if not register_table(self._connection, name, folder, self._range):
            yield from self._gone(table.name)
            return
        rows = self._connection.execute(
            f"select _batch, _verdict, sum(_sign) filter (_row = 0)::bigint from {name} "
            f"where {self._within} group by all"
        ).fetchall()
        found: dict[int, dict[str, int]] = {}
        for batch, verdict, count in rows:
            if count:
                found.setdefault(batch, {})[verdict] = count
        source = self._books.plan.pipeline.sources.get(table.stream)
        given = {
            batch: (body["tapes"].get(table.stream, {}).get("records", 0) if source
                    else body["tables"].get(table.stream, {}).get("verdicts", {}).get("kept", 0))
            for batch, body in self._bodies.items()
        }  # fmt: skip
        yield self._compared(
            f"{table.name}: verdicts = records of {table.stream}",
            given,
            {batch: sum(found.get(batch, {}).values()) for batch in self._bodies},
        )
        said = {
            batch: {k: v for k, v in body["tables"][table.name]["verdicts"].items() if v}
            for batch, body in self._bodies.items()
            if table.name in body["tables"]
        }
        differs = next((b for b in said if said[b] != found.get(b, {})), None)
        yield _equal(f"{table.name}: each verdict = its commits rows", differs)
        yield from self._proved(name, f"silver/{table.name}", table.name)

    def journal(self, summary: Summary) -> Iterator[Check]:
        """Entries, links and balances tell the same story, in records and in money."""
        name, layout = summary.name, self._books.layout
        journal, links = f"journal_{name}", f"links_{name}"
        if not register_table(self._connection, journal, layout.journal(name), self._range):
            yield from self._gone(name)
            return
        if not register_table(self._connection, links, layout.links(name), self._range):
            yield from self._gone(name, "links")
            return
        facts = {b: body["tables"].get(name, {}) for b, body in self._bodies.items()}
        entries = self._sums(journal, "sum(_entries)")
        yield self._compared(f"{name}: entries = links", self._sums(links, "sum(_sign)"), entries)
        yield self._compared(
            f"{name}: entries = its commits rows",
            {b: one.get("entries", 0) for b, one in facts.items()},
            entries,
        )
        stream = f"register_{summary.stream}"
        yield self._compared(
            f"{name}: counted + left out = entries of {summary.stream}",
            self._sums(stream, "sum(_sign) filter (_verdict = 'kept')"),
            {b: one.get("counted", 0) + one.get("left_out", 0) for b, one in facts.items()},
        )
        for measure in measures_of(self._connection, journal, summary):
            column = quoted(measure)
            ours = self._sums(journal, f"sum({column})")
            shares = f"sum(case when _sign > 0 then {column} else -{column} end)"
            yield self._compared(
                f"{name}: {measure} in the journal = in the links",
                self._sums(links, shares),
                ours,
            )
            said = {b: Decimal(one["measures"][measure]) for b, one in facts.items() if one}
            yield self._compared(f"{name}: {measure} = its commits rows", said, ours)
        yield from self._proved(journal, f"gold/{name}", f"{name}'s journal")
        yield from self._proved(links, f"gold/{name}_links", f"{name}'s links")
        yield from self._balances(summary, measures_of(self._connection, journal, summary))

    def _gone(self, name: str, what: str = "rows") -> Iterator[Check]:
        """A table without a file, although batches wrote to it."""
        wrote = [b for b, body in self._bodies.items() if body["tables"].get(name, {}).get("rows")]
        if wrote:
            yield Check(f"{name}: its {what} are there", "True", "False", wrote[0])

    def _balances(self, summary: Summary, measures: list[str]) -> Iterator[Check]:
        """The cache of balances = what the commits row of its batch says in all."""
        files = read_files(self._books.layout.balances(summary.name))
        if not files:
            return
        view_files(self._connection, "balances", [path for path, _, _ in files])
        sums = ", ".join(f"sum({quoted(m)})" for m in measures)
        ((batch, entries, *totals),) = self._connection.execute(
            f"select max(_batch), sum(_entries), {sums} from balances"
        ).fetchall()
        if batch is None:
            return
        rows = read_commits(self._books.layout.commits, batch, batch)
        body = next((json.loads(r["body"]) for r in rows if r["event"] == "decided"), None)
        if body is None or summary.name not in body["totals"]:
            return
        said = body["totals"][summary.name]
        expected = [said["entries"], *(Decimal(said["measures"][m]) for m in measures)]
        same = [Decimal(v or 0) for v in (entries, *totals)] == [Decimal(v) for v in expected]
        yield _equal(f"{summary.name}: balances = the journal", None if same else batch)

    def _proved(self, view: str, table: str, words: str) -> Iterator[Check]:
        """Rows and their hash, as the staged files of the commits rows said."""
        said: dict[int, str] = {}
        for batch, body in self._bodies.items():
            for file in body["files"]:
                if file["table"] == table:
                    said[batch] = file["hash"]
        counts = self._sums(view, "count(*)")
        wrong = (
            batch
            for some in _portions(sorted({*said, *counts}), counts)
            for batch, found in self._hashes(view, some).items()
            if said.get(batch) != found
        )
        yield _equal(f"{words}: hash of its rows = its commits rows", next(wrong, None))

    def _hashes(self, view: str, batches: list[int]) -> dict[int, str | None]:
        """The hash of each of some neighbouring batches' rows; None where there are none."""
        within = f"_batch between {batches[0]} and {batches[-1]}"
        rows = self._connection.sql(f"select * from {view} where {within}").to_arrow_table()
        found: dict[int, str | None] = dict.fromkeys(batches)
        numbers = rows["_batch"].to_numpy()
        order = np.argsort(numbers, kind="stable")
        for batch in np.unique(numbers).tolist():
            low, high = np.searchsorted(numbers[order], [batch, batch + 1])
            found[batch] = hash_of(rows.take(pa.array(order[low:high])))
        return found

    def _sums(self, view: str, aggregate: str) -> dict[int, Any]:
        try:
            rows = self._connection.execute(
                f"select _batch, {aggregate} from {view} where {self._within} group by _batch"
            ).fetchall()
        except duckdb.CatalogException:
            return {}  # the table is gone, which another check says
        return {batch: total or 0 for batch, total in rows}

    def _compared(self, what: str, expected: dict[int, Any], found: dict[int, Any]) -> Check:
        batches = sorted({*expected, *found})
        wrong = next((b for b in batches if expected.get(b, 0) != found.get(b, 0)), None)
        return Check(what, str(sum(expected.values())), str(sum(found.values())), wrong)


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


def _equal(what: str, wrong: int | None) -> Check:
    return Check(what, "equal", "equal" if wrong is None else "different", wrong)
