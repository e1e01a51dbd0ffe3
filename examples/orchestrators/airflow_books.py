"""An Airflow DAG that keeps a pipeline's books: one `tapeline run --once` every quarter of an hour.

Airflow and Tapeline live in environments of their own. Where things are:

    BOOKS_TAPELINE   the command of Tapeline's environment, /path/to/.venv/bin/tapeline
    BOOKS_PROJECT    the project's folder
    BOOKS_PIPELINE   the pipeline's file, pipeline.py unless said otherwise
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

TROUBLE_AROUND_IT = 3  # disk, lock, input: the only exit code that another attempt may mend


@dag(
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run takes all that is there: missed ones need no run of their own
    max_active_runs=1,
)
def keep_the_books() -> None:
    """Work off what has come, and say how much it was."""

    @task(retries=2, retry_delay=timedelta(minutes=1))
    def advance() -> dict[str, Any]:
        words = [os.environ.get("BOOKS_TAPELINE", "tapeline"), "run"]
        words += [os.environ.get("BOOKS_PIPELINE", "pipeline.py"), "--once", "--json"]
        words += ["--project", os.environ["BOOKS_PROJECT"]]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            facts: dict[str, Any] = json.loads(done.stdout)  # batches, records, batch
            return facts
        message = done.stderr.rpartition("error: ")[2].strip()
        if done.returncode != TROUBLE_AROUND_IT:
            raise AirflowFailException(f"tapeline, exit code {done.returncode}: {message}")
        if "ALREADY_RUNNING" in message:
            raise AirflowSkipException(f"another process is at work: {message}")
        raise AirflowException(f"tapeline, exit code {done.returncode}: {message}")

    advance()


books = keep_the_books()
