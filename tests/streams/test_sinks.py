"""What leaves the books: each change once, in order, whoever is killed on the way."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AclOperation

from tapeline import (
    Alerts,
    Changes,
    Console,
    Each,
    FencedError,
    Files,
    Foreach,
    Kafka,
    Memory,
    OperationError,
    Pipeline,
    Rows,
)
from tapeline.broker import Broker
from tapeline.deliver import SinkWorkers
from tapeline.deliver.active_alerts import alerts
from tapeline.plan import load_pipeline
from tapeline.settings import (
    HousekeepingSettings,
    KafkaSettings,
    Settings,
    SinkSettings,
    SuperviseSettings,
    activate,
)
from tapeline.store.housekeeping import tidy
from tapeline.supervisor import Supervisor
from tapeline.testing import Books, Trial, plan_of
from tests.support.kafka import consumed
from tests.support.kafka_cluster import PASSWORD, VARIABLE, Cluster
from tests.support.waiting import wait_for

Make = Callable[..., str]
Record = dict[str, Any]
BATCHES = 16

STEPS = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Changes, Files, Kafka, Pipeline, Rows, Stream

pipeline = Pipeline("orders")
SCHEMA = "id string, v int, event string, item string, amount decimal(12,2)"
pipeline.source("raw", Files("landing/", schema=SCHEMA))


@pipeline.table(key="id", sequence_by="v", apply_as_deletes="event = 'CANCEL'")
def orders(raw: Stream) -> DataFrame:
    return raw


@pipeline.summary(key="item")
def totals(orders: Stream) -> DataFrame:
    sums = F.sum("amount").alias("amount"), F.count("*").alias("n")
    return orders.groupBy("item").agg(*sums)
"""
SINK = """

@pipeline.sink(Kafka("{topic}"))
def {name}(totals: Changes) -> Changes:
    return totals
"""
# A process that delivers and does nothing else: the books are there, so Spark need not be.
CHILD = """
import threading
from pathlib import Path

from tapeline.deliver import SinkWorkers
from tapeline.settings import load_settings
from tapeline.testing import Deployment, plan_of

settings = load_settings(Path.cwd())
plan = plan_of("pipeline.py", settings)
books = Deployment(plan, settings).books
batch = books.cut().batch
delivering = SinkWorkers(plan, settings, None, lambda: batch)
delivering.finish(threading.Event())
"""


def records_of(batch: int, chance: Random) -> list[Record]:
    """New orders, corrections and cancellations of earlier ones."""
    found = []
    for number in range(8):
        new = batch * 8 + number
        event = chance.choice(["NEW", "NEW", "CORRECT", "CANCEL"]) if batch else "NEW"
        record_id = new if event == "NEW" else chance.randrange(batch * 8)
        found.append({
            "id": f"o{record_id}", "v": 1 if event == "NEW" else 2 + batch, "event": event,
            "item": ("tea", "mate", "coffee")[record_id % 3],
            "amount": f"{chance.randrange(1, 900)}.50",
        })  # fmt: skip
    return found


class Oracle:
    """What each batch must send, in plain Python."""

    def __init__(self, batches: list[list[Record]]) -> None:
        self.rows: list[tuple[int, str, int, str]] = []  # batch, id, sign, amount
        self.changes: list[Record] = []
        standing: dict[str, tuple[tuple[int, int], Record]] = {}
        for number, records in enumerate(batches, start=1):
            before, was = dict(standing), self._totals(standing)
            for line, record in enumerate(records, start=1):
                known = standing.get(record["id"])
                if known is None or record["v"] > known[1]["v"]:
                    standing[record["id"]] = ((number, line), record)
            moved = []
            for key in before.keys() | standing.keys():
                old, new = before.get(key), standing[key]
                if old == new:
                    continue
                if old and old[1]["event"] != "CANCEL":
                    moved.append((old[0], -1, old[1]))
                if new[1]["event"] != "CANCEL":
                    moved.append((new[0], 1, new[1]))
            self.rows += [(number, r["id"], sign, r["amount"])
                          for _, sign, r in sorted(moved, key=lambda one: one[:2])]  # fmt: skip
            now = self._totals(standing)
            for item in sorted(was.keys() | now.keys()):
                if was.get(item) != now.get(item):
                    self.changes.append({"item": item, "_old": was.get(item),
                                         "_new": now.get(item), "_batch": number})  # fmt: skip

    @staticmethod
    def _totals(standing: dict[str, tuple[tuple[int, int], Record]]) -> dict[str, Record]:
        by_item: dict[str, list[Decimal]] = defaultdict(list)
        for _, record in standing.values():
            if record["event"] != "CANCEL":
                by_item[record["item"]].append(Decimal(record["amount"]))
        return {item: {"amount": f"{sum(found)}", "n": len(found)}
                for item, found in by_item.items()}  # fmt: skip


