"""What comes out: the drilled books against the oracle's, or against one pass undisturbed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tapeline.books import Books
from tapeline.books.audit import audit
from tapeline.operate.drill.feed import deliver, drop_folder
from tapeline.operate.drill.options import DrillOptions
from tapeline.operate.drill.victim import run_once
from tapeline.plan import load_pipeline, resolve
from tapeline.settings import Settings
from tapeline.trades import oracle


def differences(books: Books, asked: DrillOptions) -> list[str]:
    """Everything in which the drilled books are not as they should be."""
    if asked.given is None:
        found = trade_differences(books, asked.truth, asked.project / "reference")
    else:
        found = _static_differences(books, asked, asked.given)
    return found + [
        f"audit: {check.what}: {check.expected} is not {check.found}{check.first}"
        for check in audit(books, full=True)
        if not check.balances
    ]


def trade_differences(books: Books, truth: Path, reference: Path) -> list[str]:
    """Where the brokerage's books differ from the oracle's."""
    expected = oracle.expect(oracle.read_truth(truth), oracle.Reference.read(reference))
    found: list[str] = []
    commit = books.cut().commit
    for table, verdicts in (
        ("trades", expected.trades),
        ("enriched_trades", expected.enriched_trades),
    ):
        said = commit.total(table).verdicts
        if said != dict(verdicts):
            found.append(f"{table}: {said} is not {dict(verdicts)}")
    names = ("total_buy", "total_sell", "fees", "trades")
    windows = {key: tuple(getattr(one, n) for n in names) for key, one in expected.windows.items()}
    key = ("window_start", "terminal", "currency")
    found += _unlike("trade_summary", _read(books, "trade_summary", key, names), windows)
    due = {k: (value,) for k, value in expected.due.items()}
    found += _unlike("due", _read(books, "due", ("settlement_id", "currency"), ("due",)), due)
    return found + _client_differences(books, expected)


def _client_differences(books: Books, expected: oracle.Expected) -> list[str]:
    """Where the clients' parts differ from the oracle's, if the books hold them."""
    if "client_due" not in books.plan.pipeline.summaries:
        return []
    names = ("bought", "sold", "fees", "trades")
    parts = {key: tuple(getattr(one, n) for n in names) for key, one in expected.clients.items()}
    found = _unlike(
        "client_due",
        _read(books, "client_due", ("settlement_id", "client", "currency"), names),
        parts,
    )
    of_all = ("payable", "receivable", "clients")
    totals = _read(books, "client_totals", ("settlement_id", "currency"), of_all)
    return found + _unlike("client_totals", totals, expected.client_totals)


def _static_differences(books: Books, asked: DrillOptions, given: Path) -> list[str]:
    """The drilled summaries against one pass over the same files, in order, each once."""
    static = asked.folder / "static"
    shutil.copytree(asked.project, static, ignore=shutil.ignore_patterns("books"))
    target = asked.target_in(static)
    settings = Settings(project=static, root=static / "books")
    plan = resolve(load_pipeline(target, settings))
    shutil.rmtree(drop_folder(plan, static))
    drop = drop_folder(plan, static)
    for path in sorted(given.iterdir()):
        deliver(drop, path.name, path.read_bytes())
    run_once(target, static)
    expected = Books(plan, settings.home(plan.name))
    found: list[str] = []
    for summary in plan.summaries:
        ours, theirs = (
            {tuple(str(r[k]) for k in summary.key): _measures(r) for r in rows.to_pylist()}
            for rows in (books.read(summary.name), expected.read(summary.name))
        )
        found += _unlike(summary.name, ours, theirs)
    return found


def _read(
    books: Books, name: str, key: tuple[str, ...], columns: tuple[str, ...]
) -> dict[Any, Any]:
    rows = books.read(name).to_pylist()
    return {tuple(r[k] for k in key): tuple(r[c] for c in columns) for r in rows}


def _unlike(name: str, ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> list[str]:
    return [
        f"{name} {key}: {ours.get(key)} is not {theirs.get(key)}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]


def _measures(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items() if name != "_status"}
