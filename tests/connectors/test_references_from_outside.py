"""References from PostgreSQL, HTTP and Delta: read at their age, kept as versions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from tapeline import (
    DeclarationError,
    DeltaReference,
    Files,
    HttpReference,
    OperationError,
    Pipeline,
    PostgresReference,
    Snapshot,
    Stream,
)
from tapeline.books.layout import Layout
from tapeline.books.reference_ages import read_ages
from tapeline.books.references import References
from tapeline.operate.doctor.work import ages
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import PullSettings, Settings
from tapeline.testing import Books, Trial, plan_of
from tests.support.postgres import PASSWORD, Postgres

START = datetime(2026, 11, 13, 10, tzinfo=UTC)


class Server:
    """A real HTTP server on loopback that answers what a test says."""

    def __init__(self) -> None:
        self.answer, self.status, self.asked, self.delay = b"[]", 200, 0, 0.0
        self.tokens: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                outer.tokens.append(self.headers.get("Authorization"))
                time.sleep(outer.delay)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.answer)))
                self.end_headers()
                self.wfile.write(outer.answer)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def shop(connector: Any) -> Pipeline:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("landing/", schema="id string, city string"))
    pipeline.reference("cities", connector)

    @pipeline.table(key="id")
    def sales(raw: Stream, cities: Snapshot) -> DataFrame:
        return raw.join(cities, "city")

    return pipeline


def opened(connector: Any, folder: Path, clock: Clock | None = None, **said: Any) -> References:
    settings = settings_of(folder, **said)
    plan = plan_of(shop(connector))
    layout = Layout(settings.home("shop"))
    return References(plan, layout, settings, clock or Clock())


def settings_of(folder: Path, **said: Any) -> Settings:
    pull = {"cities": PullSettings(**said)} if said else {}
    return Settings(project=folder, root=folder / "books", pull=pull)


def rows(references: References) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = references.rows["cities"].to_pylist()
    return found


CITIES = [{"city": "Ulm", "tax": 0.1}, {"city": "Bern", "tax": None}]


def test_json_is_typed_by_its_schema_and_keeps_every_digit(server: Server, tmp_path: Path) -> None:
    server.answer = json.dumps({"result": {"cities": CITIES}}).encode()
    schema = "city string, tax decimal(4,2)"
    connector = HttpReference("/cities", schema=schema, records="result.cities")
    references = opened(connector, tmp_path, address=server.address)
    assert rows(references) == [
        {"city": "Bern", "tax": None},
        {"city": "Ulm", "tax": Decimal("0.10")},
    ]
    assert references.versions == {"cities": 1}


def test_csv_without_a_schema_is_text(server: Server, tmp_path: Path) -> None:
    server.answer = b"city,zip\nUlm,0123\nBern,\n"
    references = opened(HttpReference("/c.csv", "csv"), tmp_path, address=server.address)
    assert rows(references) == [{"city": "Bern", "zip": None}, {"city": "Ulm", "zip": "0123"}]


def test_a_reference_is_read_again_at_its_age_and_equal_rows_are_no_new_version(
    server: Server, tmp_path: Path
) -> None:
    server.answer = json.dumps(CITIES).encode()
    clock, connector = Clock(), HttpReference("/cities", every="1 hour")
    assert opened(connector, tmp_path, clock, address=server.address).versions == {"cities": 1}
    clock.now += timedelta(minutes=59)
    opened(connector, tmp_path, clock, address=server.address)
    assert server.asked == 1
    clock.now += timedelta(minutes=1)
    server.answer = json.dumps(CITIES[::-1]).encode()  # the same rows, shuffled
    assert opened(connector, tmp_path, clock, address=server.address).versions == {"cities": 1}
    assert server.asked == 2
    server.answer = json.dumps(CITIES[:1]).encode()
    clock.now += timedelta(hours=1)
    references = opened(connector, tmp_path, clock, address=server.address)
    assert references.versions == {"cities": 2}
    assert rows(references) == [{"city": "Ulm", "tax": "0.1"}]


def test_when_reading_fails_the_last_version_is_used_and_its_age_is_shown(
    server: Server, tmp_path: Path
) -> None:
    server.answer = json.dumps(CITIES).encode()
    clock, connector = Clock(), HttpReference("/cities", every="1 hour")
    opened(connector, tmp_path, clock, address=server.address)
    server.status = 503
    clock.now += timedelta(hours=2)
    references = opened(connector, tmp_path, clock, address=server.address)
    assert len(rows(references)) == 2
    books = Books(plan_of(shop(connector)), settings_of(tmp_path).home("shop"))
    (age,) = read_ages(books.layout)
    assert age.failures == 1
    assert age.age_seconds(clock.now) == 7200
    (finding,) = ages(books, clock.now)
    assert finding.state == "warning"
    assert "read 2 hours ago, read again after 1 hour; 1 failure" in finding.words
    assert "answered 503" in finding.words
    assert server.address.removeprefix("http://") not in finding.words
    text = metrics_of(books, Feed(books, 1)).body.decode()
    assert 'tapeline_reference_failures{reference="cities"} 1.0' in text
    assert 'tapeline_reference_age_seconds{reference="cities"}' in text
    server.status = 200
    opened(connector, tmp_path, clock, address=server.address)
    (age,) = read_ages(books.layout)
    assert (age.failures, age.error, age.age_seconds(clock.now)) == (0, None, 0)


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (503, b"", "answered 503"),
        (401, b"", "The token was refused"),
        (302, b"", "Redirects are not followed"),
        (200, b"<html>", "not JSON"),
        (200, b'{"a": 1}', "without a list of objects"),
        (200, b'[{"tax": "much"}]', "the column 'tax' does not fit its type decimal"),
        (200, b'[{"city": "' + b"x" * 200_000 + b'"}]', "more than 100,000 bytes"),
    ],
)
def test_a_first_read_that_fails_refuses_the_start(
    server: Server, tmp_path: Path, status: int, answer: bytes, words: str
) -> None:
    server.status, server.answer = status, answer
    connector = HttpReference("/cities", schema="city string, tax decimal(4,2)")
    with pytest.raises(OperationError, match=f"reference 'cities': .*{words}.*then start again"):
        opened(connector, tmp_path, address=server.address, answer_bytes=100_000)


def test_an_address_is_a_setting_and_a_token_a_variable(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = HttpReference("/cities")
    with pytest.raises(OperationError, match="reference 'cities' has no address"):
        opened(connector, tmp_path)
    with pytest.raises(OperationError, match="variable CITY_TOKEN is not set"):
        opened(connector, tmp_path, address=server.address, secret_variable="CITY_TOKEN")
    monkeypatch.setenv("CITY_TOKEN", "x1")
    opened(connector, tmp_path, address=server.address, secret_variable="CITY_TOKEN")
    assert server.tokens == ["Bearer x1"]


def wait_for(what: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_slow_system_holds_up_nobody_and_is_swapped_in_later(
    server: Server, tmp_path: Path
) -> None:
    server.answer = json.dumps(CITIES).encode()
    clock, connector = Clock(), HttpReference("/cities", every="1 hour")
    references = opened(connector, tmp_path, clock, address=server.address)
    server.answer, server.delay = json.dumps(CITIES[:1]).encode(), 1.0
    clock.now += timedelta(hours=1)
    references.follow()
    try:
        wait_for(lambda: server.asked == 2)
        assert references.refresh() is False  # the answer has not come
        assert len(rows(references)) == 2
        wait_for(references.refresh)
        assert (len(rows(references)), references.versions) == (1, {"cities": 2})
    finally:
        references.close()


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[Any]:
    name = postgres.new_database()
    connection = postgres.connect(name)
    connection.execute("create schema office")
    columns = "city text, tax numeric(6,4), since timestamptz, open bool, n int"
    connection.execute(f"create table office.cities ({columns})")
    connection.execute(
        "insert into office.cities values ('Ulm', 0.19, '2026-01-01 00:00+00', true, 7),"
        " ('Bern', null, null, false, null)"
    )
    yield connection, f"{postgres.address} dbname={name}"
    connection.close()


def test_a_postgres_table_keeps_its_types(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, address = database
    monkeypatch.setenv("OFFICE", PASSWORD)
    said = {"address": address, "secret_variable": "OFFICE"}
    clock, connector = Clock(), PostgresReference("office.cities", every="1 hour")
    references = opened(connector, tmp_path, clock, **said)
    assert rows(references)[1] == {
        "city": "Ulm", "tax": Decimal("0.1900"), "since": datetime(2026, 1, 1, tzinfo=UTC),
        "open": True, "n": 7,
    }  # fmt: skip
    connection.execute("insert into office.cities (city) values ('Aarau')")
    clock.now += timedelta(hours=1)
    references = opened(connector, tmp_path, clock, **said)
    assert (references.versions, len(rows(references))) == ({"cities": 2}, 3)
    clock.now += timedelta(hours=1)
    assert opened(connector, tmp_path, clock, **said).versions == {"cities": 2}
    connection.execute("delete from office.cities where city = 'Aarau'")


def test_a_query_is_read_only_and_its_errors_say_what_to_do(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = database
    monkeypatch.setenv("OFFICE", PASSWORD)
    said = {"address": address, "secret_variable": "OFFICE"}
    asked = PostgresReference(query="select city, tax * 2 as tax from office.cities where open")
    assert rows(opened(asked, tmp_path / "1", **said)) == [{"city": "Ulm", "tax": "0.3800"}]
    for query, words in [
        ("with x as (delete from office.cities returning city) select * from x", "data-modifying"),
        ("select nope from office.cities", "nope"),
    ]:
        with pytest.raises(OperationError, match=rf"reference 'cities': PostgreSQL: .*{words}"):
            opened(PostgresReference(query=query), tmp_path / "2", **said)
    with pytest.raises(OperationError, match="more than 5 bytes"):
        opened(PostgresReference("office.cities"), tmp_path / "2", answer_bytes=5, **said)
    monkeypatch.setenv("OFFICE", "wrong")
    with pytest.raises(OperationError, match=r"reference 'cities': PostgreSQL: .*password"):
        opened(PostgresReference("office.cities"), tmp_path / "2", **said)


def test_a_delta_table_is_read_at_its_newest_version(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake"), pa.table({"city": ["Ulm", "Bern"], "n": [1, 2]}))
    clock, connector = Clock(), DeltaReference("lake", every="10 minutes")
    assert len(rows(opened(connector, tmp_path, clock))) == 2
    write_deltalake(str(tmp_path / "lake"), pa.table({"city": ["Chur"], "n": [3]}), mode="append")
    clock.now += timedelta(minutes=10)
    references = opened(connector, tmp_path, clock)
    assert (references.versions, len(rows(references))) == ({"cities": 2}, 3)
    clock.now += timedelta(minutes=10)
    assert opened(connector, tmp_path, clock).versions == {"cities": 2}
    with pytest.raises(OperationError, match="the Delta table nowhere cannot be read"):
        opened(DeltaReference("nowhere"), tmp_path / "other")
    with pytest.raises(OperationError, match="has more than 9 bytes"):
        opened(DeltaReference(str(tmp_path / "lake")), tmp_path / "other", answer_bytes=9)


def test_wrong_declarations_are_refused() -> None:
    for declare, words in [
        (PostgresReference, "needs a table or a query"),
        (lambda: PostgresReference("a", query="select 1"), "not both"),
        (lambda: HttpReference("cities"), "must start with '/'"),
        (lambda: HttpReference("/cities", format="xml"), "format='xml' is not known"),
        (lambda: DeltaReference("lake", every="0 seconds"), "0 seconds"),
        (lambda: HttpReference("/cities", every="soon"), "soon"),
    ]:
        with pytest.raises(DeclarationError, match=words):
            declare()


def test_a_batch_pins_the_version_it_saw(spark: Any, tmp_path: Path) -> None:
    clock, lake = Clock(), str(tmp_path / "lake")
    pipeline = shop(DeltaReference("lake", every="1 hour"))
    write_deltalake(lake, pa.table({"city": ["Ulm"], "country": ["DE"]}))
    with Trial(pipeline, tmp_path, clock=clock) as trial:
        trial.feed(raw=[{"id": "1", "city": "Ulm"}])
        assert trial.books.cut().commit.references == {"cities": 1}
    write_deltalake(lake, pa.table({"city": ["Ulm"], "country": ["D"]}), mode="overwrite")
    clock.now += timedelta(hours=1)
    with Trial(pipeline, tmp_path, clock=clock) as trial:
        trial.feed(raw=[{"id": "2", "city": "Ulm"}])
        assert {r["id"]: r["country"] for r in trial.read("sales")} == {"1": "DE", "2": "D"}
        assert trial.books.cut().commit.references == {"cities": 2}
        assert trial.unbalanced() == []
