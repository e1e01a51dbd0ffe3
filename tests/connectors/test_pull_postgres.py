"""Pulling from PostgreSQL: every row once, whatever the order in which transactions commit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tapeline import DeclarationError, Files, OperationError, Pipeline, PostgresPull
from tapeline.connect.postgres import PostgresReader
from tapeline.connect.pulling import LaterError
from tapeline.operate.puller import Puller
from tapeline.settings import PullSettings, Settings, load_settings
from tapeline.testing import plan_of
from tests.support.back_office import TOKEN, BackOffice
from tests.support.doc_pages import OPERATE, blocks, files
from tests.support.postgres import PASSWORD, Postgres

TRADES = """
create table trades (
    id bigint generated always as identity primary key,
    booked_at timestamptz not null default now(),
    trade_id text, quantity numeric(18,6)
)
"""


class Office:
    """A database of the brokerage's, with a table of trades."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.database = server.new_database()
        self.address = f"{server.address} dbname={self.database}"
        self.desk = self.connect()
        self.desk.execute(TRADES)

    def connect(self, **said: Any) -> psycopg.Connection[Any]:
        return self.server.connect(self.database, **said)

    def begin(self) -> psycopg.Connection[Any]:
        """A connection in a transaction that has done nothing yet."""
        connection = self.connect(autocommit=False)
        connection.execute("select 1")
        return connection

    def book(self, *trades: str, by: psycopg.Connection[Any] | None = None) -> None:
        for trade in trades:
            (by or self.desk).execute(
                "insert into trades (trade_id, quantity) values (%s, 10.50)", [trade]
            )

    def rest(self) -> None:
        """Wait until every row has rested for longer than a pull by time lets it."""
        rested = "select clock_timestamp() > max(booked_at) + interval '2 ms' from trades"
        while self.desk.execute(rested).fetchone() != (True,):
            pass

    def reader(
        self, pull: PostgresPull, monotonic: Callable[[], float] = time.monotonic, **said: Any
    ) -> PostgresReader:
        settings = PullSettings(address=self.address, **said)
        return PostgresReader(pull, "office", settings, PASSWORD, monotonic)


class Following:
    """Reads page after page, from where the one before ended."""

    def __init__(self, reader: PostgresReader) -> None:
        self.reader = reader
        self.position: dict[str, Any] | None = None
        self.rows: list[dict[str, Any]] = []
        self.sizes: list[int] = []

    def so_far(self) -> list[str]:
        """The trades that have come; does not wait for transactions."""
        while self._page() == 0.0:
            pass
        return [row["trade_id"] for row in self.rows]

    def read(self) -> list[str]:
        """The trades that have come when all that there is has come."""
        while self._page() is not None:
            pass
        return self.so_far()

    def _page(self) -> float | None:
        page = self.reader.page(self.position)
        self.position = page.position
        self.rows += [json.loads(line) for line in page.lines]
        self.sizes += [len(page.lines)] if page.lines else []
        return page.again_seconds


BY_NUMBER = PostgresPull("trades", "id", records_per_page=2)
BY_TIME = PostgresPull("trades", "booked_at", records_per_page=2, settle="1 millisecond")


@pytest.fixture
def office(postgres: Postgres) -> Iterator[Office]:
    office = Office(postgres)
    yield office
    office.desk.close()


@pytest.fixture
def follow(office: Office) -> Iterator[Any]:
    readers: list[PostgresReader] = []

    def start(pull: PostgresPull = BY_NUMBER, **said: Any) -> Following:
        readers.append(office.reader(pull, **said))
        return Following(readers[-1])

    yield start
    for reader in readers:
        reader.close()


def test_rows_come_in_order_each_once_and_exactly(office: Office, follow: Any) -> None:
    office.book("a", "b", "c")
    pulled = follow()
    assert pulled.read() == ["a", "b", "c"]
    assert pulled.read() == ["a", "b", "c"]
    office.book("d")
    assert pulled.read() == ["a", "b", "c", "d"]
    office.desk.execute(
        "insert into trades (booked_at, trade_id, quantity) "
        "values ('2026-11-13 10:31:00.12+01', 'e', 10.50)"
    )
    pulled.read()
    assert pulled.rows[-1] == {
        "id": 5,
        "booked_at": "2026-11-13T09:31:00.12Z",
        "trade_id": "e",
        "quantity": "10.500000",
    }


