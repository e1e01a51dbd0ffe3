"""What stands before every request: host, token, origin, rate and size; and what goes out with it.

Loopback needs no token, so the Host header must name this machine: a page of somebody else's whose
name points here is refused. Beyond loopback a token, or a proxy that checks people, is required.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import os
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapeline.errors import DeclarationError
from tapeline.settings import ServeSettings

log = logging.getLogger("tapeline.serve")
COOKIE = "tapeline_session"
SESSION_SECONDS = 12 * 3600
BODY_BYTES = 64 * 1024
QUERY_BYTES = 4 * 1024
LOGINS_PER_MINUTE = 10
MOST_ADDRESSES = 10_000
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
    # Not "no-referrer": browsers then send no origin with a form, and acts are checked by it.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
Headers = dict[str, str]


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def read_token(settings: ServeSettings, base: Path) -> str | None:
    """The token, made at first where a file for it is named; none on loopback without one."""
    if settings.token_file:
        return _token_in(base / settings.token_file)
    if settings.acts == "yes":
        raise DeclarationError(
            "acts from the page need a token, also on loopback. Set serve.token_file: the file is "
            "made, with a random token, if it is not there."
        )
    if not is_loopback(settings.address) and settings.behind_proxy == "no":
        raise DeclarationError(
            f"serving on {settings.address} needs a token. Set serve.token_file: the file is made, "
            "with a random token, if it is not there. Behind a proxy that checks who asks, set "
            "serve.behind_proxy = 'yes'."
        )
    return None


def _token_in(path: Path) -> str:
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    token = path.read_text(encoding="ascii").strip()
    if len(token) < 16:
        raise DeclarationError(f"{path}: a token has at least 16 characters.")
    return token


class Guard:
    """Everything that is decided before a route is."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, token: str | None) -> None:
        self._app = app
        self._settings = settings
        self._token = token
        self._rate = Rate(settings.requests_per_minute)
        self._logins = Rate(LOGINS_PER_MINUTE)
        self._hosts = {h.strip().lower() for h in settings.hosts.split(",") if h.strip()}
        if is_loopback(settings.address):
            self._hosts |= LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        guarded = _Sender(send, scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(guarded, *refused)
            return
        await self._app(scope, _limited(receive), guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, Headers] | None:
        """Status, reason and headers if the request goes no further."""
        path = scope["path"]
        address = (scope.get("client") or ("",))[0]
        if not self._rate.allows(address):
            return 429, "too many requests: wait a moment.", {"retry-after": "2"}
        if len(scope["query_string"]) > QUERY_BYTES:
            return 414, f"a query has at most {QUERY_BYTES:,} bytes.", {}
        if not headers.get("content-length", "0").isdigit():
            return 400, "content-length is a number.", {}
        if int(headers.get("content-length", "0")) > BODY_BYTES:
            return 413, f"a request has at most {BODY_BYTES:,} bytes.", {}
        if self._hosts and _host_name(headers.get("host", "")) not in self._hosts:
            return 421, "this server goes by another name: see the setting serve.hosts.", {}
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and not _same_origin(scope, headers):
            return 403, "acts come from this server's own pages only.", {}
        if path == "/login" and scope["method"] == "POST" and not self._logins.allows(address):
            return 429, "too many attempts: wait a minute.", {"retry-after": "60"}
        if self._token is None or path in OPEN_PATHS or self.knows(headers):
            return None
        if path.startswith(("/api/", "/metrics", "/static/")):
            return (
                401,
                "say 'Authorization: Bearer <token>', or log in.",
                {"www-authenticate": "Bearer"},
            )
        return 303, "log in first.", {"location": "/login"}

    def knows(self, headers: Headers) -> bool:
        """Whether a request carries the token, or the session that was given for it."""
        if self._token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and equal(given.strip(), self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and equal(cookie.value, session_of(self._token))


def session_of(token: str) -> str:
    """What a browser carries in the token's place; it ends when the token changes."""
    return hmac.new(token.encode(), b"tapeline session", hashlib.sha256).hexdigest()


def equal(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that tells nothing."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _same_origin(scope: Scope, headers: Headers) -> bool:
    """A browser says where a request comes from; a script with the token need not."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return urlsplit(origin).netloc == headers.get("host", "")


class Rate:
    """A bucket of requests per address, filled again over a minute."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str, now: float | None = None) -> bool:
        now = time.monotonic() if now is None else now
        left, since = self._left.pop(address, (self._most, now))
        left = min(self._most, left + (now - since) * self._most / 60)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class _Sender:
    """Adds the headers that every answer carries, and writes one line of log without the client."""

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
    """A body without a length, or with a wrong one, is cut off."""
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