class Shop:
    """Books of some batches, made once; what leaves them is each test's own."""

    def __init__(self, folder: Path) -> None:
        chance = Random(7)
        self.settings = Settings(project=folder, root=folder / "books")
        (folder / "pipeline.py").write_text(STEPS)
        self.trial = Trial(self.pipeline(), folder)
        batches = [records_of(batch, chance) for batch in range(BATCHES)]
        for records in batches:
            self.trial.feed(raw=records)
        self.oracle = Oracle(batches)

    def pipeline(self) -> Pipeline:
        return load_pipeline("pipeline.py", self.settings)

    def delivering(
        self, pipeline: Pipeline, published: int = BATCHES, **settings: Any
    ) -> SinkWorkers:
        changed = replace(self.settings, **settings)
        said: list[Any] = []
        quick = SuperviseSettings(max_wait_seconds=0.2)
        supervisor = Supervisor("orders", quick, said.append, self.trial.clock)
        return SinkWorkers(plan_of(pipeline), changed, supervisor, lambda: published)


@pytest.fixture(scope="module")
def shop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop"))
    yield made
    made.trial.close()
    activate(Settings())


def kafka(broker: Broker) -> KafkaSettings:
    return KafkaSettings(brokers=broker.bootstrap_servers)


def messages(broker: Broker, topic: str) -> list[Record]:
    """What a transactional reader sees, without the causes, which the oracle does not know."""
    (values,) = consumed(broker, topic)
    found = [json.loads(value) for value in values]
    assert all(one.pop("_cause") for one in found)
    return found


def send_all(delivering: SinkWorkers) -> None:
    delivering.finish(threading.Event())
    delivering.close()


def sink_of_changes(pipeline: Pipeline, connector: Any, name: str = "notices") -> Pipeline:
    def notices(totals: Changes) -> Changes:
        return totals

    notices.__name__ = name
    pipeline.sink(connector)(notices)
    return pipeline


def sink_of_rows(pipeline: Pipeline, connector: Any) -> Pipeline:
    def lines(orders: Rows) -> Rows:
        return orders

    pipeline.sink(connector)(lines)
    return pipeline


def brief(rows: list[Record]) -> list[tuple[int, str, int, str]]:
    return [(r["_batch"], r["id"], r["_sign"], str(r["amount"])) for r in rows]


def test_rows_and_changes_are_what_each_batch_brought(shop: Shop) -> None:
    rows, changes = Memory(), Memory()
    pipeline = sink_of_changes(sink_of_rows(shop.pipeline(), rows), changes)
    delivering = shop.delivering(pipeline, sinks=SinkSettings(rows_per_delivery=10))
    send_all(delivering)
    assert brief(rows.rows) == shop.oracle.rows
    assert any(row["_sign"] < 0 for row in rows.rows)
    assert {row["_key"] for row in rows.rows} == {row["id"] for row in rows.rows}
    plain = [
        {name: one[name] for name in ("item", "_old", "_new", "_batch")}
        for one in json.loads(json.dumps(changes.rows, default=str))
    ]
    assert plain == shop.oracle.changes
    assert {one["_key"] for one in changes.rows} == {"tea", "mate", "coffee"}
    assert {one["_cause"] for one in changes.rows} >= {"correction", "on_time"}
    facts = delivering.status()["notices"]
    assert (facts.delivered_batch, facts.lag_batches) == (BATCHES, 0)
    # Compaction puts many batches into one file: what a batch sends stays the same.
    for book in shop.trial.flow.ledger.books.values():
        tidy(book, HousekeepingSettings())
    sink_of_rows(shop.trial.plan.pipeline, Memory())
    assert shop.trial.sent("lines") == rows.rows


