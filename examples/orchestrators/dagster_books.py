"""Dagster definitions that keep a pipeline's books: `tapeline run --once` every quarter of an hour.

Dagster and Tapeline live in environments of their own. Where things are:

    BOOKS_TAPELINE   the command of Tapeline's environment, /path/to/.venv/bin/tapeline
    BOOKS_PROJECT    the project's folder
    BOOKS_PIPELINE   the pipeline's file, pipeline.py unless said otherwise
"""

import json
import os
import subprocess
from collections.abc import Iterator

import dagster as dg

TROUBLE_AROUND_IT = 3  # disk, lock, input: the only exit code that another attempt may mend


@dg.asset(
    output_required=False,  # a run that finds another one at work makes nothing
    retry_policy=dg.RetryPolicy(max_retries=2, delay=60),
)
def books(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
    """The books, with all that had come."""
    words = [os.environ.get("BOOKS_TAPELINE", "tapeline"), "run"]
    words += [os.environ.get("BOOKS_PIPELINE", "pipeline.py"), "--once", "--json"]
    words += ["--project", os.environ["BOOKS_PROJECT"]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    message = done.stderr.rpartition("error: ")[2].strip()
    if done.returncode == 0:
        yield dg.Output(None, metadata=json.loads(done.stdout))  # batches, records, batch
    elif done.returncode == TROUBLE_AROUND_IT and "ALREADY_RUNNING" in message:
        context.log.info(f"another process is at work: {message}")
    else:
        raise dg.Failure(
            f"tapeline, exit code {done.returncode}: {message}",
            metadata={"exit_code": done.returncode},
            allow_retries=done.returncode == TROUBLE_AROUND_IT,
        )


keep_the_books = dg.define_asset_job("keep_the_books", selection=[books])
definitions = dg.Definitions(
    assets=[books],
    jobs=[keep_the_books],
    schedules=[dg.ScheduleDefinition(job=keep_the_books, cron_schedule="*/15 * * * *")],
)
