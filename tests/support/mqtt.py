"""A real MQTT broker on loopback, started and stopped by a test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client

from tests.support.waiting import wait_for

PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class MqttBroker:
    """Mosquitto with a folder of its own: what it owes survives a restart."""

    def __init__(self, folder: Path) -> None:
        if PROGRAM is None:
            if os.environ.get("REQUIRE_MQTT"):
                pytest.fail("mosquitto is missing: run scripts/mqtt.sh")
            pytest.skip("mosquitto is missing: run scripts/mqtt.sh")
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\n"
            f"user {pwd.getpwuid(os.getuid()).pw_name}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([str(PROGRAM), "-c", str(self._config)])
        wait_for(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _answers(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def send(self, topic: str, messages: list[bytes]) -> None:
        client = Client(CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(len(messages))
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        for info in [client.publish(topic, message, qos=1) for message in messages]:
            info.wait_for_publish(30)
        client.disconnect()
        client.loop_stop()

    def subscribe(self, topic: str, client_id: str) -> None:
        """Make a client's session known, so that the broker keeps messages for it."""
        client = Client(CallbackAPIVersion.VERSION2, client_id, clean_session=False)
        done: list[bool] = []
        client.on_connect = lambda *_: client.subscribe(topic, qos=1)
        client.on_subscribe = lambda *_: done.append(True)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        wait_for(lambda: bool(done))
        client.disconnect()
        client.loop_stop()
