"""Hostile files and answers: what they would become is limited before memory is taken for it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from tapeline import HttpPull, OperationError
from tapeline.connect.schema_registry import RegistryLink
from tapeline.intake.delivery_reader import FileRules
from tapeline.settings import KafkaSettings, PullSettings, Settings
from tests.support.hostile_files import MIB, avro, number, parquet, parquet_bombs, record, text
from tests.support.intake_desk import Desk

REPOSITORY = Path(__file__).parents[2]
OUT_OF_MEMORY = ("memory", "alloc")
PATIENCE_SECONDS = 300


def became(folder: Path, *words: str) -> dict[str, str]:
    """What a process with bounded memory makes of hostile files."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hostile_files", str(folder), *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, str] = json.loads(done.stdout)
    for name, words_of in found.items() if "containers" not in words else ():
        assert not any(word in words_of.lower() for word in OUT_OF_MEMORY), (name, words_of)
    return found


def test_every_bomb_is_rejected_with_its_reason_in_bounded_memory(tmp_path: Path) -> None:
    found = became(tmp_path, "bombs")
    assert len(found) == 22
    # Only its own length is wrong with it: the record is quarantined when it is decoded.
    assert found.pop("a text that says 1.5 GB") == "read: 1"
    assert [name for name, words in found.items() if not words.startswith("rejected: ")] == []
    assert "the limit" in found["one value in all rows"]
    assert "in its 5,000,000 rows" in found["five million rows"]


def test_every_container_and_document_that_is_a_bomb_is_rejected_in_bounded_memory(
    tmp_path: Path,
) -> None:
    found = became(tmp_path, "containers")
    assert len(found) == 26
    assert [name for name, words in found.items() if not words.startswith("rejected: ")] == []
    assert "compress it once" in found["zstd in itself"]
    assert "archive inside an archive" in found["a zip archive in a zip archive"]
    assert "the directory of its zip archive" in found["a directory of 100 MB"]
    assert "Memory usage limit" in found.pop("an xz stream that wants 1.5 GB")
    assert "longer than 4,194,304 bytes" in found["one endless text of backslashes"]
    assert "a header of 8,589,934,591 bytes" in found["a tar header of 8 GB"]
    for words in found.values():
        assert not any(word in words.lower() for word in OUT_OF_MEMORY)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_damaged_files_of_every_format_are_read_or_rejected_in_bounded_memory(
    tmp_path: Path, seed: str
) -> None:
    found = became(tmp_path, seed, "1200")
    assert len(found) == 1_200
    assert all(words.startswith(("read: ", "rejected: ")) for words in found.values())


def test_a_bomb_is_rejected_once_and_holds_up_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("parquet"))
    _, _, bomb = next(parquet_bombs())
    assert len(bomb) < 2_000
    desk.send("a.parquet", bomb)
    desk.send("b.parquet", parquet(pa.table({"id": ["t1"]})))
    desk.run()
    assert [row["raw"] for row in desk.tape] == [b'{"id":"t1"}']
    (finding,) = desk.findings()
    assert finding["kind"] == "REJECTED"
    assert "the limit for its size" in finding["detail"]
    desk.start()  # as after a crash: it is not there to be read again
    desk.run()
    assert len(desk.findings()) == 1
    assert len(desk.tape) == 1


def test_what_the_limits_do_not_mean_is_read_as_ever(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("parquet"), record_bytes=4 * MIB)
    words = [f"{n:04}" * (n % 50) for n in range(3_000)]
    long = ["y" * (3 * MIB), None, "é" * 10]
    for place, said in enumerate(
        [
            {"use_dictionary": True, "data_page_size": 512},
            {"use_dictionary": False, "compression": "gzip", "data_page_version": "2.0"},
            {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
            {"use_dictionary": False, "column_encoding": {"a": "DELTA_LENGTH_BYTE_ARRAY"}},
            {"use_dictionary": True, "row_group_size": 7},
        ]
    ):
        desk.send(f"{place}.parquet", parquet(pa.table({"a": words}), **said))
    desk.send("long.parquet", parquet(pa.table({"a": long, "l": [long, [], None]})))
    desk.run()
    assert desk.findings() == []
    rows = [json.loads(row["raw"]) for row in desk.tape if row["fault"] is None]
    assert [row["a"] for row in rows[:15_000]] == words * 5
    assert [row["l"] for row in rows[15_000:]] == [[], None]  # the first is above record_bytes


def test_a_sparse_file_is_not_read_for_what_its_header_says(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("avro", schemas=tmp_path / "schemas"))
    said = 250 * MIB
    path = desk.send("x.avro", b"Obj\x01" + number(1) + text(b"avro.schema") + number(said))
    os.truncate(path, said + 1_000)
    os.utime(path, ns=(1, 1))
    tracemalloc.start()
    desk.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * MIB
    assert "bytes in one entry" in desk.findings()[0]["detail"]


def test_an_ordinary_schema_with_lists_of_records_is_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("avro", schemas=tmp_path / "schemas"))
    leg = record("Leg", price="double", venue=["null", "string"], size="int")
    legs = {"type": "array", "items": leg}
    optional = {f"an_optional_field_of_a_wide_record_{n}": ["null", "string"] for n in range(400)}
    schema = record("R", legs=legs, **optional)
    desk.send("x.avro", avro(schema, number(0) + b"\0" * 400))
    desk.run()
    assert desk.findings() == []
    assert len(desk.tape) == 1


@contextmanager
def answering(body: bytes, encoding: str) -> Iterator[str]:
    """A server that gives the same answer to everybody."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Encoding", encoding)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def pulled(address: str) -> None:
    reader = HttpPull("/x").reader("p", PullSettings(address=address, answer_bytes=MIB), "")
    try:
        reader.page(None)
    finally:
        reader.close()


def registered(address: str) -> None:
    RegistryLink(Settings(kafka=KafkaSettings(registry=address))).schema(1)


@pytest.mark.parametrize(
    ("layers", "encoding", "why"),
    [
        (1, "gzip", "more than 1,048,576 bytes|longer than 4,194,304 bytes"),
        (2, "gzip, gzip", "compressed with 'gzip, gzip'; only gzip is supported, once"),
        (1, "br", "compressed with 'br'"),
        (0, "gzip", "damaged gzip"),
        (0, "identity", "more than 1,048,576 bytes|longer than 4,194,304 bytes"),
    ],
)
@pytest.mark.parametrize("ask", [pulled, registered])
def test_an_answer_is_unpacked_once_and_within_its_limit(ask, layers, encoding, why) -> None:
    content = b" " * ((200 if layers else 8) * MIB)
    for _ in range(layers):
        content = gzip.compress(content)
    with answering(content, encoding) as address:
        tracemalloc.start()
        with pytest.raises(OperationError, match=why):
            ask(address)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 20 * MIB


def test_an_answer_that_is_packed_once_is_read() -> None:
    body = gzip.compress(
        json.dumps({"records": [{"id": "x" * 500_000}], "next_cursor": None}).encode()
    )
    with answering(body, "gzip") as address:
        reader = HttpPull("/x").reader("p", PullSettings(address=address, answer_bytes=MIB), "")
        assert len(reader.page(None).lines[0]) > 500_000
        reader.close()
    with answering(gzip.compress(b'{"schema": "{}"}'), "gzip") as address:
        link = RegistryLink(Settings(kafka=KafkaSettings(registry=address)))
        assert link.schema(1) == {"schema": "{}"}
