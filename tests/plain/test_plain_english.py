"""Texts that users read are plain English: words and phrases that must not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tapeline.cli import app

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tapeline"

# Each pattern with what to write instead.
NOT_IN_DOCS = {
    r"\banew\b": "again, new",
    r"\bunsaid\b": "default: ...",
    r"\bwork(s|ed|ing)? off\b": "process",
    r"\bby lot\b": "at random",
    r"\bbooks stand\b": "last batch: ...",
    r"\bstands? at (batch|offset|the beginning)\b": "last batch, next offset, position",
    r"\bvouch(es|ed)?\b": "certificate of ...",
    r"\bapart by\b": "separated by",
    r"\bthat which\b": "what",
    r"\bat most so many\b": "maximum ...",
    r"\bso many (seconds|rows|records)\b": "... seconds, rows, records",
    r"\bThe plan holds\b": "Pipeline is valid",
    r"\bwhich (do|does) not add up\b": "not additive",
    r"\bwhat has (come|not come)\b": "what arrived, what is missing",
    r"\bis (ill|well)\b": "error, warning, ok",
    r"`(ill|well)`": "error, warning, ok",
    r"\bwho we are\b": "client certificate",
}
# Short texts have no room for a sentence that explains an odd word.
NOT_IN_MESSAGES = NOT_IN_DOCS | {
    r"\bbehind\b": "lag, after, downstream",
    r"(?<!there )\bis no (?!longer\b|more\b)[a-z]": "is not a ..., ... not found",
    r"\bby itself\b": "automatically",
    r"\bmeanwhile\b": "since then, during ...",
    r"\bstands?\b": "is, is active",
    r"\b(ill|well)\b": "error, warning, ok",
    r"\bgiven up\b": "stopped retrying",
    r"\btried again\b": "retried",
    r"\bgo(es)? on\b": "continue",
    r"\blies\b": "is",
    r"\bremed(y|ies)\b": "fix",
    r"\bdoes not run\b": "is not running",
    r"\bnobody\b": "no user, no process",
    r"\b(is|are) (not )?sound\b": "damaged, cannot be read",
    r"\bstranger'?s?\b": "sender, somebody else",
    r"\bin vain\b": "without success",
    r"\bfixed? (a|the) rule\b": "rules are code: books refuse changed code",
    r"\bunless said\b": "default: ...",
}
# Docstrings and comments are read by colleagues: what sounds like an old book goes from there, too.
NOT_IN_CODE = {
    r"\banew\b(?!['\"])": "again, new",  # the name of an event keeps it
    r"\bunsaid\b": "default: ...",
    r"\bmeanwhile\b": "since then, during ...",
    r"\bby itself\b": "automatically, alone",
    r"\bwork(s|ed|ing)? off\b": "process",
    r"\bapart by\b": "separated by",
    r"\bg(ives|iven) back\b": "returns",
    r"\bthat which\b": "what",
    r"\bsteps? behind\b": "downstream",
    r"\b(go|goes|position|offset|values?|just|far|stand) behind\b": "after, lag",
    r"\bas of (Files|Kafka|`)": "as for ...",
}
# Everything that people read: a page that is added is read, too.
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for pattern in (
        *("README.md", "docs/*.md"),
        *("src/tapeline/**/pages/*.html", "src/tapeline/**/pages/*.js"),
        "src/tapeline/operate/templates/*.txt",
    )
    for path in sorted(ROOT.glob(pattern))
]


def found(text: str, patterns: dict[str, str]) -> list[str]:
    """The phrases of a text that must not come back, with what to write instead."""
    hits = (
        (re.search(pattern, text, re.IGNORECASE), better) for pattern, better in patterns.items()
    )
    return [f"'{hit[0]}' (write: {better}) in: {text}" for hit, better in hits if hit]


def helps() -> Iterator[tuple[str, str]]:
    """The help texts of all commands and options."""

    def of(command: Any, path: str) -> Iterator[tuple[str, str]]:
        yield path, command.help or ""
        for option in command.params:
            yield f"{path} {option.name}", str(getattr(option, "help", "") or "")
        for name, inner in getattr(command, "commands", {}).items():
            yield from of(inner, f"{path} {name}")

    return of(typer.main.get_command(app), "tapeline")


def literals(node: ast.AST) -> Iterator[str]:
    """The texts in an expression; values of f-strings are left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        yield "".join(parts)
    else:
        for child in ast.iter_child_nodes(node):
            yield from literals(child)


def messages() -> Iterator[tuple[str, str]]:
    """Texts with two spaces or more in the source that are no docstrings and no SQL."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                statement.value = ast.Constant(None)  # a docstring
        for text in literals(tree):
            if text.count(" ") > 1 and not re.search(r"\b(select|from|filter) ", text):
                yield str(path.relative_to(SOURCE)), text


def test_the_patterns_find_what_they_are_for() -> None:
    for text in ("Work off what is there", "made anew", "the books stand at batch 1"):
        assert found(text, NOT_IN_DOCS)
    for text in ("'x' is no table.", "3 batches behind", "2 findings are ill"):
        assert found(text, NOT_IN_MESSAGES)
    for text in ("'x' is no longer there", "the table is not there", "until everything is sent"):
        assert not found(text, NOT_IN_MESSAGES)


def test_help_is_plain_and_starts_with_a_capital() -> None:
    texts = dict(helps())
    assert len(texts) > 100
    assert [hit for text in texts.values() for hit in found(text, NOT_IN_MESSAGES)] == []
    said = {where: text for where, text in texts.items() if not where.endswith((" help", " _"))}
    assert [where for where, text in said.items() if not re.match("[A-Z]", text)] == []


def test_messages_are_plain() -> None:
    texts = list(messages())
    assert len(texts) > 500
    hits = [(where, hit) for where, text in texts for hit in found(text, NOT_IN_MESSAGES)]
    assert hits == []


def test_docstrings_and_comments_are_plain() -> None:
    hits = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        hits += [(name, hit) for line in lines for hit in found(line, NOT_IN_CODE)]
    assert hits == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pages_are_plain(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert [hit for line in lines for hit in found(line, NOT_IN_DOCS)] == []
