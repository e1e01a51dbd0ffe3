"""A rejected file is seen, corrected and retried, or dismissed; who did it is recorded."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tapeline.books.deliveries import DeliveryFilter
from tapeline.books.quarantine import Actor
from tapeline.errors import OperationError
from tapeline.intake import retry as retrying
from tests.support.file_desk import FileDesk, lines, states

ALL = DeliveryFilter()
EVA = Actor(datetime(2026, 11, 18, 9, tzinfo=UTC), "eva", "the sender fixed it")
UTF16 = lines(1, 2).decode().encode("utf-16")
CUT = gzip.compress(lines(1, 2) * 50)[:-20]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[FileDesk]:
    with FileDesk(tmp_path) as found:
        yield found


def booked(desk: FileDesk) -> int:
    return sum(desk.trial.verdicts("rows").values())


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [("a.jsonl", UTF16, "UTF-16"), ("a.jsonl.gz", CUT, "gzip")],
    ids=["utf-16", "cut gzip"],
)
def test_a_file_that_cannot_be_read_is_listed_with_its_reason(
    desk: FileDesk, name: str, content: bytes, why: str
) -> None:
    desk.deliver(name, content)
    (one,) = desk.deliveries.page(ALL, 10).deliveries
    assert (one.name, one.state, one.id) == (name, "rejected", "raw:rejected:1")
    assert why in (one.problem or "")
    assert Path(one.kept_as or "").read_bytes() == content
    assert desk.deliveries.overview()["rejected"] == 1


def test_a_file_that_was_corrected_in_its_place_is_taken_when_retried(desk: FileDesk) -> None:
    desk.deliver("day/a.jsonl", UTF16)
    (one,) = desk.deliveries.undecided()
    Path(one.kept_as or "").write_bytes(lines(1, 2))
    done = desk.deliveries.retry("day/a.jsonl", EVA)
    assert done.decided is not None
    assert (done.decided.who, done.decided.note) == ("eva", "the sender fixed it")
    assert desk.deliveries.undecided() == []
    desk.take()
    desk.book()
    assert states(desk.deliveries.page(ALL, 10).deliveries) == [
        ("day/a.jsonl", "booked"),
        ("day/a.jsonl", "retried"),
    ]
    assert booked(desk) == 2
    with pytest.raises(OperationError, match="already retried by eva"):
        desk.deliveries.retry("raw:rejected:1", EVA)


def test_a_corrected_copy_is_sent_in_its_place_and_the_original_stays(
    desk: FileDesk, tmp_path: Path
) -> None:
    desk.deliver("a.jsonl", UTF16)
    mended = tmp_path / "mended"
    mended.write_bytes(lines(1, 2, 3))
    desk.deliveries.retry("a.jsonl", EVA, mended)
    desk.take()
    desk.book()
    assert booked(desk) == 3
    originals = list((tmp_path / "books").rglob("*.original"))
    assert [path.read_bytes() for path in originals] == [UTF16]


def test_a_dismissed_file_stays_where_it_is_and_is_open_no_more(desk: FileDesk) -> None:
    desk.deliver("a.jsonl", UTF16)
    (one,) = desk.deliveries.undecided()
    desk.deliveries.dismiss("a.jsonl", EVA)
    assert desk.deliveries.undecided() == []
    assert states(desk.deliveries.page(ALL, 10).deliveries) == [("a.jsonl", "dismissed")]
    assert Path(one.kept_as or "").read_bytes() == UTF16
    with pytest.raises(OperationError, match="already dismissed by eva"):
        desk.deliveries.retry("a.jsonl", EVA)


def test_a_retry_that_was_killed_at_any_step_can_be_repeated_and_counts_once(
    desk: FileDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.deliver("a.jsonl", UTF16)
    (one,) = desk.deliveries.undecided()
    Path(one.kept_as or "").write_bytes(lines(1, 2))

    class Killed(BaseException): ...

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(retrying, "_hand_over", killed)
        with pytest.raises(Killed):
            desk.deliveries.retry("a.jsonl", EVA)
    desk.take()
    assert booked(desk) == 0
    desk.deliveries.retry("raw:rejected:1", EVA)
    desk.take()
    desk.book()
    assert booked(desk) == 2
    assert desk.deliveries.find("raw:rejected:1")[0].state == "retried"


def test_another_file_system_gets_a_copy_and_an_interrupted_one_is_finished(
    desk: FileDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.deliver("a.jsonl", UTF16)
    (one,) = desk.deliveries.undecided()
    kept = Path(one.kept_as or "")
    kept.write_bytes(lines(1, 2))
    rename, left = os.rename, [1]

    def elsewhere(source: object, target: object, **more: int) -> None:
        if str(source) == str(kept) and kept.exists():
            raise OSError(18, "Invalid cross-device link")
        if left and "retry-" in str(source):
            left.pop()
            raise KeyboardInterrupt
        rename(source, target, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", elsewhere)
    with pytest.raises(KeyboardInterrupt):
        desk.deliveries.retry("a.jsonl", EVA)
    desk.take()
    assert booked(desk) == 0, "a file of an unfinished retry has a name that intake leaves alone"
    desk.deliveries.retry("raw:rejected:1", EVA)
    desk.take()
    desk.book()
    assert booked(desk) == 2


def test_a_retry_never_replaces_a_file_that_waits(desk: FileDesk) -> None:
    desk.deliver("a.jsonl", UTF16)
    desk.send("a.jsonl", lines(9))
    with pytest.raises(OperationError, match=r"already has a file 'a.jsonl'"):
        desk.deliveries.retry("raw:rejected:1", EVA)
    assert len(desk.deliveries.undecided()) == 1
    assert (desk.drop / "a.jsonl").read_bytes() == lines(9)


def test_a_retry_does_not_follow_a_link_that_a_sender_put_there(
    desk: FileDesk, tmp_path: Path
) -> None:
    desk.deliver("day/a.jsonl", UTF16)
    (desk.drop / "day").rmdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (desk.drop / "day").symlink_to(outside)
    with pytest.raises(OperationError, match="Only plain folders are"):
        desk.deliveries.retry("day/a.jsonl", EVA)
    assert list(outside.iterdir()) == []


def test_a_name_that_leaves_the_drop_folder_is_refused(desk: FileDesk) -> None:
    desk.deliver("a.jsonl", UTF16)
    (one,) = desk.deliveries.undecided()
    note = Path(f"{one.kept_as}.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "name": "../../out.jsonl"}))
    with pytest.raises(OperationError, match="not a name that intake takes"):
        desk.deliveries.retry("raw:rejected:1", EVA)


def test_a_file_whose_manifest_does_not_agree_is_rejected_until_it_is_corrected(
    desk: FileDesk,
) -> None:
    (desk.drop / "a.jsonl.manifest").write_text(json.dumps({"rows": 3}))
    desk.send("a.jsonl", lines(1, 2))
    desk.take()
    (one,) = desk.deliveries.page(ALL, 10).deliveries
    assert (one.state, one.id) == ("rejected", None)
    assert "its manifest says 3 rows" in (one.problem or "")
    with pytest.raises(OperationError, match="still in the input folder"):
        desk.deliveries.retry("a.jsonl", EVA)
    (desk.drop / "a.jsonl.manifest").write_text(json.dumps({"rows": 2}))
    later = desk.now.timestamp() + 10
    os.utime(desk.drop / "a.jsonl.manifest", (later, later))
    assert states(desk.deliveries.page(ALL, 10).deliveries) == [("a.jsonl", "waiting")]
    desk.take()
    desk.book()
    assert states(desk.deliveries.page(ALL, 10).deliveries) == [("a.jsonl", "booked")]
