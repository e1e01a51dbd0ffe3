"""The status of a run: typed values in the process, the same text on disk as ever."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tapeline.books.status import IncidentStatus, Pause, SinkStatus, Status, read_status
from tapeline.books.status_file import StatusFile
from tapeline.books.stuck import failed_again
from tapeline.errors import OperationError

NOW = datetime(2026, 11, 13, 10, tzinfo=UTC)

# Written by the version before the status was typed.
WRITTEN = (
    '{"pipeline": "shop", "pid": 4711, "running": true, "paused": '
    '{"at": "2026-11-13T10:00:00+00:00", "who": "amy", "note": "audit"}, '
    '"at": "2026-11-13T10:00:05+00:00", "batch": 6, "published_at": "2026-11-13T10:00:03+00:00", '
    '"positions": {"raw": 9, "topic": 2}, "started_at": "2026-11-13T10:00:00+00:00", "starts": 1, '
    '"kills": 0, "retries": 2, "lag_records": 11, "lag_seconds": 4.0, "sources": {"raw": '
    '{"position": 9, "lag_records": 3, "lag_seconds": 4.0, "catch_up_seconds": null, '
    '"partitions": {}, "drop_files": 2, "drop_bytes": 900, "problem": "intake: no"}, "topic": '
    '{"position": 2, "lag_records": 7, "lag_seconds": 1.5, "catch_up_seconds": null, "partitions": '
    '{"t-0": {"lag_records": 7, "lag_seconds": 1.5, "catch_up_seconds": null}, "t-1": '
    '{"lag_records": 0, "lag_seconds": 0.0, "catch_up_seconds": 0.0}}, "drop_files": 0, '
    '"drop_bytes": 0, "problem": null}}, "sinks": {"out": {"to": "topic out", '
    '"delivered_batch": 5, "lag_batches": 1, "messages": 3, "problem": null}}, "drop_files": 2, '
    '"records_per_second": 15.0, "batch_milliseconds": 500, "batch_limit_records": 1000, '
    '"overruns": 1, "problems": {"raw": "intake: no"}, "incidents": [{"part": "sink out", '
    '"since": "2026-11-13T10:00:00+00:00", "attempts": 3, "error": "no \\u00fcn\\u00ef \\udcff", '
    '"given_up": false}], "failure": "boom", "stuck": {"since": "2026-11-13T10:00:00+00:00", '
    '"batch": 7, "tapes": {"raw": [12, 15]}, "attempts": 1, "at": "2026-11-13T10:00:00+00:00", '
    '"error": "No space left"}}'
)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def flow_of_two_sources() -> Any:
    waiting = {"raw": (3, at(1)), "topic": (0, None)}
    return SimpleNamespace(
        plan=SimpleNamespace(name="shop"),
        tapes=dict.fromkeys(waiting),
        published_batch=6,
        published_at=at(3),
        acts_waiting=1,
        backlog=SimpleNamespace(largest=0, position={"raw": 9, "topic": 2}, of=waiting.__getitem__),
        room=SimpleNamespace(records=1000),
    )


def test_the_file_has_the_text_it_always_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    status = StatusFile(path, NOW)
    status.note(SimpleNamespace(at=at(1), records=10, seconds=0.25))
    status.note(SimpleNamespace(at=at(3), records=30, seconds=0.5))
    status.overruns, status.retries = 1, 2
    status.paused = Pause(at=NOW.isoformat(), who="amy", note="audit")
    status.sinks = {
        "out": SinkStatus(
            to="topic out", delivered_batch=5, lag_batches=1, messages=3, problem=None
        )
    }
    error = "no \u00fcn\u00ef \udcff"  # the name of a file that is no UTF-8
    status.incidents = [
        IncidentStatus(
            part="sink out", since=NOW.isoformat(), attempts=3, error=error, given_up=False
        )
    ]
    status.dropped = {"raw": (2, 900)}
    lags = {"t-0": (7, 1.5), "t-1": (0, 0.0)}
    status.partitions = {
        "topic": {
            name: SimpleNamespace(records=records, seconds=seconds)
            for name, (records, seconds) in lags.items()
        }
    }
    status.problems = {"raw": "intake: no"}
    status.stuck = failed_again(None, 7, {"raw": (12, 15)}, "No space left", NOW)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 4711)
        status.write(flow_of_two_sources(), OperationError("boom"), True, at(5))
    assert path.read_text() == WRITTEN
    assert json.dumps(Status.from_json(WRITTEN).as_dict()) == WRITTEN
    assert [one.name for one in tmp_path.iterdir()] == ["status.json"]


def test_a_file_of_another_version_is_read_and_given_back_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    text = (
        '{"pid": 1, "running": false, "batch": 3, "sources": {"raw": {"position": 3, '
        '"lag_seconds": 2, "rack": "b"}}, "moons": [1, 2.0]}'
    )
    path.write_text(text)
    found = read_status(path)
    assert found is not None
    assert (found.batch, found.starts, found.stuck, found.sources["raw"].lag_records) == (
        3, 0, None, 0
    )  # fmt: skip
    assert json.dumps(found.as_dict()) == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"batch": "many"}'])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    assert read_status(tmp_path / "status.json") is None
    StatusFile(tmp_path / "status.json", NOW)
