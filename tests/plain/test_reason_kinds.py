"""The kind of problem that a reason names, as the exceptions page groups them."""

from __future__ import annotations

import pytest

from tapeline import Files, Pipeline, Stream, expect_or_quarantine
from tapeline.books.reason_kinds import explain, grouped, kind_of
from tapeline.plan import resolve

pipeline = Pipeline("kinds")
pipeline.source("raw", Files("drop/", schema="id string, version int"))


@pipeline.table(key="id", sequence_by="version")
@expect_or_quarantine("id is not a number", "id is not null")
def rows(raw: Stream) -> Stream:
    return raw


@pipeline.table
@expect_or_quarantine("shop is known", "shop is not null")
def shops(rows: Stream) -> Stream:
    return rows


PLAN = resolve(pipeline)


@pytest.mark.parametrize(
    ("table", "reason", "kind"),
    [
        ("rows", "the record is not a JSON object", "unreadable"),
        ("rows", "version is not an integer of its type's range", "unreadable"),
        (
            "rows",
            "record is longer than the limit; the whole line is in the archived file",
            "unreadable",
        ),
        ("rows", "id is not a number", "rule"),
        ("rows", "the key is missing: id", "rule"),
        ("rows", "sold_at is more than 5 minutes in the future", "rule"),
        ("rows", "rows() fails on this record: DIVIDE_BY_ZERO", "step"),
        (
            "rows",
            "the step makes several rows of this record: a reference has repeated keys",
            "step",
        ),
        ("rows", "the same key and version was kept before with other content", "conflict"),
        ("shops", "shop is known", "rule"),
        ("shops", "a rule with another name", "rule"),
    ],
)
def test_a_reason_has_a_kind(table: str, reason: str, kind: str) -> None:
    assert kind_of(PLAN, table, reason) == kind


def test_what_can_be_done_follows_the_kind_and_the_table() -> None:
    conflict = explain(PLAN, "rows", "the same key and version was kept before with other content")
    assert conflict.remedies == ("ask the sender for a higher version", "dismiss it")
    rule = explain(PLAN, "rows", "id is not a number")
    assert "correct the record and redrive it" in rule.remedies
    assert rule.declared.startswith("rows() in test_reason_kinds.py:")
    behind = explain(PLAN, "shops", "shop is known")
    assert "correct the record and redrive it" not in behind.remedies


def test_groups_count_records_and_know_the_oldest() -> None:
    records = [
        {"table": "rows", "reasons": ["id is not a number"], "at": 3},
        {"table": "rows", "reasons": ["the record is not UTF-8", "id is not a number"], "at": 1},
    ]
    found = grouped(PLAN, records)
    assert [(g["kind"], g["count"], g["oldest"], g["newest"]) for g in found] == [
        ("unreadable", 1, 1, 1),
        ("rule", 2, 1, 3),
    ]
