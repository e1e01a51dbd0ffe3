"""A schema registry for tests: a real HTTP server, as far as readers need one."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@contextmanager
def registry(
    schemas: dict[int, dict[str, Any]], login: str = "", certificate: Path | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for. `login` is "user:password", as it lets in."""
    asked: list[str] = []
    wanted = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = schemas.get(int(self.path.rpartition("/")[2]))
            body = json.dumps({"schema": json.dumps(found)} if found else {"error_code": 40403})
            known = wanted is None or self.headers.get("Authorization") == wanted
            self.send_response(401 if not known else 200 if found else 404)
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            self.wfile.write(body.encode() if known else b"")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            scheme = "https" if certificate else "http"
            yield f"{scheme}://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
