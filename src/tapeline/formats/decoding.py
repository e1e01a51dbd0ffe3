"""From the tape's bytes to the text that Spark reads, for formats that differ from it.

The tape keeps a record as it came, and so do proofs and quarantine; only what goes to Spark is
decoded here. A record that cannot be read goes on as an empty one with its fault beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tapeline.declare.format import Format
from tapeline.formats.exact_json import with_exact_numbers
from tapeline.formats.faults import UNREADABLE

Translate = Callable[[pa.Table], pa.Table]
NOTHING = b"{}"
# What a format that was not made for such a record raises: the same for every attempt.
FAILS = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def translator(records: Format) -> Translate | None:
    """How the records of a source become text for Spark; None where they are that already."""
    if records.text == "json":
        return lambda rows: _exact(decoded(rows, records) if records.decodes else rows)
    return (lambda rows: decoded(rows, records)) if records.decodes else None


def _exact(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("raw")
    return rows.set_column(place, "raw", with_exact_numbers(rows["raw"]))


def decoded(rows: pa.Table, records: Format) -> pa.Table:
    """Tape rows with decoded text in the place of their bytes; a ValueError is a fault."""
    records.begin_batch()
    raws, faults = [], rows["fault"].to_pylist()
    given = zip(rows["raw"].to_pylist(), rows["header"].to_pylist(), strict=True)
    for place, (raw, header) in enumerate(given):
        text = NOTHING
        if faults[place] is None and raw is not None:
            try:
                text = records.decode(raw, header)
            except ValueError as error:
                faults[place] = f"{UNREADABLE} {error}"
            except FAILS as error:
                words = f"not {records.name}: {type(error).__name__}: {error}"
                faults[place] = f"{UNREADABLE} {words}"
        raws.append(text)
    columns = {"raw": pa.array(raws, pa.binary()), "fault": pa.array(faults, pa.string())}
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows
