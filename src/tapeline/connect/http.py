"""Pulling from an HTTP API that returns its records by a cursor."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Protocol

from tapeline.connect.http_body import ACCEPTED, EncodedError, TooLongError, parts_of
from tapeline.connect.json_page import JsonPage, cut
from tapeline.connect.pulling import LaterError, Position, PulledPage
from tapeline.errors import DeclarationError, OperationError
from tapeline.extras import require
from tapeline.settings import PullSettings
from tapeline.words import counted

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("127.0.0.1", "localhost", "::1")
RETRY_AFTER_SECONDS = 3_600.0  # an API that asks for more patience is asked again all the same
SEEN_CURSORS = 20  # so far back an answer that leads back is noticed
LATER = (408, 425, 429)


@dataclass(frozen=True)
class HttpPull:
    """Records of an HTTP API, page by page. Where it is, and its token, are settings.

    Delivers: every record once, as long as the same cursor leads to the same records. A last page
    without a next cursor may grow: it is asked for again, and what it had already is left out.
    """

    path: str
    records: str = "records"
    next_cursor: str = "next_cursor"
    cursor_parameter: str = "cursor"
    limit_parameter: str = "limit"
    records_per_page: int = 1_000

    kind = "pull"
    accepts = "application/json"

    def __post_init__(self) -> None:
        require("http", "HttpPull")
        if not self.path.startswith("/"):
            raise DeclarationError(
                f"HttpPull: the path '{self.path}' must start with '/'. The address is a setting: "
                "pull.<name>.address."
            )
        if self.records_per_page < 1:
            raise DeclarationError("HttpPull: records_per_page must be at least 1.")

    @property
    def asks(self) -> str:
        return f"GET {self.path}"

    def reader(self, name: str, settings: PullSettings, secret: str) -> HttpPages:
        return HttpPages(self, name, settings, secret)


class Asked(Protocol):
    """What is asked for."""

    @property
    def kind(self) -> str: ...
    @property
    def accepts(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def asks(self) -> str: ...


class HttpReader:
    """Asks one address over one connection. Follows no redirect."""

    def __init__(self, pull: Asked, name: str, settings: PullSettings, secret: str) -> None:
        import httpx

        self._pull = pull
        self._name = name
        self._settings = settings
        try:
            self._url = httpx.URL(settings.address.rstrip("/") + pull.path)
        except httpx.InvalidURL:
            raise DeclarationError(
                f"pull.{name}.address is not a valid address. Write for example "
                "'https://office.example.com'."
            ) from None
        _check(self._url, name, bool(secret))
        headers = {"Accept": pull.accepts, "Accept-Encoding": ACCEPTED}
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        self._client = httpx.Client(headers=headers, timeout=settings.timeout_seconds)

    def close(self) -> None:
        self._client.close()

    def content(self, said: Mapping[str, str]) -> bytes:
        """The whole answer to these parameters, within the limits."""
        import httpx

        try:
            with self._client.stream("GET", self._url.copy_merge_params(dict(said))) as answer:
                self._refuse(answer)
                return self._body(answer)
        except httpx.RequestError as error:
            words = str(error).replace(self._url.host, "the server") or type(error).__name__
            raise LaterError(self._words(f"got no answer: {words}")) from None

    def _body(self, answer: httpx.Response) -> bytes:
        parts = []
        ends = time.monotonic() + self._settings.timeout_seconds
        try:
            for part in parts_of(answer, self._settings.answer_bytes):
                parts.append(part)
                if time.monotonic() > ends:
                    raise LaterError(self._words("took longer than timeout_seconds to answer"))
        except TooLongError:
            raise OperationError(
                self._words(
                    f"returned more than {self._settings.answer_bytes:,} bytes. Ask for less at a "
                    f"time (records_per_page), or raise pull.{self._name}.answer_bytes"
                )
            ) from None
        except EncodedError as error:
            raise LaterError(self._words(f"returned an answer that {error}")) from None
        return b"".join(parts)

    def _refuse(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if status == 200:
            return
        if status >= 500 or status in LATER:
            raise LaterError(
                self._words(f"answered {status}"), _retry_after(answer.headers.get("Retry-After"))
            )
        advice = "Expected 200. Correct the path, or the address in the settings"
        if status in (401, 403):
            advice = (
                f"The token was refused. Correct the variable in pull.{self._name}.secret_variable "
                "and start again"
            )
        elif 300 <= status < 400:
            advice = "Redirects are not followed. Set the final address"
        raise OperationError(self._words(f"answered {status}. {advice}"))

    def _words(self, what: str) -> str:
        return f"{self._pull.kind} '{self._name}': {self._pull.asks} {what}."


class HttpPages(HttpReader):
    """Asks for one page after the other."""

    _pull: HttpPull

    def page(self, position: Position | None) -> PulledPage:
        stands = position or {"cursor": None, "taken": 0, "digest": "", "seen": []}
        cursor, taken = stands["cursor"], stands["taken"]
        answer = self._answer(cursor)
        if taken > len(answer.lines):
            raise LaterError(
                self._words(f"returned {counted(len(answer.lines), 'record')}; last time {taken}")
            )
        if taken and _digest(answer.lines[:taken]) != stands["digest"]:
            raise OperationError(
                self._words(
                    f"returned other records than before after the cursor '{cursor}', but the "
                    f"first {taken} are already delivered. Ask the operator of the API"
                )
            )
        new, following = answer.lines[taken:], answer.next_cursor
        if following is None:
            self._refuse_nameless_end(answer)
            whole = {"taken": len(answer.lines), "digest": _digest(answer.lines)}
            return PulledPage(new, {**stands, **whole} if new else position)
        if following == cursor or _mark(following) in stands["seen"]:
            if new:
                raise LaterError(self._words("returned an earlier page again"))
            return PulledPage((), position)
        seen = [*stands["seen"], _mark(following)][-SEEN_CURSORS:]
        beyond = {"cursor": following, "taken": 0, "digest": "", "seen": seen}
        return PulledPage(new, beyond, 0.0 if answer.lines else None)

    def _refuse_nameless_end(self, answer: JsonPage) -> None:
        """A page that is full and names no cursor: most likely the cursor has another name."""
        if not answer.names_cursor and len(answer.lines) >= self._pull.records_per_page:
            raise OperationError(
                self._words(
                    f"returned a full page without '{self._pull.next_cursor}'. Set next_cursor to "
                    "the name that the API uses; null marks the last page"
                )
            )

    def _answer(self, cursor: str | None) -> JsonPage:
        said = {self._pull.limit_parameter: str(self._pull.records_per_page)}
        if cursor is not None:
            said[self._pull.cursor_parameter] = cursor
        content = self.content(said)
        try:
            return cut(content, self._pull.records, self._pull.next_cursor)
        except (ValueError, RecursionError):
            raise LaterError(self._words("returned an answer that is not JSON")) from None
        except KeyError as error:
            raise OperationError(
                self._words(
                    f"returned JSON without {error.args[0]}. Expected: an object with the list "
                    f"'{self._pull.records}' and the cursor '{self._pull.next_cursor}'"
                )
            ) from None


def _check(url: httpx.URL, name: str, secret: bool) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise DeclarationError(f"pull.{name}.address must start with http:// or https://.")
    if url.userinfo:
        raise DeclarationError(
            f"pull.{name}.address contains a user name or password. Put the secret into an "
            f"environment variable and name that variable in pull.{name}.secret_variable."
        )
    if secret and url.scheme == "http" and url.host not in LOOPBACK:
        raise DeclarationError(
            f"pull.{name}.address is http:// on another machine, which sends the token "
            "unencrypted. Use https://."
        )


def _retry_after(text: str | None) -> float:
    """The seconds that an API asks to wait: a number, or a date."""
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS) if math.isfinite(seconds) else 0.0


def _digest(lines: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def _mark(cursor: str) -> str:
    return hashlib.sha256(cursor.encode()).hexdigest()[:16]
