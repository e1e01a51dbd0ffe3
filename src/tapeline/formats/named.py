"""The formats that have a name: `format="json"` is short for `format=Json()`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from tapeline.declare.format import Carrier, Format
from tapeline.errors import DeclarationError, did_you_mean
from tapeline.extras import require
from tapeline.formats.avro import Avro
from tapeline.formats.csv import Csv
from tapeline.formats.fix import Fix
from tapeline.formats.json import Json
from tapeline.formats.parquet import Parquet
from tapeline.formats.text import Text

FormatName = Literal["json", "csv", "text", "avro", "fix", "parquet"]
MessageFormatName = Literal["json", "csv", "text", "avro", "fix"]
NAMED: Mapping[str, Format] = {
    one.name: one for one in (Json(), Csv(), Text(), Avro(), Fix(), Parquet())
}


def format_of(what: str, said: object, carrier: Carrier) -> Format:
    """The format that a source or a sink names, or brings; `what` names it in errors."""
    if isinstance(said, str):
        known = [one.name for one in NAMED.values() if carrier in one.reads]
        if said not in known:
            raise DeclarationError(
                f"{what}: format '{said}' is not one of {', '.join(known)}."
                f"{did_you_mean(said, known)}"
            )
        if NAMED[said].extra:
            require(NAMED[said].extra, f"{what}: format '{said}'")
        return NAMED[said]
    if isinstance(said, type) or not isinstance(said, Format):
        kind = said.__name__ if isinstance(said, type) else f"a {type(said).__name__}"
        raise DeclarationError(
            f"{what}: format={kind} is not a format. Give a name such as 'json', or an object of "
            "a class that extends tapeline.Format."
        )
    if carrier not in said.reads:
        raise DeclarationError(f"{what}: format '{said.name}' cannot be read from a {carrier}.")
    return said


def check_writes(what: str, said: Format, carrier: Carrier) -> None:
    """Refuse a format that a sink cannot write."""
    if carrier not in said.writes:
        names = [one.name for one in NAMED.values() if carrier in one.writes]
        listed = " or ".join([", ".join(names[:-1]), names[-1]])
        raise DeclarationError(f"{what}: a sink writes {listed}.")


def declaration(said: Format) -> tuple[str, tuple[str, ...]]:
    """A format as Python that declares it, and the names to import for that."""
    if said == NAMED.get(said.name):
        return f'"{said.name}"', ()
    kind = type(said)
    options = [f"{one}={_literal(value)}" for one, value in vars(said).items()
               if value != getattr(kind, one)]  # fmt: skip
    return f"{kind.__name__}({', '.join(options)})", (kind.__name__,)


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
