"""Reasons: few sentences that can be counted, each with a detail beside it where there is one.

A reason is stored as one text, the detail after a separator. Older books have reasons without.
"""

from __future__ import annotations

from collections.abc import Iterable

DETAIL = "\x1e"
FAILS = "fails on this record"  # in the reason of a record on which a step fails


def reason(sentence: str, detail: str = "") -> str:
    """A reason as it is stored. Numbers and values of one record belong into its detail."""
    return f"{sentence}{DETAIL}{detail}" if detail else sentence


def sentence_of(stored: str) -> str:
    """What is counted."""
    return stored.partition(DETAIL)[0]


def details_of(stored: Iterable[str]) -> list[str]:
    """What is said of one record beside its reasons."""
    return [detail for one in stored if (detail := one.partition(DETAIL)[2])]


def worded(stored: str) -> str:
    """Sentence and detail, for people."""
    sentence, _, detail = stored.partition(DETAIL)
    return f"{sentence}: {detail}" if detail else sentence
