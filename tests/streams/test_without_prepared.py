"""`flow.prepared = false`: every batch by Spark's public API, and the books are the same."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tapeline.settings import FlowSettings, Settings
from tapeline.spark.compile import compiler
from tapeline.store.delta_files import read_files
from tapeline.testing import Trial, plan_of
from tapeline.trades.lines import line
from tapeline.trades.reference import write_reference
from tapeline.trades.simulator import Day, simulate

DAY = Day(
    seed=5, date=date(2026, 11, 13), trades=300, broken=0.05, duplicates=0.05, corrections=0.1
)


@pytest.mark.slow
def test_a_day_gives_the_same_rows_in_every_table(tmp_path: Path, spark: SparkSession) -> None:
    write_reference(tmp_path / "reference", years=(2026, 2026))
    lines = [line(sent) for sent in simulate(DAY)]
    homes = []
    for prepared in (True, False):
        root = tmp_path / f"prepared-{prepared}"
        settings = Settings(project=tmp_path, flow=FlowSettings(prepared=prepared))
        with day_of(root, tmp_path, spark, settings) as trial:
            for start in range(0, len(lines), 80):
                trial.feed(raw_trades=lines[start : start + 80])
            assert trial.unbalanced() == []
            homes.append(trial.books.layout.home)
    names = {path.parent.relative_to(homes[0]) for path in homes[0].glob("[gs]*/*/_delta_log")}
    assert len(names) == 6  # two tables, and two summaries with their links
    for name in names:
        one, other = (rows_in(home / name) for home in homes)
        assert one == other, name
    assert any(rows_in(homes[0] / name) for name in names)


def day_of(root: Path, project: Path, spark: SparkSession, settings: Settings) -> Trial:
    clock = iter(datetime(2026, 11, 14, tzinfo=UTC) + timedelta(minutes=n) for n in range(10_000))
    plan = plan_of("tapeline.trades", settings)
    return Trial(
        plan.pipeline,
        root,
        project=project,
        clock=lambda: next(clock),
        compile_steps=compiler(spark, plan, settings),
    )


def rows_in(folder: Path) -> list[str]:
    """All rows of a table, as its files have them."""
    found = pa.concat_tables([pq.read_table(path) for path, _, _ in read_files(folder)])
    return sorted(map(str, found.to_pylist()))
