"""Files on their way to the tape: in the drop folder, or taken and being read."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tapeline.books.deliveries import Delivery
from tapeline.intake.drop_folder import MANIFEST, NOT_PLAIN, WAITING_FILES, entries_in, shown
from tapeline.store.files import files_named, read_json, read_text, stamp

# Findings about files that stay in the drop folder until somebody mends them.
HELD = ("MANIFEST", "REFUSED", "UNREADABLE")


def waiting_files(source: str, drop: Path, home: Path, on_tape: int) -> list[Delivery]:
    """The files of a source that are not on the tape, newest first.

    A file that intake refuses to take is rejected, and stays where it is. `on_tape` is the last
    delivery on the tape.
    """
    problems = _problems(home)
    found = [_taken(source, note) for note in _being_read(home, on_tape)]
    for path, state in entries_in(drop, WAITING_FILES):
        name = shown(path)
        at = datetime.fromtimestamp(state.st_ctime, UTC)
        problem = None if stat.S_ISREG(state.st_mode) else NOT_PLAIN
        told = problems.get(name)
        if told and told[0] >= max(at, _manifest_at(drop / name)):
            problem = told[1]
        found.append(
            Delivery(
                source=source,
                kind="file",
                name=name,
                state="rejected" if problem else "waiting",
                arrived_at=at,
                bytes=state.st_size,
                problem=problem,
                kept_as=str(drop / name) if problem else None,
            )
        )
    return sorted(found, key=lambda one: (one.arrived_at, one.name), reverse=True)


def _taken(source: str, note: dict[str, Any]) -> Delivery:
    taken = note.get("taken_at")
    at = datetime.fromisoformat(taken) if taken else datetime.fromtimestamp(0, UTC)
    name, size = str(note["name"]), int(note["size"])
    return Delivery(source, "file", name, "waiting", arrived_at=at, bytes=size, problem=None)


def _being_read(home: Path, on_tape: int) -> Iterator[dict[str, Any]]:
    """Notes of files that were taken out of the drop folder and are not on the tape yet."""
    for path in files_named(home / "taken", "*.json"):
        try:
            note = read_json(path)
            if int(note["delivery"]) > on_tape:
                yield note
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it was put away in this moment


def _problems(home: Path) -> dict[str, tuple[datetime, str]]:
    """The last finding about each file that intake refuses to take."""
    found: dict[str, tuple[datetime, str]] = {}
    for name in ("findings.old.jsonl", "findings.jsonl"):
        try:
            lines = read_text(home / name).splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            try:
                said = json.loads(line)
                if said["kind"] in HELD:
                    found[said["name"]] = datetime.fromisoformat(said["at"]), str(said["detail"])
            except (ValueError, KeyError, TypeError):
                continue
    return found


def _manifest_at(file: Path) -> datetime:
    """When a file's manifest was last written; long ago if it has none."""
    try:
        written, _ = stamp(file.with_name(file.name + MANIFEST.decode()))
    except OSError:
        written = 0
    return datetime.fromtimestamp(written / 1e9, UTC)
