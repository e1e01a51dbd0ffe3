"""Records of a source that the user wrote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tapeline.declare.format import Format
from tapeline.declare.schema import Field
from tapeline.declare.source import Intakes, Source
from tapeline.errors import DeclarationError
from tapeline.formats.named import MessageFormatName, format_of
from tapeline.formats.records import NewFields, Records
from tapeline.settings import Settings


@dataclass(frozen=True)
class Own:
    """Records of a source of your own, an object with the methods of `Source`.

    `format`, `schema`, `zone` and `new_fields` are as for Files. Delivers: exactly once into the
    tape if the source can go on at a position, otherwise at least once.
    """

    source: Source
    format: MessageFormatName | Format = "json"
    schema: str | None = None
    zone: str = "UTC"
    new_fields: NewFields = "ignore"

    def __post_init__(self) -> None:
        for name in ("open", "poll", "acknowledge", "waiting", "close"):
            if not callable(getattr(self.source, name, None)):
                raise DeclarationError(
                    f"Own: {type(self.source).__name__} has no method '{name}'. Extend "
                    "tapeline.Source, or write it."
                )
        _ = self.records

    @property
    def path(self) -> str:
        return self.source.path

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The columns of a decoded record."""
        return self.records.fields

    @cached_property
    def records(self) -> Records:
        what = f"Own({self.path})"
        written = format_of(what, self.format, "message")
        return Records(written, self.schema, self.zone, self.new_fields, what=what)

    def decoder(self, settings: Settings, pipeline: str) -> Format:
        """The format, ready to decode what the tape of a pipeline has of this source."""
        return self.records.written

    def taken_by(self, intakes: Intakes) -> Any:
        return intakes.from_own(self.source)
