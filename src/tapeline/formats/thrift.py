"""Thrift's compact protocol, as far as the headers of Parquet's pages need it."""

from __future__ import annotations

from typing import Any

DEPTH = 16
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
NUMBERS = (4, 5, 6)
LONGEST_NUMBER_BITS = 63


def read_struct(content: bytes) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their numbers, texts left out, and how many bytes it takes.

    Raises EOFError when the struct is longer than the content, ValueError when it is not a struct.
    """
    reader = _Reader(content)
    return reader.struct(DEPTH), reader.at


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else self._number()
            found[number] = self._value(kind, depth - 1)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth < 0:
            raise ValueError("a struct that is too deep")
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in NUMBERS:
            return self._number()
        if kind == STRUCT:
            return self.struct(depth)
        if kind in (LIST, SET):
            self._list(depth)
        elif kind == MAP:
            self._map(depth)
        elif kind in (BYTE, DOUBLE, BINARY):
            self._skip({BYTE: 1, DOUBLE: 8}.get(kind) or self._size())
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        return None

    def _list(self, depth: int) -> None:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._size()
        self._items([head & 0x0F], count, depth)

    def _map(self, depth: int) -> None:
        count = self._size()
        if count:
            kinds = self._byte()
            self._items([kinds >> 4, kinds & 0x0F], count, depth)

    def _items(self, kinds: list[int], count: int, depth: int) -> None:
        if count > len(self._content):
            raise EOFError  # each takes a byte
        for _ in range(count):
            for kind in kinds:
                # In lists a truth value is a byte of its own.
                self._value(BYTE if kind in (TRUE, FALSE) else kind, depth - 1)

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self._content):
            raise EOFError

    def _byte(self) -> int:
        self._skip(1)
        return self._content[self.at - 1]

    def _size(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > LONGEST_NUMBER_BITS:
                raise ValueError("a number that is too long")

    def _number(self) -> int:
        value = self._size()
        return (value >> 1) ^ -(value & 1)
