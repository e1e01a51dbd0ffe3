"""The pages of the documentation, cut into prose, sections and blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
README = REPOSITORY / "README.md"
START = REPOSITORY / "docs" / "start.md"
TUTORIAL = REPOSITORY / "docs" / "tutorial.md"
OPERATE = REPOSITORY / "docs" / "operate.md"
REFERENCE = REPOSITORY / "docs" / "reference.md"
CHANGELOG = REPOSITORY / "CHANGELOG.md"
PAGES = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]

# A block that is a file of the reader's own says so in a comment above it.
FENCE = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the file it is, when the page says so."""

    kind: str
    text: str
    file: str | None


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = FENCE.finditer(text_of(page))
    return [Block(match["kind"], match["text"], match["file"]) for match in found]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return FENCE.sub("", text_of(page))


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one of its level or a higher one."""
    level = heading.index(" ")
    text = text_of(page).split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{2,{level}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def files(page: Path, up_to: str | None = None) -> dict[str, str]:
    """The reader's own files on a page, or on its part above a command.

    What is added to a Python file stands two lines below the rest; any other file is replaced.
    """
    found: dict[str, str] = {}
    for block in blocks(page):
        if up_to and f"$ {up_to}\n" in block.text:
            break
        if block.file:
            found[block.file] = with_block(found.get(block.file), block)
    return found


def with_block(text: str | None, block: Block) -> str:
    """What a reader's file says after a block of the page."""
    return f"{text}\n\n{block.text}" if text and str(block.file).endswith(".py") else block.text


def python(page: Path) -> dict[str, str]:
    """The Python of a page: its files, and each further block under a name of its own."""
    found = {name: text for name, text in files(page).items() if name.endswith(".py")}
    for number, block in enumerate(blocks(page)):
        if block.kind == "python" and not block.file:
            found[f"block_{number}.py"] = block.text
    return found


def pipelines(page: Path) -> dict[str, str]:
    """The Python of a page that declares a pipeline."""
    return {name: text for name, text in python(page).items() if "pipeline = Pipeline(" in text}
