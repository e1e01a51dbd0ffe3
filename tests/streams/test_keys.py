"""What makes two records the same: keys by choice, content, keys that a step makes.

Law 1 for each of them: any cut, any order, any number of repeats. The oracle is plain Python.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import (
    Files,
    Memory,
    OperationError,
    Pipeline,
    Rows,
    Stream,
    expect_or_quarantine,
)
from tapeline.books.audit import audit
from tapeline.books.operator import DISMISS, REDRIVE, OperatorTape
from tapeline.books.quarantine import Actor, QuarantineFilter, decide, quarantined, show
from tapeline.books.revisions import why
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
REALLY = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CUTS = st.sets(st.integers(1, 39), max_size=3)


@pytest.fixture
def fresh(spark: Any) -> Iterator[Callable[[Callable[[], Pipeline]], Trial]]:
    """A trial of a pipeline in a folder of its own; its steps are prepared once per test."""
    folders: list[Path] = []
    first: dict[Callable[[], Pipeline], Trial] = {}

    def make(pipeline: Callable[[], Pipeline]) -> Trial:
        folders.append(Path(tempfile.mkdtemp()))
        trial = Trial(pipeline(), folders[-1], like=first.get(pipeline))
        first.setdefault(pipeline, trial)
        return trial

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def fed(trial: Trial, sent: list[Any], cuts: set[int]) -> None:
    bounds = [0, *sorted(c for c in cuts if c < len(sent)), len(sent)]
    for first, last in pairwise(bounds):
        trial.feed(raw=sent[first:last])


def balanced(trial: Trial) -> None:
    for full in (False, True):
        wrong = [check for check in audit(trial.books, full) if not check.balances]
        assert not wrong


def sums(found: Pipeline, amount: str = "amount") -> None:
    @found.summary(key="side")
    def totals(rows: Stream) -> DataFrame:
        return rows.groupBy("side").agg(F.sum(amount).alias("amount"), F.count("*").alias("n"))


def totals_of(trial: Trial) -> dict[str, tuple[Decimal, int]]:
    return {row["side"]: (row["amount"], row["n"]) for row in trial.read("totals")}


def added_up(rows: list[tuple[str, Decimal]]) -> dict[str, tuple[Decimal, int]]:
    found: dict[str, tuple[Decimal, int]] = {}
    for side, amount in rows:
        before = found.get(side, (Decimal(0), 0))
        found[side] = (before[0] + amount, before[1] + 1)
    return found


def optional() -> Pipeline:
    found = Pipeline("optional")
    schema = "id string, v int, event string, side string, amount decimal(12,2), seen_at timestamp"
    found.source("raw", Files("landing/", schema=schema))

    @found.table(
        key="id",
        key_optional=True,
        content_ignores=["seen_at"],
        sequence_by="v",
        apply_as_deletes="event = 'CANCEL'",
    )
    def rows(raw: Stream) -> DataFrame:
        return raw

    sums(found)
    return found


def entry(key: int, version: int, moment: int) -> dict[str, Any]:
    """A record; every third key is none. It was seen at another moment each time it came."""
    number = key * 5 + version
    return {
        **({} if key % 3 == 0 else {"id": f"r{key}", "v": version}),
        "side": ("BUY", "SELL")[number % 2],
        "amount": str(Decimal(number * 37 % 2000) / 100),
        "seen_at": f"2026-11-13T10:{moment % 60:02}:00Z",
    }


@REALLY
@given(
    sent=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 3), st.integers(0, 59)),
        min_size=1,
        max_size=30,
    ),
    cuts=CUTS,
)
def test_law_1_where_there_is_an_id_repeats_count_once_and_all_others_are_kept(
    fresh: Any, sent: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    trial = fresh(optional)
    fed(trial, [entry(*one) for one in sent], cuts)
    highest: dict[int, int] = {}
    for key, version, _ in sent:
        highest[key] = max(version, highest.get(key, 0))
    standing = [(key, version) for key, version in highest.items() if key % 3]
    standing += [(key, version) for key, version, _ in sent if key % 3 == 0]
    rows = [entry(key, version, 0) for key, version in standing]
    assert totals_of(trial) == added_up([(r["side"], Decimal(r["amount"])) for r in rows])
    assert "quarantined" not in trial.verdicts("rows")
    balanced(trial)


def test_a_repeat_that_was_seen_later_is_a_repeat_and_other_content_a_conflict(fresh: Any) -> None:
    trial = fresh(optional)
    trial.feed(raw=[entry(1, 1, 0), entry(1, 1, 5)])
    trial.feed(raw=[entry(1, 1, 9), {**entry(1, 1, 9), "amount": "7"}])
    assert trial.verdicts("rows") == {"kept": 1, "duplicate": 2, "quarantined": 1}


def test_a_deletion_without_a_key_is_quarantined_even_where_keys_are_optional(fresh: Any) -> None:
    trial = fresh(optional)
    trial.feed(raw=[{"event": "CANCEL", "v": 1}, entry(0, 1, 0), entry(0, 1, 0)])
    assert trial.verdicts("rows") == {"kept": 2, "quarantined": 1}
    assert trial.books.totals()["rows"].reasons == {"the key is missing: id": 1}
    assert trial.books.unmatched("rows").num_rows == 0


def test_a_flow_that_starts_again_keeps_records_without_a_key_apart(fresh: Any) -> None:
    trial = fresh(optional)
    trial.feed(raw=[entry(0, 1, 0), entry(1, 1, 0)])
    trial.flow._remembered = None
    trial.flow._recover()
    trial.feed(raw=[entry(0, 1, 0), entry(1, 1, 0)])
    assert Counter(trial.verdicts("rows")) == {"kept": 3, "duplicate": 1}


def lines() -> Pipeline:
    """The id, the version and what happened stand inside a line of text."""
    found = Pipeline("lines")
    found.source("raw", Files("landing/", format="text"))

    @found.table(
        key=["market", "id"],
        sequence_by="version",
        apply_as_deletes="side = 'CANCEL'",
        content_ignores="captured",
        time="at",
    )
    @expect_or_quarantine("amount is zero or more", "amount >= 0")
    def rows(raw: Stream) -> DataFrame:
        cell = F.split("value", r"\|")
        return raw.filter(~F.col("value").startswith("#")).select(
            "_position",
            cell[0].alias("market"),
            F.nullif(cell[1], F.lit("")).alias("id"),
            cell[2].try_cast("int").alias("version"),
            cell[3].alias("side"),
            cell[4].try_cast("decimal(12,2)").alias("amount"),
            cell[5].try_cast("timestamp").alias("at"),
            cell[6].alias("captured"),
        )

    sums(found)
    return found


def line(key: int, version: int, moment: int) -> str:
    number = key * 5 + version
    side = "CANCEL" if number % 7 == 0 else ("BUY", "SELL")[number % 2]
    amount = Decimal(number * 37 % 2000) / 100
    # The time of a repeat and the number of its capture are others each time.
    return f"X{key % 2}|r{key}|{version}|{side}|{amount}|2026-11-13 10:{moment:02}:00|{moment}"


def highest(sent: list[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, version in sent:
        found[key] = max(version, found.get(key, 0))
    return found


SENT = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 59)), min_size=1, max_size=30
)


@REALLY
@given(sent=SENT, cuts=CUTS)
def test_law_1_for_a_key_inside_a_line_of_text(
    fresh: Any, sent: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    trial = fresh(lines)
    fed(trial, ["# a remark", *(line(*one) for one in sent)], cuts)
    cells = [line(*one, 0).split("|") for one in highest([one[:2] for one in sent]).items()]
    standing = [(cell[3], Decimal(cell[4])) for cell in cells if cell[3] != "CANCEL"]
    assert totals_of(trial) == added_up(standing)
    verdicts = trial.verdicts("rows")
    assert verdicts["dropped"] == 1
    assert "quarantined" not in verdicts
    assert verdicts.get("duplicate", 0) == len(sent) - len({one[:2] for one in sent})
    balanced(trial)


def test_a_line_without_its_key_is_quarantined_and_a_key_of_two_columns_is_readable(
    fresh: Any,
) -> None:
    trial = fresh(lines)
    trial.feed(raw=["X1||1|BUY|5.00|2026-11-13 10:00:00|1", line(1, 1, 0), "X1|r9|x|BUY|5||"])
    reasons = {"the key is missing: market, id": 1, "the sequence is missing: version": 1}
    assert trial.books.totals()["rows"].reasons == reasons
    (revision,) = why(trial.books, "totals", ["BUY"])
    assert [one["record"] for one in revision.records] == ["X1 / r1"]
    trial.feed(raw=["X0|r4|1|BUY|5.00|2026-11-13 10:00:00|1", "X0|r4|1|BUY|6.00|||"])
    conflict = quarantined(trial.books, QuarantineFilter(reason="other content"))
    assert [row["key"] for row in conflict] == ["X0 / r4"]


def messages() -> Pipeline:
    """A message holds several trades, each with an id of its own."""
    found = Pipeline("messages")
    one = "struct<id:string,v:int,side:string,amount:decimal(12,2),at:timestamp,capture:int>"
    found.source("raw", Files("landing/", schema=f"sent int, trades array<{one}>"))

    @found.table(
        key="id",
        sequence_by="v",
        apply_as_deletes="side = 'CANCEL'",
        content_ignores=["sent", "capture"],
        key_optional=True,
        time="at",
    )
    @expect_or_quarantine("amount is zero or more", "amount >= 0")
    def rows(raw: Stream) -> DataFrame:
        apart = raw.select("_position", "sent", F.explode("trades").alias("trade"))
        return apart.select("_position", "sent", "trade.*")

    @found.table
    @expect_or_quarantine("sides are known", "side in ('BUY', 'SELL')")
    def legs(rows: Stream) -> DataFrame:
        """Two rows of every row: money and fee."""
        part = F.explode(F.array(F.lit("money"), F.lit("fee"))).alias("part")
        return rows.select("*", part)

    sums(found)

    @found.summary(key="part")
    def parts(legs: Stream) -> DataFrame:
        return legs.groupBy("part").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))

    @found.sink(Memory())
    def out(rows: Rows) -> Any:
        return rows

    return found


def trade(key: int, version: int, moment: int) -> dict[str, Any]:
    cells = line(key, version, moment).split("|")
    return {
        **({"id": cells[1]} if key % 5 else {}),
        "v": version,
        "side": "SELL" if key % 5 == 0 else cells[3],
        "amount": cells[4],
        "at": cells[5].replace(" ", "T") + "Z",
        "capture": moment,
    }


Sent = list[list[tuple[int, int, int]]]
BAD = (99, 1, 0)  # a trade that breaks a rule


def message_of(number: int, trades: list[tuple[int, int, int]]) -> dict[str, Any]:
    made = [trade(*one) if one != BAD else {**trade(*one), "amount": "-1"} for one in trades]
    return {"sent": number, "trades": made}


def expected(sent: Sent) -> tuple[dict[str, tuple[Decimal, int]], Counter[str]]:
    """One static pass in plain Python."""
    verdicts: Counter[str] = Counter()
    alone: list[dict[str, Any]] = []
    came: Counter[tuple[int, int]] = Counter()
    for trades in sent:
        if BAD in trades:
            verdicts["quarantined"] += 1
        elif not trades:
            verdicts["dropped"] += 1
        else:
            alone += [trade(*one) for one in trades if one[0] % 5 == 0]
            came.update(one[:2] for one in trades if one[0] % 5)
    standing = [trade(*one, 0) for one in highest(list(came)).items()]
    kept = [one for one in standing if one["side"] != "CANCEL"] + alone
    verdicts["kept"] = len(kept)
    verdicts["applied"] = len(standing) - (len(kept) - len(alone))
    verdicts["superseded"] = len(came) - len(standing)
    verdicts["duplicate"] = sum(came.values()) - len(came)
    return added_up([(one["side"], Decimal(one["amount"])) for one in kept]), +verdicts


MESSAGES = st.lists(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 59)), st.just(BAD)
        ),
        max_size=5,
    ),
    min_size=1,
    max_size=12,
)


@REALLY
@given(sent=MESSAGES, cuts=CUTS)
def test_law_1_for_keys_inside_a_message(fresh: Any, sent: Sent, cuts: set[int]) -> None:
    trial = fresh(messages)
    fed(trial, [message_of(*one) for one in enumerate(sent)], cuts)
    totals, verdicts = expected(sent)
    assert totals_of(trial) == totals
    assert Counter(trial.verdicts("rows")) == verdicts
    both = added_up([("x", amount) for amount, _ in totals.values()])
    assert {row["part"]: row["n"] for row in trial.read("parts")} == (
        dict.fromkeys(("fee", "money"), sum(n for _, n in totals.values())) if totals else {}
    )
    assert {row["amount"] for row in trial.read("parts")} == {one[0] for one in both.values()}
    assert net(trial.sent("out")) == Counter(
        (row["side"], row["amount"]) for row in trial.read("rows")
    )
    balanced(trial)


def net(sent: list[dict[str, Any]]) -> Counter[tuple[str, Decimal]]:
    """The rows that a sink's receiver has in the end."""
    found: Counter[tuple[str, Decimal]] = Counter()
    for row in sent:
        found[row["side"], row["amount"]] += row["_sign"]
    return +found


