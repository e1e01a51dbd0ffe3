"""Keeping the tables tidy between batches: few files, short logs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tapeline.books.delta import NO_HOOKS, Book
from tapeline.settings import HousekeepingSettings

LOG_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|crc)")


def tidy(book: Book, settings: HousekeepingSettings, flown: bool = True) -> None:
    """Compact small files, make a log checkpoint, and remove what no reader needs any more.

    Files are compacted up to a size and then left alone, so the cost follows what is new. None of
    the answers rests on old versions: as_reported folds the journal.
    """
    table = book.table
    if flown:
        table.optimize.compact(
            target_size=settings.compact_target_bytes, post_commithook_properties=NO_HOOKS
        )
        table.update_incremental()
        table.vacuum(
            retention_hours=settings.removed_files_hours,
            enforce_retention_duration=False,
            dry_run=False,
            post_commithook_properties=NO_HOOKS,
        )
        table.update_incremental()
    table.create_checkpoint()
    trim_log(book.folder, table.version())
    book.reopen()


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


KEEP_VERSIONS = 100
