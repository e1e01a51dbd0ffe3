"""A project of the user's own: a pipeline file, sample data, settings and a test that passes.

From a sample file it proposes schema, key, time and first rules. A proposal is text to be read and
changed: it says what it saw in the sample, and nothing about what will come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from string import Template
from typing import Any

from tapeline.declare.pipeline import NAME
from tapeline.declare.schema import ODD_NAME
from tapeline.errors import OperationError, QuestionError
from tapeline.formats.encodings import UTF8
from tapeline.formats.json import Json
from tapeline.formats.named import declaration
from tapeline.operate.sample import Sample, read_sample

TEST_RECORDS = 50
FEW_VALUES = 6
IMPORTS = ("Files", "Pipeline", "Stream", "expect_or_quarantine")
TEMPLATES = Path(__file__).parent / "templates"
COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
OWN_NAMES = ("", "hour", "records", "everything")  # of the summary that is proposed
DAY = re.compile(r"(?<!\d)(19|20)\d\d([-_]?)(0[1-9]|1[0-2])\2([0-2]\d|3[01])(?!\d)")
META = """
# The name of the sample has a date and its records have none: meta=True adds the column `file`,
# as in F.col("file.name")."""
COFFEE = [
    ("s1", "2026-03-02T08:05:00Z", "north", 2, "6.40"),
    ("s2", "2026-03-02T08:40:00Z", "south", 1, "2.90"),
    ("s3", "2026-03-02T09:10:00Z", "north", 3, "9.60"),
    ("s4", "2026-03-02T09:15:00Z", "south", 2, "5.80"),
    ("s5", "2026-03-02T10:20:00Z", "east", 1, "3.10"),
]


@dataclass(frozen=True)
class Column:
    """A column of the sample: its type, and what was seen in it."""

    name: str
    type: str
    always: bool  # in every record, and not empty
    unique: bool
    positive: bool = False
    values: tuple[str, ...] = ()  # all of them, when there are few


@dataclass(frozen=True)
class Proposal:
    """What a sample suggests."""

    columns: tuple[Column, ...]
    sample: Sample
    left_out: tuple[str, ...] = field(default=())

    @property
    def records(self) -> Sequence[bytes]:
        """Those that go into the project."""
        return self.sample.records[:TEST_RECORDS]

    @property
    def header(self) -> bytes | None:
        return self.sample.header

    @property
    def key(self) -> str | None:
        """A column that is always there and never repeats, one named like an id first."""
        fit = [c.name for c in self.columns if c.always and c.unique and _keys(c)]
        named = [name for name in fit if re.search(r"(^|[\W_])(id|key|no|number)$", name.lower())]
        return next(iter([*named, *fit]), None)

    @property
    def time(self) -> str | None:
        """The first moment that every record has."""
        return next((c.name for c in self.columns if c.type == "timestamp" and c.always), None)

    @property
    def meta(self) -> bool:
        """Whether the file's name has a date that the records lack."""
        dated = any(c.type in ("date", "timestamp") for c in self.columns)
        return not dated and DAY.search(self.sample.name) is not None

    @property
    def groups(self) -> list[str]:
        """The column with few values that a summary is made by."""
        return [c.name for c in self.columns if c.values and c.always][:1]

    @property
    def measures(self) -> list[Column]:
        """Numbers that add up."""
        numbers = [c for c in self.columns if c.type.startswith("decimal") or c.type == "bigint"]
        return [c for c in numbers if c.name != self.key][:3]


def look(sample: Path) -> Proposal:
    """What a file of JSON or CSV suggests."""
    return _proposal(read_sample(sample))


def coffee() -> Proposal:
    """The sample of a project that brings none: the takings of a few coffee shops."""
    names = ("sale_id", "sold_at", "shop", "cups", "amount")
    rows = [dict(zip(names, values, strict=True)) for values in COFFEE]
    return _proposal(Sample(Json(), rows, [json.dumps(row).encode() for row in rows]))


def write_project(folder: Path, name: str, proposal: Proposal) -> list[Path]:
    """Write a project into a new folder. Returns its files."""
    if not NAME.fullmatch(name):
        raise QuestionError(
            f"'{name}' cannot be a name. Use at most 63 lower case letters, digits and '_', "
            "starting with a letter."
        )
    if folder.exists() and any(folder.iterdir()):
        raise OperationError(f"{folder} is not empty. Choose another name or folder.")
    suffix = proposal.sample.format.file_suffix
    whole = proposal.sample.content(TEST_RECORDS)
    words = _words(name, proposal, suffix)
    written = []
    for place in ("sample", "landing"):  # the one in landing is taken by the first run
        (folder / place).mkdir(parents=True, exist_ok=True)
        written.append(folder / place / f"{_file_name(proposal)}.{suffix}")
        written[-1].write_bytes(whole)
    for template in sorted(TEMPLATES.iterdir()):
        path = folder / template.name.removesuffix(".txt")
        path.write_text(Template(template.read_text(encoding="utf-8")).substitute(words))
        written.append(path)
    return written


