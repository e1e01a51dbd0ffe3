"""The tables of the books: whole, and at positions that fit together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.delta import refuse_empty_log
from tapeline.books.query import newest_batch
from tapeline.doctor.finding import Finding
from tapeline.errors import OperationError


def tables(books: Books) -> Iterator[Finding]:
    home = books.layout.home
    folders = sorted(log.parent for log in home.rglob("_delta_log")) if home.exists() else []
    wrong = [(folder, words) for folder in folders if (words := _damage(folder))]
    for folder, words in wrong:
        yield Finding(f"table {folder.relative_to(home)}", "ill", words,
                      "See docs/operate.md, 'What to do on each error'.")  # fmt: skip
    if folders and not wrong:
        yield Finding("tables", "well", f"{len(folders)}: logs can be read, files are whole")


def _damage(folder: Path) -> str:
    """What is wrong with a table's log or files, from the log alone."""
    try:
        refuse_empty_log(folder)
        adds: Any = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True))
    except OperationError as error:
        return str(error)
    except (DeltaError, OSError) as error:
        return f"its log cannot be read: {error}"
    for name, size in zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True):
        path = folder / name
        if not path.exists():
            return f"{name} is gone"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes, not {size:,}"
    return ""


def positions(books: Books) -> Iterator[Finding]:
    cut = books.cut()
    if not cut.batch:
        yield Finding("positions", "well", "no batch has been published yet")
        return
    rows = read_commits(books.layout.commits, cut.batch)
    open_batches = {r["batch"] for r in rows if r["event"] == "decided"} - {
        r["batch"] for r in rows if r["event"] == "published"
    }
    if open_batches:
        words = f"batch {max(open_batches)} is decided and not published"
        remedy = "The next start finishes it; a running pipeline is just doing so."
        yield Finding("positions", "soon", words, remedy)
    for source, position in cut.body.get("positions", {}).items():
        last = newest_batch(books.layout.tape_batches(source))
        words = f"the flow has taken batch {position['last']} of {last} on the tape"
        if position["last"] > last:
            yield Finding(f"tape {source}", "ill", words, "Restore the tape from a backup.")
        else:
            yield Finding(f"tape {source}", "well", words)
