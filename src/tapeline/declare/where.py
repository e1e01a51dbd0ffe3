"""Where something was declared: errors and plans say it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Where:
    """File and line of a declaration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def function_where(function: Callable[..., Any]) -> Where:
    code = inspect.unwrap(function).__code__
    return Where(_short(code.co_filename), code.co_firstlineno)


def caller() -> Where:
    package = str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back and (
        frame.f_code.co_filename.startswith(package) or frame.f_code.co_filename == "<string>"
    ):
        frame = frame.f_back
    return Where(_short(frame.f_code.co_filename), frame.f_lineno)


def _short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
