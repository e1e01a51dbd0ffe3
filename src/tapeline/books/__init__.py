"""What is kept: the tables, their commits, and readers that need no Spark."""

from tapeline.books.commit import Commit
from tapeline.books.commits import Commits, Decision
from tapeline.books.layout import Layout
from tapeline.books.reader import Books
from tapeline.store.delta import StagedFile, TableWriter

__all__ = ["Books", "Commit", "Commits", "Decision", "Layout", "StagedFile", "TableWriter"]
