"""Times as people write them: "15 minutes", "500 milliseconds", "2026-11-13 10:31"."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tapeline.errors import DeclarationError

UNITS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}


def parse_duration(text: str) -> timedelta:
    """The length of time that a text such as "15 minutes" names; always above zero."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]+?)s?\s*", text.lower())
    unit = UNITS.get(match[2]) if match else None
    if not match or unit is None or int(match[1]) == 0:
        raise DeclarationError(
            f"'{text}' is not a duration. Write for example '15 minutes', '1 hour' or '500 "
            f"milliseconds'. Units: {', '.join(UNITS)}."
        )
    return int(match[1]) * unit


def parse_moment(text: str) -> datetime:
    """A moment as people write it; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise DeclarationError(
            f"'{text}' is not a time. Write for example '2026-11-13 10:31'."
        ) from None
