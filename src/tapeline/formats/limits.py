"""The limits of intake: what it does in one pass, and what it accepts from a sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapeline.books.batch_limits import BatchLimits
from tapeline.books.reasons import reason
from tapeline.declare.format import FileLimits
from tapeline.errors import DeclarationError
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.flow.batch_size import BatchSize

MIB = 1024 * 1024
# Anything may unpack to this much before the ratio counts: small files can compress very well.
UNPACKED_ALLOWANCE_BYTES = 16 * MIB


class UnreadableFileError(Exception):
    """A delivery cannot be read. The message says why, for its sender."""


@dataclass(frozen=True)
class IntakeLimits:
    """How much intake does in one pass, puts into one piece and accepts from a sender."""

    files_per_pass: int = 2_000
    records_per_piece: int = 50_000
    bytes_per_piece: int = 16 * MIB
    bytes_per_tape_batch: int = 2 * MIB
    record_bytes: int = MIB
    file_bytes: int = 5 * 1024 * MIB
    file_rows: int = 100_000_000
    expansion_ratio: int = 200
    decoded_bytes: int = 64 * MIB
    settle_seconds: float = 1.0
    room: BatchSize | None = None  # how many records a batch of the flow may hold

    @property
    def piece_records(self) -> int:
        """How many records a piece may hold now."""
        most = self.records_per_piece
        return min(most, self.room.records) if self.room else most

    @property
    def tape_batch(self) -> BatchLimits:
        """How much one batch of the tape may hold now."""
        if self.room:
            return BatchLimits(self.bytes_per_tape_batch, self.room.records)
        return BatchLimits(self.bytes_per_tape_batch)

    def __post_init__(self) -> None:
        if min(self.files_per_pass, self.records_per_piece, self.record_bytes) < 1:
            raise DeclarationError(
                "intake: files_per_pass, records_per_piece and record_bytes must be at least 1."
            )
        if self.record_bytes > self.bytes_per_piece:
            raise DeclarationError(
                f"intake: record_bytes ({self.record_bytes:,}) is larger than bytes_per_piece "
                f"({self.bytes_per_piece:,}). A piece must have room for the longest record: raise "
                "bytes_per_piece or lower record_bytes."
            )

    def of(self, packed_bytes: int) -> FileLimits:
        """What a file of this many bytes may become."""
        allowed = max(UNPACKED_ALLOWANCE_BYTES, packed_bytes * self.expansion_ratio)
        return FileLimits(min(allowed, self.file_bytes), self.decoded_bytes, self.file_rows)


def too_long(size_bytes: int, limit_bytes: int) -> str:
    """The reason of a message that was cut."""
    return reason(
        "message is longer than the limit; the rest is lost",
        f"{counted(size_bytes, 'byte')}, the limit is {limit_bytes:,}",
    )
