"""Text as somebody writes it who wants to be obeyed by a terminal, a table or a page."""

from __future__ import annotations

import re

HOSTILE = (
    "\\[/x][link=http://x]c[/link][red]:smile:"
    "\x1b]8;;http://x\x07\x1b[2J\x00\x08\r\x7f\x9b2J\x9d0;t\x9c\u202e\u2066"
)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def obeyed(text: str) -> list[str]:
    """The characters in a text that a terminal would obey."""
    return OBEYED.findall(text)
