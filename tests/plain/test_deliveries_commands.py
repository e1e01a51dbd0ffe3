"""The commands about deliveries, on real books without Spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tapeline.cli import main, options
from tests.support.file_desk import FileDesk, lines

PIPELINE = """
from dataclasses import replace

from tests.support import law_orders

pipeline = law_orders.pipeline()
pipeline.sources["raw"] = replace(pipeline.sources["raw"], expect_every="52 weeks")
"""
Command = Callable[..., "Done"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[FileDesk]:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    with FileDesk(tmp_path) as found:
        yield found


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def tapeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """The command line, in this process: a new one for every command would cost a minute."""
    monkeypatch.setattr(options.out, "width", 200)
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)

    def called(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["tapeline", *words, "--root", "books"])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    yield called
    os.umask(before)


def test_from_a_list_to_the_records_of_a_file(desk: FileDesk, tapeline: Command) -> None:
    desk.deliver("day/monday.jsonl", lines(1, 2) + b"no json\n")
    desk.send("tuesday.jsonl", lines(4))
    listed = tapeline("deliveries")
    assert listed.code == 0, listed.err
    assert "Last processed: day/monday.jsonl (batch 1" in listed.out
    assert "Waiting: 1. Rejected: 0." in listed.out
    found = json.loads(tapeline("deliveries", "--state", "booked", "--json").out)
    (one,) = found["deliveries"]
    assert one["verdicts"]["rows"] == {"kept": 2, "quarantined": 1}
    assert found["next_offset"] is None
    shown = tapeline("deliveries", "show", "day/monday.jsonl", "--verdict", "quarantined")
    assert "raw:1:2" in shown.out
    assert "the record is not a JSON object" in shown.out
    record = tapeline("quarantine", "show", "raw:1:2")
    assert "line 3 of day/monday.jsonl" in record.out
    early = tapeline("deliveries", "--json", "show", "day/monday.jsonl")
    assert (early.code, "write options after 'show'" in early.err) == (2, True)
    wrong = tapeline("deliveries", "show", "sunday.jsonl")
    assert (wrong.code, "delivery 'sunday.jsonl' not found" in wrong.err) == (2, True)


def test_a_rejected_file_is_shown_everywhere_until_it_is_retried(
    desk: FileDesk, tapeline: Command
) -> None:
    desk.deliver("bad.jsonl", lines(1).decode().encode("utf-16"))
    assert "1 rejected file: see 'tapeline deliveries'" in tapeline("status").out
    status = json.loads(tapeline("status", "--json").out)
    assert [one["name"] for one in status["rejected"]] == ["bad.jsonl"]
    assert [one["alert"] for one in status["alerts"]] == ["delivery-rejected"]
    (alert,) = json.loads(tapeline("alerts", "--json").out)
    assert (alert["alert"], alert["key"]) == ("delivery-rejected", "raw:rejected:1")
    assert "bad.jsonl was rejected" in tapeline("alerts").out
    doctor = json.loads(tapeline("doctor", "--json").out)
    assert "deliveries" in {one["what"] for one in doctor if one["state"] == "warning"}
    (desk.root / "mended.jsonl").write_bytes(lines(1))
    words = ("--file", "mended.jsonl", "--who", "eva", "--note", "it was UTF-16")
    done = tapeline("deliveries", "retry", "bad.jsonl", *words)
    assert "retried by eva. It is in the input folder again." in done.out
    assert tapeline("alerts").out.strip() == "No active alerts."
    again = tapeline("deliveries", "retry", "raw:rejected:1")
    assert (again.code, "already retried by eva" in again.err) == (3, True)
    desk.take()
    desk.book()
    found = json.loads(tapeline("deliveries", "--json").out)["deliveries"]
    assert [(one["state"], one["name"]) for one in found] == [
        ("booked", "bad.jsonl"),
        ("retried", "bad.jsonl"),
    ]
    assert found[1]["decided"]["note"] == "it was UTF-16"
