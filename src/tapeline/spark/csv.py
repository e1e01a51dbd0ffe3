"""CSV: the cells of a line, under the names that a header or the declaration gives them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline.formats.csv import Csv
from tapeline.formats.faults import FAULT_SEPARATOR
from tapeline.formats.records import NEW_FIELDS, Records

MAX_CSV_COLUMNS = 256
END_OF_ROW = "\u0001end"
WIDTH = "the row has another number of columns than the header, or a broken quote"


def parse_csv(tape: DataFrame, kept: list[str], names: list[str], records: Records) -> DataFrame:
    """One column of text per field, and `_shape`.

    In a file columns go by the names in its own header, whatever their order. Without a header, as
    in a message, they are the declared ones, in their order, and those that may follow them.
    """
    written = records.written if isinstance(records.written, Csv) else Csv()
    keep, headed = NEW_FIELDS in records.fields, written.header and not records.messages
    width = min(MAX_CSV_COLUMNS, 2 * len(names) + 16)
    columns = ", ".join(f"c{i} string" for i in range(width))
    mark = F.lit(written.separator + END_OF_ROW)
    quote = written.quote or ""
    options = {"mode": "PERMISSIVE", "sep": written.separator, "quote": quote, "escape": quote}

    def cells(text: Column) -> Column:
        row = F.from_csv(F.concat(text, mark), columns, options)
        return F.array(*[row.getField(f"c{i}") for i in range(width)])

    def values(found: Column) -> Column:
        if not written.nulls:
            return found
        return F.transform(found, lambda cell: F.when(~cell.isin(*written.nulls), cell))

    header = cells(F.col("_header").cast("string")) if headed else _declared(names, width, keep)
    cut = tape.select(*kept, values(cells(F.col("_text"))).alias("_cells"), header.alias("_names"))
    ended = cut.select(
        *kept,
        "_cells",
        F.transform("_names", lambda name: F.lower(F.trim(name))).alias("_names"),
        F.coalesce(F.array_position("_cells", END_OF_ROW), F.lit(0)).alias("_width"),
        F.coalesce(F.array_position("_names", END_OF_ROW), F.lit(0)).alias("_expected"),
    )

    def cell(name: str) -> Column:
        place = F.array_position("_names", name.lower())
        return F.when(place > 0, F.try_element_at("_cells", place.cast("int")))

    if headed:
        fits, wrong = F.col("_width") == F.col("_expected"), WIDTH
    else:
        fits = F.col("_width") == len(names) + 1
        fits = F.col("_width") > len(names) if keep else fits
        what = "message" if records.messages else "row"
        wrong = f"the {what} has another number of columns than {len(names)}, or a broken quote"
    more = [_undeclared(names).alias(NEW_FIELDS.name)] if keep else []
    return ended.select(
        *kept,
        *[cell(name).alias(name) for name in names],
        *more,
        F.concat_ws(
            FAULT_SEPARATOR,
            F.when(~fits, F.lit(wrong)),
            *[_absent(name) for name in names if headed],
        ).alias("_shape"),
    )


def _declared(names: list[str], width: int, keep: bool) -> Column:
    """The names of a message's columns; those after the declared ones are named by their number."""
    numbers = [f"column_{number}" for number in range(len(names) + 1, width + 1)] if keep else []
    return F.array(*map(F.lit, [*names, *numbers]))


def _absent(name: str) -> Column:
    lacks = F.array_position("_names", name.lower()) == 0
    return F.when(lacks, F.lit(f"the file has no column '{name}'"))


def _undeclared(names: list[str]) -> Column:
    """The cells of other columns as a JSON object, written by hand: a name may stand there twice,
    which no map of Spark's allows."""
    declared = [name.lower() for name in names]
    pairs = F.arrays_zip(F.col("_names").alias("name"), F.col("_cells").alias("value"))
    here = F.slice(pairs, F.lit(1), F.greatest(F.col("_width").cast("int") - 1, F.lit(0)))
    others = F.filter(here, lambda pair: ~F.coalesce(pair["name"], F.lit("")).isin(*declared))
    texts = F.transform(
        others, lambda pair: F.concat(_text(pair["name"]), F.lit(":"), _text(pair["value"]))
    )
    whole = F.concat(F.lit("{"), F.array_join(texts, ","), F.lit("}"))
    return F.when(F.size(others) > 0, whole)


def _text(value: Column) -> Column:
    """A JSON string, or null."""
    listed = F.to_json(F.array(value))
    return F.substr(listed, F.lit(2), F.length(listed) - 2)
