"""What intake makes of the bytes in a file: lines, containers, limits and pieces."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tracemalloc
from datetime import date
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapeline.books.pieces import describe
from tapeline.books.reasons import reason
from tapeline.declare.format import Format
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.intake import delivery_reader
from tapeline.intake.compression import GZIP, compression_of
from tapeline.intake.content import FOREIGN
from tapeline.intake.delivery_reader import DeliveryReader, FileRules
from tapeline.intake.members import archive_of
from tests.support.intake_desk import Desk


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("content", "records"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [(1, b"a")]),
        (b"a\nb", [(1, b"a"), (2, b"b")]),
        (b"a\r\nb\r\n", [(1, b"a"), (2, b"b")]),
        (b"a\r\r\nb\n", [(1, b"a\r"), (2, b"b")]),
        (b"a\n\n \t\nb\n", [(1, b"a"), (4, b"b")]),
        (b"  a  \n", [(1, b"  a  ")]),
        (b"a\rb\rc", [(1, b"a"), (2, b"b"), (3, b"c")]),
        (b"a\rb\nc", [(1, b"a\rb"), (2, b"c")]),
        (b"\xef\xbb\xbfa\nb", [(1, b"a"), (2, b"b")]),
        (b"\xef\xbb\xbf", []),
        (b"\xe9\xff\x00\n", [(1, b"\xe9\xff\x00")]),
        (gzip.compress(b"a\nb\n"), [(1, b"a"), (2, b"b")]),
        (gzip.compress(b"a\n") + gzip.compress(b"b\n") + b"\0" * 9, [(1, b"a"), (2, b"b")]),
        (gzip.compress(b""), []),
        (gzip.compress(b"\xef\xbb\xbfa\rb"), [(1, b"a"), (2, b"b")]),
    ],
)
def test_bytes_become_lines(desk, content, records):
    desk.send("x.gz" if content[:2] != GZIP else "x.json", content)  # names say nothing
    desk.run()
    assert [(record["line"], record["raw"]) for record in desk.tape] == records
    assert desk.kept("archive") == {1: content}
    assert {record["header"] for record in desk.tape} <= {None}


@pytest.mark.parametrize(
    ("content", "header", "lines"),
    [
        (b"", None, []),
        (b"id,price\n", b"id,price", []),
        (b"id,price", b"id,price", []),
        (b"\xef\xbb\xbf\r\n\r\nid,price\r\n1,2\r\n", b"id,price", [(4, b"1,2")]),
        (b"id\r1\r2\r", b"id", [(2, b"1"), (3, b"2")]),
    ],
)
def test_the_first_line_of_a_csv_is_its_header(tmp_path, content, header, lines):
    desk = Desk(tmp_path, FileRules("csv"))
    desk.send("x.csv", content)
    desk.run()
    assert [(record["line"], record["raw"]) for record in desk.tape] == lines
    assert all(record["header"] == header for record in desk.tape)
    assert desk.facts[0].deliveries[0].complete


LONG = "record is longer than the limit; the whole line is in the archived file"


def test_each_delivery_has_its_own_header(tmp_path):
    desk = Desk(tmp_path, FileRules("csv"))
    desk.send("1.csv", b"id,price\n1,2\n")
    desk.send("2.csv", b"price,id\n4,3\n")
    desk.run()
    assert [(row["header"], row["raw"]) for row in desk.tape] == [
        (b"id,price", b"1,2"),
        (b"price,id", b"4,3"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"1\n" * 5_000)[:-9], "ends early"),
        (gzip.compress(os.urandom(9_000))[:4_000], "ends early"),
        (gzip.compress(b"1\n")[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(b"1\n") + b"garbage", "damaged"),
        (gzip.compress(gzip.compress(b"1\n")), "gzip inside gzip"),
        (b"PK\x03\x04rest", "its zip archive is damaged"),
        (gzip.compress(b"PK\x03\x04rest"), "a zip archive that was compressed"),
        ("id\n1\n".encode("utf-16"), "UTF-16"),
        ("id\n1\n".encode("utf-16-be").join([b"\xfe\xff", b""]), "UTF-16"),
        (b"PAR1 and so on PAR1", "Parquet"),
        (b"x" * 3_000_000, "the limit is 2,000,000"),
        (gzip.compress(b"x\n" * 1_500_000), "unpacks to more than 2,000,000"),
    ],
)
def test_a_file_that_cannot_be_read_is_rejected_and_the_rest_goes_on(tmp_path, content, reason):
    desk = Desk(tmp_path, file_bytes=2_000_000)
    desk.send("1.json", b"1\n")
    desk.send("2.json", content)
    desk.send("3.json", b"3\n")
    assert desk.run() == [b"1", b"3"]
    assert [record["delivery"] for record in desk.tape] == [1, 2]
    assert desk.kept("rejected") == {1: content}
    (finding,) = desk.findings()
    assert (finding["kind"], finding["name"]) == ("REJECTED", "2.json")
    assert reason in finding["detail"]
    note = json.loads(next((desk.home / "rejected").rglob("*.json")).read_text())
    assert reason in note["reason"]


def test_a_gzip_bomb_is_rejected_in_bounded_memory_and_publishes_nothing(tmp_path, monkeypatch):
    desk = Desk(tmp_path, expansion_ratio=100)
    desk.start()
    bomb = gzip.compress(b"1234567\n" * 12_000_000, 9)
    desk.send("bomb.json", bomb)
    tracemalloc.start()
    assert desk.take() == 0
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert "unpacks to more than" in desk.findings()[0]["detail"]
    assert desk.pieces() == list((desk.home / "staged").iterdir()) == []
    assert list((desk.home / "work").iterdir()) == []
    assert peak_mb < 150


def test_a_record_beyond_the_limit_is_kept_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery_reader, "READ_BYTES", 1_000)
    desk = Desk(tmp_path, record_bytes=100)
    long = bytes(random.Random(1).choices(b"abc", k=52_428))
    desk.send("x.json", b"1\n" + long + b"\r\n2\n" + b"y" * 101 + b"\n" + b"z" * 100 + b"\r\n")
    assert desk.run() == [b"1", long[:100], b"2", b"y" * 100, b"z" * 100]
    assert [record["fault"] for record in desk.tape] == [
        None,
        reason(LONG, "52,428 bytes, the limit is 100"),
        None,
        reason(LONG, "101 bytes, the limit is 100"),
        None,
    ]
    assert [record["line"] for record in desk.tape] == [1, 2, 3, 4, 5]
    assert long in desk.kept("archive")[1]


def test_a_header_beyond_the_limit_rejects_the_file(tmp_path):
    desk = Desk(tmp_path, FileRules("csv"), record_bytes=10)
    desk.send("x.csv", b"a" * 11 + b"\n1\n")
    assert desk.run() == []
    assert "header: record is longer than the limit" in desk.findings("REJECTED")[0]["detail"]


def test_one_endless_line_is_read_in_bounded_memory(desk):
    desk.start()
    with (desk.root / "outbox").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 2**20)
    os.utime(desk.root / "outbox", (1, 1))
    os.rename(desk.root / "outbox", desk.drop / "x.json")
    tracemalloc.start()
    desk.run()
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert "52,428,800 bytes, the limit is" in desk.tape[0]["fault"]
    assert peak_mb < 30


def test_three_thousand_small_files_share_few_pieces(desk):
    desk.start()
    for number in range(3_000):
        desk.send(f"{number:04d}.json", b"%d\n" % number)
    assert desk.run() == [b"%d" % number for number in range(2_000)]
    assert desk.run() == [b"%d" % number for number in range(3_000)]
    assert [facts.records for facts in desk.facts] == [2_000, 1_000]
    assert [part.delivery for facts in desk.facts for part in facts.deliveries] == [
        *range(1, 3_001)
    ]
    assert len(desk.kept("archive")) == 3_000


def test_a_large_file_fills_several_pieces_that_appear_together(tmp_path):
    desk = Desk(tmp_path, records_per_piece=100, bytes_per_piece=1_000, record_bytes=500)
    content = b"".join(b"%s\n" % (b"%d" % n).rjust(n % 19 + 1, b"0") for n in range(1_000))
    desk.send("0.json", b"before\n")
    desk.send("1.json", content)
    desk.send("2.json", b"after\n")
    lines = desk.run()
    assert lines == [b"before", *content.splitlines(), b"after"]
    assert len(desk.facts) > 10
    assert all(facts.records <= 100 and facts.bytes <= 1_000 for facts in desk.facts)
    large = [part for facts in desk.facts for part in facts.deliveries if part.delivery == 2]
    assert [part.complete for part in large] == [False] * (len(large) - 1) + [True]
    assert [part.first_line for part in large[1:]] == [part.last_line + 1 for part in large[:-1]]
    assert (large[0].first_line, large[-1].last_line) == (1, 1_000)
    assert sum(part.records for part in large) == 1_000


def test_a_large_file_that_ends_badly_publishes_nothing(tmp_path):
    desk = Desk(tmp_path, records_per_piece=10)
    desk.send("1.json", b"first\n")
    desk.send("2.json", gzip.compress(b"1\n" * 1_000)[:-4])
    desk.send("3.json", b"last\n")
    assert desk.run() == [b"first", b"last"]
    assert list((desk.home / "work").iterdir()) == []


def test_a_piece_describes_itself_in_its_footer(desk):
    desk.send("a.json", b"1\n\n22\n")
    desk.send("b.json", b"")
    desk.take()
    (path,) = desk.pieces()
    assert path.name == "000000000001.parquet"
    facts = describe(path)
    assert (facts.piece, facts.records, facts.bytes) == (1, 2, 3)
    a, b = facts.deliveries
    assert (a.delivery, a.name, a.bytes, a.records) == (1, "a.json", 6, 2)
    assert (a.first_line, a.last_line, a.complete) == (1, 3, True)
    assert (b.delivery, b.records, b.first_line, b.last_line) == (2, 0, 0, 0)
    assert json.loads(pq.read_metadata(path).metadata[b"tapeline"])["piece"] == 1
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert [name for name, column in columns.items() if column.is_stats_set] == ["part", "at"]
    assert not columns["raw"].has_dictionary_page


def test_the_rows_of_a_parquet_file_become_exact_json(tmp_path):
    desk = Desk(tmp_path, FileRules("parquet"))
    instant = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "America/New_York"))
    table = pa.table(
        {
            "id": [2**63 - 1, 2],
            "price": pa.array([Decimal("0.00000001"), Decimal("12.5")], pa.decimal128(38, 8)),
            "at": instant,
            "day": [date(2026, 11, 13), None],
            "x": [0.1, float("nan")],
            "name": pa.array(["é\n", "b"]).dictionary_encode(),
            "raw": [b"\xff", None],
            "in": pa.array([{"t": 1}, None], pa.struct([("t", pa.timestamp("us"))])),
            "many": pa.array([[Decimal("1.0")], []], pa.list_(pa.decimal128(3, 1))),
        }
    )
    pq.write_table(table, tmp_path / "outbox.parquet")
    desk.send("x", (tmp_path / "outbox.parquet").read_bytes())
    first, second = desk.run()
    assert first.decode() == (
        '{"id":9223372036854775807,"price":"0.00000001","at":"2023-11-14 22:13:20.123456789Z",'
        '"day":"2026-11-13","x":0.1,"name":"é\\n","raw":"/w==",'
        '"in":{"t":"1970-01-01 00:00:00.000001"},"many":["1.0"]}'
    )
    assert json.loads(second)["x"] == "nan"
    assert [record["line"] for record in desk.tape] == [1, 2]


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1garbagePAR1", b"PAR1"])
def test_a_broken_parquet_file_is_rejected(tmp_path, content):
    desk = Desk(tmp_path, FileRules("parquet"))
    desk.send("x.parquet", content)
    assert desk.run() == []
    assert desk.kinds() == ["REJECTED"]


def split_independently(content: bytes, limit: int) -> list[tuple[int, bytes]]:
    """The rules of intake, in the plainest Python."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    end = b"\r" if b"\r" in content and b"\n" not in content else b"\n"
    lines = content.split(end)
    if lines[-1] == b"":
        lines.pop()
    if end == b"\n":
        lines = [line.removesuffix(b"\r") for line in lines]
    return [(n, line[:limit]) for n, line in enumerate(lines, 1) if line.strip()]


