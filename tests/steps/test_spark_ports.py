"""Which ports Spark opens, where, and who can use them."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

LISTENING = "0A"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
PATIENCE_SECONDS = 60.0
SECRET = "a-secret-of-a-cluster-9f3"
REQUEST, FAILURE = 3, 5  # of Spark's frames: a call, and the answer that it failed
STARTS = """
import os, sys
from tapeline.spark.session import build_session
from tapeline.settings import Settings, SparkSettings
conf = {"spark.authenticate.secret": "env:A_SECRET", "spark.ui.killEnabled": "false"}
session = build_session(Settings(spark=SparkSettings(conf=conf)))
jvm = session.sparkContext._jvm
pid = jvm.java.lang.ProcessHandle.current().pid()
kept = session.sparkContext.getConf().get("spark.authenticate.secret")
assert kept == os.environ["A_SECRET"], kept
assert session.sparkContext.getConf().get("spark.ui.killEnabled") == "false"
print(open(f"/proc/{pid}/cmdline").read().replace(chr(0), " "))
"""


def jvm_of(spark: SparkSession) -> int:
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def listening(pid: int) -> dict[int, str]:
    """The address of every port on which a process listens."""
    mine = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        found = re.match(r"socket:\[(\d+)\]", os.readlink(handle))
        if found:
            mine.add(found[1])
    ports = {}
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == LISTENING and words[9] in mine:
                address, _, port = words[1].partition(":")
                ports[int(port, 16)] = address
    return ports


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs /proc")
def test_spark_listens_on_loopback_alone_and_answers_nobody_without_its_secret(
    spark: SparkSession,
) -> None:
    ports = listening(jvm_of(spark))
    assert ports
    assert set(ports.values()) <= LOOPBACK
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.authenticate.secret") is None  # Spark made one up, in its memory
    driver = int(str(conf.get("spark.driver.port")))
    assert driver in ports
    spark_ports = set(ports) - {gateway_port(spark)}
    for port in spark_ports:
        assert refused(port), f"port {port} took a call without a secret"


def gateway_port(spark: SparkSession) -> int:
    gateway: Any = spark.sparkContext._gateway
    return int(gateway.java_gateway_server.getListeningPort())


def refused(port: int) -> bool:
    """Whether a call without a secret gets no answer but a closed line or a failure."""
    body = b"a call of nobody's"
    frame = struct.pack(">bqi", REQUEST, 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as line:
        line.sendall(struct.pack(">q", len(frame) + 8) + frame)
        answer = line.recv(1024)
        if not answer:
            return True
        return answer[8] == FAILURE and b"uth" in answer + line.recv(4096)


def test_the_gateway_wants_its_token(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    assert gateway.gateway_parameters.auth_token
    with socket.create_connection(("127.0.0.1", gateway_port(spark)), PATIENCE_SECONDS) as line:
        line.sendall(b"r\nu\njava\nrj\ne\n")
        assert b"uthentication" in line.recv(1024)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_a_secret_of_the_settings_is_not_on_the_command_line(spark: SparkSession) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "A_SECRET": SECRET},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "PythonGatewayServer" in done.stdout  # it is the command line
    assert SECRET not in done.stdout + done.stderr
    own = Path(f"/proc/{jvm_of(spark)}/cmdline").read_bytes()
    assert b"secret" not in own.lower()
