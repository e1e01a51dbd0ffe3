"""Compressed content: gzip, bzip2, xz and zstd, unpacked in bounded memory."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from tapeline.formats.limits import MIB, IntakeLimits, UnreadableFileError

READ_BYTES = 4 * MIB
# A sender chooses how much memory xz takes: at its highest level it is 65 MiB.
XZ_MEMORY_BYTES = 128 * MIB
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
BZIP2 = tuple(
    b"BZh%d%s" % (level, block)
    for level in range(1, 10)
    for block in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")  # the second one: of nothing
)
MAGIC_BYTES = 10
BROKEN = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError, pa.ArrowException)


def compression_of(head: bytes) -> str | None:
    """How content is compressed that begins with these bytes."""
    kinds = {"gzip": (GZIP,), "bzip2": BZIP2, "xz": (XZ,), "zstd": (ZSTD,)}
    return next((kind for kind, magic in kinds.items() if head.startswith(magic)), None)


def unpacked(
    kind: str, chunks: Iterator[bytes], packed_bytes: Callable[[], int], limits: IntakeLimits
) -> Iterator[bytes]:
    """What is in compressed content. `packed_bytes` says how much of the file was read for it."""
    size = 0
    pieces = _of_zstd(chunks) if kind == "zstd" else _of_members(kind, chunks)
    while True:
        try:
            piece = next(pieces, None)
        except UnreadableFileError:
            raise
        except BROKEN as error:
            raise UnreadableFileError(f"its {kind} stream is damaged: {error}") from None
        if piece is None:
            return
        size += len(piece)
        packed = packed_bytes()
        limit = limits.of(packed).unpacked_bytes
        if size > limit:
            raise UnreadableFileError(
                f"its {kind} stream unpacks to more than {limit:,} bytes from {packed:,}"
            )
        yield piece


class _Member(Protocol):
    """One stream of several that may follow each other in a file."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _member(kind: str) -> _Member:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    if kind == "bzip2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)


def _of_members(kind: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    member = _member(kind)
    for chunk in chunks:
        rest = chunk
        while True:
            if member.eof:
                rest = rest.lstrip(b"\0")  # padding between and after members is allowed
                if not rest:
                    break
                member = _member(kind)
            data = member.decompress(rest, READ_BYTES)
            # zlib returns the input that it has not used yet, the others keep it.
            kept = getattr(member, "unconsumed_tail", b"")
            rest = member.unused_data if member.eof else kept
            if data:
                yield data
            # A full piece may leave output behind even when all input is used up.
            if not rest and len(data) < READ_BYTES:
                break
    if not member.eof:
        raise UnreadableFileError(f"its {kind} stream ends early")


def _of_zstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(_ChunkFile(chunks), mode="r"), "zstd")
    try:
        while piece := stream.read(READ_BYTES):
            yield piece
    except OSError as error:
        if "truncated" in str(error).lower():
            raise UnreadableFileError("its zstd stream ends early") from None
        raise


class _ChunkFile(io.RawIOBase):
    """Chunks as a file that is read once, from its beginning to its end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = chunk
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