WORDS = [b"a", b"bc", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"\x0b"]


@given(
    content=st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(WORDS)).map(b"".join)),
    limit=st.integers(1, 12),
    chunk=st.integers(1, 20),
    packed=st.booleans(),
)
@example(content=b"abc\r\n", limit=3, chunk=4, packed=False)
@example(content=b"      \n", limit=3, chunk=2, packed=False)
def test_any_bytes_are_split_as_the_plainest_python_would(content, limit, chunk, packed):
    assume(not content.startswith(tuple(magic for magic, _ in FOREIGN)))
    assume(not compression_of(content) and not archive_of(content))
    delivered = gzip.compress(content) if packed else content
    handle = os.memfd_create("content")
    before, delivery_reader.READ_BYTES = delivery_reader.READ_BYTES, chunk
    try:
        os.write(handle, delivered)
        limits = IntakeLimits(record_bytes=limit)
        reading = DeliveryReader(handle, len(delivered), FileRules("text"), limits)
        found = [
            pair
            for lines in reading
            for pair in zip(lines.numbers.tolist(), lines.records(), strict=True)
        ]
    finally:
        delivery_reader.READ_BYTES = before
        os.close(handle)
    assert found == split_independently(content, limit)


@given(content=st.binary(max_size=300), missing=st.integers(1, 18))
def test_a_cut_gzip_file_is_never_taken_for_a_whole_one(content, missing):
    packed = gzip.compress(content)[:-missing]
    handle = os.memfd_create("content")
    try:
        os.write(handle, packed)
        with pytest.raises(UnreadableFileError, match="ends early"):
            list(DeliveryReader(handle, len(packed), FileRules("text"), IntakeLimits()))
    finally:
        os.close(handle)


