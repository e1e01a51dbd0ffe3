"""Words: counts, reasons, keys and positions as people read them."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tapeline.books.audit.checks import Check, compared
from tapeline.books.operator import DISMISS, Act, OperatorTape
from tapeline.books.position import Position, parse_position, position_of
from tapeline.books.reasons import details_of, reason, sentence_of, worded
from tapeline.books.schemas import key_words
from tapeline.errors import QuestionError
from tapeline.show import readable
from tapeline.store.duckdb import rows_of
from tapeline.words import counted

SOURCES = Path(__file__).parents[2] / "src" / "tapeline"
PLURAL = re.compile(
    r" (of (its|the) )?(batches|records|rows|files|messages|entries|tables|columns|lines|partitions"
    r"|deliveries|pieces|kills|alerts)\b"
)
# A limit of ours, far above one; an error of ours; records per second.
NEVER_ONE = {
    "META_ENTRIES", "MAX_PARTITIONS", "self._limits.file_rows", "records", "rows", "signs",
    "state.records_per_second or 0", "written.name", "self._quoted(time)",
}  # fmt: skip


def test_no_message_has_a_number_before_a_word_that_may_be_wrong_for_it() -> None:
    """`counted` says "1 batch"; a number beside a plural would say "1 batches"."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                for value, text in pairwise(node.values):
                    if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                        said = ast.unparse(value.value)
                        if PLURAL.match(str(text.value)) and said not in NEVER_ONE:
                            found.add((path.name, said, str(text.value)[:30]))
    assert found == set()


def test_a_number_and_its_word_agree() -> None:
    assert [counted(n, "batch") for n in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
    assert [counted(n, "record") for n in (1, 2)] == ["1 record", "2 records"]


def test_the_detail_of_a_reason_stands_beside_its_sentence() -> None:
    stored = [reason("it is too long", "101 bytes"), "a reason of older books"]
    assert list(map(sentence_of, stored)) == ["it is too long", "a reason of older books"]
    assert details_of(stored) == ["101 bytes"]
    assert list(map(worded, stored)) == ["it is too long: 101 bytes", "a reason of older books"]


def test_a_key_of_several_columns_is_readable() -> None:
    assert key_words("ACME\x1f17") == readable("ACME\x1f17") == "ACME / 17"


def test_an_equation_names_a_batch_only_if_one_is_at_fault() -> None:
    assert compared("a = b", {1: 1, 2: 2}, {1: 1, 2: 3}).first == ", first in batch 2"
    assert Check("a = b", "True", "False").first == ""


def test_a_position_names_a_message_or_one_of_its_rows() -> None:
    whole, row = Position("raw", 12, 345), Position("raw", 12, 345, 0)
    assert (whole.text, row.text) == ("raw:12:345", "raw:12:345:0")
    assert [parse_position(one.text) for one in (whole, row)] == [whole, row]
    assert row.whole == whole
    assert position_of({"source": "raw", "part": 12, "at": 345}) == whole
    for text in ("raw:12", "raw:12:345:-1", "raw:12:345:0:0"):
        with pytest.raises(QuestionError, match="not a position"):
            parse_position(text)


def test_an_act_upon_one_row_keeps_the_columns_of_the_operators_tape(tmp_path: Path) -> None:
    tape = OperatorTape(tmp_path / "operator")
    places = [Position("raw", 1, 2, 3), Position("raw", 1, 2)]
    tape.add([Act(DISMISS, "trades", place, 1) for place in places], "us", datetime.now(UTC))
    assert [(act.act, act.position) for act in tape.since(0)] == [(DISMISS, p) for p in places]
    stored = rows_of(tmp_path / "operator", "act", 1)
    assert [row["act"] for row in stored] == ["dismiss row 3", "dismiss"]
