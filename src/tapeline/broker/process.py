"""Kafka's own process: what it is told, where it listens, how it is started and recognised."""

from __future__ import annotations

import base64
import errno
import os
import re
import shutil
import socket
import subprocess
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import IO

from tapeline.errors import OperationError
from tapeline.java import (
    OLDEST_JAVA,
    compared_jars,
    java_command,
    java_version,
    listed_jars,
)

HERE = Path(__file__).parent
PROPERTIES = "server.properties"
CONSOLE = "logs/console.log"
LOG = "logs/server.log"
# Below the ports that systems give to outgoing connections, so that none of those takes ours.
FIRST_PORT, PORTS, PORTS_TRIED = 20_000, 10_000, 100
FORMAT_HEAP_MEGABYTES = 128
FORMAT_SECONDS = 60.0
TOLD_BYTES = 64 * 1024
# A broker for development moves bytes and is started often: Java's quicker compiler alone halves
# the time it needs to start (2.8 in place of 6.2 s of a core).
JAVA = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
# The process is nobody's child: it outlives whoever starts it, and leaves no zombie behind.
DETACH = '"$@" & echo $! > "$0"'
MEMORY = "Not enough memory. Stop another program, then start the broker again."
ADVICE = {
    "Address already in use": "Another process took its port. Start the broker again.",
    "Could not reserve enough space": MEMORY,
    "insufficient memory": MEMORY,
    "OutOfMemoryError": MEMORY,
    "No space left on device": "The disk is full. Free some space, then start the broker again.",
}


def launch(
    folder: Path, heap_megabytes: int, port: int | None, held: IO[str], more: str = ""
) -> None:
    """Start Kafka in the folder, with new ports; the process inherits the held lock."""
    java = [_java(), f"-Xmx{heap_megabytes}m", *JAVA, mark(folder)]
    java += [f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}", "-cp", _class_path()]
    listen, control = _ports(folder, port)
    if not (folder / "data").exists():
        _format(folder, listen, control)
    _write_properties(folder / PROPERTIES, listen, control, "data", more)
    with (folder / CONSOLE).open("wb") as console:
        subprocess.run(
            ["/bin/sh", "-c", DETACH, Path(held.name).name, *java, "kafka.Kafka", PROPERTIES],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            pass_fds=[held.fileno()],
            start_new_session=True,
            check=True,
        )


def mark(folder: Path) -> str:
    """What tells this folder's Java from all others, also for people who look at processes."""
    return f"-Dtapeline.broker={folder}"


def is_broker(pid: int, folder: Path) -> bool:
    """Whether a process is this folder's Java, as far as the system says."""
    if not Path("/proc/self").exists():
        return True  # the lock alone has to do
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return mark(folder).encode() in words


def port_of(folder: Path) -> int | None:
    """The port of the last start."""
    return next((int(port) for port in _said(folder / PROPERTIES, r"^listeners=.*?:(\d+),")), None)


def cluster_of(folder: Path) -> str | None:
    """The name that formatting gave to the data."""
    return next(_said(folder / "data" / "meta.properties", r"^cluster\.id=(\S+)$"), None)


def why_it_ended(folder: Path) -> OperationError:
    """What to tell of a process that ended before it answered."""
    told = _tail(folder / CONSOLE) + _tail(folder / LOG)
    found = re.findall(r"^.*(?:Error|ERROR|Exception).*$", told, re.MULTILINE)
    words = found[-1].strip() if found else "no output"
    advice = next((then for sign, then in ADVICE.items() if sign in told), None)
    advice = advice or f"See {LOG} and {CONSOLE} there."
    return OperationError(f"the broker in {folder} did not start: {words[:500]}. {advice}")


def _java() -> str:
    command, version = java_command(), java_version()
    if command is None or version is None or version < OLDEST_JAVA:
        raise OperationError(
            f"the broker needs Java {OLDEST_JAVA} or newer; found: {version or 'none'}. Run 'make "
            "setup', which says how to install it."
        )
    return command


def _class_path() -> str:
    """The broker's jars by name, each compared with what was pinned."""
    jars = compared_jars(name for name in listed_jars() if name.startswith("broker/"))
    return os.pathsep.join(map(str, jars))


def _ports(folder: Path, wanted: int | None) -> tuple[int, int]:
    """Where it listens (as asked, as last time, or where this folder looks first), and controls."""
    if wanted is not None:
        reason = _refusal(wanted)
        if reason:
            raise OperationError(
                f"port {wanted} on 127.0.0.1 is not available: {reason}. Choose another --port, or "
                "leave it out to use a free one."
            )
    last = port_of(folder)
    # By the folder's name, so that brokers of several folders do not look at one port at once.
    first = zlib.crc32(str(folder).encode()) % PORTS
    tried = [FIRST_PORT + (first + n) % PORTS for n in range(PORTS_TRIED)]
    asked = [port for port in (wanted, last) if port is not None][:1]
    free = [port for port in dict.fromkeys([*asked, *tried]) if not _refusal(port)]
    if len(free) < 2:
        raise OperationError(
            f"no two ports from {tried[0]} to {tried[-1]} are free. Choose one with --port."
        )
    return free[0], free[1]


def _refusal(port: int) -> str | None:
    """Why nothing can listen on a port, or None."""
    with socket.socket() as probe:
        # as Kafka does: connections of an earlier broker that are still closing do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            return "another process uses it" if taken else str(error.strerror)
    return None


def _format(folder: Path, port: int, controller_port: int) -> None:
    """Prepare the data folder; one that was not finished is made again."""
    unfinished = folder / "data.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    properties = folder / "format.properties"
    _write_properties(properties, port, controller_port, unfinished.name)
    words = [_java(), f"-Xmx{FORMAT_HEAP_MEGABYTES}m", *JAVA, "-cp", _class_path()]
    words += ["kafka.tools.StorageTool", "format", "-t", _new_cluster(), "-c", properties.name]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=FORMAT_SECONDS
    )
    if done.returncode:
        raise OperationError(
            f"Kafka could not prepare {folder}: {(done.stderr or done.stdout).strip()[-500:]}. "
            "Remove that folder, or choose another --folder."
        )
    properties.unlink()
    unfinished.rename(folder / "data")


def _new_cluster() -> str:
    """A random name as Kafka writes them; a leading dash would look like an option."""
    name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return "A" + name[1:] if name.startswith("-") else name


def _write_properties(
    path: Path, port: int, controller_port: int, data: str, more: str = ""
) -> None:
    text = Template((HERE / PROPERTIES).read_text(encoding="utf-8") + more)
    path.write_text(
        text.substitute(port=port, controller_port=controller_port, data=data), encoding="utf-8"
    )


def _said(path: Path, pattern: str) -> Iterator[str]:
    """What a pattern finds in a file that may not be there."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from re.findall(pattern, text, re.MULTILINE)


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TOLD_BYTES))
        return file.read().decode("utf-8", "replace")
