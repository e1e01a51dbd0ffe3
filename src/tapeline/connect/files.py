"""Files in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tapeline.books.layout import Layout
from tapeline.connect.destinations import FilesDestination
from tapeline.declare.destination import Destination
from tapeline.declare.format import Format
from tapeline.declare.schema import Field
from tapeline.declare.source import Intakes
from tapeline.errors import DeclarationError, OperationError
from tapeline.formats.fix import FixChecks, with_checks
from tapeline.formats.named import FormatName, check_writes, format_of
from tapeline.formats.records import FILE_COLUMN, NewFields, Records
from tapeline.formats.reference_file import read_reference
from tapeline.formats.schemas import FileSchemas
from tapeline.settings import Settings


@dataclass(frozen=True)
class Files:
    """Files dropped into a folder, or one reference file. Delivers: exactly once into the tape.

    `format` is a name, or a Format of your own. `zone` is the time zone of timestamps that name
    none. `new_fields` says what becomes of fields that the schema does not name: "ignore", or
    "keep", as JSON in the column `new_fields`. `fix_checks` says what becomes of FIX messages whose
    checksum or body length is wrong: "quarantine", or "warn", which lets them count. With `meta`
    steps also see the column `file`: name, path, modified_at, line. `members` says which files of
    an archive are read, as in "*.csv" (default: all).
    """

    path: str
    format: FormatName | Format = "json"
    schema: str | None = None
    zone: str = "UTC"
    new_fields: NewFields = "ignore"
    fix_checks: FixChecks = "quarantine"
    meta: bool = False
    members: str = "*"

    def __post_init__(self) -> None:
        if self.meta and any(field.name == FILE_COLUMN for field in self.fields):
            raise DeclarationError(
                f"Files('{self.path}'): meta=True adds the column '{FILE_COLUMN}', but the schema "
                "already has it. Remove one of them."
            )
        _ = self.records

    @property
    def goes_to(self) -> str:
        """What a plan shows of a sink: a folder that gets one file per batch."""
        written = self.records.written
        check_writes("Files", written, "file")
        return f"{written.name} files in {self.path}"

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The columns of a decoded record."""
        return self.records.fields

    @cached_property
    def records(self) -> Records:
        """How the files are written, and the columns that steps see."""
        what = f"Files('{self.path}')"
        written = with_checks(what, format_of(what, self.format, "file"), self.fix_checks)
        return Records(written, self.schema, self.zone, self.new_fields, meta=self.meta, what=what)

    def decoder(self, settings: Settings, pipeline: str) -> Format:
        """The format, ready to decode what the tape of a pipeline has of these files."""
        return self.records.opened(lambda: FileSchemas(Layout(settings.home(pipeline)).schemas))

    def taken_by(self, intakes: Intakes) -> Any:
        return intakes.from_folder(self)

    def destination(self) -> Destination:
        return FilesDestination(self.goes_to, self.path, self.records.written)

    def snapshot(self, project: Path) -> pa.Table:
        """The whole file as it stands, for a reference; without a schema every column is text."""
        path = project / self.path
        try:
            return read_reference(path, self.format, self.fields if self.schema else ())
        except (OSError, ValueError) as error:
            raise OperationError(
                f"reference file {path} cannot be read: {error}. Put it there, or correct it."
            ) from None
