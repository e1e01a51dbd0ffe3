"""Steps of a pipeline, prepared once for all tests of a process that run the same pipeline.

Spark needs seconds to analyse a pipeline and to generate its code, a test of a few records a tenth
of that. Steps remember nothing between batches, and depend only on the plan and on the rows of the
references: where both are the same, a trial and a run take the steps of an earlier one. Only the
last few are kept, since each holds memory in the JVM.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tapeline.flow.steps import Steps
from tapeline.plan import Plan
from tapeline.spark import compile as compiling

KEPT = 8
Found = tuple[Plan, Mapping[str, pa.Table], Steps]


class StepsOnce:
    """Within the block, what was prepared on this session is not prepared again."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._found: deque[Found] = deque(maxlen=KEPT)
        self._analysed = compiling.analysed
        self._with_queries = compiling.with_query_schemas
        self._known: deque[tuple[Plan, Plan]] = deque(maxlen=KEPT)

    def __enter__(self) -> StepsOnce:
        compiling.analysed = self._once
        compiling.with_query_schemas = self._queries_once
        return self

    def __exit__(self, *_: Any) -> None:
        compiling.analysed = self._analysed
        compiling.with_query_schemas = self._with_queries

    def _queries_once(self, session: SparkSession, plan: Plan) -> Plan:
        """The columns of a pipeline's queries are asked for once."""
        for asked, known in self._known:
            if plan is asked or plan is known:
                return known
        known = self._with_queries(session, plan)
        self._known.append((plan, known))
        return known

    def _once(
        self,
        session: SparkSession,
        plan: Plan,
        references: Mapping[str, pa.Table],
        public: bool = False,
    ) -> Steps:
        if session is not self._session or public:
            return self._analysed(session, plan, references, public)
        for known, rows, steps in self._found:
            if _same_plan(known, plan) and _same_rows(rows, references):
                return steps
        steps = self._analysed(session, plan, references)
        self._found.append((plan, dict(references), steps))
        return steps


def _same_plan(one: Plan, other: Plan) -> bool:
    """The same declarations, not equal ones: two functions may differ in what they close over."""
    if one.pipeline is not other.pipeline:
        return False
    pairs = [(one.tables, other.tables), (one.summaries, other.summaries)]
    return all(len(a) == len(b) and all(map(_is, a, b)) for a, b in pairs)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _same_rows(one: Mapping[str, pa.Table], other: Mapping[str, pa.Table]) -> bool:
    return one.keys() == other.keys() and all(one[name].equals(other[name]) for name in one)