def test_a_row_committed_late_with_a_lower_number_is_not_lost(office: Office, follow: Any) -> None:
    slow, quick = office.begin(), office.begin()
    office.book("first", by=slow)
    office.book("second", by=quick)
    quick.commit()
    pulled = follow()
    assert pulled.so_far() == []  # whoever took "second" now would pass over "first" for ever
    slow.commit()
    assert pulled.read() == ["first", "second"]
    slow.close()
    quick.close()


def test_a_number_taken_before_anything_is_written_is_not_lost(office: Office, follow: Any) -> None:
    """Such a transaction has no transaction id yet: no snapshot shows it."""
    slow = office.begin()
    (number,) = slow.execute(
        "select nextval(pg_get_serial_sequence('trades', 'id'))"
    ).fetchone() or (None,)
    office.book("second")
    pulled = follow()
    assert pulled.so_far() == []
    slow.execute(
        "insert into trades (id, trade_id) overriding system value values (%s, 'first')", [number]
    )
    slow.commit()
    assert pulled.read() == ["first", "second"]
    slow.close()


def test_a_time_taken_when_a_transaction_began_is_not_lost(office: Office, follow: Any) -> None:
    slow = office.begin()  # now() is this moment for all it will write
    office.book("second")
    office.rest()
    pulled = follow(BY_TIME)
    assert pulled.so_far() == []
    office.book("first", by=slow)
    slow.commit()
    assert pulled.read() == ["first", "second"]
    slow.close()


def test_rows_that_share_a_value_stay_together_at_the_border_of_a_page(
    office: Office, follow: Any
) -> None:
    with office.begin() as one:
        office.book("a", by=one)
    with office.begin() as one:
        office.book("b", "c", "d", "e", by=one)  # one transaction, one now()
    office.book("f")
    office.rest()
    pulled = follow(BY_TIME)
    assert sorted(pulled.read()) == ["a", "b", "c", "d", "e", "f"]
    assert pulled.sizes == [5, 1]


def test_a_row_that_was_changed_comes_again(office: Office, follow: Any) -> None:
    office.book("a", "b")
    pulled = follow(BY_TIME)
    office.rest()
    assert sorted(pulled.read()) == ["a", "b"]
    office.desk.execute("update trades set booked_at = now(), quantity = 7 where trade_id = 'a'")
    office.rest()
    assert pulled.read()[2:] == ["a"]
    assert pulled.rows[-1]["quantity"] == "7.000000"


def test_who_rolls_back_holds_nothing_up(office: Office, follow: Any) -> None:
    slow = office.begin()
    office.book("never", by=slow)
    office.book("b")
    pulled = follow()
    assert pulled.so_far() == []
    slow.rollback()
    assert pulled.read() == ["b"]
    slow.close()


def test_a_prepared_transaction_holds_up_and_is_not_lost(office: Office, follow: Any) -> None:
    slow = office.begin()
    office.book("first", by=slow)
    office.book("second")
    pulled = follow()
    assert pulled.so_far() == []
    slow.execute("prepare transaction 'two phases'")
    assert pulled.so_far() == []
    slow.close()
    office.desk.execute("commit prepared 'two phases'")
    assert pulled.read() == ["first", "second"]


def test_another_databases_transactions_hold_nothing_up(
    office: Office, follow: Any, postgres: Postgres
) -> None:
    with postgres.connect(autocommit=False) as elsewhere:
        elsewhere.execute("select pg_current_xact_id()")
        office.book("a")
        assert follow().read() == ["a"]


def test_a_transaction_that_runs_too_long_is_named_and_then_waited_for(
    office: Office, follow: Any
) -> None:
    slow = office.begin()
    office.book("a")
    now = [0.0]
    pulled = follow(monotonic=lambda: now[0])
    assert pulled.so_far() == []
    now[0] = 31.0
    with pytest.raises(LaterError, match="1 transactions have been running"):
        pulled.so_far()
    slow.rollback()
    assert pulled.read() == ["a"]
    slow.close()


