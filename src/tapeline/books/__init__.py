"""What is kept: the tables, their commits, and readers that need no Spark."""

from tapeline.books.commits import Commits, Decision
from tapeline.books.delta import Book, Staged
from tapeline.books.layout import Layout
from tapeline.books.reader import Books

__all__ = ["Book", "Books", "Commits", "Decision", "Layout", "Staged"]