def test_an_avro_file_gives_its_records_and_its_schema_is_kept(tmp_path):
    by = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}
    file = io.BytesIO()
    fastavro.writer(file, by, [{"id": "a"}, {"id": "bc"}])
    desk = Desk(tmp_path, FileRules("avro", schemas=tmp_path / "schemas"))
    desk.send("rows.avro", file.getvalue())
    desk.send("text.avro", b'{"id": "a"}\n')
    desk.run()
    assert [(row["line"], row["raw"]) for row in desk.tape] == [(1, b"\x02a"), (2, b"\x04bc")]
    (kept,) = (tmp_path / "schemas").iterdir()
    assert {row["header"] for row in desk.tape} == {kept.stem.encode()}
    assert json.loads(kept.read_bytes())["fields"] == by["fields"]
    (finding,) = desk.findings("REJECTED")
    assert "it is not an Avro file" in finding["detail"]


def test_an_avro_file_where_lines_are_declared_is_rejected(desk):
    desk.send("rows.json", b"Obj\x01...")
    desk.run()
    assert "declare the source with format 'avro'" in desk.findings("REJECTED")[0]["detail"]


class Sparse(Format):
    """One record per line; gives out nothing until it has seen all of the file."""

    name = "sparse"

    def split(self, file):
        content = b""
        for chunk in file.chunks():
            content += chunk
            yield []
        yield content.splitlines()
        yield []


def test_a_format_may_have_nothing_to_give_out_at_times(tmp_path):
    desk = Desk(tmp_path, FileRules(Sparse()))
    desk.send("a.txt", b"one\ntwo")
    desk.send("b.txt", b"")
    assert desk.run() == [b"one", b"two"]
