"""Running an arm as a child process, and what its whole process tree used."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.generate import REPOSITORY

SAMPLE_SECONDS = 0.2
# From a polite SIGTERM to a SIGKILL.
GRACE_SECONDS = 30.0
STDERR_TAIL_BYTES = 4_000
# Linux: a signal to the child when its parent ends.
PR_SET_PDEATHSIG = 1


@dataclass
class Usage:
    """What a process tree used. Memory is the sum of the resident sets, shared pages twice."""

    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    processes: int = 0
    rss_bytes: int = 0  # at this moment


@dataclass
class _Seen:
    process: psutil.Process
    parent: int
    own: float = 0.0
    reaped: float = 0.0  # of children that ended and were waited for
    alive: bool = True


class TreeWatch:
    """Samples a process and its descendants until stopped.

    A child's seconds go to its parent when it is waited for; seconds that were sampled while the
    child lived are not counted again. So short-lived children count too.
    """

    def __init__(self, pid: int, sample_seconds: float = SAMPLE_SECONDS) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], _Seen] = {}
        self._peak_rss_bytes = 0
        self._sample_seconds = sample_seconds
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.sample()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def sample(self) -> Usage:
        with self._lock:
            return self._sample()

    def processes(self) -> list[psutil.Process]:
        """The processes of the tree that are alive, also those whose parent is gone."""
        self.sample()
        return [one.process for one in self._seen.values() if one.process.is_running()]

    def stop(self) -> Usage:
        self._ended.set()
        self._thread.join()
        return self.sample()

    def _run(self) -> None:
        while not self._ended.wait(self._sample_seconds):
            self.sample()

    def _sample(self) -> Usage:
        self._find()
        rss = 0
        for one in self._seen.values():
            try:
                with one.process.oneshot():
                    times = one.process.cpu_times()
                    one.own = times.user + times.system
                    one.reaped = times.children_user + times.children_system
                    rss += one.process.memory_info().rss
            except psutil.Error:
                one.alive = False
        self._peak_rss_bytes = max(self._peak_rss_bytes, rss)
        return Usage(self._cpu_seconds(), self._peak_rss_bytes, len(self._seen), rss)

    def _find(self) -> None:
        known = [one.process for one in self._seen.values() if one.alive]
        for process in [self._root, *known]:
            try:
                found = [process, *process.children(recursive=True)]
            except psutil.Error:
                continue
            for one in found:
                try:
                    key = (one.pid, one.create_time())
                    self._seen.setdefault(key, _Seen(one, one.ppid()))
                except psutil.Error:
                    continue

    def _cpu_seconds(self) -> float:
        total = 0.0
        for (pid, _), one in self._seen.items():
            sampled = sum(
                child.own + child.reaped
                for child in self._seen.values()
                if child.parent == pid and not child.alive
            )
            total += one.own + max(0.0, one.reaped - sampled)
        return total


@dataclass
class Result:
    """How an arm ended. `lines` are the JSON objects that it printed."""

    exit_code: int | None
    seconds: float
    usage: Usage
    lines: list[dict[str, Any]]
    stderr_tail: str
    timed_out: bool = False

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1] if self.lines else {}


@dataclass
class Arm:
    """An arm under way: a child process that prints JSON lines."""

    child: subprocess.Popen[str]
    watch: TreeWatch
    started: float
    stderr: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for text in self.child.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, event: str, timeout_seconds: float) -> dict[str, Any]:
        """The first line whose `event` is this one, or an error when the arm ends before it."""

        def found() -> dict[str, Any] | None:
            return next((one for one in self.lines if one.get("event") == event), None)

        def over() -> bool:
            return found() is not None or not self._reader.is_alive()

        with self._news:
            # In short waits, since a reader that ends is only noticed by looking.
            until = time.monotonic() + timeout_seconds
            while not over() and time.monotonic() < until:
                self._news.wait(0.2)
        line = found()
        if line is None:
            raise RuntimeError(f"no '{event}' within {timeout_seconds} s: {self.stderr_tail()}")
        return line

    def stop(self, timed_out: bool = False) -> Result:
        """Ask the arm to end, then make it: only processes of its own tree, by their pid."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            timed_out = True
        return self.ended(timed_out)

    def kill(self) -> Result:
        """End the arm as a power cut would."""
        for process in self.watch.processes():
            _kill(process)
        return self.ended()

    def ended(self, timed_out: bool = False) -> Result:
        for process in self.watch.processes():
            _kill(process)
        exit_code = self.child.wait(GRACE_SECONDS)
        usage = self.watch.stop()
        self._reader.join(GRACE_SECONDS)
        seconds = time.monotonic() - self.started
        return Result(exit_code, seconds, usage, self.lines, self.stderr_tail(), timed_out)

    def stderr_tail(self) -> str:
        return self.stderr.read_bytes()[-STDERR_TAIL_BYTES:].decode(errors="replace")


def _kill(process: psutil.Process) -> None:
    # psutil compares the start time: a pid that was given to someone else is left alone.
    try:
        process.kill()
        process.wait(GRACE_SECONDS)
    except psutil.Error:
        return


def start(
    arguments: Sequence[str],
    log: Path | str,
    cores: Sequence[int] = (),
    python: Path | None = None,
    **environment: str,
) -> Arm:
    """Start `python -m <arguments>` from the repository; its stderr goes to `log`.

    `python` is that of another environment than ours. With `cores` the process and all it starts
    stay on these. If we are killed, it is told to end.
    """
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with open(log, "wb") as stderr:
        child = subprocess.Popen(
            [str(python or sys.executable), "-m", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            preexec_fn=_child_of_ours(cores),  # noqa: PLW1509 - the arms start before any thread of ours
        )
    return Arm(child, TreeWatch(child.pid), started, log)


def _child_of_ours(cores: Sequence[int]) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if cores:
            os.sched_setaffinity(0, cores)

    return prepare


@contextmanager
def running(arguments: Sequence[str], log: Path | str, cores: Sequence[int] = ()) -> Iterator[Arm]:
    """An arm that is stopped at the end of the block, whatever happens in it."""
    arm = start(arguments, log, cores)
    try:
        yield arm
    finally:
        if arm.child.poll() is None or arm.watch.processes():
            arm.stop()


def run(
    arguments: Sequence[str],
    log: Path | str,
    timeout_seconds: float,
    cores: Sequence[int] = (),
    python: Path | None = None,
) -> Result:
    """Run an arm to its end, or to its time limit."""
    arm = start(arguments, log, cores, python)
    try:
        arm.child.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        return arm.stop(timed_out=True)
    except BaseException:
        arm.stop()
        raise
    return arm.ended()


def main() -> None:
    """python -m benchmarks.measure SECONDS MODULE ARGUMENTS...: run an arm and print its result."""
    timeout_seconds, *arguments = sys.argv[1:]
    load = os.getloadavg()
    from benchmarks.generate import bench_folder

    log = bench_folder() / "logs" / f"{arguments[0]}.{os.getpid()}.log"
    result = run(arguments, log, float(timeout_seconds))
    print(
        json.dumps(
            {
                "exit_code": result.exit_code,
                "timed_out": result.timed_out,
                "seconds": round(result.seconds, 2),
                "cpu_seconds": round(result.usage.cpu_seconds, 2),
                "peak_rss_mb": result.usage.peak_rss_bytes >> 20,
                "load_before": load,
                "lines": result.lines,
                "log": str(log),
            }
        )
    )


if __name__ == "__main__":
    main()
