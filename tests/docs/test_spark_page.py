"""The pipelines of docs/spark.md are pipelines."""

from __future__ import annotations

from typing import Any

from tapeline import Pipeline, Query
from tapeline.plan import resolve
from tests.support.doc_pages import REPOSITORY, blocks


def test_every_pipeline_of_the_page_can_be_planned() -> None:
    known: dict[str, Any] = {}
    planned = []
    for block in blocks(REPOSITORY / "docs" / "spark.md"):
        if block.kind == "python" and "Query(" in block.text:
            exec(compile(block.text, "spark.md", "exec"), known)
            pipeline: Pipeline = known["pipeline"]
            plan = resolve(pipeline)
            (source,) = plan.pipeline.sources.values()
            assert isinstance(source.connector, Query)
            planned.append((plan.name, source.connector.mode))
    assert planned == [("words", "append"), ("shops", "update"), ("best", "complete")]
