"""Whether books and code belong together: a journal belongs to one fingerprint of its function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tapeline.books import Decision
from tapeline.books.schemas import BEGINNING
from tapeline.books.table_id import Kind, TableId
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
    described: str = ""  # what the steps say, see books/code.py


@dataclass(frozen=True)
class Differences:
    """The steps that are not those that made the books, by their fingerprints."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.retired)


class ChangedCodeError(OperationError):
    """Books were made by other code: the change has to be applied before they are written."""


def check_code(
    home: Path, last: Decision, code: Code, schemas: Mapping[TableId, pa.Schema]
) -> None:
    """Refuse code that the books were not made by."""
    found = differences(home, last, code, schemas)
    if not found:
        return
    said = [(found.changed, "changed"), (found.added, "is new"), (found.retired, "is gone")]
    words = "; ".join(
        f"{', '.join(names)} {what} since batch {last.batch}" for names, what in said if names
    )
    raise ChangedCodeError(
        f"{words}. The books in {home} were made with other code. 'tapeline plan' shows the "
        "difference. Apply it with 'tapeline apply', or go back to the earlier code."
    )


def differences(
    home: Path, last: Decision, code: Code, schemas: Mapping[TableId, pa.Schema]
) -> Differences:
    """What is not as the books were made by; older fingerprints that agree get their new form."""
    stored = _stamped(home, last) or last.commit.fingerprints
    other = [name for name, made in code.fingerprints.items() if stored.get(name) != made]
    retired = tuple(name for name in stored if name not in code.fingerprints)
    if not other:
        return Differences(retired=retired)
    outdated = [n for n in other if n in stored and version_of(stored[n]) < VERSION]
    agreeing = {n for n in outdated if _agrees(home, last, code, schemas, n)}
    changed = tuple(n for n in other if n in stored and n not in agreeing)
    added = tuple(n for n in other if n not in stored)
    found = Differences(changed, added, retired)
    if not found:
        stamps = {"last": last.hash, "fingerprints": {**stored, **code.fingerprints}}
        replace_json(home / STAMPS, stamps)
    return found


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
    tables = [table for table in schemas if table.name == name]
    register = next((t for t in tables if t.kind is Kind.REGISTER), None)
    if any(_columns(stored_schema(home / t.path)) != _columns(schemas[t]) for t in tables):
        return False
    if register is None:
        return True
    rows = arrow_of(home / register.path, "count(*), count(_key_hash)", "_verdict = 'kept'")
    kept, keyed = rows.to_pylist()[0].values() if rows.num_rows else (0, 0)
    moved = last.commit.clocks.get(name, BEGINNING) != BEGINNING
    same_key = not kept or bool(keyed) == (name in code.keyed)
    return same_key and (not moved or name in code.timed)


def _columns(schema: pa.Schema) -> list[list[str]]:
    return sorted(own_columns(schema))
