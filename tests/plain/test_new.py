"""What a sample suggests, and what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest

from tapeline import OperationError
from tapeline.formats.limits import IntakeLimits
from tapeline.formats.named import declaration
from tapeline.intake.delivery_reader import DeliveryReader, FileRules
from tapeline.operate.new import coffee, look, write_project
from tapeline.settings import load_settings
from tapeline.testing import plan_of
from tests.support.archives import tarred, zipped, zstd

ORDERS = """Order No,when,city,amount,code,note
1,2026-01-01 10:00:00,Rome,1.5,007,
2,2026-01-01 11:00:00,Rome,2.25,008,late
3,2026-01-01 12:00:00,Oslo,3,009,
4,2026-01-02 12:00:00,Oslo,3,009,
5,2026-01-02 12:00:00,Oslo,12.125,009,
"""


def sample(folder: Path, text: str, name: str = "sample") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_types_key_time_and_rules_follow_from_what_was_seen(tmp_path: Path) -> None:
    found = look(sample(tmp_path, ORDERS))
    assert {c.name: c.type for c in found.columns} == {
        "Order No": "bigint",
        "when": "timestamp",
        "city": "string",
        "amount": "decimal(21,3)",
        "code": "string",  # a leading zero is part of a code
        "note": "string",
    }
    assert (found.sample.format.name, found.key, found.time, found.groups) == (
        "csv", "Order No", "when", ["city"],
    )  # fmt: skip
    write_project(tmp_path / "orders", "orders", found)
    text = (tmp_path / "orders" / "pipeline.py").read_text()
    assert "city in ('Oslo', 'Rome')" in text
    assert '"note is' not in text


def test_json_lines_packed_or_not_and_nested_values_are_named(tmp_path: Path) -> None:
    rows = [
        {"id": f"a{n}", "paid": n > 1, "day": "2026-01-01", "lines": [1], "n": n} for n in (1, 2)
    ]
    path = tmp_path / "sample.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    found = look(path)
    assert {c.name: c.type for c in found.columns} == {
        "id": "string", "paid": "boolean", "day": "date", "lines": "array<bigint>", "n": "bigint",
    }  # fmt: skip
    assert (found.key, found.time, found.left_out) == ("id", None, ())


def test_digits_in_quotes_are_a_code_and_nested_fields_are_kept(tmp_path: Path) -> None:
    rows = [
        {"id": str(n), "fee": f"{n}.5", "mixed": [1] if n > 1 else {"a": 1},
         "user": {"id": str(n), "age": n, "tags": ["x"], "score": 1.25}}
        for n in (1, 2, 3)
    ]  # fmt: skip
    found = look(sample(tmp_path, "\n".join(map(json.dumps, rows))))
    assert {c.name: c.type for c in found.columns} == {
        "id": "string",
        "fee": "decimal(20,2)",
        "user": "struct<id:string, age:bigint, tags:array<string>, score:decimal(20,2)>",
    }
    assert found.left_out == ("mixed (no common type)",)
    write_project(tmp_path / "rows", "rows", found)
    assert "# Left out: mixed (no common type)" in (tmp_path / "rows" / "pipeline.py").read_text()
    plan = plan_of("pipeline.py", load_settings(tmp_path / "rows"))
    assert plan.pipeline.sources["raw_records"].connector.fields[2].nested


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no records"),
        ("a,b\n", "no records"),
        ('{"a": 1}\n[2]\n', "line 2"),
        ('{"a": {}}', "no column"),
        ("[1, 2]", "no JSON objects or lists of values"),
        ('[{"a": 1}', "its JSON ends early"),
        ("a\0,b\n1,2\n", "not text"),
        ("a,b\n1\r2,3\n", "is not valid CSV"),
    ],
)
def test_what_is_no_sample_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(OperationError, match=words):
        look(sample(tmp_path, text))


def test_the_names_of_a_spreadsheet_are_kept_and_the_proposal_can_be_planned(
    tmp_path: Path,
) -> None:
    header = "\ufeffOrder No,Ordered At,Größe,Amount (EUR),2nd,records,Cust. Name\n"
    rows = "".join(f"A-{n},2026-03-02 08:0{n},5.5,{n}.50,x,{n},Otto\n" for n in range(1, 6))
    found = look(sample(tmp_path, header + rows))
    assert (found.key, found.time, found.groups) == ("Order No", "Ordered At", ["2nd"])
    assert found.left_out == ("Cust. Name (a name that a column cannot have)",)
    write_project(tmp_path / "orders", "orders", found)
    plan = plan_of("pipeline.py", load_settings(tmp_path / "orders"))
    (source,) = plan.pipeline.sources.values()
    assert [field.name for field in source.connector.fields] == [c.name for c in found.columns]
    assert [one.key for one in plan.summaries] == [("hour", "the_2nd")]


def test_nothing_is_overwritten_and_names_are_checked(tmp_path: Path) -> None:
    write_project(tmp_path / "shop", "shop", coffee())
    with pytest.raises(OperationError, match="not empty"):
        write_project(tmp_path / "shop", "shop", coffee())
    with pytest.raises(OperationError, match="cannot be a name"):
        write_project(tmp_path / "../up", "../up", coffee())


LISTED = b'{"error": [], "result": {"last": 1, "XBT": [[1.50, "b"],\n [2.50,\n "s"]]}}'


@pytest.mark.parametrize(
    ("content", "said", "columns"),
    [
        (b"id;amount\n1;2,5\n2;3,5\n", 'Csv(separator=";")', ["id", "amount"]),
        (b"id\tamount\n1\t2.5\n", 'Csv(separator="\\t")', ["id", "amount"]),
        (b"1,2.5,a\n2,3.5,b\n", "Csv(header=False)", ["column_1", "column_2", "column_3"]),
        (b"# by hand\nid|n\n1|2\n", 'Csv(separator="|", comment="#")', ["id", "n"]),
        (b'[\n{"id": 1,\n "n": 2.5},\n{"id": 2}\n]', "Json(document=True)", ["id", "n"]),
        (b'{\n "id": 1\n}', "Json(document=True)", ["id"]),
        (LISTED, 'Json(records="result.XBT", positional=True)', ["column_1", "column_2"]),
        (zipped({"a/b.csv": b"id,n\n1,2\n", "c.csv": b"other\n1\n"}), '"csv"', ["id", "n"]),
        (zstd(tarred({"a.json": b'[{"id": 1}]'})), "Json(document=True)", ["id"]),
        (lzma.compress(b'{"id": 1}\n{"id": 2}\n'), '"json"', ["id"]),
        (
            "id;name\n1;5 €\n".encode("cp1252"),
            'Csv(separator=";", encoding="cp1252")',
            ["id", "name"],
        ),
        (
            "id\tname\r\n1\tä\r\n".encode("utf-16"),
            'Csv(separator="\\t", encoding="utf-16")',
            ["id", "name"],
        ),
        ("id,name\r1,é\r".encode("mac_roman"), 'Csv(encoding="mac-roman")', ["id", "name"]),
        (b"id,name\n1,\x81\xe4\n", 'Csv(encoding="iso8859-1")', ["id", "name"]),
        ('{"id": "ä"}\n'.encode("cp1252"), 'Json(encoding="cp1252")', ["id"]),
        ('[{"id": "ä"}]'.encode("cp1252"), 'Json(document=True, encoding="cp1252")', ["id"]),
    ],
)
def test_a_sample_as_people_have_it_proposes_its_format(
    tmp_path: Path, content: bytes, said: str, columns: list[str]
) -> None:
    (tmp_path / "sample").write_bytes(content)
    found = look(tmp_path / "sample")
    assert declaration(found.sample.format)[0] == said
    assert [column.name for column in found.columns] == columns
    write_project(tmp_path / "made", "made", found)
    plan = plan_of("pipeline.py", load_settings(tmp_path / "made"))
    (path,) = (tmp_path / "made" / "landing").iterdir()
    rules = FileRules(plan.pipeline.sources["raw_records"].connector.format)
    with path.open("rb") as file:
        reading = DeliveryReader(file.fileno(), path.stat().st_size, rules, IntakeLimits())
        assert [record for some in reading for record in some.records()] == list(found.records)


def test_a_date_in_the_name_of_a_file_is_kept_if_the_records_have_none(tmp_path: Path) -> None:
    archive = zipped({"20131007_gc_trade.csv": b"14400000,1310.5,2\n14400250,1310.6,1\n"})
    (tmp_path / "gc.zip").write_bytes(archive)
    (tmp_path / "sales_2026-03-02.csv").write_bytes(b"id,at\n1,2026-03-02T08:00:00Z\n")
    assert not look(tmp_path / "sales_2026-03-02.csv").meta  # the records say it themselves
    found = look(tmp_path / "gc.zip")
    assert found.meta
    write_project(tmp_path / "gold", "gold", found)
    source = plan_of("pipeline.py", load_settings(tmp_path / "gold")).pipeline.sources
    assert source["raw_records"].connector.meta
    (path,) = (tmp_path / "gold" / "landing").iterdir()
    assert path.name == "20131007_gc_trade.csv"
    test = (tmp_path / "gold" / "test_pipeline.py").read_text()
    assert '"sample" / "20131007_gc_trade.csv"' in test


def test_the_test_of_a_project_reads_its_sample_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "umlauts.csv").write_bytes("id,name\n1,ä\n".encode("cp1252"))
    write_project(tmp_path / "made", "made", look(tmp_path / "umlauts.csv"))
    test = (tmp_path / "made" / "test_pipeline.py").read_text()
    assert 'SAMPLE.read_bytes().decode("cp1252").encode().split' in test
