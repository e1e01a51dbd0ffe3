"""The words, quotes, comments and parentheses of a SELECT in Spark's dialect."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tapeline.errors import TapelineError

TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<other>\d[\w.]*|.)""",
    re.DOTALL | re.VERBOSE,
)


class NotASelectError(TapelineError):
    """A text that is not one SELECT over tables with names."""


@dataclass(frozen=True)
class Token:
    """A word, a name in quotes, or a sign."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """As SQL reads it: words in lower case, names without quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`").lower()
        return self.text.lower() if self.kind == "word" else self.text

    @property
    def names(self) -> bool:
        return self.kind in ("word", "quoted")


@dataclass
class Group:
    """What is between two parentheses."""

    items: list[Token | Group] = field(default_factory=list)

    @property
    def is_query(self) -> bool:
        return bool(self.items) and said(self.items[0]) in ("select", "with")


Items = list[Token | Group]


def said(item: Token | Group | None) -> str:
    """The word or sign that an item is; a name in quotes is no word of SQL."""
    return item.word if isinstance(item, Token) and item.kind in ("word", "other") else ""


def grouped(sql: str) -> Items:
    """The tokens, those in parentheses together."""
    open_groups = [Group()]
    for match in TOKEN.finditer(sql):
        if match.lastgroup == "space":
            continue
        token = Token(str(match.lastgroup), match[0], match.start())
        if token.text == "(":
            open_groups.append(Group())
        elif token.text == ")" and len(open_groups) > 1:
            closed = open_groups.pop()
            open_groups[-1].items.append(closed)
            closed.items.append(Token("end", "", token.start))
        else:
            open_groups[-1].items.append(token)
    if len(open_groups) > 1:
        raise NotASelectError("lacks a ')'")
    return open_groups[0].items
