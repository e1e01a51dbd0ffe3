"""What the records of a source hold: the same words for files and topics."""

from __future__ import annotations

from typing import Literal, get_args
from zoneinfo import ZoneInfo

from tapeline.declare.schema import Field, parse_schema
from tapeline.errors import DeclarationError

Format = Literal["json", "csv", "text", "avro", "fix", "parquet"]
MessageFormat = Literal["json", "csv", "text", "avro", "fix"]
NewFields = Literal["ignore", "keep"]
NEW_FIELDS = Field("new_fields", "string")
TEXT = (Field("value", "string"),)
# A FIX message as a trade. `action` is NEW, CORRECT or CANCEL; null for what is no trade.
FIX = parse_schema(
    "action string, trade_id string, version bigint, traded_at timestamp, symbol string, "
    "side string, quantity decimal(18,6), price decimal(18,8), currency string, account string, "
    "exec_id string, exec_ref_id string, order_id string, client_order_id string, "
    "message_type string, exec_type string, order_status string, sender string, target string"
)
OWN_COLUMNS = {"text": TEXT, "fix": FIX}


def check_format(what: str, said: str, allowed: object, new_fields: str, zone: str) -> None:
    """Refuse a format, a zone or a word that does not exist; `what` names the connector."""
    formats = get_args(allowed)
    if said not in formats:
        raise DeclarationError(f"{what}: format '{said}' is not one of {', '.join(formats)}.")
    if new_fields not in get_args(NewFields):
        raise DeclarationError(
            f"{what}: new_fields '{new_fields}' is not one of {', '.join(get_args(NewFields))}."
        )
    if new_fields == "keep" and said in OWN_COLUMNS:
        raise DeclarationError(f"{what}: format '{said}' has no new fields that could be kept.")
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise DeclarationError(f"{what}: '{zone}' is not a time zone.") from None


def columns(what: str, said: str, schema: str | None, new_fields: str) -> tuple[Field, ...]:
    """The columns of a decoded record."""
    if said in OWN_COLUMNS:
        if schema is not None:
            raise DeclarationError(f"{what}: format '{said}' has its own columns: give no schema.")
        return OWN_COLUMNS[said]
    if schema is None:
        raise DeclarationError(f"{what} needs a schema to decode its records.")
    fields = parse_schema(schema)
    if new_fields == "ignore":
        return fields
    if any(field.name.lower() == NEW_FIELDS.name for field in fields):
        raise DeclarationError(
            f"{what}: the schema names '{NEW_FIELDS.name}', the column of fields that are kept "
            "without being declared. Rename it."
        )
    return (*fields, NEW_FIELDS)
