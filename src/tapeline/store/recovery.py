"""The one recovery after a failed step: read again what is on disk before the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Recovery:
    """Keeps what is in memory equal to what is stored.

    A step that fails may have stored a part of its work. So before the next step `recover` runs
    once: it finishes what is decided and reads the rest again. If `recover` itself fails, it runs
    again the next time.
    """

    def __init__(self, recover: Callable[[], None]) -> None:
        self._recover = recover
        self.sound = False  # what is in memory agrees with what is stored

    def ensure(self) -> None:
        """Recover, if it is the first time or the last step failed."""
        if not self.sound:
            self._recover()
            self.sound = True

    def again(self) -> None:
        """Recover now, whatever was before."""
        self.sound = False
        self.ensure()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step. Until it ends without an error, nothing in memory is trusted."""
        self.ensure()
        self.sound = False
        yield
        self.sound = True
