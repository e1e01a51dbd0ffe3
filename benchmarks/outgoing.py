"""Our delivery for the benchmark of sinks: books of one table, made of rows, and their sink.

The books are made without Spark and outside the time; what is measured is a sink that works off
all their batches, as after a long absence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tapeline import Files, Kafka, Pipeline, Rows, Stream
from tapeline.books.commit import Commit, Counts
from tapeline.books.meanings import Code
from tapeline.books.schemas import POSITION, REGISTER, with_columns
from tapeline.books.table_id import TableId
from tapeline.deliver import SinkWorkers
from tapeline.flow.ledger import Ledger, LedgerPlace
from tapeline.plan import resolve
from tapeline.settings import KafkaSettings, Settings, SuperviseSettings
from tapeline.supervisor import Supervisor

ROWS_PER_BATCH = 10_000
OWN = pa.schema([("id", pa.string()), ("value", pa.string())])
SCHEMA = with_columns(OWN, REGISTER)


def delivery(rows: Path, root: Path, brokers: str, topic: str) -> Callable[[], None]:
    """Books of the rows (key, value) of a Delta table; the work that sends them all to a topic."""
    name = "bench_" + "".join(one if one.isalnum() else "_" for one in topic.lower())
    pipeline = Pipeline(name)
    pipeline.source("raw", Files("landing/", schema="id string, value string"))

    @pipeline.table(key="id")
    def orders(raw: Stream) -> Stream:
        return raw

    @pipeline.sink(Kafka(topic))
    def lines(orders: Rows) -> Rows:
        return orders

    settings = Settings(project=root, root=root / "books", kafka=KafkaSettings(brokers=brokers))
    published = write_books(rows, settings.home(name), name)
    told: list[object] = []
    supervisor = Supervisor(name, SuperviseSettings(), told.append, lambda: datetime.now(UTC))
    delivering = SinkWorkers(resolve(pipeline), settings, supervisor, lambda: published)

    def work() -> None:
        delivering.finish(threading.Event())
        delivering.close()

    return work


def write_books(rows: Path, home: Path, name: str) -> int:
    """A register of these rows, ten thousand a batch; the last batch."""
    given = DeltaTable(str(rows)).to_pyarrow_table(columns=["key", "value"])
    with ThreadPoolExecutor(2) as pool:
        orders, now = TableId.register("orders"), datetime.now(UTC)
        ledger = Ledger(LedgerPlace(home, name), {orders: SCHEMA}, Code({}), pool, now)
        for first in range(0, given.num_rows, ROWS_PER_BATCH):
            batch = ledger.commits.next_batch
            register = _register(given.slice(first, ROWS_PER_BATCH), batch)
            staged = ledger.stage(orders, register, batch)
            counts = {"orders": Counts(rows=register.num_rows)}
            decision = ledger.decide(Commit(files=[staged], tables=counts), datetime.now(UTC))
            ledger.finish(decision)
            ledger.publish(decision, datetime.now(UTC))
            ledger.shorten()
        return ledger.commits.published_batch


def _register(given: pa.Table, batch: int) -> pa.Table:
    """Every row as one that was kept."""
    count = given.num_rows
    keys, numbers = given["key"].cast(pa.string()), np.arange(count)
    parts = [pa.array(["raw"] * count), pa.array(np.full(count, batch)), pa.array(numbers)]
    known = {
        "id": keys,
        "value": given["value"].cast(pa.string()),
        "_position": pa.StructArray.from_arrays(parts, fields=list(POSITION)),
        "_row": pa.array(np.zeros(count, np.int32)),
        "_verdict": pa.array(["kept"] * count),
        "_sign": pa.array(np.ones(count, np.int32)),
        "_cause": pa.array(["on_time"] * count),
        "_batch": pa.array(np.full(count, batch)),
        "_key": keys,
    }
    columns = {f.name: known.get(f.name, pa.nulls(count, f.type)) for f in SCHEMA}
    return pa.table(columns).cast(SCHEMA)
