"""Text that is not UTF-8 becomes UTF-8 at intake.

What cannot be decoded becomes a byte that no UTF-8 has, so that its record is quarantined and
nothing is guessed.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from tapeline.errors import DeclarationError

UTF8 = "utf-8"
STANDS_FOR_NONE = "\udcff"  # the byte 0xff, which surrogateescape writes
ERRORS = "tapeline"
# Codecs for other purposes than files, and those whose text may be no Unicode.
NOT_FOR_FILES = {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}
STATEFUL = ("iso2022", "hz")

codecs.register_error(ERRORS, lambda error: (STANDS_FOR_NONE, error.end))  # type: ignore[attr-defined]


def encoding_of(what: str, said: str) -> str:
    """The name of an encoding as Python writes it. Raises DeclarationError for others."""
    try:
        codec = codecs.lookup(said)
        of_text = getattr(codec, "_is_text_encoding", True)
        found = codec.name.replace("_", "-") if of_text else ""
    except (LookupError, ValueError, TypeError, UnicodeError):
        found = ""
    if not found or found in NOT_FOR_FILES:
        raise DeclarationError(
            f"{what}: encoding={said!r} is not an encoding. Write for example 'latin-1', "
            "'cp1252' or 'utf-16'."
        )
    return UTF8 if found in (UTF8, "utf-8-sig") else found


def ends_lines_like_ascii(encoding: str) -> bool:
    """Whether a line end is one byte, which nothing else contains."""
    return "\n".encode(encoding) == b"\n" and not encoding.startswith(STATEFUL)


def as_utf8(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Text as UTF-8, with 0xff for what cannot be decoded."""
    decoder = codecs.getincrementaldecoder(encoding)(ERRORS)
    for chunk in chunks:
        yield decoder.decode(chunk).encode(UTF8, "surrogateescape")
    yield decoder.decode(b"", final=True).encode(UTF8, "surrogateescape")
