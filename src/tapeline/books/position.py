"""Where a record is: on the tape, and where rows are records of their own, which row of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tapeline.books.schemas import POSITION
from tapeline.errors import QuestionError
from tapeline.store.duckdb import Connection

WHOLE = -1  # the row of a record that was not taken apart
# A position in tables whose records are rows of messages, and in all downstream ones.
ROW_POSITION = pa.struct([*POSITION, pa.field("row", pa.int32())])
TEXT = re.compile(r"([a-z][a-z0-9_]*):(\d+):(\d+)(?::(\d+))?")


class Position(NamedTuple):
    """The position of a record."""

    source: str
    part: int
    at: int
    row: int = WHOLE

    @property
    def whole(self) -> Position:
        """The record on the tape."""
        return Position(self.source, self.part, self.at)

    @property
    def text(self) -> str:
        """raw_trades:12:345, or raw_trades:12:345:0 for its first row."""
        row = "" if self.row == WHOLE else f":{self.row}"
        return f"{self.source}:{self.part}:{self.at}{row}"


def position_of(position: Mapping[str, Any]) -> Position:
    """A stored position as a value."""
    return Position(
        position["source"], position["part"], position["at"], position.get("row", WHOLE)
    )


def parse_position(text: str) -> Position:
    """The position that a text names."""
    match = TEXT.fullmatch(text)
    if not match:
        raise QuestionError(
            f"'{text}' is not a position. Write a position such as raw_trades:12:345."
        )
    return Position(match[1], int(match[2]), int(match[3]), int(match[4] or WHOLE))


def placed(
    columns: list[tuple[str, pa.DataType]], position: pa.StructType
) -> list[tuple[str, pa.DataType]]:
    """Tapeline's own columns of a table, with positions of this type."""
    return [(name, position if name == "_position" else kind) for name, kind in columns]


def row_column(position: pa.StructType | bool) -> str:
    """SQL for the row of a position; of tables without one, WHOLE."""
    by_row = position if isinstance(position, bool) else position == ROW_POSITION
    return "struct_extract(_position, 'row')" if by_row else str(WHOLE)


def has_rows(connection: Connection, view: str) -> bool:
    """Whether the positions of a table name rows."""
    found = connection.execute(
        f"select column_type from (describe {view}) where column_name = '_position'"
    ).fetchall()
    return any(re.search(r"\brow\b", kind) for (kind,) in found)
