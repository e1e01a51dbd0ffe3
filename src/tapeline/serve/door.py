"""Who may log in: by token, by session, or by a user name from a trusted proxy.

Secrets are compared only here, as hashes and in constant time. Sessions are in memory: they end at
log-out, after twelve hours, and when the server stops.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie

from starlette.types import Scope

from tapeline.errors import OperationError
from tapeline.serve.proxies import Proxies
from tapeline.serve.rate import Rate
from tapeline.serve.tokens import Role, Token
from tapeline.settings import ServeSettings

COOKIE = "tapeline_session"
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 10_000
WRONG_PER_MINUTE = 10
NAME_CHARACTERS = 100


class TooManyAttempts(OperationError):
    """Too many wrong tokens from one address. A right one has to wait too."""


@dataclass(frozen=True)
class Reader:
    """Who sends a request, and their role."""

    name: str
    role: Role = "read"
    session: bool = False


# Used where no token is needed: on loopback, or behind a proxy that passes no user names.
ANYBODY = Reader("")


class Door:
    """Checks tokens, sessions and user names for one server."""

    def __init__(
        self,
        tokens: Sequence[Token],
        settings: ServeSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = [(_hashed(one.secret), Reader(one.name, one.role)) for one in tokens]
        self._proxies = Proxies(settings.trusted_proxies)
        self._user_header = settings.user_header.strip().lower().encode()
        self._user_role: Role = settings.user_role
        self._wrong = Rate(WRONG_PER_MINUTE)
        self._sessions: OrderedDict[bytes, tuple[Reader, float]] = OrderedDict()
        self._clock = clock

    @property
    def open(self) -> bool:
        """Whether anybody may read: neither tokens nor a user header are set."""
        return not self._tokens and not self._user_header

    @property
    def takes_tokens(self) -> bool:
        return bool(self._tokens)

    def reader_of(self, scope: Scope, peer: str, address: str) -> Reader | None:
        """Who sent a request, or None if unknown. A wrong token is counted."""
        named = self._named(scope, peer)
        if named is not None:
            return named
        scheme, _, given = _only(scope, b"authorization").partition(" ")
        if scheme.lower() == "bearer":
            return self.reader_with(given.strip(), address)
        found = self._of_session(session_in(scope))
        return ANYBODY if found is None and self.open else found

    def reader_with(self, given: str, address: str) -> Reader | None:
        """The owner of a token. A wrong token counts against the address that sent it."""
        if self.open:
            return ANYBODY
        if self._wrong.spent(address):
            raise TooManyAttempts(
                "too many wrong tokens from this address. Wait a minute and try again."
            )
        hashed, found = _hashed(given), None
        for (
            known,
            reader,
        ) in self._tokens:  # compare with all, so that timing does not reveal which one matches
            if hmac.compare_digest(hashed, known):
                found = reader
        if found is None:
            self._wrong.allows(address)
        return found

    def begin_session(self, reader: Reader) -> str:
        """The secret of a new session for a browser's cookie. Only its hash is kept."""
        secret = secrets.token_urlsafe(32)
        ends = self._clock() + SESSION_SECONDS
        self._sessions[_hashed(secret)] = (replace(reader, session=True), ends)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return secret

    def end_session(self, secret: str) -> None:
        self._sessions.pop(_hashed(secret), None)

    def _of_session(self, secret: str) -> Reader | None:
        reader, ends = self._sessions.get(_hashed(secret), (None, 0.0))
        if reader is not None and self._clock() >= ends:
            self.end_session(secret)
            return None
        return reader

    def _named(self, scope: Scope, peer: str) -> Reader | None:
        """The user named by a trusted proxy; None if there are two names or unprintable ones."""
        if not self._user_header or not self._proxies.trust(peer):
            return None
        said = [value for name, value in scope["headers"] if name == self._user_header]
        name = said[0].decode("utf-8", "replace").strip() if len(said) == 1 else ""
        if not name or len(name) > NAME_CHARACTERS or not name.isprintable() or "\ufffd" in name:
            return None
        return Reader(name, self._user_role)


def _only(scope: Scope, header: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope["headers"] if k == header), "")


def session_in(scope: Scope) -> str:
    """The session secret in a request's cookie, or an empty text."""
    try:
        found = SimpleCookie(_only(scope, b"cookie")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
