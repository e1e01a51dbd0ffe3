"""JSON: the fields of an object by their names, or the values of a list by their places."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline.formats.faults import RETYPED, WARNED
from tapeline.formats.json import Json
from tapeline.formats.records import NEW_FIELDS, Records

NOT_AN_OBJECT = "the record is not a JSON object"
NOT_A_LIST = "the record is not a JSON list"


def parse_json(tape: DataFrame, kept: list[str], names: list[str], records: Records) -> DataFrame:
    """One column of text per field, and `_shape`."""
    if isinstance(records.written, Json) and records.written.positional:
        return _positional(tape, kept, names, NEW_FIELDS in records.fields)
    schema = ", ".join(f"`{name}` string" for name in names) + ", `_corrupt` string"
    if records.written.retypes:
        schema += f", `{RETYPED}` map<string,string>"
    if records.written.warns:
        schema += f", `{WARNED}` string"
    options = {"columnNameOfCorruptRecord": "_corrupt", "mode": "PERMISSIVE"}
    json = tape.select(*kept, F.from_json("_text", schema, options).alias("_json"))
    more = [_undeclared(names).alias(NEW_FIELDS.name)] if NEW_FIELDS in records.fields else []
    broken = F.when(F.col("_json._corrupt").isNotNull(), F.lit(NOT_AN_OBJECT))
    return json.select(*kept, "_json.*", *more, broken.alias("_shape"))


def _positional(tape: DataFrame, kept: list[str], names: list[str], keep: bool) -> DataFrame:
    values = F.from_json("_text", "array<string>", {"mode": "PERMISSIVE"})
    listed = tape.select(*kept, values.alias("_values"))
    count = F.size("_values")
    fits = count >= len(names) if keep else count == len(names)
    wrong = f"the record has another number of values than {len(names)}"
    return listed.select(
        *kept,
        *[F.get("_values", F.lit(place)).alias(name) for place, name in enumerate(names)],
        *([_behind(len(names)).alias(NEW_FIELDS.name)] if keep else []),
        F.when(F.col("_values").isNull(), F.lit(NOT_A_LIST))
        .when(~fits, F.lit(wrong))
        .alias("_shape"),
    )


def _behind(declared: int) -> Column:
    """The values after the declared ones, as an object; they go by their numbers."""
    others = F.slice("_values", F.lit(declared + 1), F.greatest(F.size("_values"), F.lit(1)))
    numbers = F.transform(
        others, lambda _, place: F.concat(F.lit("column_"), (place + declared + 1).cast("string"))
    )
    return F.when(F.size(others) > 0, F.to_json(F.map_from_arrays(numbers, others)))


def _undeclared(names: list[str]) -> Column:
    """The fields of a JSON object that nobody declared, as an object; null if there are none."""
    all_of_them = F.from_json("_text", "map<string,string>", {"mode": "PERMISSIVE"})
    others = F.map_filter(all_of_them, lambda name, _: ~name.isin(*names, RETYPED))
    return F.when(F.size(others) > 0, F.to_json(others))
