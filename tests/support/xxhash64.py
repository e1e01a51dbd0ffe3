"""XXH64 with the seed that Spark uses, for stand-ins of Spark in tests."""

from __future__ import annotations

import struct

ONE, TWO, THREE = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
FOUR, FIVE = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MASK = 2**64 - 1
SEED = 42


def xxhash64(data: bytes, seed: int = SEED) -> int:
    """The hash as a signed number of 64 bits."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + ONE + TWO, seed + TWO, seed, seed - ONE]
        while at + 32 <= size:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane & MASK, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        found = sum(_left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * ONE + FOUR) & MASK
    else:
        found = (seed + FIVE) & MASK
    found = (found + size) & MASK
    while at + 8 <= size:
        found ^= _round(0, struct.unpack_from("<Q", data, at)[0])
        found = (_left(found, 27) * ONE + FOUR) & MASK
        at += 8
    if at + 4 <= size:
        found ^= struct.unpack_from("<I", data, at)[0] * ONE & MASK
        found = (_left(found, 23) * TWO + THREE) & MASK
        at += 4
    for byte in data[at:]:
        found = _left(found ^ byte * FIVE & MASK, 11) * ONE & MASK
    for shift, prime in ((33, TWO), (29, THREE), (32, 1)):
        found = (found ^ found >> shift) * prime & MASK
    return found - 2**64 if found >= 2**63 else found


def _round(lane: int, word: int) -> int:
    return _left((lane + word * TWO) & MASK, 31) * ONE & MASK


def _left(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & MASK
