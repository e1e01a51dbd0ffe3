"""Runs the commands of docs/cluster.md: a standalone cluster on loopback, and a day on it.

An executor and a worker are killed while it runs. Its books are then compared with those of a
local run, by DuckDB over the tables' files. Everything that was started is stopped at the end.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import psutil
from deltalake import DeltaTable

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "cluster.md"
BIN = Path(sys.executable).parent
SECRET = secrets.token_hex(16)
TRADES, FEED_SECONDS, PATIENCE_SECONDS = 3_000, 30.0, 240.0
EXECUTOR = "CoarseGrainedExecutorBackend"
PIPELINE = "tapeline.trades"
TAPELINE = (str(BIN / "tapeline"),)
# A query with state: totals over all files, which it reads one in a batch.
QUERY = """
from pathlib import Path

from pyspark.sql import functions as F

from tapeline import Pipeline, Query, Stream

SALES = str(Path(__file__).parent / "sales")
pipeline = Pipeline("shops")


def totals_by_shop(session):
    reader = session.readStream.schema("shop string, amount decimal(18,2)")
    sales = reader.option("maxFilesPerTrigger", 1).json(SALES)
    return sales.groupBy("shop").agg(F.sum("amount").alias("total"))


pipeline.source("raw_totals", Query(totals_by_shop, mode="update"))


@pipeline.table(key="shop", sequence_by="_query_batch")
def totals(raw_totals: Stream):
    return raw_totals
