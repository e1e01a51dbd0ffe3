"""Code that is changed while it has books: they become what the new code would have written."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline import failpoints
from tapeline.books import Books
from tapeline.books.builds import abandon, unfinished
from tapeline.books.generation_list import listed_generations
from tapeline.books.meanings import ChangedCodeError
from tapeline.declare import Sink
from tapeline.declare.where import Where
from tapeline.deliver.outbox import Outbox
from tapeline.errors import OperationError, QuestionError
from tapeline.flow.change import Change, Signed
from tapeline.operate.apply import apply_change
from tapeline.plan import resolve
from tapeline.settings import Settings
from tapeline.store.delta_files import read_files
from tapeline.store.disk import hold, release
from tapeline.store.duckdb import newest_batch
from tapeline.testing import Crash, Trial, changes, commits_of, crash_at, unbalanced, why
from tests.support import changing_orders as orders
from tests.support.changing_orders import Code
from tests.support.plain_compute import plain_compiler

SOMEBODY = Signed("a test")


@pytest.fixture(scope="module", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


class Shop:
    """Books in a folder, and the code that a user has in the file."""

    def __init__(self, code: Code) -> None:
        self.root = Path(tempfile.mkdtemp())
        self._open = ExitStack()
        self.start(code)

    def start(self, code: Code) -> None:
        """A process that finds nothing but the books."""
        self.code = code
        compiled = plain_compiler(orders.pipeline(code), orders.twins(code))
        self.trial = Trial(orders.pipeline(code), self.root, compile_steps=compiled)
        self._open.callback(self.trial.close)

    def feed(self, sent: list[tuple[int, int]]) -> None:
        self.trial.feed(raw=[orders.record(*one) for one in sent])

    def change(self, code: Code) -> Change:
        pipeline = orders.pipeline(code)
        compiled = plain_compiler(pipeline, orders.twins(code))
        found = Change(compiled, resolve(pipeline), self.trial.settings, lambda: datetime.now(UTC))
        self._open.enter_context(found)
        return found

    def apply(self, code: Code) -> None:
        change = self.change(code)
        if not change.changes:
            self.start(code)
            return
        build = change.begin(SOMEBODY)
        list(change.follow(build))
        change.switch(build, SOMEBODY)
        self.start(code)

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        shutil.rmtree(self.root, ignore_errors=True)


def numbers(books: Books, code: Code, at: datetime | None = None) -> dict[str, Any]:
    """What the summaries say, in the words of the oracle."""
    found: dict[str, Any] = {}
    for name in orders.expected([], code):
        rows = books.read(name, at).to_pylist()
        if name == "totals":
            found[name] = {tuple(r[k] for k in code.key): (r["amount"], r["n"]) for r in rows}
        else:
            key, value = ("side", "fee") if name == "fees" else ("id", "n")
            found[name] = {row[key]: row[value] for row in rows}
    return found


BATCH = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=5)
CODE = st.builds(
    Code,
    least=st.sampled_from([0, 8]),
    rate=st.sampled_from([2, 3]),
    minutes=st.sampled_from([15, 30]),
    by_side=st.booleans(),
    fees=st.booleans(),
    large=st.booleans(),
    counts=st.booleans(),
)
TURNS = st.lists(st.tuples(CODE, st.lists(BATCH, max_size=2)), min_size=1, max_size=4)


@pytest.mark.parametrize(
    "examples",
    [pytest.param(6, id="some"), pytest.param(150, id="hundreds", marks=pytest.mark.slow)],
)
def test_the_books_are_those_of_the_last_code(examples: int) -> None:
    settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))(
        any_changes
    )()


@given(first=st.lists(BATCH, min_size=1, max_size=3), turns=TURNS, redrive=st.booleans())
def any_changes(
    first: list[list[tuple[int, int]]],
    turns: list[tuple[Code, list[list[tuple[int, int]]]]],
    redrive: bool,
) -> None:
    sent: list[tuple[int, int]] = []
    published: list[tuple[datetime, Code, dict[str, Any]]] = []

    def feed(batch: list[tuple[int, int]]) -> None:
        shop.feed(batch)
        sent.extend(batch)
        cut = shop.trial.books.cut()
        assert cut.at is not None
        published.append((cut.at, shop.code, numbers(shop.trial.books, shop.code)))

    with Shop(Code()) as shop:
        for batch in first:
            feed(batch)
        for code, batches in turns:
            if redrive:
                shop.trial.redrive()
            shop.apply(code)
            assert numbers(shop.trial.books, code) == orders.expected(sent, code)
            for batch in batches:
                feed(batch)
                assert numbers(shop.trial.books, code) == orders.expected(sent, code)
        assert unbalanced(shop.trial.books, full=True) == []
        assert unbalanced(shop.trial.books) == []
        for at, code, reported in published:
            books = Books(resolve(orders.pipeline(code)), shop.trial.books.layout.home)
            assert numbers(books, code, at) == reported
        if not redrive:
            with Shop(shop.code) as fresh:
                for batch in [*first, *(batch for _, batches in turns for batch in batches)]:
                    fresh.feed(batch)
                assert written(shop.trial) == written(fresh.trial)


def written(trial: Trial) -> dict[str, list[str]]:
    """Every row of the registers and journals; batches that only change the code do not count."""
    data = [row.batch for row in commits_of(trial.books) if row.decides and row.commit.tapes]
    found: dict[str, list[str]] = {}
    for step in (*trial.plan.tables, *trial.plan.summaries):
        read = trial.books.register if step in trial.plan.tables else trial.books.journal
        rows = read(step.name).to_pylist()
        found[step.name] = sorted(str({**row, "_batch": data.index(row["_batch"])}) for row in rows)
    return found


def shop_with(batches: int = 3) -> Shop:
    shop = Shop(Code())
    for number in range(batches):
        shop.feed([(key, number + 1) for key in range(6)])
    return shop


SENT = [(key, number + 1) for number in range(3) for key in range(6)]


def sent_to(shop: Shop, name: str, kind: Any, after: int = 0) -> list[dict[str, Any]]:
    """What a sink gets of all batches after one."""
    sink = Sink("sent", lambda rows: rows, None, name, kind, Where("test", 1))
    outbox = Outbox(shop.trial.plan, shop.trial.books.layout, sink)
    return outbox.all_rows(shop.trial.books.cut().batch, after)


def test_changed_code_is_refused_until_it_is_applied() -> None:
    with shop_with() as shop:
        with pytest.raises(ChangedCodeError, match="totals changed since batch 3"):
            shop.start(Code(minutes=30))
        with pytest.raises(ChangedCodeError, match="counts is new since batch 3"):
            shop.start(Code(counts=True))
        with pytest.raises(ChangedCodeError, match="fees is gone since batch 3"):
            shop.start(Code(fees=False))


def test_only_what_is_changed_is_built_and_what_reads_it() -> None:
    with shop_with() as shop:
        found = {one.name: one for one in shop.change(Code(rate=3, counts=True)).changes}
        assert {name: one.change for name, one in found.items()} == {
            "large": "changed",
            "fees": "rebuilt",
            "counts": "added",
        }
        assert found["large"].built_from == "table rows"
        assert found["fees"].built_from == "table large (also built)"
        before = sorted(os.listdir(shop.trial.books.layout.register("rows")))
        shop.apply(Code(rate=3, counts=True))
        assert sorted(os.listdir(shop.trial.books.layout.register("rows"))) == before
        assert numbers(shop.trial.books, shop.code) == orders.expected(SENT, shop.code)


def test_the_move_is_one_revision_with_the_records_that_moved() -> None:
    with shop_with() as shop:
        shop.apply(Code(rate=3))
        shop.feed([(2, 4)])
        found = why(shop.trial.books, "fees", ["BUY"])
        (code,) = [one for one in found if one.cause == "code"]
        assert code.batch == 4
        before = [one for one in found if one.batch < 4][-1]
        assert code.value["fee"] == before.value["fee"] * 3 / 2
        shares = sum(one["sign"] * one["fee"] for one in code.records)
        assert shares == code.change["fee"] == code.value["fee"] - before.value["fee"]
        assert all(one["record"] for one in code.records)
        last = {row["side"]: row["fee"] for row in shop.trial.read("fees")}
        assert found[-1].value["fee"] == last["BUY"]


def test_changes_names_the_cause_of_moved_numbers_only() -> None:
    with shop_with() as shop:
        at = shop.trial.books.cut().at
        assert at is not None
        shop.apply(Code(rate=3))
        assert {row["summary"] for row in changes(shop.trial.books, at)} == {"fees"}
        assert {row["causes"] for row in changes(shop.trial.books, at)} == {"code"}


def test_sinks_get_moved_numbers_once_as_changes() -> None:
    with shop_with() as shop:
        before = sent_to(shop, "totals", "changes")
        shop.apply(Code(least=8))
        rows = sent_to(shop, "totals", "changes")
        assert rows[: len(before)] == before
        moved = rows[len(before) :]
        assert moved
        assert {row["_cause"] for row in moved} == {"code"}
        assert len({row["_key"] for row in moved}) == len(moved)
        shop.feed([(2, 4)])
        known: dict[Any, Any] = {}
        for row in sent_to(shop, "totals", "changes"):
            assert row["_old"] == known.get(row["_key"])
            known[row["_key"]] = row["_new"]
        left = {(row["amount"], row["n"]) for row in known.values() if row is not None}
        assert left == set(numbers(shop.trial.books, shop.code)["totals"].values())


def test_sinks_and_reports_of_a_summary_that_gets_another_key() -> None:
    with Shop(Code(by_side=False)) as shop:
        shop.feed(SENT)
        at = shop.trial.books.cut().at
        shop.apply(Code())
        rows = sent_to(shop, "totals", "changes", after=1)
        moved = {(row["quarter"], row["side"]): row["_new"]["amount"] for row in rows}
        now = numbers(shop.trial.books, shop.code)["totals"]
        assert moved == {key: amount for key, (amount, _) in now.items()}
        with pytest.raises(QuestionError, match="had no side in its key at that time"):
            shop.trial.books.read("totals", at)


def test_sinks_get_a_measure_that_is_added() -> None:
    with Shop(Code(cents=False)) as shop:
        shop.feed(SENT)
        before = sent_to(shop, "totals", "changes")
        shop.apply(Code(cents=True))
        rows = sent_to(shop, "totals", "changes")[len(before) :]
        assert rows
        for row in rows:
            assert row["_new"]["cents"] == row["_new"]["amount"] * 100
            assert (row["_old"]["amount"], row["_old"]["cents"]) == (row["_new"]["amount"], 0)


def test_sinks_of_a_table_get_rows_that_differ_and_no_others() -> None:
    with shop_with() as shop:
        shop.apply(Code(least=8, rate=3))
        shop.feed([(2, 4)])
        standing: dict[str, dict[str, Any]] = {}
        for row in sent_to(shop, "large", "rows"):
            if row["_sign"] < 0:
                del standing[row["_key"]]
            else:
                assert row["_key"] not in standing
                standing[row["_key"]] = row
        assert sorted((r["id"], r["fee"]) for r in standing.values()) == sorted(
            (r["id"], r["fee"]) for r in shop.trial.read("large")
        )
        moved = [row for row in sent_to(shop, "rows", "rows") if row["_cause"] == "code"]
        assert moved
        assert len({row["_position"] for row in moved}) == len(moved)  # none goes and comes back


def test_acts_of_operators_are_replayed_at_their_places() -> None:
    """A corrected record counts with its new bytes, where it was sent again."""
    with Shop(Code(least=8)) as shop:
        low = {**orders.record(1, 1), "amount": "1.00", "event": "NEW"}
        shop.trial.feed(raw=[low])
        mended = {**low, "amount": "20.00"}
        shop.trial.redrive(json.dumps(mended).encode())
        shop.trial.feed(raw=[{**low, "id": "r9", "amount": "2.00"}])
        shop.trial.dismiss()
        shop.apply(Code(least=9, rate=3, counts=True))
        assert shop.trial.verdicts("rows") == {"kept": 1, "dismissed": 1}
        (row,) = shop.trial.read("large")
        assert (str(row["fee"]), row["_cause"]) == ("60.00", "redrive")
        shop.apply(Code(least=0))  # nothing was ever quarantined under this rule
        assert shop.trial.verdicts("rows") == {"kept": 2}
        assert {str(r["amount"]) for r in shop.trial.read("rows")} == {"1.00", "2.00"}
        assert unbalanced(shop.trial.books, full=True) == []


def test_a_change_after_compaction_reads_the_tape_all_the_same() -> None:
    with shop_with() as shop:
        shop.trial.tidy()
        shop.apply(Code(least=8))
        assert numbers(shop.trial.books, shop.code) == orders.expected(SENT, shop.code)


@pytest.mark.parametrize("point", failpoints.BUILD_POINTS)
def test_a_kill_leaves_the_old_or_the_new_generation(point: str) -> None:
    code = Code(least=8, counts=True)
    with shop_with() as shop:
        with pytest.raises(Crash), crash_at(point):
            shop.apply(code)
        if point == "switch_decided":
            shop.start(code)  # the row decided: a start finishes it
        else:
            shop.start(Code())
            assert numbers(shop.trial.books, Code()) == orders.expected(SENT, Code())
            assert unbalanced(shop.trial.books, full=True) == []
            shop.feed([(9, 1)])
            with pytest.raises(ChangedCodeError):
                shop.start(code)
            shop.apply(code)  # goes on where it was killed
        sent = SENT if point == "switch_decided" else [*SENT, (9, 1)]
        assert numbers(shop.trial.books, code) == orders.expected(sent, code)
        assert unbalanced(shop.trial.books, full=True) == []
        assert shop.trial.books.cut().commit.generation == 2


def test_code_that_is_edited_while_it_is_built_is_another_change() -> None:
    with shop_with() as shop:
        with pytest.raises(Crash), crash_at("build_decided"):
            shop.apply(Code(least=8))
        other = shop.change(Code(least=8, rate=3))
        with pytest.raises(OperationError, match=r"generation 2 is being built from other code"):
            other.begin(SOMEBODY)
        building = unfinished(shop.trial.books.layout)
        assert building is not None
        abandon(shop.trial.books.layout, building)
        assert unfinished(shop.trial.books.layout) is None
        shop.apply(Code(least=8, rate=3))
        assert numbers(shop.trial.books, shop.code) == orders.expected(SENT, shop.code)


def test_a_retired_summary_answers_as_reported_and_may_come_back() -> None:
    with shop_with() as shop:
        at, plan = shop.trial.books.cut().at, shop.trial.plan
        shop.apply(Code(fees=False))
        earlier = Books(plan, shop.trial.books.layout.home)
        assert numbers(earlier, Code(), at)["fees"] == orders.expected(SENT, Code())["fees"]
        assert numbers(earlier, Code())["fees"] == {}
        shop.feed([(2, 4)])
        shop.apply(Code())
        expected = orders.expected([*SENT, (2, 4)], Code())
        assert numbers(shop.trial.books, Code()) == expected
        assert unbalanced(shop.trial.books, full=True) == []


def test_a_preview_says_what_would_move_and_publishes_nothing() -> None:
    code = Code(least=8, counts=True)
    with shop_with() as shop:
        before = numbers(shop.trial.books, Code())
        change = shop.change(code)
        build = change.begin(SOMEBODY)
        list(change.follow(build))
        facts = change.preview(build).facts()
        assert numbers(shop.trial.books, Code()) == before == orders.expected(SENT, Code())
        after = orders.expected(SENT, code)
        found = {row["summary"]: row for row in facts["summaries"]}
        moved = {k for k in {*before["totals"], *after["totals"]}
                 if before["totals"].get(k) != after["totals"].get(k)}  # fmt: skip
        assert found["totals"]["moved"] == len(moved)
        assert {
            (r["key"]["quarter"], r["key"]["side"]) for r in found["totals"]["largest"]
        } == moved
        totals = found["totals"]["totals"]["amount"]
        assert Decimal(totals["before"]) == sum(amount for amount, _ in before["totals"].values())
        assert Decimal(totals["after"]) == sum(amount for amount, _ in after["totals"].values())
        assert (found["counts"]["change"], found["counts"]["moved"]) == (
            "added",
            len(after["counts"]),
        )
        (rows,) = [row for row in facts["tables"] if row["table"] == "rows"]
        assert "quarantined" in {one["to"] for one in rows["verdicts"]}
        none = change.preview(build, days=-1).facts()  # no window starts after the clock
        assert [r["moved"] for r in none["summaries"] if r["summary"] == "totals"] == [0]
        shop.apply(code)  # what was built for the preview is used
        assert numbers(shop.trial.books, code) == after


def test_the_way_back_continues_the_earlier_tables() -> None:
    with shop_with() as shop:
        layout = shop.trial.books.layout
        shop.apply(Code(rate=3, counts=True))
        shop.feed([(2, 4), (7, 1)])
        middle, at = numbers(shop.trial.books, shop.code), shop.trial.books.cut().at
        before = set(os.listdir(layout.journal("fees")))
        shop.apply(Code())
        sent = [*SENT, (2, 4), (7, 1)]
        assert numbers(shop.trial.books, Code()) == orders.expected(sent, Code())
        commit = shop.trial.books.cut().commit
        assert commit.generation == 3
        assert [one.generation for one in commit.stood("fees")] == [1, 2, 1]
        assert before < set(os.listdir(layout.journal("fees")))
        assert not layout.journal("fees", 3).exists()
        shop.feed([(4, 4)])
        assert numbers(shop.trial.books, Code()) == orders.expected([*sent, (4, 4)], Code())
        assert unbalanced(shop.trial.books, full=True) == []
        there = Code(rate=3, counts=True)
        between = Books(resolve(orders.pipeline(there)), layout.home)
        assert numbers(between, there, at) == middle
        causes = [one.cause for one in why(shop.trial.books, "fees", ["BUY"])]
        assert causes.count("code") == 2


def test_a_way_back_that_is_killed_and_abandoned_leaves_nothing_to_read() -> None:
    with shop_with() as shop:
        layout = shop.trial.books.layout
        shop.apply(Code(rate=3))
        shop.feed([(7, 1)])
        shop.feed([(27, 1)])
        with pytest.raises(Crash), crash_at("added"):
            shop.apply(Code())
        assert newest_batch(layout.register("large", 1)) == 5  # written, and never seen
        sent = [*SENT, (7, 1), (27, 1)]
        shop.start(Code(rate=3))
        assert numbers(shop.trial.books, shop.code) == orders.expected(sent, shop.code)
        assert unbalanced(shop.trial.books, full=True) == []
        going = unfinished(layout)
        assert going is not None
        assert going.continued == {"large": 1, "fees": 1}
        abandon(layout, going)
        assert unbalanced(shop.trial.books, full=True) == []
        shop.apply(Code())
        assert numbers(shop.trial.books, Code()) == orders.expected(sent, Code())
        assert unbalanced(shop.trial.books, full=True) == []


def test_the_way_back_in_books_that_were_restored() -> None:
    """Restored books are in a later epoch: what is added to a table must not look older."""
    with shop_with() as shop:
        home = shop.trial.books.layout.home
        (home / "restored.json").write_text('{"epoch": 2, "batch": 3, "backup_at": ""}')
        shop.start(Code())
        shop.feed([(8, 1)])
        shop.apply(Code(rate=3))
        shop.feed([(7, 1)])
        shop.apply(Code())
        expected = orders.expected([*SENT, (8, 1), (7, 1)], Code())
        assert numbers(shop.trial.books, Code()) == expected
        assert unbalanced(shop.trial.books, full=True) == []


def test_many_small_batches_become_few_files() -> None:
    with shop_with(1) as shop:
        keeping = replace(shop.trial.settings.housekeeping, compact_every_batches=5)
        shop.trial.settings = replace(shop.trial.settings, housekeeping=keeping)
        sent = [(key, 1) for key in range(6)]
        for key in range(20, 32):
            shop.feed([(key, 1)])
            sent.append((key, 1))
        change = shop.change(Code(least=8))
        build = change.begin(SOMEBODY)
        list(change.follow(build))
        assert len(read_files(shop.trial.books.layout.register("rows", 2))) <= 5  # of 13 batches
        shop.apply(Code(least=8))
        assert numbers(shop.trial.books, shop.code) == orders.expected(sent, shop.code)
        assert unbalanced(shop.trial.books, full=True) == []


def test_two_changes_at_once_are_refused() -> None:
    with shop_with(1) as shop:
        handle = hold(shop.trial.books.layout.home / ".lock.build", "a change of these books")
        try:
            with pytest.raises(OperationError, match="a change of these books is in use"):
                apply_change(shop.trial.plan, shop.trial.settings, SOMEBODY)
        finally:
            release(handle)


def test_a_change_needs_books(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path, root=tmp_path / "books")
    with pytest.raises(OperationError, match="there are no books"):
        apply_change(resolve(orders.pipeline(Code())), settings, SOMEBODY)


def test_generations_are_listed() -> None:
    with shop_with() as shop:
        shop.apply(Code(rate=3))
        with pytest.raises(Crash), crash_at("build_decided"):
            shop.apply(Code(least=8))
        rows = listed_generations(shop.trial.books.layout)
        assert [row["state"] for row in rows] == ["earlier", "standing", "being built"]
        assert [row["batch"] for row in rows] == [1, 4, None]
        assert rows[1]["steps"] == {"large": "changed", "fees": "rebuilt"}
