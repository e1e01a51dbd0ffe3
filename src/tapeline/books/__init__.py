"""What is kept: the tables, their commits, and readers that need no Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapeline.books.commit import Commit
    from tapeline.books.commits import Commits, Decision
    from tapeline.books.layout import Layout
    from tapeline.books.reader import Books
    from tapeline.store.delta import StagedFile, TableWriter

__all__ = ["Books", "Commit", "Commits", "Decision", "Layout", "StagedFile", "TableWriter"]

# Imported when first asked for: who declares or plans a pipeline reads no books.
_PLACES = {
    "Books": "books.reader",
    "Commit": "books.commit",
    "Commits": "books.commits",
    "Decision": "books.commits",
    "Layout": "books.layout",
    "StagedFile": "store.delta",
    "TableWriter": "store.delta",
}


def __getattr__(name: str) -> Any:
    """A name of this room, from the module that defines it."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tapeline.books' has no attribute {name!r}")
    return getattr(import_module(f"tapeline.{_PLACES[name]}"), name)
