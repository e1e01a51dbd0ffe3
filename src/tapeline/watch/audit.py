"""The earlier name of the trial balance. In tests, use `tapeline.testing.unbalanced`."""

from tapeline.books.audit import audit

__all__ = ["audit"]
