"""Room on disk, what is kept how long, the log, and the service file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from configparser import ConfigParser
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tapeline import DeclarationError
from tapeline.books.layout import Layout
from tapeline.books.sizes import sizes_of
from tapeline.cli.options import load
from tapeline.operate.log import Log
from tapeline.operate.service import unit
from tapeline.settings import LogSettings
from tapeline.store.housekeeping import kept_for, remove_archived

NOW = datetime.now(UTC)


def put(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_room_is_counted_by_part_and_a_file_of_two_names_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    piece = put(layout.intake("raw") / "staged" / "000000000001.parquet", 100)
    (tmp_path / "bronze/raw").mkdir(parents=True)
    os.link(piece, tmp_path / "bronze/raw" / piece.name)
    put(layout.register("trades") / "a.parquet", 20)
    put(layout.journal("sums") / "a.parquet", 3)
    put(layout.intake("raw") / "archive" / "0" / "1", 4_000)
    put(layout.log / "run.log", 50_000)
    found = sizes_of(layout, NOW)
    assert found["total"] == 54_123
    assert (found["books"], found["archive"], found["other"]) == (23, 4_000, 50_000)
    assert found["tape"] + found["intake"] == 100
    assert found["growth_per_day"] is None  # nothing was ever published


def test_originals_go_when_their_time_is_over_and_no_sooner(tmp_path: Path) -> None:
    sent_long_ago = put(tmp_path / "0" / "000000000001", 1)
    os.utime(sent_long_ago, (1, 1))  # the sender's time does not count
    assert remove_archived(tmp_path, kept_for("forever"), NOW + timedelta(days=9_999)) == 0
    assert remove_archived(tmp_path, kept_for("2 days"), NOW + timedelta(days=1)) == 0
    assert remove_archived(tmp_path, kept_for("2 days"), NOW + timedelta(days=3)) == 1
    assert not sent_long_ago.exists()
    with pytest.raises(DeclarationError, match="not a duration"):
        kept_for("for ever")


def test_the_log_is_for_people_or_machines_and_never_grows_beyond_its_files(
    tmp_path: Path,
) -> None:
    settings = LogSettings(format="json", file_megabytes=1, files=2)
    log = Log(tmp_path, settings, lambda: NOW)
    for number in range(3):
        log.say("published", batch=number, note="x" * 700_000)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.log", "run.log.1"]
    (line,) = (tmp_path / "run.log").read_text().splitlines()
    assert json.loads(line)["batch"] == 2
    people = Log(tmp_path / "people", replace(settings, format="human"), lambda: NOW)
    people.say("incident_began", part="the flow", error="two\nlines")
    people.close()
    (line,) = (tmp_path / "people" / "run.log").read_text().splitlines()
    assert line.endswith('incident_began part="the flow" error="two\\nlines"')


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", LogSettings(), lambda: NOW)
    shutil.rmtree(tmp_path / "log")
    log.say("published", batch=1)
    log.close()


def test_the_service_file_is_one_that_systemd_understands(tmp_path: Path) -> None:
    project = tmp_path / "with space 50% $HOME"
    project.mkdir()
    plan, settings = load("tapeline.trades", project, None)
    text = unit(plan, "tapeline.trades", settings, "15 minutes", "daemon")
    said = ConfigParser(interpolation=None, strict=False)
    said.read_string(text)
    service = dict(said["Service"])
    assert (service["user"], service["killmode"]) == ("daemon", "mixed")
    assert service["restartpreventexitstatus"] == "2"
    assert '--every "15 minutes"' in service["execstart"]
    assert "50%% $$HOME" in service["execstart"]
    if shutil.which("systemd-analyze"):
        path = tmp_path / "tapeline-trades.service"
        path.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
    for wrong in ("root\nExecStart=/bin/sh", "a b"):
        with pytest.raises(DeclarationError, match="not a user name"):
            unit(plan, "tapeline.trades", settings, "asap", wrong)
    with pytest.raises(DeclarationError, match="not a duration"):
        unit(plan, "tapeline.trades", settings, "sometimes", None)
