"""Pages are handed over once each, whatever fsync fails and whenever the process dies."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tapeline import OperationError
from tapeline.intake.handover import Handover

RECORDS = [b'{"n": %d}' % number for number in range(40)]
SYNCS_PER_PAGE = 5


class DiedError(BaseException):
    """The process is gone: nothing may catch this."""


class Trouble:
    """In place of os.fsync: the call at `fails` says EIO, the process dies at the one at `dies`."""

    def __init__(self, fails: int, dies: int) -> None:
        self.count = 0
        self._fails, self._dies = fails, dies

    def __call__(self, handle: int) -> None:
        self.count += 1
        path = os.readlink(f"/proc/self/fd/{handle}")
        if self.count == self._dies:
            if path.endswith(".part"):
                os.ftruncate(handle, 7)  # whoever dies while writing leaves a part of it
            raise DiedError
        if self.count == self._fails:
            raise OSError(5, "Input/output error")


class Desk:
    """Asks for pages of any size, hands them over, and begins again after it died."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.chance = chance
        self.path, self.drop = folder / "pull" / "office.json", folder / "drop"
        self.taken: list[bytes] = []
        self.handover = self.begin()

    def begin(self) -> Handover:
        return Handover(self.path, self.drop, "GET /trades", 0)

    def step(self) -> bool:
        """One page; False when there is no more."""
        try:
            self.handover.finish()
            at = (self.handover.stands.position or {"at": 0})["at"]
            page = RECORDS[at : at + self.chance.randint(1, 9)]
            self.handover.deliver(page, {"at": at + len(page)} if page else {"at": at})
        except OSError:
            return True
        except DiedError:
            self.handover = self.begin()
            return True
        finally:
            if self.chance.random() < 0.5:
                self.take()
        return bool(page)

    def take(self) -> None:
        for path in sorted(self.drop.glob("[!.]*")):
            self.taken += path.read_bytes().splitlines()
            path.unlink()


@pytest.mark.parametrize("fails", range(1, 2 * SYNCS_PER_PAGE + 1))
def test_each_record_once_whatever_fails_and_whenever_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    for dies in range(1, 4 * SYNCS_PER_PAGE):
        desk = Desk(tmp_path / str(dies), Random(100 * fails + dies))
        trouble = Trouble(fails, dies)
        monkeypatch.setattr(os, "fsync", trouble)
        while desk.step():
            pass
        monkeypatch.undo()
        desk.take()
        assert desk.taken == RECORDS, (fails, dies)
        assert trouble.count > dies


def test_a_damaged_position_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Random(1))
    desk.step()
    desk.path.write_bytes(desk.path.read_bytes()[:-5])
    with pytest.raises(OperationError, match="is damaged"):
        desk.begin()
