"""What happened to a file: its state, batch and verdicts, from real intake, tape and books."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tapeline.books.deliveries import DeliveryFilter
from tapeline.books.delivery_records import RecordsWanted, records_of
from tapeline.books.status import Lag, SourceStatus, Status, write_status
from tapeline.connect import Kafka
from tapeline.declare import Pull
from tapeline.errors import QuestionError
from tapeline.intake.deliveries import Deliveries
from tapeline.store import duckdb
from tapeline.testing import Trial
from tests.support import law_orders
from tests.support.file_desk import FileDesk, lines, states
from tests.support.plain_compute import plain_compiler

ALL = DeliveryFilter()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[FileDesk]:
    with FileDesk(tmp_path) as found:
        yield found


def expected(numbers: list[int], before: list[int]) -> Counter[str]:
    """The verdicts of a file, from one static pass in plain Python over all that was sent."""
    _, _, verdicts = law_orders.expected([*before, *numbers])
    _, _, earlier = law_orders.expected(before)
    return verdicts - earlier


def test_a_file_goes_from_waiting_over_the_tape_into_the_books(desk: FileDesk) -> None:
    desk.send("a.jsonl", lines(1, 2, 3))
    assert states(desk.deliveries.page(ALL, 10).deliveries) == [("a.jsonl", "waiting")]
    desk.take()
    assert states(desk.deliveries.page(ALL, 10).deliveries) == [("a.jsonl", "on the tape")]
    desk.book()
    (one,) = desk.deliveries.page(ALL, 10).deliveries
    assert (one.state, one.id, one.kind, one.records, one.batch) == (
        "booked", "raw:1", "file", 3, 1,
    )  # fmt: skip
    assert one.arrived_at is not None
    assert one.published_at is not None
    assert one.arrived_at < one.published_at
    assert Counter(one.verdicts["rows"]) == expected([1, 2, 3], [])


def test_small_files_that_share_a_piece_have_their_own_counts(desk: FileDesk) -> None:
    sent = {"a.jsonl": [1, 2, 3, 4], "b.jsonl": [2, 5, 60, 61, 1], "c.jsonl": [7]}
    for name, numbers in sent.items():
        desk.send(name, lines(*numbers))
    desk.take()
    desk.book()
    assert len(list(desk.trial.tapes["raw"].since(0))) == 1, "they share one batch of the tape"
    before: list[int] = []
    found = {one.name: one for one in desk.deliveries.page(ALL, 10).deliveries}
    for name, numbers in sent.items():
        assert Counter(found[name].verdicts["rows"]) == expected(numbers, before), name
        before += numbers


def test_a_record_that_is_redriven_moves_to_its_new_verdict(desk: FileDesk) -> None:
    desk.deliver("a.jsonl", lines(1, 4) + b'{"id": "late", "amount": "-1"}\n')
    desk.deliver("b.jsonl", lines(5))
    assert desk.deliveries.find("a.jsonl")[0].verdicts["rows"] == {"kept": 2, "quarantined": 1}
    good = {**law_orders.record(1), "id": "late", "amount": "12"}
    assert desk.trial.redrive(record=json.dumps(good).encode(), reason="above zero") == 1
    newest, oldest = desk.deliveries.page(ALL, 10).deliveries
    assert (newest.name, newest.verdicts["rows"]) == ("b.jsonl", {"kept": 1})
    assert (oldest.batch, oldest.verdicts["rows"]) == (1, {"kept": 3})


def test_lists_are_newest_first_and_go_on_at_an_offset(desk: FileDesk) -> None:
    for number in range(7):
        desk.deliver(f"f{number}.jsonl", lines(number))
    first = desk.deliveries.page(ALL, 3)
    assert [one.name for one in first.deliveries] == ["f6.jsonl", "f5.jsonl", "f4.jsonl"]
    assert first.more
    last = desk.deliveries.page(ALL, 3, 6)
    assert [(one.name, one.batch) for one in last.deliveries] == [("f0.jsonl", 1)]
    assert not last.more


def test_filters_are_by_state_source_and_part_of_the_name(desk: FileDesk) -> None:
    desk.deliver("prices/2026-11-12.jsonl", lines(1))
    desk.deliver("empty.jsonl", b"")
    desk.send("déjà.jsonl", lines(2))
    desk.take()
    desk.send("new.jsonl", lines(3))

    def named(**chosen: str) -> list[str]:
        page = desk.deliveries.page(DeliveryFilter(**chosen), 10)
        return [one.name for one in page.deliveries]

    assert named(state="booked") == ["prices/2026-11-12.jsonl"]
    assert named(state="on the tape") == ["déjà.jsonl"]
    assert named(state="waiting") == ["new.jsonl"]
    assert named(state="empty") == ["empty.jsonl"]
    assert named(name="11-12") == ["prices/2026-11-12.jsonl"]
    assert named(name="déjà") == ["déjà.jsonl"]
    assert named(name='"') == []
    assert len(named(source="raw")) == 4
    with pytest.raises(QuestionError, match=r"'boked' is not a state.*Did you mean 'booked'"):
        named(state="boked")
    with pytest.raises(QuestionError, match=r"source 'rew' not found. Did you mean 'raw'"):
        named(source="rew")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"   \n"])
def test_an_empty_file_leaves_a_trace(desk: FileDesk, content: bytes) -> None:
    desk.deliver("nothing.jsonl", content)
    (one,) = desk.deliveries.page(ALL, 10).deliveries
    assert (one.name, one.state, one.records) == ("nothing.jsonl", "empty", 0)
    assert one.id == "raw:1"


def test_records_of_a_file_have_line_position_verdict_and_reasons(desk: FileDesk) -> None:
    desk.deliver("a.jsonl", lines(5))
    desk.deliver("b.jsonl", lines(1) + b"no json\n" + lines(5, 60))
    one, others = desk.deliveries.find("b.jsonl")
    assert others == []
    found = records_of(desk.trial.books, one, RecordsWanted())
    assert not found.more
    assert [row["line"] for row in found.records] == [1, 2, 3, 4]
    assert found.records[1]["record"] == b"no json"
    entered = [row["verdicts"][0] for row in found.records]
    assert Counter(v["verdict"] for v in entered) == expected([1, 5, 60], [5]) + Counter(
        {"quarantined": 1}
    )
    assert entered[1]["reasons"] == ["the record is not a JSON object"]
    broken = records_of(desk.trial.books, one, RecordsWanted("quarantined"))
    assert "no json" in [row["record"].decode() for row in broken.records]
    assert all(
        any(v["verdict"] == "quarantined" for v in row["verdicts"]) for row in broken.records
    )
    page = records_of(desk.trial.books, one, RecordsWanted(limit=2, offset=1))
    assert [row["line"] for row in page.records] == [2, 3]
    assert page.more


def test_records_on_the_tape_have_no_verdict_yet(desk: FileDesk) -> None:
    desk.send("a.jsonl", lines(1, 2))
    desk.take()
    one, _ = desk.deliveries.find("a.jsonl")
    found = records_of(desk.trial.books, one, RecordsWanted())
    assert [(row["line"], row["verdicts"]) for row in found.records] == [(1, []), (2, [])]
    assert records_of(desk.trial.books, one, RecordsWanted("kept")).records == []


def test_of_one_name_the_newest_is_meant_and_an_id_chooses_another(desk: FileDesk) -> None:
    for number in (1, 2, 3):
        desk.deliver("day.jsonl", lines(number))
    newest, others = desk.deliveries.find("day.jsonl")
    assert (newest.id, others) == ("raw:3", ["raw:2", "raw:1"])
    assert desk.deliveries.find("raw:1")[0].batch == 1
    with pytest.raises(QuestionError, match=r"delivery 'dya.jsonl' not found"):
        desk.deliveries.find("dya.jsonl")


def test_a_large_file_is_one_delivery_over_several_tape_batches(tmp_path: Path) -> None:
    class SmallBatches(FileDesk):
        records_per_piece = 10
        bytes_per_tape_batch = 1

    with SmallBatches(tmp_path) as desk:
        desk.send("large.jsonl", lines(*range(100)))
        desk.take()
        assert desk.trial.tapes["raw"].last_batch == 10
        (one,) = desk.deliveries.page(ALL, 10).deliveries
        assert (one.state, one.records) == ("on the tape", 100)
        desk.trial.advance(limit=1)
        desk.book()
        (one,) = desk.deliveries.page(ALL, 10).deliveries
        assert one.state == "booked"
        assert Counter(one.verdicts["rows"]) == expected(list(range(100)), [])


def test_the_overview_says_what_was_processed_last_and_what_is_new(desk: FileDesk) -> None:
    assert desk.deliveries.overview() == {
        "newest": None, "last_booked": None, "waiting": 0, "rejected": 0,
    }  # fmt: skip
    desk.deliver("a.jsonl", lines(1))
    desk.send("b.jsonl", lines(2))
    found = desk.deliveries.overview()
    assert (found["newest"]["name"], found["last_booked"]["name"]) == ("b.jsonl", "a.jsonl")
    assert (found["last_booked"]["batch"], found["waiting"]) == (1, 1)


def test_verdicts_of_old_files_survive_compaction(desk: FileDesk) -> None:
    for number in range(6):
        desk.deliver(f"f{number}.jsonl", lines(number, number + 100))
    before = [one.facts() for one in desk.deliveries.page(ALL, 10).deliveries]
    desk.trial.tidy()
    assert [one.facts() for one in desk.deliveries.page(ALL, 10).deliveries] == before


def test_what_is_read_follows_what_is_shown(
    desk: FileDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        desk.deliver(f"f{number}.jsonl", lines(number))
    opened: list[str] = []
    view_files = duckdb.view_files

    def watched(connection: object, name: str, files: list[str], by_name: bool = False) -> None:
        opened.extend(files)
        view_files(connection, name, files, by_name)

    monkeypatch.setattr(duckdb, "view_files", watched)
    assert len(desk.deliveries.page(ALL, 2).deliveries) == 2
    registers = {file for file in opened if "/silver/" in file}
    pieces = {file for file in opened if "/bronze/raw/" in file}
    assert len(pieces) == 2
    assert len(registers) <= 2 * 3


def test_a_page_that_a_pull_handed_over_is_a_pull(desk: FileDesk) -> None:
    declared = Pull("office", None, "raw", desk.pipeline.sources["raw"].where)
    desk.pipeline.pulls["office"] = declared
    desk.send("office-0123abcd-000000000007.jsonl", lines(1))
    desk.send("office.jsonl", lines(2))
    desk.take()
    found = {one.name: one.kind for one in desk.deliveries.page(ALL, 10).deliveries}
    assert found == {"office-0123abcd-000000000007.jsonl": "pull", "office.jsonl": "file"}


def test_ranges_of_offsets_have_their_partition_and_what_waits_in_the_topic(tmp_path: Path) -> None:
    pipeline = law_orders.pipeline()
    schema = "id string, at timestamp, side string, amount decimal(12,2)"
    source = pipeline.sources["raw"]
    pipeline.sources["raw"] = replace(source, connector=Kafka("orders", schema=schema))
    compiled = plain_compiler(pipeline, law_orders.TWINS)
    with Trial(pipeline, tmp_path, compile_steps=compiled) as trial:
        trial.feed(raw=[law_orders.record(number) for number in (1, 2, 4)])
        trial.put("raw", [law_orders.record(5)])
        lag = Lag(lag_records=6, lag_seconds=1.0)
        status = Status(sources={"raw": SourceStatus(partitions={"a test's records": lag})})
        write_status(trial.books.layout.status, status)
        found = Deliveries(trial.books, tmp_path).page(ALL, 10).deliveries
    assert [(one.kind, one.state, one.records, one.offsets) for one in found] == [
        ("offsets", "waiting", 5, None),
        ("offsets", "on the tape", 1, (1, 1)),
        ("offsets", "booked", 3, (1, 3)),
    ]
    assert found[2].title == "a test's records offsets 1 to 3"
