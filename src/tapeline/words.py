"""Numbers in messages: 1 batch, 2 batches."""

from __future__ import annotations

PLURALS = {"batch": "batches", "entry": "entries", "delivery": "deliveries"}


def counted(number: int, word: str) -> str:
    """A number and its word: '1 record', '2,000 records'."""
    return f"{number:,} {word if number == 1 else PLURALS.get(word, f'{word}s')}"
