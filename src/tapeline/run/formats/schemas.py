"""Where the schemas are that Avro records were written with.

A container file brings its own. A message is of one known schema, or begins with the id of its
schema as registries have it: a zero byte, four bytes of the id, then the record.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tapeline.books.durable import make_folder, replace_file
from tapeline.books.layout import Layout
from tapeline.connect import Files, Kafka
from tapeline.connect.registry import RegistryLink
from tapeline.errors import DeclarationError, OperationError
from tapeline.run.intake.containers import SCHEMA_BYTES
from tapeline.settings import Settings

MAGIC, HEADER_BYTES = b"\x00", 5


class Schemas(Protocol):
    """Finds the schema of a record."""

    def begin(self) -> None:
        """What was not found is looked for again."""

    def split(self, raw: bytes, header: bytes | None) -> tuple[str, bytes]:
        """The text of a record's schema, and its own bytes. Raises ValueError without a schema."""


class Kept:
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
                self._known[header] = path.read_text("utf-8")
            except (OSError, ValueError) as error:
                raise OperationError(
                    f"{path}, the schema of records on the tape, cannot be read: {error}. Restore "
                    "it from a backup; or drop one of its files again."
                ) from None
        return self._known[header], raw


class OneSchema:
    """All messages are of one schema."""

    def __init__(self, text: str) -> None:
        self._text = text

    def begin(self) -> None: ...

    def split(self, raw: bytes, header: bytes | None) -> tuple[str, bytes]:
        return self._text, raw


class ById:
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
            raise ValueError(f"of schema {number}, which {self._where} does not have")
        return text, raw[HEADER_BYTES:]

    def _find(self, number: int) -> str | None:
        try:
            return (self._folder / f"{number}.avsc").read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise OperationError(f"schema {number} in {self._folder}: {error}") from None


class Registry(ById):
    """A schema registry; what it has said once is kept, so that a rebuild does not need it."""

    def __init__(self, link: RegistryLink, kept: Path) -> None:
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


def schemas_of(connector: Files | Kafka, settings: Settings, pipeline: str) -> Schemas:
    """Where a source's schemas are."""
    kept = Layout(settings.home(pipeline)).schemas
    if isinstance(connector, Files):
        return Kept(kept)
    if connector.schemas is None:
        address = settings.kafka.registry
        if urlsplit(address).scheme not in ("http", "https"):
            raise DeclarationError(
                f"Kafka({connector.path}): nobody says how its Avro was written. Give schemas="
                "'trade.avsc', or a folder of <id>.avsc, or set kafka.registry to the address of a "
                "registry, such as 'http://127.0.0.1:8081'."
            )
        # Ids are a registry's own: another one's schemas are kept elsewhere.
        own = hashlib.sha256(address.encode()).hexdigest()[:12]
        return Registry(RegistryLink(settings), kept / f"registry-{own}")
    path = settings.within(connector.schemas)
    if path.is_dir():
        return ById(path, f"the folder '{connector.schemas}'")
    try:
        text = path.read_text("utf-8")
        json.loads(text)
    except (OSError, ValueError) as error:
        raise DeclarationError(
            f"Kafka({connector.path}): schemas='{connector.schemas}' is neither a folder nor a "
            f"schema's file that can be read: {error}."
        ) from None
    return OneSchema(text)
