"""Compaction: few files however long a table grows, and no row written over and over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tapeline.settings import HousekeepingSettings
from tapeline.store.delta import TableWriter
from tapeline.store.housekeeping import TIERS, room_of_a_turn, sizes_of, tidy

ROWS = pa.schema([("value", pa.int64()), ("_batch", pa.int64())])
TARGET = 64_000
TURNS, FILES_PER_TURN, ROWS_PER_FILE = 40, 3, 150


def test_files_stay_few_and_are_hardly_ever_written_again(tmp_path: Path) -> None:
    book = TableWriter(tmp_path / "rows", ROWS, "test/rows")
    settings = HousekeepingSettings(compact_target_bytes=TARGET)
    chance = np.random.default_rng(7)
    appended = rewritten = 0
    written: list[int] = []
    for turn in range(TURNS):
        staged = []
        for _ in range(FILES_PER_TURN):
            values = chance.integers(0, 2**60, ROWS_PER_FILE)  # nothing to compress
            written += values.tolist()
            rows = pa.table({"value": values, "_batch": np.full(ROWS_PER_FILE, turn)}, schema=ROWS)
            staged.append(book.stage(f"batch-{turn}", rows, turn))
        book.add(staged, turn)
        appended += sum(one.size for one in staged)
        before = _sizes(tmp_path)
        tidy(book, settings)
        rewritten += sum(size for name, size in _sizes(tmp_path).items() if name not in before)
        full = [size for size in sizes_of(book) if size >= TARGET // 2]
        assert len(sizes_of(book)) - len(full) <= 2 * TIERS + 1
        assert len(full) <= 1 + 2 * appended // TARGET
    assert full, "the table must grow beyond one target"
    assert rewritten < 2 * appended  # one file that grows turn by turn: five times
    found = book.table.to_pyarrow_table()["value"].to_pylist()
    assert sorted(found) == sorted(written)


@pytest.mark.parametrize(
    ("sizes", "room"),
    [
        ([], 10),
        ([1] * 50, 10),
        ([10] * 15, 10),
        ([10] * 16, 160),  # they fill a file
        ([80, 150, 160, 400, 9], 10),  # as good as full: left alone
        ([79, 79, 2], 160),  # batches that write large files themselves
    ],
)
def test_a_turn_goes_up_to_the_target_once_that_fills_a_file(sizes: list[int], room: int) -> None:
    assert room_of_a_turn(sizes, target_bytes=160) == room


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (folder / "rows").glob("*.parquet")}
