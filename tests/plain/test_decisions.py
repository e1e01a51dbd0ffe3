"""One commit of rows decides, then each table gets its files: again and again, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tapeline.errors import OperationError
from tapeline.store.decisions import DecidedTables, decide
from tapeline.store.delta import StagedFile, TableWriter
from tapeline.store.duckdb import rows_of
from tapeline.testing import Crash, crash_at

SCHEMA = pa.schema([("batch", pa.int64()), ("value", pa.string())])


def row(batch: int, value: str) -> pa.Table:
    return pa.table({"batch": [batch], "value": [value]}, schema=SCHEMA)


def tables(home: Path) -> dict[str, TableWriter]:
    return {name: TableWriter(home / name, SCHEMA, name) for name in ("one", "other")}


def values(folder: Path) -> list[str]:
    return sorted(found["value"] for found in rows_of(folder, "value", 0))


def staged(found: dict[str, TableWriter], batch: int) -> dict[str, list[StagedFile]]:
    return {
        name: [table.stage("x", row(batch, f"{name} {batch}"), batch)]
        for name, table in found.items()
    }


def test_rows_of_one_decision_are_there_together_and_once(tmp_path: Path) -> None:
    deciding = TableWriter(tmp_path / "deciding", SCHEMA, "deciding")
    for _ in range(2):
        decide(deciding, [(1, row(1, "a")), (2, row(2, "b"))], version=2)
    assert values(tmp_path / "deciding") == ["a", "b"]


def test_finishing_after_a_crash_between_two_tables_gives_each_its_files_once(
    tmp_path: Path,
) -> None:
    found = tables(tmp_path)
    files = staged(found, 1)
    with crash_at("added"), pytest.raises(Crash):
        DecidedTables(found, "added").finish(1, files)
    assert (values(tmp_path / "one"), values(tmp_path / "other")) == (["one 1"], [])

    again = DecidedTables(tables(tmp_path), "added")
    assert again.lack(1)
    for _ in range(2):
        again.finish(1, files)
    assert (values(tmp_path / "one"), values(tmp_path / "other")) == (["one 1"], ["other 1"])
    assert not again.lack(1)


def test_a_decided_file_that_is_gone_is_named_with_what_to_do(tmp_path: Path) -> None:
    found = tables(tmp_path)
    files = staged(found, 7)
    (tmp_path / "other" / files["other"][0].name).unlink()
    with pytest.raises(OperationError, match=r"TABLE_BEHIND: .*other lacks batch 7.*Restore"):
        DecidedTables(found, "added").finish(7, files)
