"""What is printed: text is shown as it is, never as markup, and a terminal obeys nothing in it.

Records, file names, notes and messages of errors are written by strangers. Every command prints
through `Terminal`, which shows a control character by its name (`\\x1b`) and sends none. Exact
values are in the JSON form, whose strings write the same characters as escapes (`\\u001b`).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.text import Text

# Control characters (C0 without tab and line end, DEL, C1), marks and overrides that turn the
# direction of writing, line ends of Unicode, and halves of characters, which no stream can write.
_OBEYED = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
IN_TEXT = re.compile(f"[{_OBEYED}]")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")
IN_LINE = re.compile(f"[\t\n{_OBEYED}]")


def one_line(text: str) -> str:
    """Text of a stranger's for a cell or within a line; line ends are shown by their names too."""
    return IN_LINE.sub(_named, text)


def lines(text: str) -> str:
    """Text of several lines, such as an error's; everything else that a terminal obeys is named."""
    return IN_TEXT.sub(_named, text)


def json_text(value: Any, indent: int | None = 2) -> str:
    """JSON that can be printed anywhere and holds the exact value: control characters escaped."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return json_escaped(text)


def json_escaped(text: str) -> str:
    """The same JSON, with escapes for what JSON itself lets through."""
    return IN_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def styled(text: str, style: str) -> Text:
    """Text in a colour or in bold: the one way to style what is printed."""
    return Text(lines(text), style)


def write_exact(text: str) -> None:
    """Text for programs on standard output: exact in a pipe or file, harmless on a terminal."""
    shown = lines(text.replace("\r\n", "\n")) if sys.stdout.isatty() else text
    sys.stdout.write(shown)


class Terminal(Console):
    """A console without markup, for which all text is a stranger's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Text as it will be printed: its width is measured by this, too."""
        return super().render_str(lines(text), **options | {"markup": False, "emoji": False})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Everything that is printed passes here; the console's own controls are marked as such."""
        for one in super().render(renderable, options):
            yield one if one.control else Segment(lines(one.text), one.style)

    def print_value(self, value: Any) -> None:
        """A value as JSON, coloured on a terminal."""
        self.print(JSONHighlighter()(json_text(value)), soft_wrap=True)


class HarmlessFormatter(logging.Formatter):
    """Lines of a log that somebody reads on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return lines(super().format(record))


def guard_standard_error() -> None:
    """Let Python's own words be harmless, too: of threads that fail, and of logs nobody set up."""

    def say(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None and failed.exc_type is not SystemExit:
            told = traceback.format_exception(failed.exc_value)
            Terminal(stderr=True).print("".join(told), soft_wrap=True, highlight=False)

    threading.excepthook = say
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(HarmlessFormatter("%(message)s"))


def _named(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def moment(value: datetime) -> str:
    """A time for people: seconds only where there are any."""
    return value.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")


def as_words(fact: Any) -> str:
    """A value of a status as text: parts with commas between them, nested parts on own lines."""
    if isinstance(fact, dict):
        said = {name: part for name, part in fact.items() if part not in (None, {}, [])}
        deep = {name: part for name, part in said.items() if isinstance(part, dict)}
        flat = ", ".join(
            f"{one_line(str(name))} {as_words(said[name])}" for name in said if name not in deep
        )
        lines = [f"{one_line(str(name))}: {as_words(part)}" for name, part in deep.items()]
        return "\n".join([flat, *lines] if flat else lines)
    if isinstance(fact, list):
        return "\n".join(as_words(part) for part in fact)
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int | float):
        return f"{fact:,}"
    if isinstance(fact, str) and MOMENT.match(fact):
        return moment(datetime.fromisoformat(fact))
    return one_line(str(fact))
