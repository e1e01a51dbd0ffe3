"""From the back office to the books: pulled, killed, pulled again, and equal to the oracle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tapeline.operate.drill.compare import trade_differences
from tapeline.settings import load_settings
from tapeline.testing import Deployment, unbalanced
from tapeline.trades.delivery import write_truth
from tapeline.trades.lines import line
from tapeline.trades.reference import write_reference
from tapeline.trades.simulator import Day, simulate
from tests.support.back_office import TOKEN, BackOffice
from tests.support.postgres import PASSWORD, Postgres

PIPELINE = """
from tapeline import PostgresPull
from tapeline.trades.pipeline import pipeline

pipeline.pull("ledger", PostgresPull("booked", "number", records_per_page=300), into="raw_trades")
"""
TABLE = """
create table booked (
    number bigint generated always as identity primary key,
    trade_id text, version int, event text, traded_at timestamptz, side text, instrument text,
    quantity numeric, price numeric, currency text, client text, terminal text, fees numeric,
    trade_date date, settles_on date
)
"""
BOOK = """
insert into booked overriding user value
select (json_populate_record(null::booked, %s::json)).*
"""
COMMAND = [sys.executable, "-m", "tapeline"]
DAY = Day(11, date(2026, 11, 13), 1_500, broken=0.0, corrections=0.05)


def tapeline(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "TAPELINE_JARS": str(Path(__file__).parents[2] / ".jars"),
            "OFFICE_TOKEN": TOKEN,
            "LEDGER_PASSWORD": PASSWORD,
            **environment,
        },
        check=False,
    )


@pytest.mark.slow
@pytest.mark.spark
def test_what_is_pulled_from_two_systems_gives_the_books_of_the_oracle(
    tmp_path: Path, postgres: Postgres
) -> None:
    sents = list(simulate(DAY))
    write_reference(tmp_path / "reference", years=(2026, 2026))
    write_truth(sents, tmp_path / "truth.jsonl")
    lines = [line(sent) for sent in sents]
    half = len(lines) // 2
    database = postgres.new_database()
    with postgres.connect(database) as desk, desk.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.executemany(BOOK, [[text.decode()] for text in lines[half:]])
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    with BackOffice(lines[:half], token=TOKEN) as office:
        (tmp_path / "tapeline.toml").write_text(
            f"[pull.back_office]\naddress = '{office.address}'\nsecret_variable = 'OFFICE_TOKEN'\n"
            f"[pull.ledger]\naddress = '{postgres.address} dbname={database}'\n"
            "secret_variable = 'LEDGER_PASSWORD'\n"
        )
        office.faults = ["500", "", "cut", "repeat"]
        for point in ("pull_written=2", "pull_decided=2", "pull_delivered=1"):
            killed = tapeline(tmp_path, "pull", "pipeline.py", TAPELINE_FAILPOINTS=point)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = tapeline(tmp_path, "pull", "pipeline.py", "--once")
        assert done.returncode == 0, done.stderr
    pulls = {one["pull"]: one for one in json.loads(done.stdout)["pulls"]}
    assert pulls["back_office"]["records_ever"] == half
    assert pulls["ledger"]["records_ever"] == len(lines) - half
    ran = tapeline(tmp_path, "run", "pipeline.py", "--once")
    assert ran.returncode == 0, ran.stderr
    settings = load_settings(tmp_path, {})
    books = Deployment("tapeline.trades", settings).books
    assert trade_differences(books, tmp_path / "truth.jsonl", tmp_path / "reference") == []
    assert unbalanced(books) == []
    status = json.loads(tapeline(tmp_path, "status", "pipeline.py").stdout)
    assert [one["incident"] for one in status["pulling"]["pulls"]] == [None, None]
