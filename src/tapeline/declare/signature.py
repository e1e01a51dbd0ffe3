"""What a declared function says of itself: its sentence, and what its parameters are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def about(function: Callable[..., Any]) -> str:
    """The first line of the docstring."""
    return (inspect.getdoc(function) or "").split("\n")[0]


def annotated(function: Callable[..., Any]) -> dict[str, str]:
    """The parameters, each with its annotation as it is written."""
    return {
        name: _text(parameter.annotation)
        for name, parameter in inspect.signature(function).parameters.items()
    }


def last_name(annotation: str) -> str:
    """'Stream' of `tapeline.Stream`."""
    return annotation.rsplit(".", 1)[-1].strip("'\"")


def _text(said: Any) -> str:
    return said if isinstance(said, str) else getattr(said, "__name__", str(said))
