"""The commands of `tapeline`, as typer knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from tapeline.cli import app


def commands_of(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its words, those of groups included."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield f"{before}{name}", command
            yield from commands_of(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


COMMANDS: dict[str, Any] = dict(commands_of(typer.main.get_command(app)))
