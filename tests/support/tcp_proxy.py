"""A small TCP proxy whose line a test can cut, freeze or slow down."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

CHUNK_BYTES = 64 * 1024


class Proxy:
    """Forwards one port of loopback to another, as well as the test allows. A context manager."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.delay_seconds = 0.0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._frozen: set[socket.socket] = set()
        self._down = False
        self.accepted = 0

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End every connection at once; new ones are ended too, until `mend`."""
        self._down = True
        for pair in self._pairs:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def mend(self) -> None:
        self._down = False

    def freeze(self) -> None:
        """Half-open: what is connected stays so and nothing passes any more; new ones work."""
        self._frozen.update(one for pair in self._pairs for one in pair)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._down:
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                client.close()
                continue
            self.accepted += 1
            self._pairs.append((client, broker))
            for source, target in ((client, broker), (broker, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(CHUNK_BYTES):
                if source in self._frozen:
                    continue
                time.sleep(self.delay_seconds)
                target.sendall(data)
