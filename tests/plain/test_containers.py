"""Compressed files, archives and other encodings: what intake takes out of them, and refuses."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tapeline import Csv, DeclarationError, Files, Format, Json, Kafka, Text
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.formats.records import Records
from tapeline.intake import compression, delivery_reader, members
from tapeline.intake.delivery_reader import DeliveryReader, FileRules
from tests.support.archives import COMPRESSED, tarred, with_link, zipped, zstd
from tests.support.hostile_files import parquet
from tests.support.intake_desk import Desk

Found = list[tuple[str | None, int, bytes | None, bytes]]


def read(content: bytes, said: Any = "text", members: str = "*", **limits: int) -> Found:
    """Member, line, header and bytes of every record."""
    handle = os.memfd_create("content")
    try:
        os.write(handle, content)
        rules = FileRules(said, schemas=Path(f"/proc/self/fd/{handle}"), members=members)
        reading = DeliveryReader(handle, len(content), rules, IntakeLimits(**limits))
        found = [
            (reading.member, number, reading.header, record)
            for lines in reading
            for number, record in zip(lines.numbers.tolist(), lines.records(), strict=True)
        ]
        assert reading.sha256 == delivery_reader.sha256_of(handle, len(content))
        return found
    finally:
        os.close(handle)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_compressed_file_is_recognised_by_its_content(kind: str) -> None:
    pack = COMPRESSED[kind]
    lines: Found = [(None, 1, None, b"a"), (None, 2, None, b"b")]
    assert read(pack(b"\xef\xbb\xbfa\r\nb\n")) == lines
    assert read(pack(b"a\n") + pack(b"") + pack(b"b\n")) == lines
    assert read(pack(b"a\rb")) == lines
    assert read(pack(b"")) == []


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_compressed_file_that_is_not_sound_is_rejected(kind: str) -> None:
    pack = COMPRESSED[kind]
    sound = pack(os.urandom(5_000) + b"\n")
    for content, words in [
        (sound[:-5], "ends early"),
        (sound[:100], "ends early"),
        (sound + b"garbage that is longer", "damaged"),
        (pack(b"\n" * 30_000_000), f"its {kind} stream unpacks to more than 16,777,216 bytes"),
        (pack(gzip.compress(b"a")), f"it is gzip inside {kind}; compress it once"),
        (gzip.compress(sound), f"it is {kind} inside gzip; compress it once"),
    ]:
        with pytest.raises(UnreadableFileError, match=words):
            read(content)


@given(
    content=st.binary(max_size=300),
    missing=st.integers(1, 12),
    kind=st.sampled_from(["xz", "zstd", "bzip2"]),
)
def test_a_cut_file_is_never_taken_for_a_whole_one(content: bytes, missing: int, kind: str) -> None:
    packed = COMPRESSED[kind](b"x" + content)
    assume(compression.compression_of(packed[:-missing]))
    with pytest.raises(UnreadableFileError, match=r"ends early|damaged"):
        read(packed[:-missing])


def test_xz_gets_no_more_memory_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = COMPRESSED["xz"](b"a\n")
    monkeypatch.setattr(compression, "XZ_MEMORY_BYTES", 1_000_000)
    with pytest.raises(UnreadableFileError, match="its xz stream is damaged: Memory usage limit"):
        read(packed)


TWO = {"b/two.csv": b"id\n1\n2\n", "one.csv": b"name,id\nx,3\n"}
ROWS: Found = [
    ("b/two.csv", 2, b"id", b"1"),
    ("b/two.csv", 3, b"id", b"2"),
    ("one.csv", 2, b"name,id", b"x,3"),
]


@pytest.mark.parametrize(
    "content",
    [
        zipped(TWO),
        zipped(TWO, zipfile.ZIP_STORED),
        zipped(TWO, zipfile.ZIP_BZIP2),
        zipped({"b/": b"", **TWO, "__MACOSX/b/._two.csv": b"\0", ".DS_Store": b"\0"}),
        tarred(TWO),
        tarred(TWO, tarfile.PAX_FORMAT),
        tarred(TWO, tarfile.USTAR_FORMAT),
        *(pack(tarred(TWO)) for pack in COMPRESSED.values()),
        tarred({name: gzip.compress(text) for name, text in TWO.items()}),
        zipped({name: zstd(text) for name, text in TWO.items()}),
    ],
)
def test_every_file_in_an_archive_is_read_under_its_own_header(content: bytes) -> None:
    assert read(content, "csv") == ROWS


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_are_chosen_by_their_names(pack: Any) -> None:
    content = pack({"read.me": b"hello\n", "a/b.csv": b"id\n1\n", "c.csv": b"id\n2\n"})

    def chosen(members: str) -> list[tuple[str | None, bytes]]:
        return [(member, record) for member, _, _, record in read(content, "csv", members)]

    assert chosen("*.csv") == [("a/b.csv", b"1"), ("c.csv", b"2")]
    assert chosen("b*") == chosen("a/*") == [("a/b.csv", b"1")]
    with pytest.raises(UnreadableFileError, match=r"none of its members is named '\*\.txt'"):
        chosen("*.txt")
    # A file that is no archive has no members to choose from.
    assert [record for *_, record in read(b"id\n1\n", "csv", "*.txt")] == [b"1"]


def test_long_names_and_other_languages_are_names() -> None:
    long = "é" * 150 + ".csv"
    for content in (
        zipped({long: b"a\n"}), tarred({long: b"a\n"}), tarred({long: b"a\n"}, tarfile.PAX_FORMAT)
    ):  # fmt: skip
        assert read(content) == [(long, 1, None, b"a")]


def test_an_archive_may_be_empty_and_so_may_its_members() -> None:
    for content in (zipped({}), tarred({}), zipped({"a": b""}), tarred({"a": b"", "b": b"\n"})):
        if content.startswith(b"\0"):
            continue  # a tar archive of nothing has no name: it is zeros
        assert read(content, "csv") == []


def test_lines_that_end_with_a_return_alone_are_read_in_archives() -> None:
    for content in (zipped({"a": b"x\ry\r", "b": b"z"}), tarred({"a": b"x\ry\r", "b": b"z"})):
        assert read(content) == [("a", 1, None, b"x"), ("a", 2, None, b"y"), ("b", 1, None, b"z")]


def test_json_documents_avro_and_parquet_are_read_in_archives(tmp_path: Path) -> None:
    said = Json(records="t")
    found = read(tarred({"a.json": b'{"t": [1, 2]}', "b.json": b'{"t": [3]}'}), said)
    assert [(member, line, raw) for member, line, _, raw in found] == [
        ("a.json", 1, b"1"), ("a.json", 2, b"2"), ("b.json", 1, b"3")
    ]  # fmt: skip
    rows = parquet(pa.table({"id": ["a", "b"]}))
    found = read(zipped({"x.parquet": rows, "y.parquet": rows}), "parquet")
    assert [(member, line) for member, line, _, _ in found] == [
        ("x.parquet", 1), ("x.parquet", 2), ("y.parquet", 1), ("y.parquet", 2)
    ]  # fmt: skip
    by = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}
    file = io.BytesIO()
    fastavro.writer(file, by, [{"id": "a"}])
    desk = Desk(tmp_path, FileRules("avro", schemas=tmp_path / "schemas"))
    desk.send("rows.zip", zipped({"x.avro": file.getvalue()}))
    assert desk.run() == [b"\x02a"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zipped({"../evil.csv": b"a"}), "its member ../evil.csv has a name that is not accepted"),
        (zipped({"/etc/passwd": b"a"}), "has a name that is not accepted"),
        (zipped({"C:/x.csv": b"a"}), "has a name that is not accepted"),
        (zipped({"a/..\\..\\x.csv": b"a"}), "has a name that is not accepted"),
        (zipped({"a\nb.csv": b"a"}), "has a name that is not accepted"),
        (tarred({"../evil.csv": b"a"}), "has a name that is not accepted"),
        (tarred({"x" * 5_000: b"a"}), "has a name that is not accepted"),
        (with_link("/etc/passwd"), "its member 'link.csv' is a link or a device"),
        (zipped({"a.zip": zipped(TWO)}), "its member 'a.zip': it is a zip archive inside"),
        (zipped({"a.tar": tarred(TWO)}), "its member 'a.tar': it is a tar archive inside"),
        (tarred({"a.tgz": gzip.compress(tarred(TWO))}), "it is a tar archive inside"),
        (tarred({"a.zip": zipped(TWO)}), "it is a zip archive inside an archive"),
        (zipped({"a": gzip.compress(zstd(b"a"))}), "it is zstd inside gzip; compress it once"),
        (gzip.compress(zipped(TWO)), "a zip archive that was compressed"),
        (zipped({"[Content_Types].xml": b"a"}), "an Office document; export it as CSV"),
        (zipped(TWO, zipfile.ZIP_LZMA), "is not packed with deflate or bzip2"),
        (zipped(TWO)[:-30], "its zip archive is damaged"),
        (zipped(TWO, zipfile.ZIP_STORED).replace(b"1\n2", b"9\n2"), "Bad CRC-32"),
        (tarred(TWO)[:600], "its tar archive ends early"),
        (tarred(TWO)[:1024], "its tar archive ends early"),
        (tarred(TWO)[:1024] + b"x" * 512, "its tar archive is damaged"),
        (gzip.compress(tarred(TWO))[:-4], "ends early"),
        (zipped({"a.parquet": b"PAR1..."}), "its member 'a.parquet': it is a Parquet file"),
        (zipped({"a": "ä".encode("utf-16")}), "its member 'a': it is UTF-16"),
    ],
)  # fmt: skip
def test_an_archive_that_is_not_sound_is_rejected_as_a_whole(content: bytes, words: str) -> None:
    with pytest.raises(UnreadableFileError, match=words):
        read(content, "text")


def test_a_zip_archive_with_a_password_is_rejected() -> None:
    content = bytearray(zipped({"a.csv": b"a\n"}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + flags] |= 1
    with pytest.raises(UnreadableFileError, match=r"its member 'a.csv' is encrypted"):
        read(bytes(content))


def test_members_are_limited_in_number_and_in_what_they_become_together() -> None:
    many = {f"{n}.csv": b"" for n in range(members.MEMBERS + 1)}
    for content in (zipped(many), tarred(many)):
        with pytest.raises(UnreadableFileError, match="more than 10,000 members"):
            read(content)
    parts = {f"{n}": b"\n" * 2_000_000 for n in range(9)}
    for content in (zipped(parts), gzip.compress(tarred(parts))):
        with pytest.raises(UnreadableFileError, match=r"unpacks to more than 16,777,216 bytes"):
            read(content)
    with pytest.raises(UnreadableFileError, match="more than 3 records, the limit"):
        read(zipped({"a": b"1\n2\n", "b": b"3\n4\n"}), file_rows=3)


def test_records_of_members_keep_their_headers_in_shared_and_in_large_pieces(
    tmp_path: Path,
) -> None:
    for limit in (50_000, 2):
        folder = tmp_path / str(limit)
        folder.mkdir()
        desk = Desk(folder, FileRules("csv"), records_per_piece=limit)
        desk.send("1.csv", b"id\n0\n")
        desk.send("2.zip", zipped(TWO))
        desk.send("3.csv", b"id\n9\n")
        desk.run()
        assert [(row["delivery"], row["line"], row["header"], row["raw"]) for row in desk.tape] == [
            (1, 2, b"id", b"0"),
            (2, 2, b"id", b"1"),
            (2, 3, b"id", b"2"),
            (2, 2, b"name,id", b"x,3"),
            (3, 2, b"id", b"9"),
        ]
        done = [p.delivery for facts in desk.facts for p in facts.deliveries if p.complete]
        assert done == [1, 2, 3]
        assert len(desk.kept("archive")) == 3


def test_nothing_of_an_archive_is_published_if_its_last_member_is_broken(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("text"), records_per_piece=2)
    desk.send("1.tar", tarred({"a": b"1\n" * 100, "b": gzip.compress(b"2\n")[:-3]}))
    desk.send("2.txt", b"after\n")
    assert desk.run() == [b"after"]
    assert "its member 'b': its gzip stream ends early" in desk.findings("REJECTED")[0]["detail"]


def test_an_archive_that_grew_is_read_again_as_a_whole(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("text"))
    path = desk.send("x.tar", tarred({"a": b"1\n"}))
    keep = desk.root / "second_name"
    os.link(path, keep)
    desk.take()
    keep.write_bytes(tarred({"a": b"1\n", "b": b"2\n" * 20_000}))
    desk.run()
    desk.seconds += 1
    desk.run()
    assert desk.run()[:3] == [b"1", b"1", b"2"]


class Sheets(Format):
    """A format that reads zip archives itself, as one for spreadsheets would."""

    name = "sheets"
    unpacks = False

    def split(self, file: Any) -> Any:
        with zipfile.ZipFile(file.open()) as archive:
            yield [name.encode() for name in archive.namelist()]


def test_a_format_may_read_archives_itself() -> None:
    assert read(zipped(TWO), Sheets()) == [
        (None, 1, None, b"b/two.csv"),
        (None, 2, None, b"one.csv"),
    ]


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "cp037", "iso2022_jp"]
)
def test_text_of_another_encoding_becomes_utf_8(encoding: str) -> None:
    text = "id;nämé\r\n1;öß\n" if not encoding.startswith("iso") else "id;日本\r\n1;語\n"
    content = text.encode(encoding)
    header, row = (line.encode() for line in text.splitlines())
    for packed in (content, gzip.compress(content)):
        assert read(packed, Csv(separator=";", encoding=encoding)) == [(None, 2, header, row)]
    assert read(zipped({"a": content}), Text(encoding=encoding)) == [
        ("a", 1, None, header), ("a", 2, None, row)
    ]  # fmt: skip


def test_bytes_that_an_encoding_does_not_have_make_their_record_unreadable() -> None:
    assert read(b"a\x80\n\x81b\n", Text(encoding="cp1252")) == [
        (None, 1, None, "a€".encode()),
        (None, 2, None, b"\xffb"),
    ]
    assert read("ok\nx".encode("utf-16-le") + b"\0", Text(encoding="utf-16-le")) == [
        (None, 1, None, b"ok"),
        (None, 2, None, b"x\xff"),
    ]
    assert read(b"\xc3\xa9\n", Text(encoding="ascii"))[0][3] == b"\xff\xff"


@given(st.text(), st.sampled_from(["utf-16", "utf-32-be", "shift_jis", "cp1252", "gb18030"]))
def test_any_text_comes_out_as_it_went_in(text: str, encoding: str) -> None:
    line = "".join(text.split())
    try:
        content = (line + "\n").encode(encoding)
    except UnicodeEncodeError:
        return
    if line.strip("\ufeff") != line or not line.encode().strip():
        return
    assert [raw.decode() for _, _, _, raw in read(content, Text(encoding=encoding))] == [
        content.decode(encoding).rstrip("\n")
    ]


@pytest.mark.parametrize("said", ["klingon", "hex", "rot13", "utf-7", "idna", "", "utf\0"])
def test_what_is_no_encoding_of_files_is_refused(said: str) -> None:
    for kind in (Csv, Json, Text):
        with pytest.raises(DeclarationError, match="is not an encoding"):
            kind(encoding=said)


def test_an_encoding_is_for_files_and_not_for_messages_or_sinks() -> None:
    assert Csv(encoding="UTF8") == Csv()
    for kind in (Csv, Json, Text):
        said = kind(encoding="latin-1")
        assert said.grows
        assert not kind(encoding="utf-16").grows
        schema = None if kind is Text else "id string"
        assert Records(said, schema).meaning == Records(kind(), schema).meaning
        with pytest.raises(DeclarationError, match="cannot be read from a message"):
            Kafka("t", format=said, schema=schema)
        with pytest.raises(DeclarationError, match="a sink writes"):
            _ = Files("out", format=said, schema=schema).goes_to
