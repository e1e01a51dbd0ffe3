"""Is a file whole? Its manifest says so, or the kernel and the clock do."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.intake.delivery_reader import DeliveryReader, FileRules, sha256_of
from tapeline.intake.drop_folder import MANIFEST, NOT_PLAIN, Opened, shown
from tapeline.intake.problems import ProblemLog
from tapeline.store.disk import READ_SAFELY, Lease, lease
from tapeline.words import counted

MANIFEST_BYTES = 64 * 1024
# How many files that are not whole yet are remembered from one pass to the next.
REMEMBERED_FILES = 100_000
# File times may lag behind the clock by a tick.
COARSE_SECONDS = 0.1


@dataclass(frozen=True)
class CompleteFile:
    """A file that may be taken: its state when it was judged, and the manifest it agrees with."""

    state: os.stat_result
    manifest: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest as it lies beside its file: what identifies it, and its text or its problem."""

    identity: tuple[int, ...]
    text: bytes
    problem: str | None = None


class CompletenessCheck:
    """Decides whether a sender has finished a file."""

    def __init__(
        self,
        form: FileRules,
        limits: IntakeLimits,
        monotonic: Callable[[], float],
        clock: Callable[[], datetime],
        findings: ProblemLog,
    ) -> None:
        self._form = form
        self._limits = limits
        self._monotonic = monotonic
        self._clock = clock
        self._findings = findings
        self._watched: dict[bytes, tuple[tuple[int, ...], float]] = {}
        self._compared: dict[bytes, tuple[int, ...]] = {}

    def judge(self, opened: Opened) -> CompleteFile | None:
        """What may be taken, or None: not yet, or never (then there is a finding)."""
        state = os.fstat(opened.handle)
        if not stat.S_ISREG(state.st_mode):
            self._findings.once("REFUSED", shown(opened.path), NOT_PLAIN)
            return None
        sheet = _manifest_beside(opened)
        if sheet:
            return self._by_manifest(opened, state, sheet)
        answer = lease(opened.handle)
        if answer is Lease.REFUSED:
            self._watched.pop(opened.path, None)
            return None
        state = os.fstat(opened.handle)
        # Writing sets both times at once. A rename sets ctime alone: it came after the last write.
        renamed = opened.renamed or state.st_ctime_ns != state.st_mtime_ns
        finished = (renamed or self._rested(state)) and answer is Lease.GRANTED
        if not finished and not self.unchanged(opened.path, state):
            return None
        self._watched.pop(opened.path, None)
        return CompleteFile(state)

    def _rested(self, state: os.stat_result) -> bool:
        """Whether nothing has touched a file for `settle_seconds`: senders cannot set ctime."""
        age = self._clock().timestamp() - state.st_ctime
        return age >= max(self._limits.settle_seconds, COARSE_SECONDS)

    def unchanged(self, key: bytes, state: os.stat_result) -> bool:
        """Whether a file has been in this state for `settle_seconds`."""
        now = self._monotonic()
        mark = (state.st_ino, state.st_size, state.st_mtime_ns)
        known, since = self._watched.pop(key, (None, now))
        if known != mark:
            since = now
        _remember(self._watched, key, (mark, since))
        return now - since >= self._limits.settle_seconds

    def _by_manifest(
        self, opened: Opened, state: os.stat_result, sheet: Manifest
    ) -> CompleteFile | None:
        mark = (*_identity(state), *sheet.identity)
        # A large file is not hashed again at every pass: it is held until something changes.
        if self._compared.get(opened.path) == mark:
            return None
        promises: Mapping[str, Any] = {}
        problem = sheet.problem
        if not problem:
            promises, problem = _promises(sheet.text)
        problem = problem or self._broken_promise(opened.handle, state.st_size, promises)
        if problem:
            # While it is still being written it cannot agree yet: nothing to tell anybody.
            if lease(opened.handle) is not Lease.REFUSED:
                _remember(self._compared, opened.path, mark)
                self._findings.once("MANIFEST", shown(opened.path), problem)
            return None
        self._compared.pop(opened.path, None)
        return CompleteFile(state, promises)

    def _broken_promise(self, handle: int, size: int, promises: Mapping[str, Any]) -> str | None:
        if promises.get("bytes", size) != size:
            return f"its manifest says {counted(promises['bytes'], 'byte')}, the file has {size:,}"
        try:
            if "sha256" in promises and promises["sha256"] != sha256_of(handle, size):
                return "its manifest gives another sha256 than the file has"
            if "rows" in promises:
                rows = sum(map(len, DeliveryReader(handle, size, self._form, self._limits)))
                if rows != promises["rows"]:
                    said = counted(promises["rows"], "row")
                    return f"its manifest says {said}, the file has {rows:,}"
        except UnreadableFileError as error:
            return f"it cannot be compared with its manifest: {error}"
        return None


def _manifest_beside(opened: Opened) -> Manifest | None:
    try:
        handle = os.open(opened.name + MANIFEST, READ_SAFELY, dir_fd=opened.folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return None
        return Manifest((), b"", f"its manifest cannot be opened: {error.strerror}")
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MANIFEST_BYTES:
            return Manifest(_identity(state), b"", "its manifest is not a small plain file")
        return Manifest(_identity(state), os.read(handle, MANIFEST_BYTES))
    finally:
        os.close(handle)


def _promises(text: bytes) -> tuple[Mapping[str, Any], str | None]:
    """What a manifest promises, and what is wrong with the manifest itself."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "its manifest is not JSON"
    if not isinstance(found, dict):
        return {}, "its manifest is not a JSON object"
    promises = {key: found[key] for key in ("bytes", "rows", "sha256") if key in found}
    if not promises:
        return {}, "its manifest has none of bytes, rows and sha256"
    for key, value in promises.items():
        if type(value) is not (str if key == "sha256" else int):
            return {}, f"its manifest's {key} is not a {'text' if key == 'sha256' else 'number'}"
    if "sha256" in promises:
        promises["sha256"] = promises["sha256"].lower()
    return promises, None


def _identity(state: os.stat_result) -> tuple[int, ...]:
    return state.st_dev, state.st_ino, state.st_size, state.st_ctime_ns


def _remember(memory: dict[bytes, Any], key: bytes, value: Any) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED_FILES:
        del memory[next(iter(memory))]