LIMIT = Decimal(4500)


def with_alerts(pipeline: Pipeline, totals_to: Any, orders_to: Any) -> Pipeline:
    @pipeline.alert(severity="critical")
    def large_total(totals: Each) -> bool:
        """More than 4,500 of one item."""
        return bool(totals["amount"] > LIMIT)

    @pipeline.alert()
    def large_order(orders: Each) -> bool:
        """An order of more than 700."""
        return bool(orders["amount"] > 700)

    @pipeline.sink(totals_to)
    def large_totals(large_total: Alerts) -> Alerts:
        return large_total

    @pipeline.sink(orders_to)
    def large_orders(large_order: Alerts) -> Alerts:
        return large_order

    return pipeline


def expected_alerts(shop: Shop) -> tuple[list[tuple[int, str, str]], list[tuple[int, str, str]]]:
    """Raised when a value goes over its limit, closed when it goes back or away."""
    totals, orders = [], []
    for one in shop.oracle.changes:
        was, stands = (n is not None and Decimal(n["amount"]) > LIMIT
                       for n in (one["_old"], one["_new"]))  # fmt: skip
        if was != stands:
            totals.append((one["_batch"], one["item"], "raised" if stands else "closed"))
    by_batch: dict[tuple[int, str], dict[int, bool]] = {}
    for batch, key, sign, amount in shop.oracle.rows:
        by_batch.setdefault((batch, key), {})[sign] = Decimal(amount) > 700
    for (batch, key), sides in by_batch.items():
        was, stands = sides.get(-1, False), sides.get(1, False)
        if was != stands:
            orders.append((batch, key, "raised" if stands else "closed"))
    return totals, orders


def test_an_alert_is_raised_once_and_closes_itself_when_its_cause_is_gone(
    shop: Shop, broker: Broker, topic: Make
) -> None:
    name, orders = topic(1), Memory()
    pipeline = with_alerts(shop.pipeline(), Kafka(name), orders)
    for published in (9, BATCHES):
        orders.rows.clear()  # a new process has an empty memory
        send_all(shop.delivering(pipeline, published, kafka=kafka(broker)))
    found = messages(broker, name)
    totals, of_orders = expected_alerts(shop)
    assert {event for *_, event in totals} == {"raised", "closed"}
    assert [(one["_batch"], one["key"], one["event"]) for one in found] == totals
    assert [(one["_batch"], one["key"], one["event"]) for one in orders.rows] == of_orders
    assert found[0]["about"] == "More than 4,500 of one item."
    assert (found[0]["alert"], found[0]["severity"]) == ("large_total", "critical")
    assert Decimal(found[0]["what"]["amount"]) > LIMIT
    # The command folds the same events: what stands is what is over its limit now.
    raised = alerts(Books(plan_of(pipeline), shop.settings.home("orders")))
    last = {one["item"]: one["_new"] for one in shop.oracle.changes}
    stand = {one["key"] for one in raised if one["alert"] == "large_total" and not one["closed_at"]}
    assert stand == {item for item, new in last.items() if Decimal(new["amount"]) > LIMIT}
    assert all(one["closed_at"] is None or one["closed_at"] > one["raised_at"] for one in raised)


def test_an_alert_whose_function_fails_says_which(shop: Shop) -> None:
    pipeline = shop.pipeline()

    @pipeline.alert()
    def odd(totals: Each) -> bool:
        return bool(totals["no such column"])

    @pipeline.sink(Memory())
    def odd_ones(odd: Alerts) -> Alerts:
        return odd

    with pytest.raises(OperationError, match=r"test_sinks.py:\d+: odd\(\) failed: KeyError"):
        send_all(shop.delivering(pipeline))


