"""Answers are computed once, kept within bounds, and a refusal leaves nothing behind."""

from __future__ import annotations

import tracemalloc

import pytest

from tapeline import OperationError
from tapeline.serve.cache import ResponseCache


def test_an_answer_is_computed_once_and_the_oldest_go_first() -> None:
    answers, computed = ResponseCache(most_bytes=10), []

    def compute(text: bytes) -> bytes:
        computed.append(text)
        return text

    for text in (b"aaaa", b"aaaa", b"bbbb", b"cccc", b"aaaa"):
        assert answers.get(text, lambda text=text: compute(text)) == text  # type: ignore[misc]
    assert computed == [b"aaaa", b"bbbb", b"cccc", b"aaaa"]


def test_a_question_that_is_refused_leaves_nothing_behind() -> None:
    answers = ResponseCache(most_bytes=10)

    def refuse() -> bytes:
        raise OperationError("no")

    for number in range(100):
        with pytest.raises(OperationError):
            answers.get(number, refuse)
    assert not answers._computing


def test_questions_count_like_answers() -> None:
    """Small answers to very many long questions stay within the same bytes."""
    answers = ResponseCache(most_bytes=1_000_000)
    tracemalloc.start()
    for number in range(10_000):
        answers.get(("read", f"{number}" * 500), lambda: b"[]")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 1_000_000
