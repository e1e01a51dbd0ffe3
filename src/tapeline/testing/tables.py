"""Tables written as text."""

from __future__ import annotations


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table written as text, with '|' between columns; empty cells are left out."""
    lines = [line.split("#")[0].rstrip() for line in text.strip().splitlines()]
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.strip()]
    return [
        {name: cell for name, cell in zip(header, row, strict=True) if cell != ""} for row in rows
    ]


drawn = table  # the old name, for one more release
