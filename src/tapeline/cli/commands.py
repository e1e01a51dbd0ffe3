"""Groups of commands: `-h` works like `--help`, and the help of a flag shows no type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


def _without_types_of_flags(params: list[Any]) -> list[Any]:
    """A flag takes no value, so its help names no type."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class Commands(typer.Typer):
    """A Typer whose commands have the house's help."""

    def __init__(self, **options: Any) -> None:
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(cls=_Group, context_settings=names, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Declare a command."""
        return super().command(name, cls=_Command, context_settings=self.info.context_settings,
                               **options)  # fmt: skip
