"""Options that several commands share, declared once: a group is a frozen value, a field an option.

    @dataclass(frozen=True)
    class Place:
        project: Project = Path()
        root: Root = None

    @app.command()
    @grouped
    def audit(place: Place, full: Full = False) -> None: ...

gives the command the options --project, --root and --full.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tapeline.cli.options import (
    DEFAULT_TARGET,
    Project,
    Root,
    Target,
    TargetOption,
    books_of,
    load,
)
from tapeline.settings import Settings

if TYPE_CHECKING:
    from tapeline.books import Books
    from tapeline.plan import Plan


LAST = "as_json"


@dataclass(frozen=True)
class BooksLocation:
    """Which pipeline's books, and where they are."""

    pipeline: TargetOption = DEFAULT_TARGET
    project: Project = Path()
    root: Root = None

    def load(self) -> tuple[Plan, Settings]:
        return load(self.pipeline, self.project, self.root)

    def books(self) -> Books:
        return books_of(self.pipeline, self.project, self.root)


@dataclass(frozen=True)
class PipelineLocation(BooksLocation):
    """The same, where the pipeline is the command's argument."""

    pipeline: Target = DEFAULT_TARGET


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command that gets its groups of options whole, and shows each of them as its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    # Its own options first, then those of groups, and --json last.
    own = [
        one.replace(annotation=hints[one.name], kind=one.KEYWORD_ONLY)
        for one in inspect.signature(command).parameters.values()
        if one.name not in groups
    ]
    shared = [option for group in groups.values() for option in _options(group)]
    shown = sorted([*own, *shared], key=lambda one: one.name == LAST)
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in shown}
    return called


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
