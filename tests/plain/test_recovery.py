"""After a failed step the next one starts from what is stored."""

from __future__ import annotations

import pytest

from tapeline.store.recovery import Recovery


class Counter:
    """A number in memory and the same number on a disk."""

    def __init__(self) -> None:
        self.stored = self.memory = 0
        self.recoveries = 0
        self.recovery = Recovery(self._recover)

    def _recover(self) -> None:
        self.recoveries += 1
        self.memory = self.stored

    def add(self, fails: bool = False) -> None:
        with self.recovery.step():
            self.memory += 1
            if fails:
                raise OSError("the disk is full")
            self.stored = self.memory


def test_it_recovers_once_at_the_start_and_after_each_failure():
    counter = Counter()
    counter.add()
    counter.add()
    assert counter.recoveries == 1
    with pytest.raises(OSError, match="disk"):
        counter.add(fails=True)
    assert counter.memory != counter.stored
    counter.add()
    assert (counter.recoveries, counter.memory, counter.stored) == (2, 3, 3)


def test_a_recovery_that_fails_runs_again():
    attempts = []

    def recover() -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise OSError("not yet")

    recovery = Recovery(recover)
    with pytest.raises(OSError, match="not yet"):
        recovery.ensure()
    with recovery.step():
        pass
    recovery.ensure()
    assert attempts == [0, 1]