def test_a_topic_gets_every_change_once_and_the_next_run_goes_on(
    shop: Shop, broker: Broker, topic: Make
) -> None:
    name = topic(1)
    pipeline = sink_of_changes(shop.pipeline(), Kafka(name), "once")
    for published in (10, 10, BATCHES):
        send_all(shop.delivering(pipeline, published, kafka=kafka(broker)))
        expected = [one for one in shop.oracle.changes if one["_batch"] <= published]
        assert messages(broker, name) == expected


def test_a_message_carries_its_key_and_headers(shop: Shop, broker: Broker, topic: Make) -> None:
    name = topic(2)
    pipeline = shop.pipeline()

    @pipeline.sink(Kafka(name))
    def labelled(totals: Changes) -> Changes:
        return [{**one, "_headers": {"cause": one["_cause"]}} for one in totals]

    send_all(shop.delivering(pipeline, kafka=kafka(broker)))
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "labels"}
    consumer = Consumer({**options, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(name, part, OFFSET_BEGINNING) for part in range(2)])
    found = [consumer.poll(60) for _ in shop.oracle.changes]
    consumer.close()
    where: dict[bytes, set[int]] = defaultdict(set)
    for message in found:
        value = json.loads(message.value())
        assert message.key() == value["item"].encode()
        assert message.headers() == [("cause", value["_cause"].encode())]
        assert not {"_key", "_headers"} & value.keys()
        where[message.key()].add(message.partition())
    assert [len(parts) for parts in where.values()] == [1, 1, 1]  # a key stays in order