class Turns:
    """Counts how often a pull asks, and lets others wait until it has asked again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.collector: Puller | None = None
        self._count = 0
        self._asked = threading.Condition()
        ask = PostgresReader.page

        def counted(reader: PostgresReader, position: Any) -> Any:
            page = ask(reader, position)
            with self._asked:
                self._count += 1
                self._asked.notify_all()
                if self.collector and self._count % 15 == 0:
                    self.collector.stop()
            return page

        monkeypatch.setattr(PostgresReader, "page", counted)
        monkeypatch.setattr("tapeline.connect.postgres.WAIT_SECONDS", 0.0)

    def wait(self, turns: int) -> None:
        with self._asked:
            wanted = self._count + turns
            assert self._asked.wait_for(lambda: self._count >= wanted, 120)


def test_busy_writers_and_restarts_lose_and_double_nothing(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four writers hold their numbers back by lot while the pull is started again and again."""
    monkeypatch.setenv("OFFICE_PASSWORD", PASSWORD)
    pipeline = Pipeline("office")
    pipeline.source("raw_trades", Files("landing/", schema="trade_id string"))
    pipeline.pull("office", PostgresPull("trades", "id", records_per_page=50), into="raw_trades")
    pulling = PullSettings(address=office.address, secret_variable="OFFICE_PASSWORD")
    settings = Settings(project=tmp_path, root=tmp_path / "books", pull={"office": pulling})
    turns = Turns(monkeypatch)

    def write(seed: int) -> None:
        chance = Random(seed)
        with office.connect(autocommit=False) as connection:
            for number in range(30):
                office.book(*[f"{seed}-{number}-{n}" for n in range(3)], by=connection)
                turns.wait(chance.choice((0, 1, 3)))
                connection.rollback() if chance.random() < 0.2 else connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    said: list[str] = []
    starts, alive = 0, True
    while alive:
        alive = any(writer.is_alive() for writer in writers)
        starts += 1
        every = timedelta(milliseconds=1)
        with Puller(plan_of(pipeline), settings, every, said.append) as collector:
            turns.collector = collector if alive else None
            collector.run(once=not alive)
    files = sorted((tmp_path / "landing").glob("*.jsonl"))
    pulled = [json.loads(line)["id"] for file in files for line in file.read_bytes().splitlines()]
    there = [row[0] for row in office.desk.execute("select id from trades order by id")]
    assert len(there) > 200
    assert len(files) > 1
    assert starts > 2
    assert pulled == there
    assert said == []


