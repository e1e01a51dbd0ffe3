"""The tape holds what its batches list, and the flow has taken what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from tapeline.books.audit.checks import Check, compared, equal
from tapeline.books.audit.scan import AuditScan
from tapeline.books.commit import TapeRange
from tapeline.books.row_hash import hash_of
from tapeline.books.schemas import TAPE_LEAF
from tapeline.books.tape_batches import COLUMNS, TapeRow
from tapeline.store.duckdb import quoted, register_table

Taken = dict[int, TapeRange]  # by the flow's batch, what it took from one tape


def check_tape(look: AuditScan, source: str) -> Iterator[Check]:
    layout = look.books.layout
    taken = {
        batch: commit.tapes[source]
        for batch, commit in look.commits.items()
        if source in commit.tapes
    }
    if not taken:
        return
    folders = {"listed": layout.tape_batches(source), "tape": layout.tape(source)}
    for view, folder in folders.items():
        if not register_table(look.connection, view, folder, by_name=view == "tape"):
            yield Check(f"{source}: {folder.name} is there", "True", "False", min(taken))
            return
    first = min(part.first for part in taken.values())
    last = max(part.last for part in taken.values())
    rows = _listed(look, first, last)
    numbered = [row.batch for row in rows] == list(range(first, last + 1))
    yield Check(f"{source}: batches are numbered without a gap", "True", str(numbered))
    by_piece = {piece: row.batch for row in rows for piece in row.pieces}
    yield from _compared(source, taken, rows, _held(look, by_piece))
    wrong = (
        batch
        for batch, part in taken.items()
        if part.hash
        != _hash(
            look,
            [piece for piece, n in by_piece.items() if part.first <= n <= part.last],
            part.columns,
        )
    )
    yield equal(f"{source}: hash of its records = its commits rows", next(wrong, None))


def _compared(
    source: str, taken: Taken, rows: list[TapeRow], held: dict[int, int]
) -> Iterator[Check]:
    """What the flow says it took = what its batches list = what is on the tape."""
    listed = {row.batch: row for row in rows}
    checks: list[tuple[str, Callable[[TapeRange], int], Callable[[int], int]]] = [
        ("records listed", _records, lambda n: listed[n].records),
        ("records on the tape", _records, lambda n: held.get(n, 0)),
        ("hash of its batches", _hashes, lambda n: listed[n].hash),
    ]
    for words, said, found in checks:
        check = compared(
            f"{source}: {words} = its commits rows",
            {batch: said(part) for batch, part in taken.items()},
            {
                batch: sum(found(n) for n in range(part.first, part.last + 1) if n in listed)
                for batch, part in taken.items()
            },
        )
        yield check if said is _records else equal(check.what, check.batch)


def _records(part: TapeRange) -> int:
    return part.records


def _hashes(part: TapeRange) -> int:
    return int(part.listed)


def _listed(look: AuditScan, first: int, last: int) -> list[TapeRow]:
    """What the tape's own batches list, in order."""
    rows = look.connection.execute(
        f"select {COLUMNS} from listed where batch between {first} and {last} order by batch"
    ).fetchall()
    return [TapeRow(*row) for row in rows]


def _held(look: AuditScan, by_piece: dict[int, int]) -> dict[int, int]:
    """Records that the tape holds, by its own batch; each position counts once."""
    pieces = pa.table({"piece": list(by_piece), "of": list(by_piece.values())})
    look.connection.register("pieces", pieces)
    rows = look.connection.execute(
        'select of, count(distinct (part, "at")) from tape join pieces on part = piece group by of'
    ).fetchall()
    return dict(rows)


def _hash(look: AuditScan, pieces: list[int], more: list[str]) -> str:
    """The hash of what the tape holds of some pieces, in more columns where they have them."""
    own = [f.name for f in TAPE_LEAF if f.name != "ordinal"]
    names = ", ".join(map(quoted, [*own, *more]))
    listed = ", ".join(map(str, pieces)) or "null"
    rows = look.connection.sql(f"select {names} from tape where part in ({listed})")
    return hash_of(rows.to_arrow_table())