def test_changes_leave_over_sasl_and_tls_with_no_more_rights_than_they_need(
    shop: Shop, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = sink_of_changes(shop.pipeline(), Kafka("secured-changes"), "secured")
    for name in ("secured-changes", "tapeline.orders.delivered"):
        cluster.broker.make_topic(name, 1)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    cluster.allow("secured-changes", AclOperation.WRITE)
    cluster.allow("tapeline.orders.delivered", AclOperation.WRITE, AclOperation.READ)
    for allow in (cluster.allow_group, cluster.allow_transactions):
        with pytest.raises(OperationError, match=r"^ACL: .*authorization failed") as error:
            send_all(shop.delivering(pipeline, kafka=cluster.settings()))
        assert PASSWORD not in str(error.value)
        allow("tapeline.orders.secured")
    send_all(shop.delivering(pipeline, kafka=cluster.settings()))
    assert messages(cluster.broker, "secured-changes") == shop.oracle.changes


def test_the_older_of_two_processes_is_fenced_and_says_so(
    shop: Shop, broker: Broker, topic: Make
) -> None:
    name = topic(1)
    pipeline = sink_of_changes(shop.pipeline(), Kafka(name), "fenced")
    older, newer = (
        shop.delivering(pipeline, kafka=kafka(broker), sinks=SinkSettings(rows_per_delivery=1))
        for _ in range(2)
    )
    assert older.deliverers[0].advance(BATCHES)
    assert newer.deliverers[0].advance(BATCHES)
    with pytest.raises(FencedError, match=r"FENCED: another process .* delivers sink fenced"):
        older.deliverers[0].advance(BATCHES)
    send_all(newer)
    older.close()
    assert messages(broker, name) == shop.oracle.changes


def test_a_sink_of_other_books_is_refused_before_anybody_is_fenced(
    shop: Shop, broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    pipeline = sink_of_changes(shop.pipeline(), Kafka(name), "others")
    ours = shop.delivering(pipeline, kafka=kafka(broker), sinks=SinkSettings(rows_per_delivery=1))
    ours.deliverers[0].advance(BATCHES)
    theirs = shop.delivering(pipeline, kafka=kafka(broker), root=tmp_path)
    with pytest.raises(OperationError, match="OTHER_BOOKS: sink others was delivered up to"):
        theirs.finish(threading.Event())
    send_all(ours)
    assert messages(broker, name) == shop.oracle.changes


def test_a_cluster_that_has_lost_the_place_does_not_get_everything_again(
    shop: Shop, broker: Broker, topic: Make
) -> None:
    name = topic(1)
    pipeline = sink_of_changes(shop.pipeline(), Kafka(name), "lost")
    noted = shop.trial.books.layout.sink("lost")
    noted.parent.mkdir(exist_ok=True)
    outbox = shop.delivering(pipeline, kafka=kafka(broker)).deliverers[0]._outbox
    noted.write_text(json.dumps({"batch": 5, "hash": outbox.hash_of(5)}))
    with pytest.raises(OperationError, match="PLACE_LOST: sink lost was delivered up to batch 5"):
        shop.delivering(pipeline, kafka=kafka(broker)).finish(threading.Event())
    for sinks in (SinkSettings(on_other_books="go_on"), SinkSettings()):
        send_all(shop.delivering(pipeline, kafka=kafka(broker), sinks=sinks))
        expected = [one for one in shop.oracle.changes if one["_batch"] > 5]
        assert messages(broker, name) == expected


def test_a_sink_whose_topic_is_missing_waits_and_holds_up_nobody(
    shop: Shop, broker: Broker, topic: Make
) -> None:
    name = topic(1)
    pipeline = sink_of_changes(shop.pipeline(), Kafka(f"{name}.later"), "waits")
    rows = Memory()
    delivering = shop.delivering(sink_of_rows(pipeline, rows), kafka=kafka(broker))
    delivering.start()
    wait_for(lambda: len(rows.rows) == len(shop.oracle.rows))
    wait_for(lambda: "TOPIC_MISSING" in str(delivering.status()["waits"].problem))
    broker.make_topic(f"{name}.later", 1)
    wait_for(lambda: delivering.status()["waits"].lag_batches == 0)
    assert delivering.status()["waits"].problem is None
    delivering.end()
    delivering.close()
    assert messages(broker, f"{name}.later") == shop.oracle.changes


def child(shop: Shop, folder: Path, broker: Broker, points: str = "") -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "TAPELINE_ROOT": str(shop.settings.root),
        "TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers,
        "TAPELINE_SINKS_ROWS_PER_DELIVERY": "1",
        "TAPELINE_FAILPOINTS": points,
    }
    return subprocess.Popen([sys.executable, "-c", CHILD], cwd=folder, env=environment)


def test_killed_before_and_after_its_commit_a_deliverer_sends_everything_once(
    shop: Shop, broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    (tmp_path / "pipeline.py").write_text(STEPS + SINK.format(topic=name, name="killed"))
    for points in ("sink_sent=3", "sink_committed=4", "sink_sent=2"):
        assert child(shop, tmp_path, broker, points).wait() == -signal.SIGKILL
    seen = messages(broker, name)
    assert 0 < len(seen) < len(shop.oracle.changes)
    assert child(shop, tmp_path, broker).wait() == 0
    assert messages(broker, name) == shop.oracle.changes
    (values,) = consumed(broker, name, "read_uncommitted")
    assert len(values) > len(shop.oracle.changes)  # the killed transactions are there, aborted


@pytest.mark.slow
def test_killed_at_random_again_and_again_every_change_is_sent_once(
    shop: Shop, broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name, chance, kills = topic(1), Random(11), 0
    (tmp_path / "pipeline.py").write_text(STEPS + SINK.format(topic=name, name="random_kills"))
    while True:
        running = child(shop, tmp_path, broker)
        try:
            # Later and later at the most, so that it comes to an end on any machine.
            assert running.wait(0.3 + chance.random() * kills / 2) == 0
            break
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            kills += 1
    assert kills  # the first comes before Python has found its modules
    assert messages(broker, name) == shop.oracle.changes


@pytest.mark.slow
def test_a_broker_that_goes_and_comes_back_gets_everything_once(shop: Shop, own: Broker) -> None:
    own.make_topic("notices", 1)
    slow = SinkSettings(rows_per_delivery=1, answer_seconds=3)
    pipeline = sink_of_changes(shop.pipeline(), Kafka("notices"))
    delivering = shop.delivering(pipeline, kafka=kafka(own), sinks=slow)
    one = delivering.deliverers[0]
    for _ in range(4):
        one.advance(BATCHES)
    own.stop()
    delivering.start()
    wait_for(lambda: "KAFKA" in str(delivering.status()["notices"].problem))
    assert delivering.status()["notices"].lag_batches > 0
    own.start()
    wait_for(lambda: delivering.status()["notices"].lag_batches == 0)
    delivering.end()
    delivering.close()
    assert messages(own, "notices") == shop.oracle.changes


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_folder_gets_one_file_per_batch_which_a_repeat_leaves_as_it_is(
    shop: Shop, form: Any, tmp_path: Path
) -> None:
    pipeline = sink_of_rows(shop.pipeline(), Files(str(tmp_path / "out"), format=form))
    send_all(shop.delivering(pipeline))
    files = sorted((tmp_path / "out").iterdir())
    assert files[0].name == f"lines-000000000001.{form}"
    found: list[Record] = []
    for file in files:
        if form == "json":
            found += [json.loads(line) for line in file.read_text().splitlines()]
        elif form == "csv":
            found += list(csv.DictReader(file.read_text().splitlines()))
        else:
            found += pq.read_table(file).to_pylist()
    assert brief([{**r, "_batch": int(r["_batch"]), "_sign": int(r["_sign"])} for r in found]) == (
        shop.oracle.rows
    )
    place = shop.trial.books.layout.sink("lines")
    before = [file.read_bytes() for file in files]
    place.unlink()  # as if the process had died before it noted how far it was
    send_all(shop.delivering(pipeline))
    assert [file.read_bytes() for file in sorted((tmp_path / "out").iterdir())] == before
    place.unlink()


def test_after_a_restoration_a_sink_stops_or_goes_on_behind_the_restored_batch(
    shop: Shop,
) -> None:
    layout = shop.trial.books.layout
    called: list[int] = []
    pipeline = sink_of_rows(shop.pipeline(), Foreach(lambda _, batch: called.append(batch)))
    layout.sink("lines").parent.mkdir(exist_ok=True)
    layout.sink("lines").write_text(json.dumps({"batch": BATCHES, "hash": "of other books"}))
    layout.restored.write_text(json.dumps({"epoch": 2, "batch": BATCHES - 2}))
    try:
        with pytest.raises(OperationError, match=f"OTHER_BOOKS: .* batch {BATCHES} .*on_other_bo"):
            shop.delivering(pipeline).finish(threading.Event())
        send_all(shop.delivering(pipeline, sinks=SinkSettings(on_other_books="go_on")))
        assert called == [BATCHES - 1, BATCHES]
        send_all(shop.delivering(pipeline))
        assert called == [BATCHES - 1, BATCHES]
    finally:
        layout.restored.unlink()
        layout.sink("lines").unlink()


def test_a_function_of_ones_own_gets_rows_and_batch_and_is_asked_again_after_an_error(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[tuple[int, int]] = []

    def post(rows: list[Record], batch: int) -> None:
        if batch == 3 and (3, len(rows)) not in called:
            called.append((3, len(rows)))
            raise RuntimeError("the other side is asleep")
        called.append((batch, len(rows)))

    pipeline = sink_of_changes(sink_of_rows(shop.pipeline(), Foreach(post)), Console(), "printed")
    delivering = shop.delivering(pipeline)
    with pytest.raises(OperationError, match="sink lines failed: RuntimeError: the other side"):
        delivering.finish(threading.Event())
    send_all(delivering)
    assert [batch for batch, _ in called].count(3) == 2
    assert sum(count for _, count in called) - called[2][1] == len(shop.oracle.rows)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["_new"] for one in printed] == [one["_new"] for one in shop.oracle.changes]