def _words(name: str, proposal: Proposal, suffix: str) -> dict[str, str]:
    """What the templates leave open."""
    key, time = proposal.key, proposal.time
    options = [f'key="{key}"'] if key else []
    options += [f'time="{time}"'] if time else []
    groups = proposal.groups
    by = (['"hour"'] if time else []) + [f'"{_tidy(group)}"' for group in groups]
    grouped = (["hour"] if time else []) + [_grouped(group) for group in groups]
    sums = [f'F.sum("{c.name}").alias("{_tidy(c.name)}")' for c in proposal.measures]
    columns = ",\n    ".join(f"{_quoted(c.name)} {c.type}" for c in proposal.columns)
    left_out = ", ".join(proposal.left_out)
    declared, own = declaration(proposal.sample.format)
    encoding = proposal.sample.format.encoding
    return {
        "name": name,
        "format": declared,
        "imports": ", ".join(sorted({*IMPORTS, *own}, key=lambda one: (one[0].islower(), one))),
        "of_lines": _of_lines(proposal.sample),
        "file": f"{_file_name(proposal)}.{suffix}",
        "meta": ", meta=True" if proposal.meta else "",
        "about_meta": META if proposal.meta else "",
        "as_utf8": "" if encoding == UTF8 else f'.decode("{encoding}").encode()',
        "columns": columns,
        "left_out": f"\n# Left out: {left_out}" if left_out else "",
        "options": f"({', '.join(options)})" if options else "",
        "rules": "".join(_rule(*rule) for rule in _rules(proposal)),
        "summary_key": f"[{', '.join(by)}]" if by else '["everything"]',
        "summary_time": ', time="hour", width="1 hour"' if time else "",
        "hour": f'    hour = F.window("{time}", "1 hour").start.alias("hour")\n' if time else "",
        "grouped": ", ".join(grouped) if grouped else 'F.lit("all").alias("everything")',
        "sums": "".join(f"        {one},\n" for one in sums),
        "by": " and ".join([*(["hour"] if time else []), *map(_tidy, groups)]) or "in all",
        "records": str(len(proposal.records)),
        "header": repr(proposal.header.decode("utf-8", "replace") if proposal.header else None),
    }


def _file_name(proposal: Proposal) -> str:
    """The sample keeps its name where that says something."""
    return re.sub(r"[^\w-]", "_", proposal.sample.name) if proposal.meta else "sample"


def _of_lines(sample: Sample) -> str:
    """The records among the lines of the sample."""
    if sample.around:
        return '[line.rstrip(b",") for line in lines[1:-1]]'
    return "lines[1:]" if sample.header is not None else "lines"


def _rules(proposal: Proposal) -> list[tuple[str, str]]:
    """Rules that every record of the sample keeps."""
    found: list[tuple[str, str]] = []
    for column in proposal.columns:
        name = _quoted(column.name)
        if column.values and column.always:
            listed = ", ".join(f"'{value}'" for value in column.values)
            found.append((f"{column.name} is one of those known", f"{name} in ({listed})"))
        elif column.positive:
            found.append((f"{column.name} is above zero", f"{name} > 0"))
        elif column.always:
            found.append((f"{column.name} is present", f"{name} is not null"))
    return found


def _rule(words: str, condition: str) -> str:
    return f'@expect_or_quarantine("{words}", "{condition}")\n'


def _quoted(name: str) -> str:
    return name if COLUMN.fullmatch(name) else f"`{name}`"


def _tidy(name: str) -> str:
    """A name for a summary's column: whoever asks in SQL shall not need quotes."""
    tidy = name if COLUMN.fullmatch(name) else re.sub(r"\W+", "_", name.lower()).strip("_")
    return tidy if tidy not in OWN_NAMES and not tidy[:1].isdigit() else f"the_{tidy}"


def _grouped(name: str) -> str:
    """The column as groupBy takes it."""
    return f'"{name}"' if _tidy(name) == name else f'F.col("{name}").alias("{_tidy(name)}")'


