"""`pipeline.start(spark)`: a pipeline in a script or a notebook, by Spark's own names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tapeline import OperationError
from tapeline.operate.handle import Handle
from tapeline.spark.conf import SESSION
from tapeline.spark.session import tuned
from tests.support.counted_words import counted, drop

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "coffee.ipynb"


def begun(tmp_path: Path, spark: SparkSession) -> Handle:
    (tmp_path / "landing").mkdir()
    return counted().pipeline.start(spark, project=tmp_path)


def test_a_handle_has_what_a_streaming_query_has() -> None:
    ours = {name for name in vars(Handle) if not name.startswith("_")}
    theirs = {name for name in vars(StreamingQuery) if not name.startswith("_")}
    assert theirs - ours == {"explain"}  # a pipeline has a plan for every step


def test_a_started_pipeline_is_watched_read_and_stopped(
    tmp_path: Path, spark: SparkSession
) -> None:
    handle = begun(tmp_path, spark)
    try:
        assert (handle.name, handle.isActive, handle.lastProgress) == ("counted", True, None)
        assert handle.awaitTermination(0.01) is False
        drop(tmp_path, "1", {"word": "a"}, {"word": "b"}, {"word": "a"})
        handle.processAllAvailable()
        assert handle.status["message"] == "Waiting for data to arrive"
        first = handle.books.cut().at
        drop(tmp_path, "2", {"word": "a"})
        handle.processAllAvailable()
        assert [one["numInputRows"] for one in handle.recentProgress] == [3, 1]
        assert handle.lastProgress is not None
        assert handle.lastProgress["batchId"] == 2
        expected = {"a": 3, "b": 1}
        assert {r["word"]: r["n"] for r in handle.arrow("counts").to_pylist()} == expected
        assert dict(handle.pandas("counts")[["word", "n"]].itertuples(index=False)) == expected
        assert {r.word: r.n for r in handle.dataframe("counts").collect()} == expected
        then = {r.word: r.n for r in handle.dataframe("counts", as_reported=first).collect()}
        assert then == {"a": 2, "b": 1}
    finally:
        handle.stop()
    assert handle.isActive is False
    assert handle.awaitTermination() is None
    assert handle.status["message"] == "Stopped"


def test_a_flow_that_fails_is_told_to_who_waits(tmp_path: Path, spark: SparkSession) -> None:
    handle = begun(tmp_path, spark)
    try:
        drop(tmp_path, "1", {"word": "a", "size": 13})
        with pytest.raises(OperationError, match="size is not forbidden"):
            handle.processAllAvailable()
        assert "size is not forbidden" in handle.status["message"]
    finally:
        handle.stop()


def test_a_session_of_the_users_own_gets_a_tuned_one_beside_it(spark: SparkSession) -> None:
    assert tuned(spark) is spark
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "false")
    beside = tuned(own)
    assert own.conf.get("spark.sql.ansi.enabled") == "false"
    assert {key: beside.conf.get(key) for key in SESSION} == SESSION


@pytest.mark.slow
def test_the_notebook_runs_in_a_real_kernel(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    said = [outputs(cell) for cell in notebook.cells if cell.cell_type == "code"]
    status, first, shops, late, before, progress, active = said[3:]
    # By hand: 3.20 + 2.90 in the north, 4.10 in the south, then 1.00 more in the north.
    assert "Waiting for data to arrive" in status
    assert all(text in first for text in ("6.10", "4.10", "north", "south"))
    assert "|north|  6.10|" in shops
    assert "Decimal('7.10')" in late
    assert "6.10" in before
    assert "7.10" not in before
    assert progress == str({"name": "coffee", "batchId": 2, "numInputRows": 1})
    assert active == "False"


def outputs(cell: Any) -> str:
    texts = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs]
    return "\n".join(texts)
