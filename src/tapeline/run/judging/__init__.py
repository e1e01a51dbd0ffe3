"""Judging: a verdict for every record of a table's batch, and the rows that count."""

from tapeline.run.judging.causes import BEGINNING
from tapeline.run.judging.given import Given, kept_records, tape_records, with_acts
from tapeline.run.judging.judge import Judged, Memory, check_balance, judge_batch

__all__ = [
    "BEGINNING",
    "Given",
    "Judged",
    "Memory",
    "check_balance",
    "judge_batch",
    "kept_records",
    "tape_records",
    "with_acts",
]
