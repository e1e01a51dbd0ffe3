"""What a container holds: its first bytes say what it is, and text becomes UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tapeline.formats.avro_files import MAGIC as AVRO
from tapeline.formats.encodings import UTF8, as_utf8
from tapeline.formats.limits import UnreadableFileError
from tapeline.formats.parquet import MAGIC as PARQUET
from tapeline.intake.members import BLOCK, archive_of

UTF8_MARK = b"\xef\xbb\xbf"
# How files begin that hold no lines intake can cut, and what their sender should know.
FOREIGN = (
    (b"\xff\xfe", "it is UTF-16 or UTF-32 text; send UTF-8, or declare its encoding"),
    (b"\xfe\xff", "it is UTF-16 text; send UTF-8, or declare its encoding"),
    (b"\x00\x00\xfe\xff", "it is UTF-32 text; send UTF-8, or declare its encoding"),
)


WRONG_FORMAT = {
    PARQUET: "it is a Parquet file; declare the source with format 'parquet'",
    AVRO: "it is an Avro file; declare the source with format 'avro'",
}


def text_of(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Text as UTF-8, without a byte order mark. Raises UnreadableFileError if it is none."""
    head, chunks = peeked(chunks, BLOCK)
    for beginning, reason in FOREIGN:
        if encoding == UTF8 and head.startswith(beginning):
            raise UnreadableFileError(reason)
    if kind := archive_of(head):
        raise UnreadableFileError(f"it is a {kind} archive inside an archive; pack it once")
    if encoding != UTF8:
        chunks = as_utf8(chunks, encoding)
    _, chunks = peeked(chunks, len(UTF8_MARK))
    return chain([next(chunks, b"").removeprefix(UTF8_MARK)], chunks)


def peeked(chunks: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes of some content, and all of it; the first chunk has at least these bytes."""
    head = b""
    while len(head) < size and (chunk := next(chunks, None)) is not None:
        head += chunk
    return head[:size], chain([head], chunks)
