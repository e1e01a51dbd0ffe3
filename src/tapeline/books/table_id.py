"""Which stored table: its kind, the name that a user gave, and its generation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self


class Kind(Enum):
    """What a table holds, and the folder and ending that its kind has on disk."""

    REGISTER = ("silver", "")  # every record of a table, with its verdict
    JOURNAL = ("gold", "")  # every change of a summary
    LINKS = ("gold", "_links")  # each record's share in a summary
    BALANCES = ("gold", "_balances")  # a cache of a summary's numbers


@dataclass(frozen=True)
class TableId:
    """A stored table.

    A later generation is made by other code and is stored beside the earlier one.
    """

    kind: Kind
    name: str
    generation: int = 1

    @classmethod
    def register(cls, table: str, generation: int = 1) -> Self:
        return cls(Kind.REGISTER, table, generation)

    @classmethod
    def journal(cls, summary: str, generation: int = 1) -> Self:
        return cls(Kind.JOURNAL, summary, generation)

    @classmethod
    def links(cls, summary: str, generation: int = 1) -> Self:
        return cls(Kind.LINKS, summary, generation)

    @classmethod
    def balances(cls, summary: str, generation: int = 1) -> Self:
        return cls(Kind.BALANCES, summary, generation)

    @classmethod
    def at(cls, path: str) -> Self:
        """The table that a commits row names by its folder below the books."""
        folder, _, rest = path.partition("/")
        name, _, generation = rest.partition("@")
        kinds = [k for k in Kind if k.value[0] == folder and name.endswith(k.value[1])]
        kind = max(kinds, key=lambda k: len(k.value[1]))
        return cls(kind, name.removesuffix(kind.value[1]), int(generation or 1))

    @property
    def path(self) -> str:
        """Its folder below the books, which commits rows name, such as gold/totals_links."""
        folder, ending = self.kind.value
        later = f"@{self.generation}" if self.generation > 1 else ""
        return f"{folder}/{self.name}{ending}{later}"
