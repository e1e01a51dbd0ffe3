"""The fingerprint of a step: a hash of what the user says in it, and of nothing else.

It covers the declared input, the part of Spark's analysed plan above that input, and the step's
options. How the engine decodes records or evaluates rules is not in it, so a new version of
Tapeline does not change it. An option that is added later goes in only where it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tapeline.declare import Summary, Table

# Version 1 hashed the whole plan, with the engine's own decoding in it, and had no prefix.
VERSION = 2


def of_table(table: Table, reads: Mapping[str, Any] | pa.Schema, text: str) -> str:
    """`reads` is what the source says of its records, or the columns of the table before."""
    options: dict[str, Any] = {
        "key": table.key,
        "sequence_by": table.sequence_by,
        "apply_as_deletes": table.apply_as_deletes,
        "time": table.time,
        "late_after": table.late_after,
        "future_after": table.future_after,
        "expectations": [[e.sentence, e.condition, e.action] for e in table.expectations],
    }
    if table.key_optional:
        options["key_optional"] = True
    if table.content_ignores:
        options["content_ignores"] = table.content_ignores
    declared = own_columns(reads) if isinstance(reads, pa.Schema) else dict(reads)
    return _hash({"input": declared, "plan": text, **options})


def of_summary(summary: Summary, reads: pa.Schema, text: str) -> str:
    """`reads` are the columns of the table that the summary adds up."""
    options = {"key": summary.key, "time": summary.time, "width": summary.width}
    return _hash({"input": own_columns(reads), "plan": text, **options})


def version_of(fingerprint: str) -> int:
    """The version that a stored fingerprint was made by."""
    prefix, colon, _ = fingerprint.partition(":")
    return int(prefix) if colon else 1


def own_columns(schema: pa.Schema) -> list[list[str]]:
    """A user's columns, by name and type."""
    return [[f.name, _type(f.type)] for f in schema if not f.name.startswith("_")]


def _type(kind: pa.DataType) -> str:
    """A type as text; what its writer called the elements of a list does not matter."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {_type(f.type)}' for f in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    return str(kind)


def _hash(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True)
    return f"{VERSION}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
