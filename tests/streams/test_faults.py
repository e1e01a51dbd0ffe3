"""Faults of the catalogue, injected for real; their numbers are those of the catalogue."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from tapeline import OperationError
from tapeline.books.status import Status, read_status
from tapeline.books.table_id import TableId
from tapeline.books.tape import Tape
from tapeline.flow import ledger
from tapeline.settings import NotifySettings, Settings, SuperviseSettings
from tapeline.testing import Books, Crash, Deployment, Trial, crash_at, unbalanced
from tests.support.corrected_orders import expected, pipeline, record
from tests.support.counted_words import counted, counts, drop, settings_for
from tests.support.waiting import wait_for

RETRIES = SuperviseSettings(attempts=100, max_wait_seconds=0.5)


def telling(folder: Path, settings: Settings) -> Settings:
    """Settings under which every message is appended to a file."""
    script = folder / "tell.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')")
    command = shlex.join([sys.executable, str(script), str(folder / "told")])
    return replace(settings, notify=NotifySettings(command=command), supervise=RETRIES)


def told(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "told").read_text().splitlines() if (folder / "told").exists() else []
    return [(one["part"], one["event"]) for one in map(json.loads, lines)]


def balanced(books: Books) -> bool:
    return unbalanced(books, full=True) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that can be filled."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(filler: Path) -> None:
    """Write until the disk has no room for a byte."""
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass


def test_24_a_full_disk_is_named_told_and_survived(
    small_disk: Path, tmp_path: Path, spark: Any
) -> None:
    settings = telling(tmp_path, settings_for(tmp_path))
    settings = replace(settings, root=small_disk / "books")
    plan = counted()
    deployment = Deployment(plan, settings)
    books = deployment.books
    with deployment.running():
        drop(tmp_path, "a", {"word": "all"})
        wait_for(lambda: counts(books).get("all") == 1)
        filler = small_disk / "filler"
        fill(filler)
        drop(tmp_path, "b", {"word": "all"})
        wait_for(lambda: bool(told(tmp_path)))
        filler.unlink()
        wait_for(lambda: counts(books).get("all") == 2)
        wait_for(lambda: any(event == "over" for _, event in told(tmp_path)))
    assert balanced(books)
    parts = {part for part, _ in told(tmp_path)}
    for part in parts:  # once when it began, once when it was over
        assert [event for one, event in told(tmp_path) if one == part][:2] == ["began", "over"]


def test_a_source_that_disappears_is_told_and_goes_on_when_it_returns(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = telling(tmp_path, settings_for(tmp_path)), counted()
    deployment = Deployment(plan, settings)
    books = deployment.books
    with deployment.running():
        (tmp_path / "landing").rename(tmp_path / "away")
        wait_for(lambda: ("intake of raw", "began") in told(tmp_path))
        (tmp_path / "away").rename(tmp_path / "landing")
        drop(tmp_path, "a", {"word": "all"})
        wait_for(lambda: counts(books).get("all") == 1)
        wait_for(lambda: ("intake of raw", "over") in told(tmp_path))
    assert told(tmp_path) == [("intake of raw", "began"), ("intake of raw", "over")]


def test_a_tape_that_cannot_be_written_is_tried_again(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, plan = telling(tmp_path, settings_for(tmp_path)), counted()
    deployment = Deployment(plan, settings)
    books = deployment.books
    append, failures = Tape.append, iter([OSError(5, "Input/output error"), ValueError("no")])

    def sometimes(tape: Tape, limits: Any) -> Any:
        error = next(failures, None)
        if error:
            raise error
        return append(tape, limits)

    monkeypatch.setattr(Tape, "append", sometimes)
    with deployment.running():
        drop(tmp_path, "a", {"word": "all"})
        wait_for(lambda: counts(books).get("all") == 1)
        wait_for(lambda: ("intake of raw", "over") in told(tmp_path))
    assert told(tmp_path) == [("intake of raw", "began"), ("intake of raw", "over")]
    assert balanced(books)


def test_10_a_poison_batch_is_named_given_up_and_does_not_stop_the_tape(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = telling(tmp_path, settings_for(tmp_path)), counted()
    few = SuperviseSettings(attempts=2, max_wait_seconds=0.2)
    settings = replace(settings, supervise=few)
    deployment = Deployment(plan, settings)
    with deployment.running() as runner:
        drop(tmp_path, "a", {"word": "x", "size": 13})
        wait_for(lambda: ("the flow", "given_up") in told(tmp_path))
        drop(tmp_path, "b", {"word": "y"})
        wait_for(lambda: runner.tapes["raw"].last_batch == 2)
        status = deployment.status()
    assert told(tmp_path) == [("the flow", "began"), ("the flow", "given_up")]
    assert "batch 1: raw tape batches 1 to 1" in status.incidents[0].error


@pytest.mark.parametrize("point", ["tape_decided", "tape_added", "tape_committed"])
def test_13_to_18_the_tape_is_the_only_position(tmp_path: Path, spark: Any, point: str) -> None:
    """A claimed delivery that is offered again counts once; an equal file is a new delivery."""
    settings, plan = settings_for(tmp_path), counted()
    deployment = Deployment(plan, settings)
    drop(tmp_path, "a", {"word": "all"})
    with crash_at(point), pytest.raises(Crash):
        deployment.run_once()
    deployment.run_once()
    assert counts(deployment.books) == {"all": 1}
    drop(tmp_path, "a", {"word": "all"})
    deployment.run_once()
    assert counts(deployment.books) == {"all": 2}
    assert balanced(deployment.books)
    assert not (settings.home("counted") / "checkpoints").exists()


def test_a_project_that_was_moved_starts(tmp_path: Path, spark: Any) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "landing").mkdir(parents=True)
    plan = counted()
    for folder, name in ((here, "a"), (there, "b")):
        drop(folder, name, {"word": "all"})
        moved = Deployment(plan, settings_for(folder))
        moved.run_once()
        books = moved.books
        assert counts(books) == {"all": 1 if folder == here else 2}
        assert balanced(books)
        if folder == here:
            here.rename(there)


@pytest.fixture
def kept(tmp_path: Path, spark: Any) -> Trial:
    trial = Trial(pipeline(), tmp_path)
    for key in (1, 2, 3):
        trial.feed(raw=[record(key, 2)])
    return trial


def last_entry(trial: Trial, table: str) -> Path:
    return max((trial.flow.layout.home / table / "_delta_log").glob("*.json"))


def test_19_an_empty_commit_is_refused_and_its_batch_finished_again(
    kept: Trial, tmp_path: Path
) -> None:
    last = last_entry(kept, "silver/rows")
    last.write_bytes(b"")
    with pytest.raises(OperationError, match="COMMIT_EMPTY"):
        Trial(pipeline(), tmp_path, like=kept)
    last.unlink()  # the remedy that the message names
    again = Trial(pipeline(), tmp_path, like=kept)
    assert again.verdicts("rows") == {"kept": 2, "applied": 1}
    assert len(again.read("rows")) == 2
    assert balanced(again.books)


def test_20_a_torn_commit_is_named(kept: Trial, tmp_path: Path) -> None:
    last = last_entry(kept, "gold/totals")
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(OperationError, match=r"COMMIT_CORRUPT.*gold/totals"):
        Trial(pipeline(), tmp_path, like=kept)


def test_23_a_broken_log_checkpoint_is_done_without(kept: Trial, tmp_path: Path) -> None:
    kept.flow.ledger.books[TableId.register("rows")].checkpoint()
    log = kept.flow.layout.home / "silver/rows/_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:50])
    again = Trial(pipeline(), tmp_path, like=kept)
    assert again.verdicts("rows") == {"kept": 2, "applied": 1}
    assert balanced(again.books)


def test_25_a_disk_that_cannot_keep_its_promise_decides_nothing(
    kept: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.put("raw", [record(9, 1)])
    before = kept.books.cut().batch

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            kept.advance()
    assert kept.books.cut().batch == before
    kept.advance()
    assert kept.books.cut().batch == before + 1
    assert balanced(kept.books)


def test_12_books_of_a_newer_version_are_left_alone(
    kept: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "SHAPE", ledger.SHAPE + 1)
        kept.feed(raw=[record(9, 1)])
    with pytest.raises(OperationError, match="STATE_VERSION"):
        Trial(pipeline(), tmp_path, like=kept)


def test_5_two_writers_keep_the_books_right_even_if_the_lock_fails(
    tmp_path: Path, spark: Any
) -> None:
    one = Trial(pipeline(), tmp_path)
    for key in range(12):
        one.put("raw", [record(key, 2), record(key, 1)])
    two = Trial(pipeline(), tmp_path, like=one)

    def work(trial: Trial) -> None:
        for _ in range(200):
            try:
                if not trial.advance(limit=1):
                    break
            except (OperationError, OSError, DeltaError):
                continue

    threads = [threading.Thread(target=work, args=(trial,)) for trial in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = Trial(pipeline(), tmp_path, like=one)
    after.advance()
    *_, verdicts = expected([(key, version) for key in range(12) for version in (2, 1)])
    assert after.verdicts("rows") == dict(verdicts)
    assert balanced(after.books)


def test_29_a_table_rolled_back_whose_file_is_gone_is_named(kept: Trial, tmp_path: Path) -> None:
    last_entry(kept, "silver/rows").unlink()
    (lost,) = (kept.flow.layout.home / "silver/rows").glob("batch-000000000003-*.parquet")
    lost.unlink()
    with pytest.raises(OperationError, match=r"TABLE_BEHIND.*batch 3"):
        Trial(pipeline(), tmp_path, like=kept)


def test_83_a_clock_that_jumps_back_changes_no_order(tmp_path: Path, spark: Any) -> None:
    now = datetime(2026, 11, 13, 12, tzinfo=UTC)
    moments = iter([now + timedelta(hours=h) for h in (0, 1, -1, 0, -2, 1, 0, -1, 2, 0) * 5])
    trial = Trial(pipeline(), tmp_path, clock=lambda: next(moments))
    published = []
    for key in (1, 2, 3):
        trial.feed(raw=[record(key, 2)])
        published.append(trial.books.cut().at)
    assert published == sorted(published)  # type: ignore[type-var]
    assert len(set(published)) == 3
    assert len(trial.books.read("rows", published[1]).to_pylist()) >= 0
    assert trial.verdicts("rows") == {"kept": 2, "applied": 1}
    assert balanced(trial.books)


@pytest.mark.spark
def test_6_a_paused_process_keeps_its_lock(tmp_path: Path) -> None:
    from tests.support.command_line import COMMAND, ENVIRONMENT, PIPELINE, tapeline

    (tmp_path / "inbox").mkdir()
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    status = tmp_path / "tapeline-data" / "sales" / "status.json"
    first = subprocess.Popen(
        [*COMMAND, "run", "pipeline.py"], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: read_status(status) is not None)
        first.send_signal(signal.SIGSTOP)
        second = tapeline(tmp_path, "run", "pipeline.py", "--once")
        first.send_signal(signal.SIGCONT)
        (tmp_path / "inbox" / "a.csv").write_text("id,shop,money\n1,north,2\n")
        wait_for(lambda: (read_status(status) or Status()).batch == 1)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()
    assert second.returncode == 3
    assert "ALREADY_RUNNING" in second.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_84_85_zone_and_locale_of_the_machine_change_no_byte(tmp_path: Path) -> None:
    from tests.support.command_line import COMMAND, ENVIRONMENT, PIPELINE

    answers = []
    for name, more in (
        ("plain", {}),
        ("far", {"TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}),
    ):
        folder = tmp_path / name
        (folder / "inbox").mkdir(parents=True)
        (folder / "pipeline.py").write_text(PIPELINE)
        (folder / "inbox" / "a.csv").write_text(
            "id,shop,money\ni1,istanbul,1.50\nI2,ISTANBUL,2.50\nx,y,1,5\n"
        )
        for words in (["run", "pipeline.py", "--once"], ["audit", "pipeline.py"]):
            subprocess.run(
                [*COMMAND, *words], cwd=folder, env={**ENVIRONMENT, **more}, check=True,
                capture_output=True,
            )  # fmt: skip
        done = subprocess.run(
            [*COMMAND, "report", "by_shop", "-p", "pipeline.py", "--json"],
            cwd=folder, env={**ENVIRONMENT, **more}, check=True, capture_output=True,
        )  # fmt: skip
        answers.append(done.stdout)
    assert answers[0] == answers[1]
    assert b"ISTANBUL" in answers[0]
