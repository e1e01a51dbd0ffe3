"""Schemas of Avro: which of them are safe to read with, and where intake keeps them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tapeline.store.files import is_there, make_folder, replace_file

NAME_DIGITS = 32
SCHEMA_BYTES = 1024 * 1024
# What reading raises when the bytes are not what the schema says.
BROKEN = (EOFError, IndexError, KeyError, StopIteration, TypeError, ValueError, ArithmeticError,
          MemoryError, RecursionError)  # fmt: skip
# Memory that a byte of a record may become, as Python's objects and as JSON; and what a record may
# take above that, since a record of few bytes has names, too.
RATIO = 512
ALLOWANCE_BYTES = 4 * 1024
RECORD_COST, VALUE_COST, LONGEST_VALUE = 200, 50, 30
BYTES = {"null": 0, "float": 4, "double": 8}  # the least that a value takes; others take 1


def avro_schema(text: str | bytes) -> Any:
    """A schema, ready to read with. Raises ValueError for what is none, or is not safe to use."""
    import fastavro
    from fastavro.schema import SchemaParseException

    try:
        schema: Any = fastavro.parse_schema(json.loads(text))
    except (*BROKEN, SchemaParseException) as error:
        raise ValueError(f"a schema that is not Avro's: {type(error).__name__}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("a schema that is not a record's")
    _refuse_unsafe(schema, {}, ())
    if _excess(schema, {}) > ALLOWANCE_BYTES:
        raise ValueError("a schema by which a few bytes become very many values or names")
    return schema


def keep_schema(folder: Path, schema: bytes) -> str:
    """Store a schema durably, under a name that follows from its text."""
    name = hashlib.sha256(schema).hexdigest()[:NAME_DIGITS]
    path = folder / f"{name}.avsc"
    if not is_there(path):
        make_folder(folder)
        replace_file(path, schema)
    return name


def _refuse_unsafe(kind: Any, named: dict[str, Any], inside: tuple[str, ...]) -> None:
    """Two kinds of schemas let a few bytes end the process that reads them."""
    if isinstance(kind, list):
        for one in kind:
            _refuse_unsafe(one, named, inside)
    if kind in inside:
        raise ValueError(f"a schema in which '{kind}' holds itself")  # fastavro's stack has no end
    if not isinstance(kind, dict):
        return
    if "name" in kind:
        named[kind["name"]], inside = kind, (*inside, kind["name"])
    for field in kind.get("fields", ()):
        _refuse_unsafe(field["type"], named, inside)
    for part in ("items", "values"):
        _refuse_unsafe(kind.get(part), named, inside)
    if "items" in kind and _weightless(kind["items"], named):
        raise ValueError("a schema with a list of values that take no bytes")  # billions of them


def _weightless(kind: Any, named: dict[str, Any]) -> bool:
    """Whether a value of this type may take no bytes. A list or a union always has one."""
    kind = named.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind["type"] in ("record", "error"):
        return all(_weightless(field["type"], named) for field in kind["fields"])
    return kind["type"] == "null" or kind.get("size") == 0


def _excess(kind: Any, named: dict[str, int]) -> int:
    """How much more memory than RATIO times its bytes a value can take, at most.

    A type that is named is weighed once: ten names can stand for more values than there is memory.
    """
    if isinstance(kind, list):
        return max((_excess(one, named) for one in kind), default=0) - RATIO
    if isinstance(kind, str):
        if kind in named:
            return named[kind]
        return VALUE_COST + LONGEST_VALUE - RATIO * BYTES.get(kind, 1)
    found = _of_complex(kind, named)
    if "name" in kind:
        named[kind["name"]] = found
    return found


def _of_complex(kind: Any, named: dict[str, int]) -> int:
    what = kind["type"]
    if kind.get("logicalType") == "decimal":  # written out in full: a byte may have a long scale
        plain = {"type": what, "size": kind.get("size", 0)}
        return _of_complex(plain, named) + int(kind.get("scale", 0))
    if what in ("record", "error"):
        fields = [(len(field["name"]), _excess(field["type"], named)) for field in kind["fields"]]
        return RECORD_COST + sum(name + 4 + excess for name, excess in fields)
    if what in ("array", "map"):
        if _excess(kind["items" if what == "array" else "values"], named) > 0:
            raise ValueError("a schema by which a few bytes become very many values or names")
        return VALUE_COST - RATIO
    if what == "enum":
        return VALUE_COST + max(map(len, kind["symbols"]), default=0) - RATIO
    if what == "fixed":
        return VALUE_COST - RATIO * int(kind["size"])
    return _excess(what, named)
