"""The command line as a person or a script uses it, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.command_line import COMMAND, ENVIRONMENT, PIPELINE, tapeline


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "inbox").mkdir()
    return tmp_path


def test_plan_speaks_without_a_jvm(shop: Path) -> None:
    done = tapeline(shop, "plan", "pipeline.py", "--json")
    assert done.returncode == 0, done.stderr
    assert [step["name"] for step in json.loads(done.stdout)] == ["raw_sales", "sales", "by_shop"]


def test_a_mistake_is_named_with_file_and_line_and_exit_code_2(shop: Path) -> None:
    (shop / "pipeline.py").write_text(PIPELINE.replace("by_shop(sales:", "by_shop(sale:"))
    done = tapeline(shop, "plan", "pipeline.py")
    assert done.returncode == 2
    assert "pipeline.py:18" in done.stderr
    assert "Did you mean 'sales'?" in done.stderr


def test_an_unknown_setting_ends_every_command(shop: Path) -> None:
    (shop / "tapeline.toml").write_text("rooot = 'x'\n")
    done = tapeline(shop, "status", "pipeline.py")
    assert done.returncode == 2
    assert "Did you mean 'root'?" in done.stderr


def test_a_report_before_the_first_batch_is_empty(shop: Path) -> None:
    done = tapeline(shop, "report", "by_shop", "--pipeline", "pipeline.py", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


@pytest.mark.spark
def test_from_a_dropped_file_to_a_report_and_a_trial_balance(shop: Path) -> None:
    (shop / "inbox" / "monday.csv").write_text(
        "id,shop,money\n1,north,10.50\n2,south,4.00\n2,south,4.00\n3,north,-1\n"
    )
    done = tapeline(shop, "run", "pipeline.py", "--once", "--json")
    assert done.returncode == 0, done.stderr
    said = {"batches": 1, "records": 4, "batch": 1, "stopped": False, "rejected": 0}
    assert json.loads(done.stdout) == said
    report = tapeline(shop, "report", "by_shop", "--pipeline", "pipeline.py", "--json")
    assert json.loads(report.stdout) == [
        {"shop": "north", "money": "10.50", "sales": 1, "_entries": 1},
        {"shop": "south", "money": "4.00", "sales": 1, "_entries": 1},
    ]
    table = tapeline(shop, "report", "by_shop", "--pipeline", "pipeline.py", "--format", "csv")
    assert table.stdout.splitlines()[0] == "shop,money,sales,_entries"
    done = tapeline(shop, "export", "by_shop", "sums.parquet", "-p", "pipeline.py", "--json")
    assert json.loads(done.stdout) == {"file": "sums.parquet", "rows": 2}
    assert pq.read_table(shop / "sums.parquet")["money"].to_pylist() == [
        Decimal("10.50"),
        Decimal("4.00"),
    ]
    status = json.loads(tapeline(shop, "status", "pipeline.py", "--json").stdout)
    assert status["batch"] == 1
    assert status["lag_records"] == 0
    assert status["totals"]["sales"]["verdicts"] == {"kept": 2, "duplicate": 1, "quarantined": 1}
    listed = tapeline(shop, "quarantine", "list", "-p", "pipeline.py", "--json")
    (broken_sale,) = json.loads(listed.stdout)
    assert broken_sale["reasons"] == ["money is above zero"]
    shown = tapeline(shop, "quarantine", "show", broken_sale["position"], "-p", "pipeline.py")
    assert "3,north,-1" in shown.stdout
    nothing = tapeline(shop, "quarantine", "dismiss", "-p", "pipeline.py")
    assert nothing.returncode == 2  # nothing said does not mean everything
    why = tapeline(shop, "why", "by_shop", "north", "-p", "pipeline.py")
    assert "monday.csv line 2" in why.stdout
    moved = tapeline(shop, "changes", "--since", "2020-01-01", "-p", "pipeline.py", "--json")
    assert [row["old"] for row in json.loads(moved.stdout)] == [None, None]
    audit = tapeline(shop, "audit", "pipeline.py", "--full", "--json")
    assert audit.returncode == 0
    assert json.loads(audit.stdout)["balances"] is True
    # A row disappears behind our back: the trial balance says so, by its exit code.
    (file,) = (shop / "tapeline-data" / "sales" / "silver" / "sales").glob("*.parquet")
    pq.write_table(pq.read_table(file).slice(1), file)
    broken = tapeline(shop, "audit", "pipeline.py", "--full")
    assert broken.returncode == 4
    assert "not balance" in broken.stdout
    file.unlink()
    gone = tapeline(shop, "audit", "pipeline.py")
    assert gone.returncode == 3
    assert "missing or damaged" in gone.stderr


def test_a_simulated_day_has_the_markets_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "tapeline.toml").write_text('[pipeline.trades]\nmarkets = "IN,EU"\n')
    day = ("--trades", "60", "--seconds", "0.5", "--day", "2026-11-26", "--json")
    done = tapeline(tmp_path, "simulate", *day)
    assert json.loads(done.stdout)["records"] >= 60, done.stderr
    lines = [
        json.loads(line)
        for path in (tmp_path / "landing").glob("*.jsonl")
        for line in path.read_bytes().splitlines()
        if line.startswith(b'{"trade_id"') and line.endswith(b"}")
    ]
    # Thanksgiving: New York is closed, which is no one's concern here.
    assert {one["trade_id"][:13] for one in lines} >= {"T20261126-000", "T20261126-EU-"}
    instruments = (tmp_path / "reference" / "instruments.csv").read_text()
    assert ",INR,XNSE,0.05,Asia/Kolkata" in instruments
    (tmp_path / "tapeline.toml").write_text('[pipeline.trades]\nmarkets = "Mars"\n')
    refused = tapeline(tmp_path, "simulate", *day)
    assert refused.returncode == 2
    assert "'MARS' is not a market. Use some of US, IN, EU, GB, CH" in " ".join(
        refused.stderr.split()
    )


def test_an_unknown_summary_is_refused_with_a_suggestion(shop: Path) -> None:
    done = tapeline(shop, "report", "by_shp")  # in a project its pipeline.py need not be named
    assert done.returncode == 2
    assert "Did you mean 'by_shop'?" in done.stderr


def press_ctrl_c(shop: Path, pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


def say_stop(shop: Path, pid: int) -> None:
    """From another terminal, with a pause and a backup before."""
    paused = tapeline(shop, "pause", "pipeline.py", "--who", "amy", "--json")
    assert json.loads(paused.stdout)["who"] == "amy"
    made = tapeline(shop, "backup", "backups", "--pipeline", "pipeline.py", "--json")
    assert made.returncode == 0, made.stderr
    batch = json.loads(made.stdout)["batch"]
    report = ("report", "by_shop", "--pipeline", "pipeline.py", "--json")
    shown = tapeline(shop, *report).stdout
    resumed = tapeline(shop, "resume", "pipeline.py", "--json")
    assert json.loads(resumed.stdout)["paused"]["who"] == "amy"
    stopped = tapeline(shop, "stop", "pipeline.py", "--json")
    assert json.loads(stopped.stdout) == {"stopped": True}, stopped.stderr
    again = tapeline(shop, "stop", "pipeline.py", "--json")
    assert json.loads(again.stdout) == {"stopped": False}
    restored = tapeline(
        shop, "restore", str(next((shop / "backups").iterdir())),
        "--pipeline", "pipeline.py", "--root", "elsewhere", "--json",
    )  # fmt: skip
    assert json.loads(restored.stdout)["batch"] == batch, restored.stderr
    assert tapeline(shop, *report, "--root", "elsewhere").stdout == shown


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("end", [press_ctrl_c, say_stop])
def test_a_run_ends_between_batches_and_the_next_start_goes_on(
    shop: Path, end: Callable[[Path, int], None]
) -> None:
    (shop / "inbox" / "1.csv").write_text("id,shop,money\n1,north,10.50\n")
    # A group of its own: a terminal sends Ctrl-C to the JVM as well.
    with (
        (shop / "said").open("w") as said,
        subprocess.Popen(
            [*COMMAND, "run", "pipeline.py"],
            cwd=shop,
            stdout=said,
            stderr=said,
            env=ENVIRONMENT,
            start_new_session=True,
        ) as running,
    ):
        try:
            wait_for_records(shop, 1)
            (shop / "inbox" / "2.csv").write_text("id,shop,money\n2,south,4.00\n")
            end(shop, running.pid)
            running.wait(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0, (shop / "said").read_text()
    assert "Traceback" not in (shop / "said").read_text()
    (shop / "inbox" / "3.csv").write_text("id,shop,money\n3,south,1.00\n1,north,10.50\n")
    assert tapeline(shop, "run", "pipeline.py", "--once").returncode == 0
    report = tapeline(shop, "report", "by_shop", "--pipeline", "pipeline.py", "--json")
    assert [(row["shop"], row["money"]) for row in json.loads(report.stdout)] == [
        ("north", "10.50"),
        ("south", "5.00"),
    ]
    assert tapeline(shop, "audit", "pipeline.py").returncode == 0


def wait_for_records(shop: Path, records: int) -> None:
    """Until so many records are in the books; a run says so in its status."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done = tapeline(shop, "report", "by_shop", "--pipeline", "pipeline.py", "--json")
        if done.returncode == 0 and sum(row["sales"] for row in json.loads(done.stdout)) >= records:
            return
        time.sleep(0.5)
    raise AssertionError(f"{records} records were not published in two minutes: {done.stderr}")


@pytest.mark.spark
@pytest.mark.parametrize(
    "given",
    [None, pytest.param("when,city,amount\n2026-01-01 10:00,Rome,1.5\n", marks=pytest.mark.slow)],
)
def test_a_new_project_runs_reports_and_passes_its_own_test(
    tmp_path: Path, given: str | None
) -> None:
    words = ["new", "takings"]
    if given is not None:
        (tmp_path / "sample.csv").write_text(given)
        words += ["--from", "sample.csv"]
    assert tapeline(tmp_path, *words).returncode == 0
    project = tmp_path / "takings"
    done = tapeline(project, "run", "pipeline.py", "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == (5 if given is None else 1)
    report = tapeline(project, "report", "totals", "--pipeline", "pipeline.py", "--json")
    assert sum(row["records"] for row in json.loads(report.stdout)) == (5 if given is None else 1)
    if given is None:
        return  # its own test takes Spark's time once more; one of the two is enough
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