def test_a_correction_takes_back_one_row_of_a_message_and_why_names_it(fresh: Any) -> None:
    trial = fresh(messages)
    sell, other = trade(1, 1, 0), trade(3, 1, 0)
    trial.feed(raw=[{"sent": 1, "trades": [sell, other]}])
    better = {**sell, "v": 2, "amount": "100.00"}
    trial.feed(raw=[{"sent": 2, "trades": [better, other]}])
    assert trial.verdicts("rows") == {"kept": 2, "superseded": 1, "duplicate": 1}
    _, correction = why(trial.books, "totals", [sell["side"]])
    assert [
        (one["record"], one["sign"], one["part"], one["row"]) for one in correction.records
    ] == [
        ("r1", -1, 1, 0),
        ("r1", 1, 2, 0),
    ]
    assert all(one["line"] == 1 for one in correction.records)
    sent = [(row["_position"], row["_key"], row["_sign"]) for row in trial.sent("out")]
    assert sent == [
        ("raw/1/0/0", "r1", 1),
        ("raw/1/0/1", "r3", 1),
        ("raw/1/0/0", "r1", -1),
        ("raw/2/0/0", "r1", 1),
    ]
    balanced(trial)


def acted(trial: Trial, act: str, *positions: str, record: bytes | None = None) -> None:
    rows = quarantined(trial.books, QuarantineFilter(positions=positions))
    decide(trial.books, act, rows, Actor(datetime.now(UTC), "us"), record)
    trial.flow.advance()


