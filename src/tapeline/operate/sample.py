"""A sample file: how it is written, and its first records.

Intake's own reader opens it: archives, compression and limits are those of a run. DuckDB's sniffer
takes a path only, does not name the comment sign, and takes money for floating-point numbers.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

from tapeline.declare.format import Format
from tapeline.errors import OperationError
from tapeline.formats.csv import Csv
from tapeline.formats.encodings import UTF8
from tapeline.formats.json import Json
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.formats.text import Text

SAMPLE_RECORDS = 10_000
SAMPLE_BYTES = 16 * 1024 * 1024
LINES_COMPARED = 50
PATH_DEPTH = 4
SEPARATORS = ",;\t|"
COMMENT = b"#"
# What a first line contains that does not name columns.
VALUE = re.compile(r"\s*|[+-]?[\d.,]+|\d{4}-\d\d-\d\d.*|true|false", re.IGNORECASE)


@dataclass(frozen=True)
class Sample:
    """The records of a sample, and the format to declare."""

    format: Json | Csv
    rows: Sequence[Mapping[str, Any]]
    records: Sequence[bytes]
    header: bytes | None = None
    around: tuple[bytes, bytes] | None = None  # what is before and after the list of a document
    name: str = "sample"  # of the file, or of the one in an archive

    def content(self, most: int) -> bytes:
        """A file of the same kind with the first records, each on a line of its own."""
        some = list(self.records[:most])
        whole = b"\n".join([*([self.header] if self.header is not None else []), *some, b""])
        if self.around:
            whole = b"\n".join([self.around[0], b",\n".join(some), self.around[1], b""])
        return whole.decode("utf-8", "replace").encode(self.format.encoding, "replace")


def read_sample(path: Path) -> Sample:
    """What a file of JSON or CSV contains, plain, compressed or the first one in an archive."""
    encoding = _encoding(path)
    lines, member = _read(path, Text(encoding))
    if not lines:
        raise OperationError(f"{path} contains no records.")
    name = PurePosixPath(member or path.name).name.partition(".")[0] or "sample"
    found = _sample(path, lines, encoding)
    return replace(found, format=replace(found.format, encoding=encoding), name=name)


def _sample(path: Path, lines: list[bytes], encoding: str) -> Sample:
    first = lines[0].lstrip()
    if first.startswith(b"{") and isinstance(_json(first), dict):
        rows = [_object(line, number) for number, line in enumerate(lines, start=1)]
        return Sample(Json(), rows, lines)
    if first.startswith((b"{", b"[")):
        return _document(path, encoding)
    if b"\0" in first:
        raise OperationError(f"{path} is not text. A sample is JSON or CSV.")
    return _csv(path, lines)


def _encoding(path: Path) -> str:
    """How the text is written, as far as its bytes tell."""
    lines, _ = _read(path, Text("latin-1"))  # every byte is a character there
    raw = b"\n".join(lines).decode("utf-8").encode("latin-1")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    with path.open("rb") as file:
        head = file.read(SAMPLE_BYTES)
    old_mac = ["mac_roman"] if b"\r" in head and b"\n" not in head else []
    for encoding in (UTF8, *old_mac, "cp1252"):
        with suppress(UnicodeDecodeError):
            raw.decode(encoding)
            return encoding
    return "latin-1"


def _read(path: Path, said: Format) -> tuple[list[bytes], str | None]:
    """The first records of a file, or of the first file in an archive, and that one's name."""
    # Only here: commands that make no project do not need it.
    from tapeline.intake.delivery_reader import DeliveryReader, FileRules

    found: list[bytes] = []
    size, member = 0, None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OperationError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        length = os.fstat(handle).st_size
        reader = DeliveryReader(handle, length, FileRules(said), IntakeLimits())
        for lines in reader:
            member = member if found else reader.member
            if reader.member != member or size > SAMPLE_BYTES or len(found) >= SAMPLE_RECORDS:
                break
            size += len(lines.values)
            found += lines.records()
    except (OSError, UnreadableFileError) as error:
        raise OperationError(f"{path} cannot be read: {error}.") from None
    finally:
        os.close(handle)
    return found[:SAMPLE_RECORDS], member


def _json(text: bytes) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None


def _object(line: bytes, number: int) -> Mapping[str, Any]:
    found = _json(line)
    if not isinstance(found, dict):
        raise OperationError(f"line {number} of the sample is not a JSON object.")
    return found


def _document(path: Path, encoding: str) -> Sample:
    """A list of records, an object with such a list inside, or one object."""
    whole = _json(b"\n".join(_read(path, Text(encoding))[0]))
    lists = list(_lists(whole)) if isinstance(whole, dict) else []
    names = max(lists, key=lambda one: one[0])[1] if lists else ()
    path_to = ".".join(names) or None
    said = Json(document=not names, records=path_to, encoding=encoding)
    # Spaces between values may be line ends, texts cannot: each record gets a line of its own.
    records = [b" ".join(one.splitlines()) for one in _read(path, said)[0]]
    rows = list(map(_json, records))
    around = (
        b"".join(b"{%s:" % json.dumps(name).encode() for name in names) + b"[",
        b"]" + b"}" * len(names),
    )
    if rows and all(isinstance(row, list) for row in rows):
        named = [{f"column_{n}": one for n, one in enumerate(row, start=1)} for row in rows]
        return Sample(replace(said, positional=True), named, records, None, around)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise OperationError(f"{path} has no JSON objects or lists of values as records.")
    return Sample(said, rows, records, None, around)


def _lists(value: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The lists of objects or lists in an object: how long each is, and the names to it."""
    for name, one in value.items():
        if "." in name:
            continue  # no path can have it
        if isinstance(one, list) and one and all(isinstance(x, dict | list) for x in one):
            yield len(one), (name,)
        elif isinstance(one, dict) and depth < PATH_DEPTH:
            yield from ((count, (name, *names)) for count, names in _lists(one, depth + 1))


def _csv(path: Path, lines: list[bytes]) -> Sample:
    said = Csv()
    if lines[0].startswith(COMMENT):
        said = replace(said, comment=COMMENT.decode())
        lines = [line for line in lines if not line.startswith(COMMENT)]
    text = io.StringIO(b"\n".join(lines).decode("utf-8", "replace"))
    separator = _separator(lines[:LINES_COMPARED])
    try:
        table = [row for row in csv.reader(text, delimiter=separator) if row]
    except csv.Error as error:
        raise OperationError(f"{path} is not valid CSV: {error}.") from None
    names = table[0] if table else []
    headed = not any(map(VALUE.fullmatch, names)) and len({*names}) == len(names)
    if not headed:
        names = [f"column_{number}" for number in range(1, len(names) + 1)]
    rows = [dict(zip(names, row, strict=False)) for row in table[headed:]]
    if not rows:
        raise OperationError(f"{path} has a header but no records.")
    said = replace(said, separator=separator, header=headed)
    return Sample(said, rows, lines[headed:], lines[0] if headed else None)


def _separator(lines: Sequence[bytes]) -> str:
    """What separates the columns: the same number of times in every line, and most often."""
    best = (1, ",")
    for separator in SEPARATORS:
        texts = [line.decode("utf-8", "replace") for line in lines]
        try:
            counts = {len(row) for row in csv.reader(texts, delimiter=separator)}
        except csv.Error:
            continue
        if len(counts) == 1 and max(counts) > best[0]:
            best = (max(counts), separator)
    return best[1]
