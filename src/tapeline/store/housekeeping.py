"""Keeping the tables tidy between batches: few files, short logs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from tapeline.declare.duration import parse_duration
from tapeline.settings import HousekeepingSettings
from tapeline.store.delta import TableWriter
from tapeline.store.delta_files import NO_HOOKS

# Small files grow to this part of the target, and are then joined by about as many.
TIERS = 16
KEEP_VERSIONS = 100
LOG_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|crc)")


def tidy(book: TableWriter, settings: HousekeepingSettings, flown: bool = True) -> None:
    """Compact small files, make a log checkpoint, and remove what no reader needs any more.

    Files are joined in two tiers and then left alone, so the cost follows what is new. None of the
    answers rests on old versions: as_reported folds the journal.
    """
    if flown:
        compact(book, room_of_a_turn(sizes_of(book), settings.compact_target_bytes))
        remove_old(book, settings.removed_files_hours)
    book.checkpoint()
    trim_log(book.folder, book.table.version())
    book.reopen()


def room_of_a_turn(sizes: Sequence[int], target_bytes: int) -> int:
    """How large the files of a turn may become: a tier, or the target once that fills a file.

    One file that took in a little at every turn would be written again at every turn, up to the
    target, while the flow stands still. Files of half the target and more are as good as full.
    """
    unfinished = sum(size for size in sizes if size < target_bytes // 2)
    return target_bytes if unfinished >= target_bytes else max(1, target_bytes // TIERS)


def sizes_of(book: TableWriter) -> list[int]:
    """The sizes of a table's live files."""
    sizes: list[int] = pa.table(book.table.get_add_actions())["size_bytes"].to_pylist()
    return sizes


def compact(book: TableWriter, target_bytes: int) -> None:
    """Put small files together, durably; what they replaced is as old as this moment."""
    before, live = book.table.version(), set(book.table.file_uris())
    book.table.optimize.compact(target_size=target_bytes, post_commithook_properties=NO_HOOKS)
    book.table.update_incremental()
    book.settle(before)
    for replaced in live - set(book.table.file_uris()):
        os.utime(book.folder / Path(replaced).name)


def remove_old(book: TableWriter, hours: int) -> None:
    """Remove files that are in no table and older than some hours.

    Those are replaced ones, and those of batches that were never decided. Delta's own vacuum would
    write two entries to the log, not fsynced: a power cut could keep the second one alone.
    """
    live = {Path(uri).name for uri in book.table.file_uris()}
    limit = time.time() - hours * 3600
    for path in book.folder.iterdir():
        if path.suffix in (".parquet", ".partial") and path.name not in live:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()


def kept_for(text: str) -> timedelta | None:
    """How long something is kept; None for ever."""
    return None if text == "forever" else parse_duration(text)


def remove_archived(archive: Path, keep: timedelta | None, now: datetime) -> int:
    """Remove originals that have lain in an archive for longer than they are kept.

    Their records are on the tape, byte for byte; nothing reads them again.
    """
    if keep is None:
        return 0
    removed, limit = 0, (now - keep).timestamp()
    for place, _, names in os.walk(archive):
        for name in names:
            path = Path(place, name)
            # What a move sets; the time of its content is the sender's.
            if path.lstat().st_ctime < limit:
                path.unlink()
                removed += 1
    return removed


def trim_log(folder: Path, version: int) -> None:
    """Remove log entries that lie before the checkpoint just made, but for a margin.

    The margin lets a reader that has just listed the log go on reading it.
    """
    keep_from = version - KEEP_VERSIONS
    log = folder / "_delta_log"
    newest_checkpoint = 0
    for name in os.listdir(log):
        match = LOG_ENTRY.fullmatch(name)
        if match and match[2] == "checkpoint.parquet" and int(match[1]) <= keep_from:
            newest_checkpoint = max(newest_checkpoint, int(match[1]))
    for name in os.listdir(log):
        match = LOG_ENTRY.fullmatch(name)
        if match and int(match[1]) < newest_checkpoint:
            (log / name).unlink(missing_ok=True)
