"""The body of an HTTP answer, unpacked within a limit: the wire may carry far less than it is."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

GZIP_BITS = 31
READ_BYTES = 64 * 1024
ACCEPTED = "gzip"  # what to ask for: the one encoding that is unpacked here


class TooLongError(ValueError):
    """An answer is longer than it may be, unpacked."""


class EncodedError(ValueError):
    """An answer is packed in a way that nobody asked for."""


def parts_of(answer: httpx.Response, limit_bytes: int) -> Iterator[bytes]:
    """The body, some at a time, never more than the limit in all.

    httpx would unpack each part at once, and every layer that the header names: a few bytes could
    fill the memory before anybody can count them.
    """
    said = answer.headers.get("Content-Encoding", "")
    layers = [layer.strip().lower() for layer in said.split(",")]
    layers = [layer for layer in layers if layer not in ("", "identity")]
    if layers not in ([], ["gzip"], ["x-gzip"]):
        raise EncodedError(f"is compressed with '{said[:100]}'; only gzip is supported, once")
    size = 0
    raw = answer.iter_raw()
    for part in _unpacked(raw) if layers else raw:
        size += len(part)
        if size > limit_bytes:
            raise TooLongError(f"is longer than {limit_bytes:,} bytes")
        yield part


def _unpacked(raw: Iterator[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=GZIP_BITS)
    for chunk in raw:
        rest, more = chunk, True
        while more and not member.eof:
            try:
                part = member.decompress(rest, READ_BYTES)
            except zlib.error as error:
                raise EncodedError(f"is damaged gzip: {error}") from None
            yield part
            rest = member.unconsumed_tail
            # A full part may leave output behind even when all input is used up.
            more = bool(rest) or len(part) == READ_BYTES
        if member.eof:
            break
    if not member.eof:
        raise EncodedError("is incomplete gzip")
