"""Checks of every request (host, token, origin, rate and size), and headers of every response.

Loopback needs no token, so the Host header must name this machine: this blocks web pages whose
domain name points here (DNS rebinding). Other addresses need a token or an authenticating proxy.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapeline.serve.connections import HEADER_BYTES
from tapeline.serve.door import ANYBODY, Door, TooManyAttempts
from tapeline.serve.proxies import Proxies
from tapeline.serve.rate import Rate
from tapeline.serve.tokens import is_loopback
from tapeline.settings import ServeSettings

log = logging.getLogger("tapeline.serve")
READER = "tapeline.reader"  # key in the scope of a request: who sent it
BODY_BYTES = 64 * 1024
QUERY_BYTES = 4 * 1024
OPEN_PATHS = {"/login", "/healthz", "/static/tapeline.css", "/static/login.js"}
LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # Not "no-referrer": browsers would then send no origin with forms, and we check the origin.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
# Data, and requests that cost work: a page of another site must not request them.
DATA_PATHS = ("/api/", "/metrics")
Headers = dict[str, str]
Refusal = tuple[int, str, Headers]


class Guard:
    """Checks every request before routing."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, door: Door) -> None:
        self._app = app
        self._door = door
        self._rate = Rate(settings.requests_per_minute)
        self._proxies = Proxies(settings.trusted_proxies)
        self._hosts = {h.strip().lower() for h in settings.hosts.split(",") if h.strip()}
        if is_loopback(settings.address):
            self._hosts |= LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        peer, *port = scope.get("client") or ("", 0)
        # The client's address and the scheme as a trusted proxy reports them.
        scope = {**scope, "client": (self._proxies.client_of(peer, headers), *port)}
        if self._proxies.secure(peer, headers):
            scope["scheme"] = "https"
        guarded = _Sender(send, scope)
        refused = self._refusal(scope, headers) or self._unknown(scope, peer)
        if refused is not None:
            await _answer(guarded, *refused)
            return
        await self._app(scope, _limited(receive), guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Status, reason and headers if the request is refused, whoever sent it."""
        # Requests caused by other sites do not count against the rate of the user.
        return self._foreign(scope, headers) or self._too_much(scope, headers)

    def _foreign(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Refuse a request from another site, or for another host name."""
        if self._hosts and _host_name(headers.get("host", "")) not in self._hosts:
            return 421, "unknown host name. Add the name to the setting serve.hosts.", {}
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and not _same_origin(headers):
            return (
                403,
                "changes are accepted only from this server's own pages, and from programs.",
                {},
            )
        if scope["path"].startswith(DATA_PATHS) and not _own_site(headers):
            return 403, "data is available only to this server's own pages, and to programs.", {}
        return None

    def _too_much(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Refuse too many requests from one address, and requests that are too large."""
        if not self._rate.allows(scope["client"][0]):
            return (
                429,
                "too many requests from this address. Wait a few seconds and try again.",
                {"retry-after": "2"},
            )
        if max(len(scope["query_string"]), len(scope["raw_path"])) > QUERY_BYTES:
            return 414, f"path or query is too long: at most {QUERY_BYTES:,} bytes each.", {}
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            return 431, f"request headers are too large: at most {HEADER_BYTES:,} bytes.", {}
        if not headers.get("content-length", "0").isdigit():
            return 400, "the content-length header is not a number.", {}
        if int(headers.get("content-length", "0")) > BODY_BYTES:
            return 413, f"request body is too large: at most {BODY_BYTES:,} bytes.", {}
        return None

    def _unknown(self, scope: Scope, peer: str) -> Refusal | None:
        """Refuse a request without a known token, session or user, unless the path is public."""
        path, address = scope["path"], scope["client"][0]
        try:
            reader = self._door.reader_of(scope, peer, address)
        except TooManyAttempts as error:
            return 429, str(error), {"retry-after": "60"}
        if reader is not None or path in OPEN_PATHS:
            scope[READER] = reader or ANYBODY
            return None
        if not self._door.takes_tokens:
            return 401, "the proxy sent no user name. Check the setting serve.user_header.", {}
        if path.startswith((*DATA_PATHS, "/static/")):
            return (
                401,
                "send the header 'Authorization: Bearer <token>', or log in.",
                {"www-authenticate": "Bearer"},
            )
        return 303, "log in first.", {"location": "/login"}


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _own_site(headers: Headers) -> bool:
    """Whether our own page or a program sent a request. Another port counts as another site."""
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _same_origin(headers: Headers) -> bool:
    """Whether the origin is this server. Programs need not send one."""
    origin = headers.get("origin")
    if origin is None:
        return _own_site(headers)
    try:
        return urlsplit(origin).netloc == headers.get("host", "")
    except ValueError:  # such as http://[
        return False


class _Sender:
    """Adds the security headers, and logs one line per request, without the client."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send = send
        self._scope = scope
        self._started = time.monotonic()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[tuple[bytes, bytes]] = list(message.get("headers", []))
            said = {name.lower() for name, _ in headers}
            more = dict(HEADERS)
            more["cache-control"] = "no-store"
            headers += [
                (name.encode(), value.encode())
                for name, value in more.items()
                if name.encode() not in said
            ]
            message = {**message, "headers": headers}
            route = self._scope.get("route")
            line: dict[str, Any] = {
                "method": self._scope["method"],
                "route": getattr(route, "path", "-"),
                "status": message["status"],
                "milliseconds": round((time.monotonic() - self._started) * 1000, 1),
            }
            log.info(json.dumps(line))
        await self._send(message)


def _limited(receive: Receive) -> Receive:
    """Cut off a body that is longer than its limit, whatever its header says."""
    taken = 0

    async def some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return {"type": "http.disconnect"} if taken > BODY_BYTES else message

    return some


async def _answer(send: Send, status: int, reason: str, headers: Headers) -> None:
    body = json.dumps({"error": reason}).encode()
    listed = [(k.encode(), v.encode()) for k, v in headers.items()]
    listed.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
