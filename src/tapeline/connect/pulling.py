"""What pulls from outside systems share: a page, whoever reads it, and the wish to try later."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

from tapeline.errors import DeclarationError, OperationError, did_you_mean
from tapeline.settings import PullSettings, Settings

Position = dict[str, Any]


@dataclass(frozen=True)
class PulledPage:
    """Records that came at once, each as one line of JSON, and the position after them.

    `again_seconds` says how soon it is worth asking again; None when everything has come.
    `behind` is the maximum number of records still to come, if the system knows it.
    """

    lines: tuple[bytes, ...]
    position: Position | None
    again_seconds: float | None = None
    behind: int | None = None


class Reader(Protocol):
    """Asks an outside system; connects when it is first asked."""

    def page(self, position: Position | None) -> PulledPage: ...

    def close(self) -> None: ...


class System(Protocol):
    """An outside system as a pipeline declares it."""

    @property
    def asks(self) -> str:
        """What is asked, without where: it stands beside the position, and in plans and errors."""
        ...

    def reader(self, name: str, settings: PullSettings, secret: str) -> Reader: ...


class LaterError(OperationError):
    """The system cannot give an answer now; another attempt may well succeed."""

    def __init__(self, words: str, after_seconds: float = 0.0) -> None:
        super().__init__(words)
        self.after_seconds = after_seconds


def login_of(what: str, name: str, settings: Settings) -> tuple[PullSettings, str]:
    """Where a pull or reference asks, and its secret: both are settings."""
    said = settings.pull.get(name, PullSettings())
    if not said.address:
        hint = did_you_mean(name, settings.pull) if settings.pull else ""
        raise DeclarationError(
            f"{what} has no address. Add it to tapeline.toml: [pull.{name}] address = "
            f"'...'; or set TAPELINE_PULL_{name.upper()}_ADDRESS.{hint}"
        )
    secret = os.environ.get(said.secret_variable, "") if said.secret_variable else ""
    if said.secret_variable and not secret:
        raise DeclarationError(
            f"{what}: the environment variable {said.secret_variable} is not set. The "
            f"setting pull.{name}.secret_variable names it."
        )
    return said, secret


def reader_of(name: str, system: System, settings: Settings) -> Reader:
    """The reader of a declared pull."""
    return system.reader(name, *login_of(f"pull '{name}'", name, settings))
