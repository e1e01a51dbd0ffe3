"""The schema of a source, as a user writes it: "trade_id string not null, price decimal(18,8)"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tapeline.errors import DeclarationError

SIMPLE = {
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double",
    "date", "timestamp", "binary",
}  # fmt: skip
ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
MAX_DECIMAL_DIGITS = 38
# Spark reads a dot in a name as "the field of a struct": such a name would need quotes everywhere.
ODD_NAME = re.compile(r'[^`.\n"\\]+')
FIELD = re.compile(rf"(?:`({ODD_NAME.pattern})`|([A-Za-z_]\w*))\s+([A-Za-z].*)", re.DOTALL)


@dataclass(frozen=True)
class Field:
    """One column: its name, its Spark type in lower case, and whether a record must have it."""

    name: str
    type: str
    required: bool = False

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale, if this is a decimal."""
        match = re.fullmatch(r"decimal\((\d+),(\d+)\)", self.type)
        return (int(match[1]), int(match[2])) if match else None

    @property
    def nested(self) -> bool:
        return self.type.startswith(("array<", "struct<", "map<"))


def parse_schema(text: str) -> tuple[Field, ...]:
    """Parse the DDL a user wrote; names are unique, types are known."""
    fields = tuple(_field(part) for part in _split(text))
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise DeclarationError(f"schema has '{field.name}' twice. Rename one of them.")
        if field.name.startswith("_"):
            raise DeclarationError(
                f"schema has the column '{field.name}'. Names that start with '_' are reserved: "
                "rename it."
            )
        seen.add(field.name.lower())
    if not fields:
        raise DeclarationError(
            'schema is empty. Write for example "id string, amount decimal(18,2)".'
        )
    return fields


def _split(text: str) -> list[str]:
    parts, depth, start, quoted = [], 0, 0, False
    for index, char in enumerate(text):
        quoted ^= char == "`"
        depth += 0 if quoted else (char in "<(") - (char in ">)")
        if char == "," and depth == 0 and not quoted:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _field(text: str) -> Field:
    match = FIELD.fullmatch(text)
    if not match:
        raise DeclarationError(
            f"schema: cannot read '{text}'. Write 'name type', or '`odd name` type' for a name "
            "with spaces or punctuation (but no dot)."
        )
    name, kind = match[1] or match[2], re.sub(r"\s+", " ", match[3].strip())
    required = kind.lower().endswith(" not null")
    kind = kind[: -len(" not null")].strip() if required else kind
    if kind.lower().startswith(("array<", "struct<", "map<")):
        return Field(name, kind, required)
    kind = ALIASES.get(kind.lower(), kind.lower().replace(" ", ""))
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    if decimal and int(decimal[2]) <= int(decimal[1]) <= MAX_DECIMAL_DIGITS:
        return Field(name, kind, required)
    if kind in SIMPLE:
        return Field(name, kind, required)
    raise DeclarationError(
        f"schema: '{name}' has the unknown type '{kind}'. Use {', '.join(sorted(SIMPLE))}, "
        "decimal(p,s), array<...>, struct<...> or map<...>."
    )