def test_a_message_or_one_row_of_it_is_redriven_or_dismissed(fresh: Any) -> None:
    trial = fresh(messages)
    good, broken = trade(1, 1, 0), {**trade(3, 1, 0), "amount": "-1"}
    conflict = {**good, "amount": "55.00"}
    trial.feed(raw=[{"sent": 1, "trades": [good]}, {"sent": 2, "trades": [broken, trade(8, 1, 0)]}])
    trial.feed(raw=[{"sent": 3, "trades": [trade(6, 1, 0), conflict, {**conflict, "amount": "7"}]}])
    waiting = {row["position"]: row["key"] for row in quarantined(trial.books, QuarantineFilter())}
    assert waiting == {"raw:1:1": None, "raw:2:0:1": "r1", "raw:2:0:2": "r1"}
    assert show(trial.books, "raw:2:0:1")["quarantined"][0]["position"] == "raw:2:0:1"
    acted(trial, REDRIVE, "raw:1:1", "raw:2:0:1")  # both are as wrong as before
    assert set(waiting) == {row["position"] for row in quarantined(trial.books, QuarantineFilter())}
    balanced(trial)
    acted(trial, DISMISS, "raw:2:0:2")
    assert trial.verdicts("rows") == {"kept": 2, "quarantined": 2, "dismissed": 1}
    with pytest.raises(OperationError, match="one row of a message"):
        acted(trial, REDRIVE, "raw:2:0:1", record=b"{}")
    mended = json.dumps({"sent": 2, "trades": [trade(3, 1, 0), trade(8, 1, 0)]}).encode()
    acted(trial, REDRIVE, "raw:1:1", record=mended)
    assert trial.verdicts("rows") == {"kept": 4, "quarantined": 1, "dismissed": 1}
    keys = {row["_key"] for row in trial.read("rows")}
    assert keys == {"r1", "r3", "r6", "r8"}
    balanced(trial)
    acts = OperatorTape(trial.books.layout.operator).since(0)
    assert [act.position.text for act in acts if act.act == DISMISS] == ["raw:2:0:2"]


def test_a_flow_that_starts_again_knows_the_rows_of_messages(fresh: Any) -> None:
    trial = fresh(messages)
    trial.feed(raw=[message_of(1, [(1, 1, 0), (2, 1, 0)])])
    trial.flow._remembered = None
    trial.flow._recover()
    trial.feed(raw=[message_of(2, [(2, 2, 0), (1, 1, 5)])])
    totals, verdicts = expected([[(1, 1, 0), (2, 1, 0)], [(2, 2, 0), (1, 1, 5)]])
    assert (totals_of(trial), Counter(trial.verdicts("rows"))) == (totals, verdicts)
    balanced(trial)
