"""What is built when code is changed: which steps, by whom, and how far it is.

A build has a folder of its own, with commits of its own: a row for every batch of the books that
it has followed. Its tables lie beside those of the other generations. Nobody reads them until a
row of the books' own commits lets them stand.
"""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

from pathlib import Path

from tapeline.books.commit import Commit
from tapeline.books.commits import Decision, read_commits, read_tail
from tapeline.books.layout import Layout
from tapeline.books.table_id import Kind, TableId
from tapeline.plan import Plan
from tapeline.store.document import Document, Text
from tapeline.store.files import (
    files_named,
    is_there,
    make_folder,
    read_bytes,
    remove_folder,
    replace_json,
)

NOTE = "build.json"


class Build(Document):
    """What becomes a generation."""

    generation: int
    base: int  # the generation that stood when it was begun
    at: Text
    who: Text
    steps: dict[Text, Text] = {}  # added, retired, changed or rebuilt
    fingerprints: dict[Text, Text] = {}  # of all steps of the file
    code: Text = ""
    first: int = 1  # the first batch that it follows
    continued: dict[Text, int] = {}  # steps whose earlier generation goes on, with its number

    def number_of(self, name: str) -> int:
        """The generation that a step is written to."""
        return self.continued.get(name, self.generation)

    @property
    def built(self) -> frozenset[str]:
        """The steps that are built again."""
        return frozenset(name for name, change in self.steps.items() if change != "retired")


def last_decision(layout: Layout) -> Decision | None:
    """The last decided batch of the books."""
    decided = [row for row in read_tail(layout.commits) if row.decides]
    return decided[-1].decision if decided else None


def standing_generations(layout: Layout, plan: Plan) -> dict[str, int]:
    """The generations of a plan's steps that are not the first."""
    last = last_decision(layout)
    if last is None or last.commit.generation == 1:
        return {}
    steps = (*plan.tables, *plan.summaries)
    found = {step.name: last.commit.generation_of(step.name) for step in steps}
    return {name: generation for name, generation in found.items() if generation != 1}


def folder_of(layout: Layout, generation: int) -> Path:
    return layout.builds / str(generation)


def builds(layout: Layout) -> list[Build]:
    """All builds whose folders are there, in order."""
    notes = files_named(layout.builds, f"*/{NOTE}") if is_there(layout.builds) else []
    found = [Build.from_json(read_bytes(note)) for note in notes]
    return sorted(found, key=lambda build: build.generation)


def unfinished(layout: Layout) -> Build | None:
    """The build that has not been let stand."""
    last = last_decision(layout)
    standing = last.commit.generation if last else 1
    return next((one for one in builds(layout) if one.generation > standing), None)


def start(layout: Layout, build: Build) -> Build:
    folder = folder_of(layout, build.generation)
    make_folder(folder)
    replace_json(folder / NOTE, build.as_dict())
    return build


def abandon(layout: Layout, build: Build) -> None:
    """Remove what was built: its tables first, so that a build without a note has none.

    An earlier generation that was continued keeps its rows: nobody reads them.
    """
    for name in build.built - {*build.continued}:
        for kind in Kind:
            remove_folder(layout.table(TableId(kind, name, build.generation)))
    remove_folder(folder_of(layout, build.generation))


def rows_of_generation(layout: Layout, name: str, generation: int) -> dict[int, Commit]:
    """The commits that tell of a generation of a table, by batch: the build's, then the books'."""
    found: dict[int, Commit] = {}
    places = [folder_of(layout, one.generation) / "commits" for one in builds(layout)]
    for place in (*places, layout.commits):
        for row in read_commits(place):
            if row.decides and row.commit.generation_of(name) == generation:
                found[row.batch] = row.commit
    return found
