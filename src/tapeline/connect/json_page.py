"""Answers of an HTTP API: a list of records and a cursor, cut apart without being rewritten.

Parsers of JSON give values, and writing them again loses digits, spaces and repeated names. The
tape keeps what came, so records are cut out of the answer's own bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

WHITESPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class JsonPage:
    """The records of an answer as they came, one line each, and the cursor after them."""

    lines: tuple[bytes, ...]
    next_cursor: str | None
    names_cursor: bool


def cut(content: bytes, records: str, next_cursor: str) -> JsonPage:
    """Cut an answer apart. Raises ValueError when it is not JSON, KeyError at another shape.

    A number keeps all its digits: the text of a record is never parsed and written again. Only line
    ends go, which JSON allows between values and nowhere else.
    """
    scan = _Scan(content.decode("utf-8"))
    lines: tuple[bytes, ...] | None = None
    said: dict[str, Any] = {}
    if not scan.takes("{"):
        scan.value()
        raise KeyError("an object")
    more = not scan.takes("}")
    while more:
        name, _ = scan.value()
        scan.needs(":")
        if name == records:
            lines = tuple(_line(text) for text in scan.items())
        else:
            value, _ = scan.value()
            said[str(name)] = value
        more = scan.takes(",")
        if not more:
            scan.needs("}")
    scan.ends()
    cursor = said.get(next_cursor)
    if lines is None:
        raise KeyError(f"a list '{records}'")
    if (cursor is not None and not isinstance(cursor, str | int)) or isinstance(cursor, bool):
        raise KeyError(f"a text, a whole number or null as '{next_cursor}'")
    return JsonPage(lines, None if cursor in (None, "") else str(cursor), next_cursor in said)


def _line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogatepass")


class _Scan:
    """Walks over JSON text, value by value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder()

    def takes(self, mark: str) -> bool:
        """Step over a mark if it comes next."""
        self._skip()
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) if found else 0
        return found

    def needs(self, mark: str) -> None:
        if not self.takes(mark):
            raise ValueError(f"'{mark}' is missing at character {self._at}")

    def ends(self) -> None:
        self._skip()
        if self._at != len(self._text):
            raise ValueError(f"something follows the answer at character {self._at}")

    def value(self) -> tuple[Any, str]:
        """The next value, and its text."""
        self._skip()
        start = self._at
        value, self._at = self._decoder.raw_decode(self._text, start)
        return value, self._text[start : self._at]

    def items(self) -> list[str]:
        """The texts of the list that comes next. Raises KeyError when it is none."""
        if not self.takes("["):
            raise KeyError("a list of records")
        found: list[str] = []
        more = not self.takes("]")
        while more:
            found.append(self.value()[1])
            more = self.takes(",")
            if not more:
                self.needs("]")
        return found

    def _skip(self) -> None:
        match = WHITESPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
