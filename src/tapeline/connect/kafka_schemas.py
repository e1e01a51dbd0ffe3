"""Where the schemas are that the Avro messages of a topic were written with."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import urlsplit

from tapeline.books.layout import Layout
from tapeline.connect.schema_registry import RegistryLink
from tapeline.declare.format import Schemas
from tapeline.errors import DeclarationError
from tapeline.formats.schemas import Registry, SchemasById, SingleSchema
from tapeline.settings import Settings
from tapeline.store.files import is_folder, read_text


def schemas_of(what: str, said: str | None, settings: Settings, pipeline: str) -> Schemas:
    """By the schema file or folder that a topic names; else those of the registry."""
    if said is None:
        return _registry(what, settings, pipeline)
    path = settings.within(said)
    if is_folder(path):
        return SchemasById(path, f"the folder '{said}'")
    try:
        text = read_text(path)
        json.loads(text)
    except (OSError, ValueError) as error:
        raise DeclarationError(
            f"{what}: schemas='{said}' is neither a folder nor a readable schema file: {error}."
        ) from None
    return SingleSchema(text)


def _registry(what: str, settings: Settings, pipeline: str) -> Schemas:
    address = settings.kafka.registry
    if urlsplit(address).scheme not in ("http", "https"):
        raise DeclarationError(
            f"{what}: the Avro schema is unknown. Give schemas='trade.avsc', or a folder of "
            "<id>.avsc files, or set kafka.registry to the address of a registry, such as "
            "'http://127.0.0.1:8081'."
        )
    # Ids are a registry's own: another one's schemas are kept elsewhere.
    own = hashlib.sha256(address.encode()).hexdigest()[:12]
    kept = Layout(settings.home(pipeline)).schemas / f"registry-{own}"
    return Registry(RegistryLink(settings), kept)
