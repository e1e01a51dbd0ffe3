"""The brokerage's back office: a small real HTTP server that gives out records behind a cursor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN = "open-sesame"


class BackOffice:
    """Serves /trades. `faults` are used up by the requests that come, one each.

    500, 429: that status. cut: the connection ends half-way. slow: nothing while it is open.
    repeat: the page before. torn: half an answer that looks whole. elsewhere: a redirect.
    `open_end`: the last page has no next cursor; else it has one, to an empty page.
    `watch` is called with the number of each request, when it was asked and when answered.
    """

    def __init__(self, records: Sequence[bytes], open_end: bool = True, token: str = "") -> None:
        self.records = list(records)
        self.open_end = open_end
        self.token = token
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.watch: Callable[[int, str], None] = lambda number, what: None
        self._closing = threading.Event()
        self.retry_after = "0.1"
        self._lock = threading.Lock()
        office = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                office._serve(self)

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> BackOffice:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        asked = parse_qs(urlsplit(handler.path).query)
        with self._lock:
            fault = self.faults.pop(0) if self.faults else ""
            self.asked.append(asked.get("cursor", ["the beginning"])[0])
            number = len(self.asked)
        self.watch(number, "asked")
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            _answer(handler, 401, b"{}")
        elif fault in ("500", "429"):
            _answer(handler, int(fault), b"{}", {"Retry-After": self.retry_after})
        elif fault == "elsewhere":
            _answer(handler, 302, b"", {"Location": "http://127.0.0.1:1/trades"})
        else:
            self._page(handler, asked, fault)
        self.watch(number, "answered")

    def _page(
        self, handler: BaseHTTPRequestHandler, asked: dict[str, list[str]], fault: str
    ) -> None:
        first = int(asked.get("cursor", ["from-0"])[0].removeprefix("from-"))
        size = int(asked["limit"][0])
        if fault == "repeat":
            first = max(0, first - size)
        elif fault == "slow":
            self._closing.wait()
        with self._lock:
            page = self.records[first : first + size]
            ends = first + len(page) >= len(self.records) and self.open_end
        following = "null" if ends else f'"from-{first + len(page)}"'
        body = b'{"records": [%s],\n "next_cursor": %s}' % (
            b",\n  ".join(page),
            following.encode(),
        )
        if fault == "torn":
            body = body[: len(body) // 2]
        _answer(handler, 200, body, cut=fault == "cut")


def _answer(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
    cut: bool = False,
) -> None:
    try:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if cut else body)
        handler.close_connection = cut
    except OSError:
        handler.close_connection = True  # whoever asked is gone
