"""Keys that a step makes: identity is read off the step's row instead of the decoded record."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline.declare import Field, Table
from tapeline.errors import DeclarationError, did_you_mean
from tapeline.formats.records import Records
from tapeline.spark.decode import content_hash, key_hash, key_text, sequence


def unidentified(table: Table) -> Table:
    """The table as decoding sees it, which knows nothing of its records' identity."""
    return replace(table, key=(), content_ignores=(), sequence_by=None, apply_as_deletes=None)


def identified(rows: DataFrame, table: Table, records: Records, explodes: bool) -> DataFrame:
    """A step's rows, their `_position` holding key, content, sequence and deletion of the row."""
    own = [field for field in rows.schema if not field.name.startswith("_")]
    names = [field.name for field in own]
    for option in ("key", "content_ignores"):
        for column in getattr(table, option):
            if column not in names:
                raise DeclarationError(
                    f"{table.where}: {table.name}() has the {option.replace('_', ' ')} "
                    f"'{column}', which neither '{table.stream}' nor the step's own rows have."
                    f"{did_you_mean(column, names)}"
                )
    left_out = {table.time, *table.content_ignores}
    content = [Field(f.name, f.dataType.simpleString()) for f in own if f.name not in left_out]
    if explodes:
        _check_content(table, records, content)
    found = {
        "key": key_text(table.key),
        "key_hash": key_hash(table.key),
        "content_hash": content_hash(content),
        "sequence": sequence(rows, table),
        "deletes": F.coalesce(F.expr(table.apply_as_deletes or "false"), F.lit(False)),
    }
    position = rows.select("_position.*").columns
    fields = [found.get(name, F.col(f"_position.{name}")).alias(name) for name in position]
    return rows.withColumn("_position", F.struct(*fields))


def _check_content(table: Table, records: Records, content: list[Field]) -> None:
    """A row that keeps the whole message would differ from its repeat in another message."""
    whole = {f.name for f in records.fields if f.nested or records.written.text == "line"}
    for field in content:
        if field.name in whole:
            raise DeclarationError(
                f"{table.where}: {table.name}() copies '{field.name}' into every row it makes from "
                "a message, so the same row in another message would have different content. Leave "
                f"this column out, or add content_ignores=['{field.name}']."
            )
