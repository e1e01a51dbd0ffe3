"""What the records of a source look like: the same words for files, topics and other sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from tapeline.declare.format import Format, Schemas
from tapeline.declare.schema import Field, parse_schema
from tapeline.errors import DeclarationError
from tapeline.formats.named import format_of

NewFields = Literal["ignore", "keep"]
NEW_FIELDS = Field("new_fields", "string")
MESSAGE_COLUMN, FILE_COLUMN = "message", "file"  # of records with meta


@dataclass(frozen=True)
class Records:
    """How the records of a source are written, and the columns that steps see.

    `messages` says that records come one by one and not in files, so CSV has no header line. With
    `meta` steps also see the column `message`, or `file`. `what` is how errors name the source.
    """

    format: str | Format = "json"
    schema: str | None = None
    zone: str = "UTC"
    new_fields: NewFields = "ignore"
    messages: bool = False
    meta: bool = False
    what: str = "the source"
    added: tuple[Field, ...] = ()  # what Tapeline adds to each record; steps do not see it

    def __post_init__(self) -> None:
        found = format_of(self.what, self.format, "message" if self.messages else "file")
        object.__setattr__(self, "format", found)
        if self.new_fields not in get_args(NewFields):
            known = ", ".join(get_args(NewFields))
            raise DeclarationError(
                f"{self.what}: new_fields '{self.new_fields}' is not one of {known}."
            )
        if self.new_fields == "keep" and found.columns is not None:
            raise DeclarationError(
                f"{self.what}: new_fields='keep' is not possible with format '{found.name}'."
            )
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):
            raise DeclarationError(
                f"{self.what}: '{self.zone}' is not a time zone. Write for example 'Europe/Berlin'."
            ) from None

    @property
    def meta_column(self) -> str:
        """The column that `meta` adds."""
        return MESSAGE_COLUMN if self.messages else FILE_COLUMN

    @property
    def written(self) -> Format:
        """The format, whether it was given by its name or as an object."""
        assert isinstance(self.format, Format)
        return self.format

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The columns of a decoded record."""
        own = self.written.columns
        if own is not None:
            if self.schema is not None:
                raise DeclarationError(
                    f"{self.what}: format '{self.written.name}' has fixed columns. Remove the "
                    "schema."
                )
            return own
        if self.schema is None:
            raise DeclarationError(f"{self.what} needs a schema to decode its records.")
        fields = parse_schema(self.schema)
        if self.new_fields == "ignore":
            return (*fields, *self.added)
        if any(field.name.lower() == NEW_FIELDS.name for field in fields):
            raise DeclarationError(
                f"{self.what}: the schema has a column '{NEW_FIELDS.name}', which is reserved for "
                "undeclared fields. Rename it."
            )
        return (*fields, NEW_FIELDS)

    @property
    def meaning(self) -> Mapping[str, Any]:
        """What a user says of the records; where they come from does not matter."""
        fields = parse_schema(self.schema) if self.schema else ()
        found: dict[str, Any] = {
            **self.written.meaning,
            "fields": [[field.name, field.type, field.required] for field in fields],
            "zone": self.zone,
        }
        if self.new_fields != "ignore":
            found["new_fields"] = self.new_fields
        return found

    def opened(self, schemas: Callable[[], Schemas]) -> Format:
        """The format, ready to decode these records; `schemas` finds those they were written by."""
        return self.written.for_source(OpenRecords(self.fields, self.messages, schemas))


@dataclass(frozen=True)
class OpenRecords:
    """The source whose records a format decodes."""

    fields: tuple[Field, ...]
    messages: bool
    find_schemas: Callable[[], Schemas]

    def schemas(self) -> Schemas:
        return self.find_schemas()