def test_the_example_of_the_documentation_pulls(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline of operate.md: a web shop's API and its branches' database, one drop folder."""
    monkeypatch.setenv("WEB_SHOP_TOKEN", TOKEN)
    monkeypatch.setenv("BRANCHES_PASSWORD", PASSWORD)
    office.desk.execute(
        "create schema sales create table orders (number serial primary key, order_id text)"
    )
    office.desk.execute("insert into sales.orders (order_id) values ('b1'), ('b2')")
    (settings_said,) = [b.text for b in blocks(OPERATE) if "[pull.web_shop]" in b.text]
    with BackOffice([b'{"order_id": "w1"}'], token=TOKEN) as shop:
        (tmp_path / "orders.py").write_text(files(OPERATE)["orders.py"])
        (tmp_path / "tapeline.toml").write_text(
            settings_said.replace("http://127.0.0.1:8080", shop.address).replace(
                "host=127.0.0.1 port=5432 dbname=branches user=reader", office.address
            )
        )
        settings = load_settings(tmp_path, {})
        plan = plan_of("orders.py", settings)
        with Puller(plan, settings, timedelta(seconds=1), print) as collector:
            collector.run(once=True)
            assert collector.failure is None
    pulled = [
        json.loads(p.read_bytes().splitlines()[0]) for p in (tmp_path / "drop").glob("*.jsonl")
    ]
    assert sorted(one["order_id"] for one in pulled) == ["b1", "w1"]
    assert [one.records for one in collector.status()] == [1, 2]


def test_names_are_quoted_and_values_of_all_kinds_become_json(office: Office, follow: Any) -> None:
    table, column = 'odd "table"; drop table trades', 'the "column" %s'
    office.desk.execute(
        sql.SQL(
            "create table {} ({} int not null, flag boolean, ratio float8, day date, "
            "moment timestamp, raw bytea, tags text[], paper jsonb, who uuid, nothing text)"
        ).format(sql.Identifier(table), sql.Identifier(column))
    )
    office.desk.execute(
        sql.SQL(
            "insert into {} values (1, true, 'NaN', 'infinity', '2026-11-13 10:31', '\\x00ff', "
            '\'{{"a, b",c}}\', \'{{"price": 10.10, "n": [1, 0.1234567890123456789]}}\', '
            "'00000000-0000-0000-0000-00000000000a', null)"
        ).format(sql.Identifier(table))
    )
    pulled = follow(PostgresPull(table, column))
    page = pulled.reader.page(None)
    assert page.position == {"after": "1"}
    assert json.loads(page.lines[0]) == {
        column: 1,
        "flag": True,
        "ratio": "nan",
        "day": "infinity",
        "moment": "2026-11-13T10:31:00",
        "raw": "AP8=",
        "tags": ["a, b", "c"],
        "paper": {"n": [1, "0.1234567890123456789"], "price": "10.10"},
        "who": "00000000-0000-0000-0000-00000000000a",
        "nothing": None,
    }
    assert office.desk.execute("select count(*) from trades").fetchone() == (0,)


def test_only_the_columns_that_were_named_come(office: Office, follow: Any) -> None:
    office.book("a")
    pulled = follow(PostgresPull("public.trades", "id", columns=["trade_id"]))
    pulled.read()
    assert pulled.rows == [{"trade_id": "a"}]


def test_a_view_can_be_pulled(office: Office, follow: Any) -> None:
    office.desk.execute("create view booked as select id, upper(trade_id) as trade_id from trades")
    office.book("a", "b")
    assert follow(PostgresPull("booked", "id")).read() == ["A", "B"]


def test_a_page_is_cut_at_its_bytes_and_never_inside_a_value(office: Office, follow: Any) -> None:
    office.book("a", "b", "c", "d")
    pull = PostgresPull("trades", "id")
    # Of these very rows: a time may be a digit shorter than the next.
    three = sum(map(len, follow(pull).reader.page(None).lines[:3]))
    pulled = follow(pull, answer_bytes=three + 1)
    assert pulled.read() == ["a", "b", "c", "d"]
    assert pulled.sizes == [3, 1]
    with pytest.raises(OperationError, match="more than 10 bytes"):
        follow(answer_bytes=10).read()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("timestamp not null", "a timestamp without a time zone"),
        ("timestamptz(0) not null", "a coarse one"),
        ("text not null", "of type text"),
        ("int", "may be null"),
        ("int not null default nextval('numbers')", "cache 20"),
    ],
)
def test_a_column_that_cannot_keep_the_promise_is_refused(
    office: Office, follow: Any, kind: str, why: str
) -> None:
    office.desk.execute("create sequence numbers cache 20")
    office.desk.execute(f"create table other (x {kind})")
    office.desk.execute("alter sequence numbers owned by other.x")
    with pytest.raises(OperationError, match=why):
        follow(PostgresPull("other", "x")).read()


def test_what_is_wrong_is_said_without_address_or_password(
    office: Office, postgres: Postgres
) -> None:
    office.desk.execute("create role guest login password 'guest'")
    settings = PullSettings(address=office.address.replace("user=reader", "user=guest"))
    with pytest.raises(OperationError, match="permission denied for table trades") as error:
        BY_NUMBER.reader("office", settings, "guest").page(None)
    with pytest.raises(LaterError, match="password authentication failed") as refused:
        BY_NUMBER.reader("office", settings, "swordfish").page(None)
    with pytest.raises(OperationError, match="the table or column does not exist") as missing:
        office.reader(PostgresPull("trade", "id")).page(None)
    nowhere = PullSettings(address="host=127.0.0.1 port=1 user=guest dbname=office")
    with pytest.raises(LaterError) as away:
        BY_NUMBER.reader("office", nowhere, "swordfish").page(None)
    for said in (error, refused, missing, away):
        for secret in ("127.0.0.1", "swordfish", PASSWORD):
            assert secret not in str(said.value)
    office.desk.execute("drop role guest")


def test_a_connection_that_was_ended_is_made_again(office: Office, follow: Any) -> None:
    office.book("a")
    pulled = follow()
    pulled.read()
    office.desk.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like "
        "'tapeline%' and datname = current_database()"
    )
    office.book("b")
    with pytest.raises(LaterError):
        pulled.read()
    assert pulled.read() == ["a", "b"]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("no address", "is not a PostgreSQL address"),
        ("host=127.0.0.1 password=x", "contains a password"),
        ("postgresql://me:word@127.0.0.1/office", "contains a password"),
    ],
)
def test_an_address_with_a_password_or_none_is_refused(address: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as error:
        BY_NUMBER.reader("office", PullSettings(address=address), "")
    assert "word@" not in str(error.value)
