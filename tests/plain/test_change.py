"""Code that is changed while it has books: they become what the new code would have written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline import failpoints
from tapeline.books import Books
from tapeline.errors import OperationError
from tapeline.flow.change import Change, Signed
from tapeline.plan import resolve
from tapeline.testing import Crash, Trial, commits_of, crash_at, unbalanced, why
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