"""


def main() -> None:
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="tapeline-cluster-"))
    try:
        cluster, local = folder / "cluster", folder / "local"
        files = simulated(folder, cluster, local)
        port = free_port()
        write_page(cluster, port)
        with started(cluster, port) as workers:
            say(f"cluster is up on port {port}")
            run_with_deaths(cluster, files, workers)
            run_query(cluster)
            say("the cluster is stopped")
        run([*TAPELINE, "run", PIPELINE, "--once"], local)
        compare(cluster, local)
        audited = run([*TAPELINE, "audit", PIPELINE, "--full"], cluster)
        say(audited.strip().splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"done in {time.monotonic() - begun:.0f} s")


def say(words: str) -> None:
    print(f"cluster: {words}", flush=True)


def simulated(folder: Path, *projects: Path) -> list[Path]:
    """A day as files, with its reference data in every project; local ones get all files."""
    words = ["--folder", "day", "--trades", str(TRADES), "--seconds", "10"]
    run([*TAPELINE, "simulate", *words], folder)
    files = sorted(path for path in (folder / "day").iterdir() if path.name[0] != ".")
    assert len(files) > 20, "a day is many files"
    for project in projects:
        (project / "landing").mkdir(parents=True)
        shutil.copytree(folder / "reference", project / "reference")
    for file in files:
        shutil.copy(file, projects[-1] / "landing" / file.name)
    return files


def write_page(project: Path, port: int) -> None:
    """The files of the page, with a free port and a secret of this run."""
    blocks = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == [
        "cluster.conf", "master.sh", "worker.sh", "tapeline.toml", "run.sh",
    ]  # fmt: skip
    for name, text in blocks:
        filled = text.replace("7077", str(port)).replace("8080", "0").replace("change-me", SECRET)
        (project / name).write_text(filled)
        (project / name).chmod(0o600)


@contextmanager
def started(project: Path, port: int) -> Iterator[list[psutil.Process]]:
    """The master and two workers."""
    running: list[psutil.Process] = []
    try:
        running.append(script(project, "master.sh"))
        wait_for(lambda: answers(port), "the master")
        running += [script(project, "worker.sh", f"work-{n}") for n in (1, 2)]
        yield running[1:]
    except BaseException:
        for log in sorted(project.glob("*.log")):
            say(f"{log.name} ends: {log.read_text()[-1500:]}")
        raise
    finally:
        for process in running:
            kill_tree(process)


def script(project: Path, *words: str) -> psutil.Process:
    log = (project / f"{words[0]}-{words[-1]}.log").open("wb")
    process = psutil.Popen(
        ["bash", *words], cwd=project, env=environment(), stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    log.close()
    return process


def environment() -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    jars = str(REPOSITORY / ".jars")
    own = {"PATH": path, "TAPELINE_JARS": jars, "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **own, "SPARK_SECRET": SECRET}


def run_with_deaths(project: Path, files: list[Path], workers: list[psutil.Process]) -> None:
    """Feed the day; kill an executor after a third of it, and a worker after two thirds."""
    running = script(project, "run.sh")
    try:
        wait_for(lambda: len(executors(workers)) == 2, "two executors")
        for number, file in enumerate(files):
            shutil.copy(file, project / "landing" / f".{file.name}")
            (project / "landing" / f".{file.name}").rename(project / "landing" / file.name)
            if number == len(files) // 3:
                wait_for(lambda: batches(project) > 0, "the first batch")
                victim = executors(workers)[0]
                say(f"killing executor {victim.pid} at batch {batches(project)}")
                victim.kill()
            if number == 2 * len(files) // 3:
                say(f"killing worker {workers[0].pid} at batch {batches(project)}")
                kill_tree(workers[0])
            time.sleep(FEED_SECONDS / len(files))
        wait_for(lambda: not any((project / "landing").iterdir()), "an empty landing folder")
        wait_for(lambda: idle(project), "the last batch")
        say(f"{batches(project)} batches on the cluster")
    finally:
        running.send_signal(signal.SIGTERM)
        with suppress(psutil.TimeoutExpired):
            running.wait(60)
        kill_tree(running)
    log = (project / "run.sh-run.sh.log").read_text()
    assert running.returncode == 0, log[-3000:]


def run_query(project: Path) -> None:
    """A query with state on the same cluster, compared with sums of DuckDB over its input."""
    shops = project / "shops"
    (shops / "sales").mkdir(parents=True)
    (shops / "pipeline.py").write_text(QUERY)
    shutil.copy(project / "tapeline.toml", shops)
    for number in range(4):
        rows = [{"shop": f"s{n % 3}", "amount": f"{number * 10 + n}.25"} for n in range(30)]
        text = "\n".join(map(json.dumps, rows))
        (shops / "sales" / f"{number}.json").write_text(text)
    run([*TAPELINE, "run", "--once"], shops)
    found = run([*TAPELINE, "sql", "select shop, total from totals order by shop", "--json"], shops)
    asked = "select shop, sum(amount::decimal(18,2))::varchar from"
    expected = duckdb.sql(f"{asked} '{shops}/sales/*.json' group by 1 order by 1").fetchall()
    said = [(row["shop"], f"{float(row['total']):.2f}") for row in json.loads(found)]
    assert said == expected, (said, expected)
    say(f"a query with state: {len(said)} totals agree")


def executors(workers: list[psutil.Process]) -> list[psutil.Process]:
    """The executors that these workers have started and that are alive."""
    own = {worker.pid for worker in workers}
    found = []
    for one in psutil.process_iter(["ppid", "cmdline", "status"]):
        command = " ".join(one.info["cmdline"] or ())
        alive = one.info["status"] != psutil.STATUS_ZOMBIE
        if alive and one.info["ppid"] in own and EXECUTOR in command:
            found.append(one)
    return found


def status(project: Path) -> dict[str, object]:
    done = subprocess.run(
        [*TAPELINE, "status", PIPELINE, "--json"],
        cwd=project, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else {}


def batches(project: Path) -> int:
    return int(str(status(project).get("batch") or 0))


def idle(project: Path) -> bool:
    return status(project).get("lag_records") == 0


def compare(one: Path, other: Path) -> None:
    """Sums of journals and rows that count, by DuckDB over the files that the logs name."""
    homes = [project / "tapeline-data" / "trades" for project in (one, other)]
    for path in sorted((homes[0] / "gold").iterdir()) + sorted((homes[0] / "silver").iterdir()):
        table = f"{path.parent.name}/{path.name}"
        queries = [standing(home / table) for home in homes]
        if None in queries:
            continue
        (differ,) = duckdb.sql(
            f"select count(*) from (({queries[0]} except all {queries[1]}) union all "
            f"({queries[1]} except all {queries[0]}))"
        ).fetchall()
        (rows,) = duckdb.sql(f"select count(*) from ({queries[0]})").fetchall()
        say(f"{table}: {rows[0]:,} rows, {differ[0]} differ")
        assert rows[0], f"{table} is empty"
        assert not differ[0], f"{table} differs between the cluster and a local run"


def standing(folder: Path) -> str | None:
    """What a table says in the end, without its batches: sums by key, or rows that count."""
    files = DeltaTable(str(folder)).file_uris()
    listed = ", ".join(f"'{file}'" for file in files)
    source = f"read_parquet([{listed}])"
    columns = [row[0] for row in duckdb.sql(f"describe select * from {source}").fetchall()]
    own = [f'"{name}"' for name in columns if not name.startswith("_")]
    if "_verdict" in columns:
        return (
            f"select {', '.join(own)}, _verdict, sum(_sign) as n from {source} "
            f"where _verdict in ('kept', 'quarantined') group by all having sum(_sign) <> 0"
        )
    if "_entries" not in columns or "_position" in columns:
        return None  # links and caches
    kinds = dict(row[:2] for row in duckdb.sql(f"describe select * from {source}").fetchall())
    measures = [n for n in own if kinds[n.strip('"')].startswith(("DECIMAL", "BIGINT"))]
    keys = ", ".join(n for n in own if n not in measures)
    sums = ", ".join(f"sum({n}) as {n}" for n in (*measures, "_entries"))
    return f"select {keys}, {sums} from {source} group by {keys} having sum(_entries) > 0"


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:.0f} s for {what}"
        time.sleep(0.2)


def kill_tree(process: psutil.Process) -> None:
    """End a process that this script started, and what that has started."""
    try:
        tree = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(tree, 10)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
