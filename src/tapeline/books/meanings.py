"""Whether books and code belong together: a journal belongs to one fingerprint of its function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tapeline.books import Decision
from tapeline.books.schemas import BEGINNING
from tapeline.books.table_id import TableId
from tapeline.errors import OperationError
from tapeline.plan.fingerprint import VERSION, own_columns, version_of
from tapeline.store.delta_files import stored_schema
from tapeline.store.duckdb import arrow_of
from tapeline.store.files import read_json, replace_json

STAMPS = "fingerprints.json"


@dataclass(frozen=True)
class Code:
    """The steps of a run: their fingerprints, and what older books can be compared by."""

    fingerprints: Mapping[str, str]
    keyed: frozenset[str] = frozenset()  # the tables that have a key
    timed: frozenset[str] = frozenset()  # the tables that have a time


def check_code(
    home: Path, last: Decision, code: Code, schemas: Mapping[TableId, pa.Schema]
) -> None:
    """Refuse code that the books were not made by; give older fingerprints their new form."""
    stored = _stamped(home, last) or last.commit.fingerprints
    other = [name for name, made in code.fingerprints.items() if stored.get(name) != made]
    if not other:
        return
    outdated = [n for n in other if n in stored and version_of(stored[n]) < VERSION]
    agreeing = {n for n in outdated if _agrees(home, last, code, schemas, n)}
    changed = [n for n in other if n in stored and n not in agreeing]
    new = [n for n in other if n not in stored]
    if changed or new:
        found = [f"{', '.join(changed)} changed since batch {last.batch}"] if changed else []
        found += [f"{', '.join(new)} is new since batch {last.batch}"] if new else []
        raise OperationError(
            f"{'; '.join(found)}. The books in {home} were made with other code. Go back to that "
            "code, or start new books in another root (setting 'root')."
        )
    stamps = {"last": last.hash, "fingerprints": {**stored, **code.fingerprints}}
    replace_json(home / STAMPS, stamps)


def _stamped(home: Path, last: Decision) -> dict[str, str] | None:
    """What an earlier start found the books to agree with; the next batch carries it itself."""
    try:
        found = read_json(home / STAMPS)
    except (OSError, ValueError):
        return None
    fingerprints: dict[str, str] = found["fingerprints"]
    return fingerprints if found["last"] == last.hash else None


def _agrees(
    home: Path, last: Decision, code: Code, schemas: Mapping[TableId, pa.Schema], name: str
) -> bool:
    """Whether the columns, the key and the time of a step are those of its stored tables."""
    register = TableId.register(name)
    tables = [t for t in (register, TableId.journal(name), TableId.links(name)) if t in schemas]
    if any(_columns(stored_schema(home / t.path)) != _columns(schemas[t]) for t in tables):
        return False
    if register not in schemas:
        return True
    rows = arrow_of(home / register.path, "count(*), count(_key_hash)", "_verdict = 'kept'")
    kept, keyed = rows.to_pylist()[0].values() if rows.num_rows else (0, 0)
    moved = last.commit.clocks.get(name, BEGINNING) != BEGINNING
    same_key = not kept or bool(keyed) == (name in code.keyed)
    return same_key and (not moved or name in code.timed)


def _columns(schema: pa.Schema) -> list[list[str]]:
    return sorted(own_columns(schema))
