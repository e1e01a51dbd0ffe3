"""A broker for development: it starts, keeps what it was given, and ends, alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, Producer
from typer.testing import CliRunner

from tapeline.broker import Broker
from tapeline.cli import app
from tapeline.errors import OperationError
from tapeline.java import jars_folder
from tests.support.kafka import PATIENCE_SECONDS, consumed, pid_of, produced, refuse_without_kafka

Topic = Callable[..., str]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no broker."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.split(":")[1])


def tapeline(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["broker", *words])
    if isinstance(done.exception, OperationError):
        return done.exception.exit_code, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def answer(*words: str) -> dict[str, Any]:
    code, out, err = tapeline(*words, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_what_is_sent_is_received_in_order_of_its_key(broker: Broker, topic: Topic) -> None:
    name = topic(3)
    values = [f"{key}-{number:03}" for number in range(100) for key in "abcdef"]
    produced(broker, name, values, key=lambda value: value[0])
    received = consumed(broker, name)
    assert len(received) == 3
    assert sorted(value for part in received for value in part) == sorted(values)
    for key in "abcdef":
        ((one),) = [found for part in received if (found := [v for v in part if v[0] == key])]
        assert one == sorted(one)


def test_a_transaction_that_was_aborted_is_never_read(broker: Broker, topic: Topic) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(PATIENCE_SECONDS)
    for value, commits in (("first", True), ("never", False), ("second", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(PATIENCE_SECONDS)
        if commits:
            producer.commit_transaction(PATIENCE_SECONDS)
        else:
            producer.abort_transaction(PATIENCE_SECONDS)
    assert consumed(broker, name) == [["first", "second"]]
    assert consumed(broker, name, "read_uncommitted") == [["first", "never", "second"]]


def test_a_misspelt_topic_is_not_made(broker: Broker) -> None:
    told: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "topic.metadata.propagation.max.ms": 500,  # how long a topic may be unknown
        }
    )
    producer.produce("misspelt", b"1", on_delivery=lambda error, _: told.append(error))
    producer.flush(PATIENCE_SECONDS)
    assert [error.code() for error in told] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert "misspelt" not in broker.status().topics


def test_a_topic_is_made_once(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    assert broker.make_topic(name, 2) is False
    with pytest.raises(OperationError, match="with 2 partitions, not 3"):
        broker.make_topic(name, 3)
    for wrong in ("a name", "__consumer_offsets", "..", "a" * 250):
        with pytest.raises(OperationError, match="cannot be a topic name"):
            broker.make_topic(wrong)


def test_it_listens_on_loopback_alone(own: Broker) -> None:
    process = psutil.Process(pid_of(own))
    listening = [c.laddr for c in process.net_connections("inet") if c.status == "LISTEN"]
    assert len(listening) == 2
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert port_of(own) in {address.port for address in listening}


def test_two_brokers_live_side_by_side(broker: Broker, own: Broker, topic: Topic) -> None:
    name = topic()
    own.make_topic(name)
    produced(broker, name, ["shared"])
    produced(own, name, ["own"])
    assert consumed(broker, name) == [["shared"]]
    assert consumed(own, name) == [["own"]]
    assert broker.status().cluster_id != own.status().cluster_id


def test_messages_outlive_a_stop_and_a_kill(own: Broker) -> None:
    assert own.make_topic("kept", 2)
    produced(own, "kept", ["before the stop"])
    assert own.stop() == "stopped"
    assert own.status().running is False
    assert own.stop() == "was not running"
    with socket.create_server(("127.0.0.1", port_of(own))) as taken:
        assert own.start()  # somebody took its port meanwhile
        assert port_of(own) != taken.getsockname()[1]
    port = port_of(own)
    produced(own, "kept", ["before the kill"])
    os.kill(pid_of(own), signal.SIGKILL)
    assert own.start()
    assert port_of(own) == port
    produced(own, "kept", ["after the kill"])
    assert sorted(value for part in consumed(own, "kept") for value in part) == [
        "after the kill", "before the kill", "before the stop",
    ]  # fmt: skip


def test_a_broker_that_hangs_is_killed_in_the_end(
    own: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.broker.broker.ANSWER_SECONDS", 0.5)
    os.kill(pid_of(own), signal.SIGSTOP)
    status = own.status()
    assert (status.running, status.answers) == (True, False)
    assert own.stop(patience_seconds=1) == "killed"


def test_a_process_id_that_went_to_another_program_is_left_alone(
    own: Broker, stranger: subprocess.Popen[bytes]
) -> None:
    note = own.folder / "broker.pid"
    mine = note.read_text()
    note.write_text(str(stranger.pid))  # somebody wrote into our notes while the broker runs
    with pytest.raises(OperationError, match="which is another program"):
        own.stop()
    note.write_text(mine)
    assert own.stop() == "stopped"
    note.write_text(str(stranger.pid))  # the system gave the number away
    assert own.stop() == "was not running"
    assert own.status().running is False
    assert stranger.poll() is None
    assert own.start()
    assert pid_of(own) != stranger.pid


def test_the_commands_say_what_they_did(own: Broker) -> None:
    folder = ("--folder", str(own.folder))
    pid = pid_of(own)
    started = answer("start", *folder)
    assert (started["started"], started["pid"]) == (False, pid)
    assert answer("topic", "orders", "--partitions", "4", *folder)["made"] is True
    status = answer("status", *folder)
    assert status["topics"]["orders"] == 4
    assert status["running"] is status["answers"] is True
    assert status["bootstrap_servers"] == own.bootstrap_servers
    assert answer("stop", *folder) == {"ending": "stopped"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(own)))
    assert answer("status", *folder)["running"] is False
    code, _, err = tapeline("topic", "orders", *folder)
    assert (code, "no broker is running" in err) == (3, True)
    words = [sys.executable, "-m", "tapeline", "broker", "start", *folder, "--json"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(one.communicate()[0]) for one in both]
    assert sorted(one["started"] for one in told) == [False, True]
    assert told[0]["pid"] == told[1]["pid"]


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refuse_without_kafka()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OperationError, match=f"port {port} on 127.0.0.1 is not available"):
            Broker(tmp_path).start(port)
    assert not (tmp_path / "data").exists()
    assert Broker(tmp_path).status().running is False


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_without_kafka()
    (tmp_path / "file").write_text("not a folder")
    below = Broker(tmp_path / "file" / "below")
    assert below.status().running is False
    with pytest.raises(OperationError, match="cannot write"):
        below.start()
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(OperationError, match="needs Java 17"):
            Broker(tmp_path).start()
    monkeypatch.setenv("TAPELINE_JARS", str(tmp_path))
    with pytest.raises(OperationError, match="missing, or different from"):
        Broker(tmp_path).start()


def test_a_jar_that_is_not_the_pinned_one_is_never_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_without_kafka()
    folder = jars_folder()
    assert folder is not None
    (tmp_path / "broker").mkdir()
    for jar in (folder / "broker").glob("*.jar"):
        (tmp_path / "broker" / jar.name).symlink_to(jar)
    changed = next((tmp_path / "broker").glob("kafka-server-4*.jar"))
    content = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(content[:-1])
    monkeypatch.setenv("TAPELINE_JARS", str(tmp_path))
    with pytest.raises(OperationError, match=f"different from jars.sha256: broker/{changed.name}"):
        Broker(tmp_path / "new").start()


def test_too_little_memory_is_said(tmp_path: Path) -> None:
    refuse_without_kafka()
    with pytest.raises(OperationError, match="Not enough memory"):
        Broker(tmp_path, heap_megabytes=1_000_000_000).start()
