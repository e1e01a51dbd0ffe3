"""A batch never has more records than the limit says, however large a file is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from tapeline.books.layout import Layout
from tapeline.books.status_file import StatusFile
from tapeline.books.tape import Tape
from tapeline.flow.backlog import Backlog
from tapeline.flow.batch_size import BatchSize
from tapeline.flow.flow import Flow
from tapeline.intake.opening import Opening
from tapeline.plan import resolve
from tapeline.settings import FlowSettings, IntakeSettings, Settings
from tests.support import law_orders
from tests.support.intake_desk import Desk
from tests.support.list_queries import ListQueries
from tests.support.plain_compute import plain_compiler
from tests.support.waiting import wait_for


def now() -> datetime:
    return datetime(2026, 11, 13, 12, tzinfo=UTC)


def test_a_large_file_is_cut_into_tape_batches_that_fit_into_a_batch(tmp_path: Path) -> None:
    """With the defaults: 470,000 short lines compress to less than one tape batch's bytes."""
    defaults = FlowSettings()
    room = BatchSize(defaults.records_per_batch, 0.0)
    desk = Desk(tmp_path, bytes_per_tape_batch=defaults.bytes_per_tape_batch, room=room)
    desk.send("large.json", b'{"a":1}\n' * 470_000)
    while desk.take():
        pass
    assert desk.writer is not None
    batches = desk.writer.since(0)
    assert sum(batch.records for batch in batches) == 470_000
    assert [batch.records for batch in batches] == [200_000, 200_000, 70_000]
    cut = Backlog({"raw": desk.writer}, {}).cut(200_000, defaults.bytes_per_batch, {})
    assert [batch.records for batch in cut["raw"]] == [200_000]


class Place:
    """A pipeline in a folder, with a limit of its own."""

    def __init__(self, root: Path, most: int) -> None:
        pipeline = law_orders.pipeline()
        self.plan = resolve(pipeline)
        self.settings = Settings(
            project=root,
            root=root / "books",
            intake=IntakeSettings(settle_seconds=0.001),
            flow=FlowSettings(records_per_batch=most),
        )
        layout = Layout(self.settings.home(pipeline.name))
        self.tape = Tape(layout, "raw", now)
        compiled = plain_compiler(pipeline, law_orders.TWINS)
        self.flow = Flow(compiled, self.plan, self.settings, {"raw": self.tape}, now)
        self.tape.on_append = lambda batch: self.flow.offer("raw", batch)
        queries = ListQueries([])
        self.intake = Opening(self.plan, self.settings, self.flow, now, queries).open("raw")

    def limit_shown(self) -> int | None:
        path = Layout(self.settings.home(self.plan.name)).status
        StatusFile(path, now()).write(self.flow, None, False, now())
        found: int = json.loads(path.read_text())["batch_limit_records"]
        return found

    def close(self) -> None:
        self.intake.close()
        self.flow.close()


def test_the_limit_of_the_settings_reaches_intake_and_a_lower_one_is_told(tmp_path: Path) -> None:
    lines = b"".join(json.dumps(law_orders.record(n)).encode() + b"\n" for n in range(330))
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / ".large").write_bytes(lines)
    (tmp_path / "landing" / ".large").rename(tmp_path / "landing" / "large.json")
    place = Place(tmp_path, most=100)
    wait_for(lambda: place.intake.take() > 0)
    assert [batch.records for batch in place.tape.since(0)] == [100, 100, 100, 30]
    assert place.limit_shown() == 100
    assert [done.records for done in place.flow.advance(1)] == [100]
    place.close()
    # A lower limit: what is on the tape is taken whole, and the status says so until then.
    place = Place(tmp_path, most=40)
    assert place.limit_shown() == 100
    assert [done.records for done in place.flow.advance()] == [100, 100, 30]
    assert place.limit_shown() == 40
    place.close()
