"""The records of a JSON document: the items of a list in it, each byte for byte as it came.

Only where an item begins and ends is looked for, in bounded memory. What it says is read with the
batch, so an item that is broken is one quarantined record, and no number is ever touched here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tapeline.declare.format import RecordFile

LONGEST_RECORD_BYTES = 4 * 1024 * 1024  # or the longest that the tape takes, if that is more
KEY_BYTES = 64 * 1024
READ_AHEAD_BYTES = 64 * 1024
SPACES = b" \t\r\n"
NEXT = re.compile(rb'["{}\[\]]')
END_OF_TEXT = re.compile(rb'["\\]')
ANY = re.compile(rb"(?s).")
END_OF_PLAIN = re.compile(rb"[,\]}\s]")
COMMA = 2
MARKS = np.zeros(256, np.int8)
for _mark, _meaning in ((b"[{", 1), (b"]}", -1), (b",", COMMA)):
    MARKS[list(_mark)] = _meaning


def document_records(file: RecordFile, path: Sequence[str]) -> Iterator[list[bytes]]:
    """The records at a path of names in every document of a file, some at a time.

    What is there is a list of records, or one object, which is one record. Raises ValueError when
    the document is cut off or broken, or has nothing at the path.
    """
    longest = max(LONGEST_RECORD_BYTES, file.record_bytes)
    text = _JsonText(file.chunks(), longest)
    while text.peek():
        yield from text.records(tuple(path), ())


class _JsonText:
    """A JSON text that is read from its beginning to its end."""

    def __init__(self, chunks: Iterator[bytes], longest: int) -> None:
        self._chunks = chunks
        self._longest = longest
        self._text = b""
        self._at = 0

    def records(self, path: tuple[str, ...], walked: tuple[str, ...]) -> Iterator[list[bytes]]:
        """The records at a path below the value that comes next."""
        first = self.peek()
        if path:
            yield from self._below(path, walked)
        elif first == b"[":
            yield from self._items()
        elif first == b"{":
            yield [self._object()]
        else:
            where = f"at '{'.'.join(walked)}' " if walked else ""
            raise ValueError(f"its JSON {where}is neither a list nor an object")

    def peek(self) -> bytes:
        """The next byte that is no space; nothing at the end."""
        while True:
            rest = self._text[self._at : self._at + 1]
            if rest and rest in SPACES:
                self._at += 1
            elif rest or not self._more():
                return rest

    def _below(self, path: tuple[str, ...], walked: tuple[str, ...]) -> Iterator[list[bytes]]:
        """The records at a path in the object that comes next; its other values are passed over."""
        here = (*walked, path[0])
        missing = f"its JSON has no '{'.'.join(here)}'"
        if self.peek() != b"{":
            raise ValueError(missing)
        found = False
        for key in self._keys():
            if key != path[0]:
                self._skip()
                continue
            if found:
                raise ValueError(f"its JSON has '{'.'.join(here)}' twice")
            found = True
            yield from self.records(path[1:], here)
        if not found:
            raise ValueError(missing)

    def _keys(self) -> Iterator[str]:
        """The names in an object; whoever takes one reads its value before the next."""
        self._at += 1
        if self.peek() == b"}":
            self._at += 1
            return
        while True:
            yield self._key()
            ending = self._take()
            if ending == b"}":
                return
            if ending != b",":
                raise ValueError("its JSON is broken between two fields")

    def _key(self) -> str:
        if self.peek() != b'"':
            raise ValueError("its JSON is broken: a field has no name")
        while not (found := _end_of_text(self._text, self._at + 1)):
            if len(self._text) - self._at > KEY_BYTES:
                raise ValueError(f"its JSON has a name longer than {KEY_BYTES:,} bytes")
            self._need()
        raw, self._at = self._text[self._at : found], found
        if self._take() != b":":
            raise ValueError("its JSON is broken: a name has no value")
        try:
            return str(json.loads(raw))
        except ValueError:
            raise ValueError("its JSON has a name that cannot be read") from None

    def _items(self) -> Iterator[list[bytes]]:
        """The items of a list, without the spaces around them."""
        self._at += 1
        if self.peek() == b"]":
            self._at += 1
            return
        while True:
            rest = self._text[self._at :]
            ends, whole = _items_in(rest)
            found = [
                rest[start:end].strip(SPACES)
                for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False)
            ]
            if b"" in found:
                raise ValueError("its JSON is broken: a list has nothing between two commas")
            if ends:
                self._at += ends[-1] + 1
                yield found
            if whole:
                _close(rest[ends[-1] : ends[-1] + 1], b"]")
                return
            self._need()

    def _object(self) -> bytes:
        while True:
            rest = self._text[self._at :]
            places, _, depth = _structure(rest)
            closed = np.flatnonzero(depth == 0)
            if len(closed):
                end = int(places[closed[0]]) + 1
                _close(rest[end - 1 : end], b"}")
                self._at += end
                return rest[:end]
            self._need()

    def _skip(self) -> None:
        """Pass over one value, whatever its size."""
        first = self.peek()
        if first not in (b"{", b"[", b'"'):
            self._find(END_OF_PLAIN)
            self._at -= 1
            return
        depth = 0
        while True:
            mark = self._find(NEXT)
            if mark == b'"':
                while self._find(END_OF_TEXT) != b'"':
                    self._find(ANY)  # what a backslash is before
            else:
                depth += 1 if mark in (b"{", b"[") else -1
            if depth <= 0:
                return

    def _find(self, pattern: re.Pattern[bytes]) -> bytes:
        """Go to the end of the next match."""
        while not (found := pattern.search(self._text, self._at)):
            self._at = len(self._text)
            self._need()
        self._at = found.end()
        return found[0]

    def _take(self) -> bytes:
        found = self.peek()
        self._at += 1
        return found

    def _need(self) -> None:
        """Read on, where the text cannot end."""
        if len(self._text) - self._at > self._longest:
            raise ValueError(f"one of its records is longer than {self._longest:,} bytes")
        if not self._more():
            raise ValueError("its JSON ends early")

    def _more(self) -> bool:
        """Read as much again as is not used up yet, so that nothing is looked at too often."""
        rest = self._text[self._at :]
        wanted, parts, size = max(len(rest), READ_AHEAD_BYTES), [rest], 0
        while size < wanted and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            size += len(chunk)
        self._text, self._at = b"".join(parts), 0
        return size > 0


def _close(found: bytes, bracket: bytes) -> None:
    if found != bracket:
        raise ValueError(
            f"its JSON is broken: '{found.decode()}' where '{bracket.decode()}' belongs"
        )


def _items_in(text: bytes) -> tuple[list[int], bool]:
    """Where items of a list end in a text that begins with one, and whether the list does too."""
    places, kinds, depth = _structure(text)
    closing = np.flatnonzero(depth < 0)
    last = int(closing[0]) if len(closing) else len(places)
    apart = places[:last][(kinds[:last] == COMMA) & (depth[:last] == 0)]
    ends = apart.tolist()
    return ([*ends, int(places[last])], True) if len(closing) else (ends, False)


def _structure(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int32]]:
    """The brackets and commas outside of strings: where they are, which, and how deep it is."""
    data = np.frombuffer(text, np.uint8)
    quotes = data == ord('"')
    slashes = np.flatnonzero(data == ord("\\"))
    if len(slashes):
        # In a row of backslashes every second one is a character of its own.
        begins = np.diff(slashes, prepend=-2) != 1
        row = slashes[np.maximum.accumulate(np.where(begins, np.arange(len(slashes)), 0))]
        escaped = slashes[(slashes - row) % 2 == 0] + 1
        quotes[escaped[escaped < len(data)]] = False
    inside = np.bitwise_xor.accumulate(quotes)
    marks = np.where(inside, np.int8(0), MARKS[data])
    places = np.flatnonzero(marks)
    kinds = marks[places]
    depth = np.cumsum(np.where(kinds == COMMA, np.int8(0), kinds), dtype=np.int32)
    return places, kinds, depth


def _end_of_text(text: bytes, start: int) -> int:
    """The place after the quote that ends a string; 0 if the string continues."""
    while found := END_OF_TEXT.search(text, start):
        if found[0] == b'"':
            return found.end()
        start = found.end() + 1
    return 0