def _keys(column: Column) -> bool:
    return column.type in ("string", "bigint")


def _proposal(sample: Sample) -> Proposal:
    rows, quoted = sample.rows, sample.format.quotes_texts
    names = list(dict.fromkeys(name for row in rows for name in row if name))
    simple, left_out = [], []
    for name in names:
        seen = [row.get(name) for row in rows]
        nested = any(isinstance(value, dict | list) for value in seen)
        if nested and not nested_type(seen):
            left_out.append(f"{name} (no common type)")
        elif name.startswith("_") or not ODD_NAME.fullmatch(name):
            left_out.append(f"{name} (a name that a column cannot have)")
        else:
            simple.append(_nested(name, seen) if nested else _column(name, seen, quoted))
    if not simple:
        raise OperationError(
            "the sample has no column with simple values, so no pipeline can be proposed."
        )
    return Proposal(tuple(simple), sample, tuple(left_out))


def _nested(name: str, seen: Sequence[Any]) -> Column:
    return Column(name, nested_type(seen), all(one is not None for one in seen), unique=False)


def nested_type(seen: Iterable[Any]) -> str:
    """The type of lists, objects and what is in them; nothing if they have none in common."""
    values = [value for value in seen if value is not None]
    if values and all(isinstance(value, dict) for value in values):
        names = list(dict.fromkeys(name for value in values for name in value))
        kinds = {name: nested_type(value.get(name) for value in values) for name in names}
        if not names or not all(kinds.values()) or not all(map(COLUMN.fullmatch, names)):
            return ""
        return f"struct<{', '.join(f'{name}:{kind}' for name, kind in kinds.items())}>"
    if values and all(isinstance(value, list) for value in values):
        kind = nested_type(item for value in values for item in value)
        return f"array<{kind}>" if kind else ""
    if any(isinstance(value, dict | list) for value in values):
        return ""
    kind = _type([value for value in values if value != ""], quoted=True)
    return kind if kind.startswith(("bigint", "decimal", "boolean")) else "string"


def _column(name: str, seen: Sequence[Any], quoted: bool) -> Column:
    there = [value for value in seen if value is not None and value != ""]
    kind = _type(there, quoted)
    different = {str(value) for value in there}
    always = len(there) == len(seen)
    few = kind == "string" and len(different) <= FEW_VALUES and len(there) > 2 * len(different)
    plain = all(re.fullmatch(r"[\w .:/-]+", value) for value in different)
    positive = (
        kind.startswith(("decimal", "bigint"))
        and always
        and all(Decimal(str(value)) > 0 for value in there)
    )
    listed = tuple(sorted(different)) if few and plain else ()
    return Column(name, kind, always, len(different) == len(seen), positive, listed)


def _type(values: Iterable[Any], quoted: bool = False) -> str:
    """The narrowest type that holds all values; money is exact, with room to grow.

    Where texts are `quoted`, digits in quotes are a code, unless some have a decimal point.
    """
    values = list(values)
    code = quoted and any(isinstance(v, str) for v in values)
    code = code and not any("." in str(v) for v in values)
    if not values:
        return "string"
    if all(isinstance(value, bool) for value in values):
        return "boolean"
    for kind, fits in KINDS.items():
        if code and kind in ("bigint", "decimal"):
            continue
        if all(not isinstance(value, bool) and fits(value) for value in values):
            return _decimal(values) if kind == "decimal" else kind
    return "string"


def _decimal(values: Sequence[Any]) -> str:
    places = max(max(0, -int(Decimal(str(value)).as_tuple().exponent)) for value in values)
    return f"decimal({18 + max(2, places)},{max(2, places)})"


def _is_whole(value: Any) -> bool:
    # A leading zero is part of a code, not of a number.
    return re.fullmatch(r"0|-?[1-9]\d{0,17}", str(value)) is not None


def _is_number(value: Any) -> bool:
    return re.fullmatch(r"-?(0|[1-9]\d{0,17})(\.\d{1,12})?", str(value)) is not None


def _is_date(value: Any) -> bool:
    try:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)) is not None and bool(
            date.fromisoformat(str(value))
        )
    except ValueError:
        return False


def _is_moment(value: Any) -> bool:
    try:
        return len(str(value)) > 10 and bool(datetime.fromisoformat(str(value)))
    except ValueError:
        return False


KINDS = {
    "bigint": _is_whole,
    "decimal": _is_number,
    "date": _is_date,
    "timestamp": _is_moment,
}
