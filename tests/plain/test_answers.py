"""Answers are computed once, kept within bounds, and a refusal leaves nothing behind."""

from __future__ import annotations

import pytest

from tapeline import OperationError
from tapeline.serve.answers import Answers


def test_an_answer_is_computed_once_and_the_oldest_go_first() -> None:
    answers, computed = Answers(most_bytes=10), []

    def compute(text: bytes) -> bytes:
        computed.append(text)
        return text

    for text in (b"aaaa", b"aaaa", b"bbbb", b"cccc", b"aaaa"):
        assert answers.get(text, lambda text=text: compute(text)) == text  # type: ignore[misc]
    assert computed == [b"aaaa", b"bbbb", b"cccc", b"aaaa"]


def test_a_question_that_is_refused_leaves_nothing_behind() -> None:
    answers = Answers(most_bytes=10)

    def refuse() -> bytes:
        raise OperationError("no")

    for number in range(100):
        with pytest.raises(OperationError):
            answers.get(number, refuse)
    assert not answers._computing
