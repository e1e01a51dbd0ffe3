"""Where the schemas are that Avro records were written with.

A container file brings its own. A message is of one known schema, or begins with the id of its
schema as registries have it: a zero byte, four bytes of the id, then the record.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Protocol

from tapeline.books.reasons import reason
from tapeline.errors import OperationError
from tapeline.formats.avro_schemas import SCHEMA_BYTES
from tapeline.store.files import make_folder, read_text, replace_file

MAGIC, HEADER_BYTES = b"\x00", 5


class SchemaLink(Protocol):
    """Asks a registry of schemas."""

    def schema(self, number: int) -> dict[str, Any] | None:
        """What the registry says of a schema; None when it has none of this id."""


class FileSchemas:
    """Every record has the name of its file's schema beside it; intake has kept the schema."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[bytes, str] = {}

    def begin(self) -> None: ...

    def split(self, raw: bytes, header: bytes | None) -> tuple[str, bytes]:
        if header is None:
            raise ValueError("without the schema of its file")
        if header not in self._known:
            path = self._folder / f"{header.decode('ascii', 'replace')}.avsc"
            try:
                self._known[header] = read_text(path)
            except (OSError, ValueError) as error:
                raise OperationError(
                    f"{path}, the schema of recorded input, cannot be read: {error}. Restore it "
                    "from a backup, or send one of its files again."
                ) from None
        return self._known[header], raw


class SingleSchema:
    """All messages are of one schema."""

    def __init__(self, text: str) -> None:
        self._text = text

    def begin(self) -> None: ...

    def split(self, raw: bytes, header: bytes | None) -> tuple[str, bytes]:
        return self._text, raw


class SchemasById:
    """Messages begin with the id of their schema; the schemas are files, <id>.avsc."""

    def __init__(self, folder: Path, where: str) -> None:
        self._folder = folder
        self._where = where
        self._known: dict[int, str | None] = {}

    def begin(self) -> None:
        self._known = {number: text for number, text in self._known.items() if text is not None}

    def split(self, raw: bytes, header: bytes | None) -> tuple[str, bytes]:
        if len(raw) < HEADER_BYTES or raw[:1] != MAGIC:
            raise ValueError("without a schema's id: it does not begin with a zero byte and 4 more")
        (number,) = struct.unpack(">I", raw[1:HEADER_BYTES])
        if number not in self._known:
            self._known[number] = self._find(number)
        text = self._known[number]
        if text is None:
            unknown = f"of a schema that {self._where} does not have"
            raise ValueError(reason(unknown, f"schema {number}"))
        return text, raw[HEADER_BYTES:]

    def _find(self, number: int) -> str | None:
        try:
            return read_text(self._folder / f"{number}.avsc")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise OperationError(f"schema {number} in {self._folder}: {error}") from None


class Registry(SchemasById):
    """A schema registry; what it has said once is kept, so that a rebuild does not need it."""

    def __init__(self, link: SchemaLink, kept: Path) -> None:
        super().__init__(kept, "the registry")
        self._link = link

    def _find(self, number: int) -> str | None:
        kept = super()._find(number)
        if kept is not None:
            return kept
        text = self._ask(number)
        if text is not None:
            make_folder(self._folder)
            replace_file(self._folder / f"{number}.avsc", text.encode())
        return text

    def _ask(self, number: int) -> str | None:
        said = self._link.schema(number)
        if said is None or said.get("schemaType", "AVRO") != "AVRO":
            return None
        text = str(said["schema"])
        return text if len(text) <= SCHEMA_BYTES else None
