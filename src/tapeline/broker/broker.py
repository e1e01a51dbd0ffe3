"""One Kafka node in KRaft mode, on loopback: its process, its data and its logs in one folder.

    broker = Broker(Path(".tapeline/broker"))
    broker.start()                       # does nothing when it runs already
    broker.make_topic("trades", partitions=3)
    broker.bootstrap_servers             # 127.0.0.1:24871
    broker.stop()

The process holds a lock on `broker.pid` for its life. The kernel frees that lock when the process
ends, however it ends, so a process id that was given to another program is never mistaken for it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from tapeline.broker import process, topics
from tapeline.errors import OperationError

START_SECONDS = 90.0
STOP_SECONDS = 30.0
ANSWER_SECONDS = 5.0
PAUSE_SECONDS = 0.1
HEAP_MEGABYTES = 512
StopOutcome = Literal["stopped", "killed", "was not running"]


@dataclass(frozen=True)
class Status:
    """What can be said of a broker without starting one."""

    running: bool
    answers: bool
    folder: str
    bootstrap_servers: str | None
    pid: int | None = None
    cluster_id: str | None = None
    topics: dict[str, int] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Broker:
    """A Kafka broker in a folder of its own, by whichever process it was started."""

    def __init__(
        self, folder: Path, heap_megabytes: int = HEAP_MEGABYTES, properties: str = ""
    ) -> None:
        """`properties` are lines for Kafka that come last; $port and $controller_port are known."""
        self.folder = folder.absolute()
        self._properties = properties
        self._heap_megabytes = heap_megabytes
        self._pid_file = self.folder / "broker.pid"

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find it, as of its last start."""
        port = process.port_of(self.folder)
        if port is None:
            raise self._not_running()
        return f"127.0.0.1:{port}"

    def start(self, port: int | None = None) -> bool:
        """Start it and wait until it answers; False when it was running already."""
        self._make_folder()
        launched = False
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self._lives():
                if launched:
                    raise process.why_it_ended(self.folder)
                launched = self._launch(port)
            elif time.monotonic() > deadline:
                raise OperationError(
                    f"the broker in {self.folder} does not answer after {START_SECONDS:.0f} s. See "
                    "logs/server.log there; 'tapeline broker stop' stops it."
                )
            time.sleep(PAUSE_SECONDS)
        if port is not None and process.port_of(self.folder) != port:
            raise OperationError(
                f"the broker in {self.folder} is already running at {self.bootstrap_servers}. Stop "
                "it first, or leave out --port."
            )
        return launched

    def stop(self, patience_seconds: float = STOP_SECONDS) -> StopOutcome:
        """End the process that holds this folder, and no other."""
        if not self._lives():
            return "was not running"
        self._send(signal.SIGTERM)
        if _within(patience_seconds, lambda: not self._lives()):
            return "stopped"
        self._send(signal.SIGKILL)
        if _within(patience_seconds, lambda: not self._lives()):
            return "killed"
        raise OperationError(
            f"process {self._pid()} did not exit after SIGKILL. Check the disk of {self.folder}."
        )

    def status(self) -> Status:
        """Whether it runs, whether it answers, and what it holds."""
        lives = self._lives()
        port = process.port_of(self.folder)
        address = f"127.0.0.1:{port}" if port else None
        if not lives:
            return Status(False, False, str(self.folder), address)
        seen = topics.look(address, ANSWER_SECONDS) if address else None
        if seen is None or seen.cluster_id != process.cluster_of(self.folder):
            return Status(True, False, str(self.folder), address, self._pid())
        held = dict(sorted(seen.topics.items()))
        return Status(True, True, str(self.folder), address, self._pid(), seen.cluster_id, held)

    def make_topic(self, name: str, partitions: int = 1) -> bool:
        """Make a topic; False when it is there already, with as many partitions."""
        if not self._lives():
            raise self._not_running()
        return topics.make(self.bootstrap_servers, name, partitions)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / "logs").mkdir(exist_ok=True)
            self._pid_file.open("a").close()
        except OSError as error:
            raise OperationError(
                f"the broker cannot write to {self.folder}: {error.strerror}. Give this user write "
                "access, or choose another --folder."
            ) from None

    def _launch(self, port: int | None) -> bool:
        """Start the process, unless another start got here first."""
        handle = self._lock()
        if handle is None:
            return False
        with handle:
            handle.truncate(0)
            process.launch(self.folder, self._heap_megabytes, port, handle, self._properties)
        return True

    def _lock(self) -> IO[str] | None:
        """The process's lock; None when a process holds it."""
        handle = self._pid_file.open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            return None
        return handle

    def _lives(self) -> bool:
        """Whether a process holds the lock: the broker, or a start that prepares it."""
        try:
            with self._pid_file.open() as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except BlockingIOError:
            return True
        except PermissionError:
            raise OperationError(
                f"{self.folder} belongs to another user. Choose another --folder."
            ) from None
        return False

    def _answers(self) -> bool:
        """Whether this very broker answers, and not another one on its port."""
        port = process.port_of(self.folder)
        if port is None or not self._lives():
            return False
        seen = topics.look(f"127.0.0.1:{port}", ANSWER_SECONDS)
        return seen is not None and seen.cluster_id == process.cluster_of(self.folder)

    def _pid(self) -> int | None:
        text = self._pid_file.read_text().strip()
        return int(text) if text.isdecimal() else None

    def _send(self, what: signal.Signals) -> None:
        """Signal the process in the file, when the system agrees that it is this folder's Java."""
        pid = self._pid()
        if pid is not None and process.is_broker(pid, self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, what)
        elif not self._lives():
            return  # it has ended
        elif pid is None:
            raise OperationError(
                f"the broker in {self.folder} is still starting. Try again in a moment."
            )
        else:
            raise OperationError(
                f"{self._pid_file} names process {pid}, which is another program. Find the java "
                f"process with '{process.mark(self.folder)}' and stop it yourself."
            )

    def _not_running(self) -> OperationError:
        folder = shlex.quote(str(self.folder))
        return OperationError(
            f"no broker is running in {self.folder}. Start one with: tapeline broker start "
            f"--folder {folder}"
        )


def _within(seconds: float, done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True
