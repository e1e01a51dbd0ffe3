"""Pulling from an HTTP API that gives out its records behind a cursor."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from tapeline.connect.answers import Answer, cut
from tapeline.connect.pulling import LaterError, Page, Position
from tapeline.errors import DeclarationError, OperationError
from tapeline.settings import PullSettings

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

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise DeclarationError(
                f"HttpPull: the path '{self.path}' must start with '/'; the address before it is "
                "a setting."
            )
        if self.records_per_page < 1:
            raise DeclarationError("HttpPull: records_per_page must be at least 1.")

    @property
    def asks(self) -> str:
        return f"GET {self.path}"

    def reader(self, name: str, settings: PullSettings, secret: str) -> HttpReader:
        return HttpReader(self, name, settings, secret)


class HttpReader:
    """Asks for one page after the other over one connection. Follows no redirect."""

    def __init__(self, pull: HttpPull, name: str, settings: PullSettings, secret: str) -> None:
        import httpx

        self._pull = pull
        self._name = name
        self._settings = settings
        try:
            self._url = httpx.URL(settings.address.rstrip("/") + pull.path)
        except httpx.InvalidURL:
            raise DeclarationError(f"pull.{name}.address is not an address.") from None
        _check(self._url, name, bool(secret))
        headers = {"Accept": "application/json"}
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        self._client = httpx.Client(headers=headers, timeout=settings.timeout_seconds)

    def page(self, position: Position | None) -> Page:
        stands = position or {"cursor": None, "taken": 0, "digest": "", "seen": []}
        cursor, taken = stands["cursor"], stands["taken"]
        answer = self._answer(cursor)
        if taken > len(answer.lines):
            raise LaterError(self._words(f"gave {len(answer.lines)} records where it gave {taken}"))
        if taken and _digest(answer.lines[:taken]) != stands["digest"]:
            raise OperationError(
                self._words(
                    f"gave other records than before behind the cursor '{cursor}': the first "
                    f"{taken} of them are delivered and must not change. Ask whoever runs the API"
                )
            )
        new, following = answer.lines[taken:], answer.next_cursor
        if following is None:
            self._refuse_nameless_end(answer)
            whole = {"taken": len(answer.lines), "digest": _digest(answer.lines)}
            return Page(new, {**stands, **whole} if new else position)
        if following == cursor or _mark(following) in stands["seen"]:
            if new:
                raise LaterError(self._words("gave a page again that led to this cursor"))
            return Page((), position)
        seen = [*stands["seen"], _mark(following)][-SEEN_CURSORS:]
        beyond = {"cursor": following, "taken": 0, "digest": "", "seen": seen}
        return Page(new, beyond, 0.0 if answer.lines else None)

    def close(self) -> None:
        self._client.close()

    def _refuse_nameless_end(self, answer: Answer) -> None:
        """A page that is full and names no cursor: most likely the cursor has another name."""
        if not answer.names_cursor and len(answer.lines) >= self._pull.records_per_page:
            raise OperationError(
                self._words(
                    f"gave a full page without '{self._pull.next_cursor}'. Say by next_cursor "
                    "what the API calls it; null there means that nothing follows"
                )
            )

    def _answer(self, cursor: str | None) -> Answer:
        content = self._content(cursor)
        try:
            return cut(content, self._pull.records, self._pull.next_cursor)
        except (ValueError, RecursionError):
            raise LaterError(self._words("gave an answer that is not JSON")) from None
        except KeyError as error:
            raise OperationError(
                self._words(
                    f"gave JSON without {error.args[0]}. Expected: an object with the list "
                    f"'{self._pull.records}' and the cursor '{self._pull.next_cursor}'"
                )
            ) from None

    def _content(self, cursor: str | None) -> bytes:
        import httpx

        said = {self._pull.limit_parameter: str(self._pull.records_per_page)}
        if cursor is not None:
            said[self._pull.cursor_parameter] = cursor
        try:
            with self._client.stream("GET", self._url.copy_merge_params(said)) as answer:
                self._refuse(answer)
                return self._body(answer)
        except httpx.RequestError as error:
            words = str(error).replace(self._url.host, "the server") or type(error).__name__
            raise LaterError(self._words(f"was not answered: {words}")) from None

    def _body(self, answer: httpx.Response) -> bytes:
        parts, size = [], 0
        ends = time.monotonic() + self._settings.timeout_seconds
        for part in answer.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > self._settings.answer_bytes:
                raise OperationError(
                    self._words(
                        f"gave more than {self._settings.answer_bytes:,} bytes. Lower "
                        f"records_per_page, or raise pull.{self._name}.answer_bytes"
                    )
                )
            if time.monotonic() > ends:
                raise LaterError(self._words("took longer than timeout_seconds to answer"))
        return b"".join(parts)

    def _refuse(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if status == 200:
            return
        if status >= 500 or status in LATER:
            raise LaterError(
                self._words(f"answered {status}"), _retry_after(answer.headers.get("Retry-After"))
            )
        advice = "Expected 200: correct the path, or the address in the settings"
        if status in (401, 403):
            advice = (
                f"It wants another token: set the variable that pull.{self._name}.secret_variable "
                "names, and start again"
            )
        elif 300 <= status < 400:
            advice = "Redirects are not followed: set the address that answers itself"
        raise OperationError(self._words(f"answered {status}. {advice}"))

    def _words(self, what: str) -> str:
        return f"pull '{self._name}': {self._pull.asks} {what}."


def _check(url: httpx.URL, name: str, secret: bool) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise DeclarationError(f"pull.{name}.address must start with http:// or https://.")
    if url.userinfo:
        raise DeclarationError(
            f"pull.{name}.address holds a name or password. Put the secret into an environment "
            f"variable and name that in pull.{name}.secret_variable."
        )
    if secret and url.scheme == "http" and url.host not in LOOPBACK:
        raise DeclarationError(
            f"pull.{name}.address is http:// beyond this machine: the token would travel in the "
            "clear. Use https://."
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
