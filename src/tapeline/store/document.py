"""A JSON document as a typed value."""

from __future__ import annotations

import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, InstanceOf

# A text as Python has it: file names that are no UTF-8 are texts too.
Text = InstanceOf[str]
Number = int | float  # as it was written: 0 stays 0, and 0.0 stays 0.0


class Document(BaseModel):
    """What is stored as JSON. What is missing has a default, and what is unknown is kept.

    So documents of older and of newer versions are read, and written as they were.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return cls.model_validate(json.loads(text))

    def to_json(self) -> str:
        """The text that hashes are computed over: sorted, without spaces, with what was given."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        """What it was made of; defaults are left out."""
        return self.model_dump(exclude_unset=True)
