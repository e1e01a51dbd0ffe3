"""What was appended to a file after it was taken: where it begins, and what came before it."""

from __future__ import annotations

import os

from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.formats.lines import CR, LF
from tapeline.intake.compression import MAGIC_BYTES, compression_of
from tapeline.intake.delivery_reader import (
    READ_BYTES,
    DeliveryReader,
    FileRules,
    TailStart,
    sha256_of,
)


def tail(
    handle: int, counted: int, size: int, form: FileRules, limits: IntakeLimits
) -> tuple[int, TailStart]:
    """Where the tail of a file begins of which `counted` bytes have been read, out of `size`.

    A last line that had no line end is part of the tail again when the tail goes on with it: the
    first delivery has half of it, the second has all of it.
    """
    if not form.written.grows or counted == 0:
        return 0, TailStart()
    if DeliveryReader(handle, counted, form, limits).archive():
        return 0, TailStart()
    packed = compression_of(os.pread(handle, MAGIC_BYTES, 0)) is not None
    # A compressed file that was whole ends with a member, so what follows is the next member.
    first = counted if packed else _line_start(handle, counted)
    if first == 0:
        return 0, TailStart()
    header = _header(handle, counted, form, limits)
    return first, TailStart(0 if packed else _line_ends(handle, first), header)


def still_begins_with(handle: int, counted: int, sha256: str | None) -> bool:
    """Whether a file's first bytes are the ones that were read; True when nobody knows."""
    try:
        return sha256 is None or sha256_of(handle, counted) == sha256
    except UnreadableFileError:
        return False


def _line_start(handle: int, counted: int) -> int:
    if os.pread(handle, 1, counted - 1) == LF:
        return counted
    ahead = os.pread(handle, 2, counted)
    if ahead.startswith((LF, CR + LF)):
        return counted + ahead.index(LF) + 1
    end = counted
    while end:
        start = max(0, end - READ_BYTES)
        found = os.pread(handle, end - start, start).rfind(LF)
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _line_ends(handle: int, end: int) -> int:
    return sum(
        os.pread(handle, min(READ_BYTES, end - start), start).count(LF)
        for start in range(0, end, READ_BYTES)
    )


def _header(handle: int, counted: int, form: FileRules, limits: IntakeLimits) -> bytes | None:
    reading = DeliveryReader(handle, counted, form, limits)
    try:
        next(iter(reading), None)
    except UnreadableFileError:
        return None
    return reading.header
