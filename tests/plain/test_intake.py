"""Intake takes whole files, each once, whatever their senders do."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys

import pytest

from tapeline.errors import DeclarationError, OperationError
from tapeline.intake.files import FileIntake, FileRules, IntakeLimits
from tapeline.store.disk import Lease, lease
from tests.support.intake_desk import NOON, Desk


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    yield desk
    if desk.intake:
        desk.intake.close()


def test_a_renamed_file_is_accepted_at_once(desk):
    desk.send("trades.json", b'{"id":1}\n{"id":2}\n')
    assert desk.run() == [b'{"id":1}', b'{"id":2}']
    assert [record["line"] for record in desk.tape] == [1, 2]
    assert {record["arrived_at"] for record in desk.tape} == {NOON}
    assert desk.kept("archive") == {1: b'{"id":1}\n{"id":2}\n'}
    assert desk.intake.waiting() == (0, 0)


def test_a_small_file_written_and_renamed_within_one_tick_of_the_clock_is_accepted_at_once(desk):
    desk.take()  # from here on the kernel tells what happens in the folder
    for number in range(20):
        (desk.root / "outbox").write_bytes(b"%d\n" % number)
        os.rename(desk.root / "outbox", desk.drop / f"{number:02d}.json")
    assert desk.run() == [b"%d" % number for number in range(20)]


def test_a_file_that_its_writer_holds_open_waits_until_it_is_whole(desk):
    with (desk.drop / "slow.json").open("wb", buffering=0) as file:
        file.write(b"id2,MSFT,2")
        os.utime(desk.drop / "slow.json", (1, 1))
        assert desk.run() == []
        desk.seconds += 3600
        assert desk.run() == []
        file.write(b"50.5\n")
    desk.seconds += 1
    desk.run()
    desk.seconds += 1
    assert desk.run() == [b"id2,MSFT,250.5"]


def test_a_file_written_in_place_waits_until_it_has_settled(desk):
    path = desk.drop / "in_place.json"
    desk.take()
    path.write_bytes(b"1\n")
    assert desk.run() == []
    desk.seconds += 0.9
    with path.open("ab") as file:
        file.write(b"2\n")
    assert desk.run() == []
    desk.seconds += 0.9
    assert desk.run() == []
    desk.seconds += 0.1
    assert desk.run() == [b"1", b"2"]


def test_without_leases_every_file_has_to_settle(desk, monkeypatch):
    monkeypatch.setattr("tapeline.intake.complete.lease", lambda handle: Lease.UNKNOWN)
    desk.send("far.json", b"1\n")
    assert desk.run() == []
    desk.seconds += 1
    assert desk.run() == [b"1"]


@pytest.mark.parametrize("name", [".hidden", "_started", "x.part", "x.tmp", "x._COPYING_"])
def test_what_is_in_progress_by_its_name_is_left_alone(desk, name):
    desk.send(name, b"half")
    assert desk.run() == []
    assert desk.findings() == []
    assert (desk.drop / name).exists()


def test_a_writer_that_comes_while_a_file_is_judged_waits_and_does_no_harm(desk):
    path = desk.send("trades.json", b"1\n")
    handle = os.open(path, os.O_RDONLY)
    assert lease(handle) is Lease.GRANTED
    with pytest.raises(BlockingIOError):  # and it signals us, which must not end the process
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.close(handle)
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def test_the_same_name_again_is_a_new_delivery(desk):
    desk.send("trades.json", b"monday\n")
    desk.run()
    desk.send("trades.json", b"tuesday\n")
    assert desk.run() == [b"monday", b"tuesday"]
    assert [record["delivery"] for record in desk.tape] == [1, 2]
    assert desk.kept("archive") == {1: b"monday\n", 2: b"tuesday\n"}


@pytest.mark.parametrize("seconds", [0, 1, 946_684_800, 4_102_444_800, 2**33])
def test_modification_times_do_not_matter(desk, seconds):
    path = desk.send("trades.json", b"1\n")
    os.utime(path, (seconds, seconds))
    desk.send("later.json", b"2\n")
    assert sorted(desk.run()) == [b"1", b"2"]


def test_folders_below_the_drop_folder_are_read_in_order_of_name(desk):
    desk.send("b/deep/2.json", b"2\n")
    desk.send("c.json", b"3\n")
    desk.send("a/1.json", b"1\n")
    desk.send("_temporary/4.json", b"4\n")
    assert desk.run() == [b"1", b"2", b"3"]
    assert [part.name for part in desk.facts[0].deliveries] == [
        "a/1.json",
        "b/deep/2.json",
        "c.json",
    ]


def test_links_pipes_and_sockets_are_refused_once_and_never_opened(desk, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.json").write_bytes(b"secret\n")
    os.symlink(tmp_path / "secret", desk.drop / "link.json")
    os.symlink(tmp_path / "outside", desk.drop / "folder")
    os.mkfifo(desk.drop / "pipe.json")
    desk.send("good.json", b"1\n")
    assert desk.run() == [b"1"]
    desk.run()
    refused = sorted(row["name"] for row in desk.findings("REFUSED"))
    assert refused == ["folder", "link.json", "pipe.json"]


def test_a_folder_that_becomes_a_link_between_listing_and_opening_is_refused(desk, monkeypatch):
    desk.send("inner/x.json", b"1\n")
    (desk.root / "outside").mkdir()
    (desk.root / "outside" / "x.json").write_bytes(b"secret\n")
    intake = desk.start()
    page = intake._drop.page

    def swap(limit):
        paths = page(limit)
        os.rename(desk.drop / "inner", desk.root / "moved")
        os.symlink(desk.root / "outside", desk.drop / "inner")
        return paths

    monkeypatch.setattr(intake._drop, "page", swap)
    assert desk.run() == []
    assert desk.kinds() == ["REFUSED"]
    assert (desk.root / "outside" / "x.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines",
        "a b",
        "-rf",
        "ü😀",
        "x" * 255,
        "\u202egnp.json",
        "'; drop table",
        b"\xff\xfe",
        "%s{}$(id)",
    ],
)
def test_names_are_only_data(desk, name):
    desk.send(name, b"1\n")
    assert desk.run() == [b"1"]
    shown = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    assert desk.facts[0].deliveries[0].name == shown
    note = json.loads(next((desk.home / "archive").rglob("*.json")).read_text())
    assert note["name"] == shown
    names = {path.name for path in desk.home.rglob("*")}
    assert all(name.isascii() and len(name) < 30 for name in names)


def test_a_file_that_vanishes_after_the_listing_is_a_finding(desk, monkeypatch):
    desk.send("a.json", b"1\n")
    desk.send("b.json", b"2\n")
    intake = desk.start()
    page = intake._drop.page

    def remove(limit):
        paths = page(limit)
        (desk.drop / "a.json").unlink()
        return paths

    monkeypatch.setattr(intake._drop, "page", remove)
    assert desk.run() == [b"2"]
    assert [(row["kind"], row["name"]) for row in desk.findings()] == [("GONE", "a.json")]


def test_a_file_that_cannot_be_read_is_a_finding_and_the_rest_goes_on(desk, monkeypatch):
    desk.send("a.json", b"1\n")
    desk.send("b.json", b"2\n")
    real = os.open

    def refuse(path, *arguments, **options):
        if path == b"a.json":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert desk.run() == [b"2"]
    desk.run()
    assert [(row["kind"], row["name"]) for row in desk.findings()] == [("UNREADABLE", "a.json")]
    monkeypatch.undo()
    assert desk.run() == [b"2", b"1"]


def test_what_is_appended_after_acceptance_becomes_a_delivery_of_its_own(desk):
    path = desk.send("trades.json", b"1\n2\n")
    keep = desk.root / "second_name"
    os.link(path, keep)  # the sender's other name for the same file
    desk.take()
    with keep.open("ab") as file:
        file.write(b"3\n")
    assert desk.run() == [b"1", b"2"]
    desk.seconds += 1
    desk.run()
    assert desk.run() == [b"1", b"2", b"3"]
    assert [(record["delivery"], record["line"]) for record in desk.tape] == [
        (1, 1),
        (1, 2),
        (2, 3),
    ]
    assert [(row["kind"], row["name"]) for row in desk.findings()] == [("GREW", "trades.json")]
    assert desk.kept("archive") == {1: b"1\n2\n3\n", 2: b"3\n"}
    assert desk.kept("taken") == {}


def test_half_a_line_that_grows_after_acceptance_is_delivered_again_as_a_whole_line(tmp_path):
    desk = Desk(tmp_path, FileRules("csv"))
    keep = desk.root / "second_name"
    os.link(desk.send("trades.csv", b"id,symbol,price\n1,MSFT,2"), keep)
    desk.take()
    with keep.open("ab") as file:
        file.write(b"50.5\n2,AAPL,3")
    for _ in range(4):
        desk.run()
        desk.seconds += 1
    assert desk.lines() == [b"1,MSFT,2", b"1,MSFT,250.5", b"2,AAPL,3"]
    assert [record["line"] for record in desk.tape] == [2, 2, 3]
    assert {record["header"] for record in desk.tape} == {b"id,symbol,price"}


def test_a_last_line_that_only_gets_its_line_end_later_is_not_repeated(desk):
    keep = desk.root / "second_name"
    os.link(desk.send("trades.json", b"1"), keep)
    desk.take()
    with keep.open("ab") as file:
        file.write(b"\r\n2\n")
    for _ in range(4):
        desk.run()
        desk.seconds += 1
    assert desk.lines() == [b"1", b"2"]
    assert [record["line"] for record in desk.tape] == [1, 2]


def test_a_gzip_file_grows_by_members(tmp_path):
    desk = Desk(tmp_path, FileRules("csv"))
    keep = desk.root / "second_name"
    os.link(desk.send("trades.csv.gz", gzip.compress(b"id\n1\n")), keep)
    desk.take()
    with keep.open("ab") as file:
        file.write(gzip.compress(b"2\n"))
    for _ in range(4):
        desk.run()
        desk.seconds += 1
    assert desk.lines() == [b"1", b"2"]
    assert {record["header"] for record in desk.tape} == {b"id"}


def test_a_file_rewritten_after_acceptance_is_delivered_again_whole(desk):
    keep = desk.root / "second_name"
    os.link(desk.send("trades.json", b"1\n2\n"), keep)
    desk.take()
    keep.write_bytes(b"3\n4\n5\n")
    for _ in range(4):
        desk.run()
        desk.seconds += 1
    assert desk.lines() == [b"1", b"2", b"3", b"4", b"5"]


def test_an_original_is_not_archived_while_somebody_has_it_open_for_writing(desk):
    keep = desk.root / "second_name"
    os.link(desk.send("trades.json", b"1\n"), keep)
    desk.take()
    with keep.open("ab"):
        desk.run()
        assert desk.kept("archive") == {}
    desk.run()
    assert desk.kept("archive") == {1: b"1\n"}


def test_a_manifest_that_disagrees_holds_its_file_until_it_is_corrected(desk):
    content = b"1\n2\n3\n"
    manifest = desk.drop / "trades.json.manifest"
    for wrong in ({"rows": 4}, {"bytes": 7}, {"sha256": "0" * 64}, {}, {"rows": "3"}):
        manifest.write_text(json.dumps(wrong))
        desk.send("trades.json", content)
        assert desk.run() == []
    manifest.write_text("{not json")
    assert desk.run() == []
    assert [(row["kind"], row["name"]) for row in desk.findings()] == [("MANIFEST", "trades.json")]
    sha256 = hashlib.sha256(content).hexdigest().upper()
    manifest.write_text(json.dumps({"rows": 3, "bytes": 6, "sha256": sha256}))
    assert desk.run() == [b"1", b"2", b"3"]
    assert list(desk.drop.iterdir()) == []


def test_a_file_that_agrees_with_its_manifest_need_not_settle(desk):
    (desk.drop / "trades.json.manifest").write_text('{"rows": 1}')
    with (desk.drop / "trades.json").open("wb", buffering=0) as file:
        file.write(b"1\n")
        assert desk.run() == [b"1"]


def test_a_file_that_is_held_is_not_read_again_at_every_pass(desk, monkeypatch):
    (desk.drop / "trades.json.manifest").write_text('{"rows": 2}')
    desk.send("trades.json", b"1\n")
    desk.run()
    monkeypatch.setattr("tapeline.intake.complete.DeliveryReader", None)
    assert desk.run() == []


def test_files_that_wait_do_not_keep_others_waiting(tmp_path):
    desk = Desk(tmp_path, files_per_pass=2)
    for number in range(4):
        desk.send(f"a{number}.json", b"held\n")
        (desk.drop / f"a{number}.json.manifest").write_text('{"rows": 9}')
    desk.send("z.json", b"1\n")
    for _ in range(3):
        desk.run()
    assert desk.lines() == [b"1"]


def test_an_archive_that_cannot_be_written_keeps_the_originals_and_is_tried_again(desk):
    desk.start()
    (desk.home / "archive").rmdir()
    (desk.home / "archive").write_text("in the way")
    desk.send("a.json", b"1\n")
    desk.run()
    desk.send("b.json", b"2\n")
    assert desk.run() == [b"1", b"2"]
    assert desk.kinds() == ["ARCHIVE"]
    assert desk.kept("taken") == {1: b"1\n", 2: b"2\n"}
    (desk.home / "archive").unlink()
    desk.run()
    assert desk.kept("archive") == {1: b"1\n", 2: b"2\n"}
    assert desk.kept("taken") == {}


def test_originals_can_be_deleted_instead_of_archived(tmp_path):
    desk = Desk(tmp_path, FileRules("json", keep="delete"))
    desk.send("a.json", b"1\n")
    desk.run()
    assert desk.kept("archive") == desk.kept("taken") == {}
    assert list((desk.home / "taken").iterdir()) == []


def fail(*_):
    raise OSError(5, "Input/output error")


def test_originals_stay_until_their_last_piece_is_on_the_tape(tmp_path, monkeypatch):
    desk = Desk(tmp_path, records_per_piece=1)
    desk.start()
    desk.send("a.json", b"1\n2\n")
    with monkeypatch.context() as broken:
        broken.setattr(
            desk.writer, "append", lambda limits: (_ for _ in ()).throw(OSError(5, "IO"))
        )
        with pytest.raises(OperationError, match="Nothing is lost"):
            desk.take()
    assert (desk.kept("archive"), desk.kept("taken")) == ({}, {1: b"1\n2\n"})
    assert desk.run() == [b"1", b"2"]
    assert desk.kept("archive") == {1: b"1\n2\n"}


def test_a_large_file_is_several_batches_of_the_tape_in_one_commit(tmp_path):
    desk = Desk(tmp_path, records_per_piece=10, bytes_per_tape_batch=1)
    desk.send("large.json", b"".join(b"%d\n" % number for number in range(45)))
    assert len(desk.run()) == 45
    batches = desk.writer.since(0)
    assert [batch.records for batch in batches] == [10, 10, 10, 10, 5]
    assert [batch.pieces for batch in batches] == [(1,), (2,), (3,), (4,), (5,)]
    commits = list((desk.layout.tape_batches("raw") / "_delta_log").glob("*.json"))
    assert len(commits) == 2  # the one that made the table, and one that decided


def test_a_file_from_another_file_system_is_copied_then_removed(desk, monkeypatch):
    another_file_system(monkeypatch)
    desk.send("a.json", b"1\n")
    assert desk.run() == [b"1"]
    assert desk.intake.waiting() == (0, 0)
    assert desk.kept("archive") == {1: b"1\n"}


def another_file_system(monkeypatch):
    real = os.rename

    def rename(source, target, *, src_dir_fd=None, dst_dir_fd=None):
        if src_dir_fd is not None:
            raise OSError(18, "Invalid cross-device link")
        return real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", rename)


def test_a_second_intake_on_the_same_home_is_refused(desk):
    desk.start()
    with pytest.raises(OperationError, match="is in use"):
        FileIntake(desk.drop, desk.writer, desk.form, desk.limits, lambda: NOON)
    code = (
        "import sys; from pathlib import Path; from tapeline.intake.files import *; "
        "from tapeline.books.layout import Layout; from tapeline.books.tape import Tape; "
        "tape = Tape(Layout(Path(sys.argv[2])), 'raw', None); "
        "FileIntake(Path(sys.argv[1]), tape, FileRules('json'), IntakeLimits(), None)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(desk.drop), str(desk.layout.home)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "OperationError" in other.stderr


def test_mistakes_of_those_who_set_it_up_are_refused(tmp_path):
    with pytest.raises(DeclarationError, match="longest record"):
        IntakeLimits(record_bytes=2, bytes_per_piece=1)
    desk = Desk(tmp_path)
    desk.start()
    with pytest.raises(OperationError, match="inside each other"):
        FileIntake(tmp_path, desk.writer, FileRules("json"), IntakeLimits(), lambda: NOON)
    desk.drop.rmdir()
    with pytest.raises(OperationError, match="input folder"):
        desk.take()
    desk.intake.close()


def test_findings_cannot_grow_for_ever(desk, monkeypatch):
    monkeypatch.setattr("tapeline.intake.problems.FILE_BYTES", 1_000)
    for number in range(100):
        desk.send(f"{number}.json", b"PK\x03\x04")
    desk.run()
    assert (desk.home / "findings.jsonl").stat().st_size < 1_300
    assert (desk.home / "findings.old.jsonl").stat().st_size < 1_300
    assert len(desk.kept("rejected")) == 100
