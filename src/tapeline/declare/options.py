"""What a call of pipeline.table(...) and pipeline.summary(...) may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapeline.declare.expectations import Expectation
from tapeline.declare.where import caller
from tapeline.errors import DeclarationError, did_you_mean

TABLE = ("key", "key_optional", "content_ignores", "sequence_by", "apply_as_deletes", "time",
         "late_after", "future_after")  # fmt: skip
SUMMARY = ("key", "time", "width")
OF_SELECT = ("sql", "about", "expect")  # of a step in SQL alone


def check_table_options(args: tuple[Any, ...], said: Mapping[str, Any]) -> None:
    """Refuse what a table cannot be told."""
    _check_form("table", args, said)
    _check_known("table", said, (*TABLE, *OF_SELECT))
    for one in said.get("expect", ()):
        if not isinstance(one, Expectation):
            raise DeclarationError(
                f"{caller()}: table({args[0]!r}) expects {one!r}. Write a list such as "
                'expect=[expect_or_quarantine("the amount is known", "amount is not null")].'
            )


def check_summary_options(args: tuple[Any, ...], said: Mapping[str, Any]) -> None:
    """Refuse what a summary cannot be told."""
    if "expect" in said:
        raise DeclarationError(
            f"{caller()}: summary() has 'expect', and expectations belong to tables. Put them on "
            "the table that it reads."
        )
    _check_form("summary", args, said)
    _check_known("summary", said, (*SUMMARY, "sql", "about"))
    if "key" not in said:
        raise DeclarationError(
            f"{caller()}: summary() has no key. Say what it groups by: summary(key=...)."
        )


def _check_form(kind: str, args: tuple[Any, ...], said: Mapping[str, Any]) -> None:
    """A function, or a name with `sql`."""
    named = bool(args) and isinstance(args[0], str)
    if "sql" in said and not named:
        raise DeclarationError(f'{caller()}: {kind}() has sql but no name. Write {kind}("name", '
                               "sql=...).")  # fmt: skip
    if args and "sql" not in said and not callable(args[0]):
        raise DeclarationError(
            f"{caller()}: {kind}() takes its options by name. Write {kind}(key={args[0]!r}), or "
            f"{kind}({args[0]!r}, sql=...) for a step in SQL."
        )
    for option in OF_SELECT if "sql" not in said else ():
        if option in said:
            raise DeclarationError(
                f"{caller()}: {kind}() has '{option}' without sql. A function has its docstring, "
                "and its expectations are written above it."
            )


def _check_known(kind: str, said: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in said:
        if name not in known:
            hint = did_you_mean(name, known)
            raise DeclarationError(f"{caller()}: {kind}() has no option '{name}'.{hint}")
