"""Reference data, and calendars in it that will run out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books import Books
from tapeline.doctor.finding import Finding
from tapeline.errors import TapelineError
from tapeline.run.references import rows_by_name
from tapeline.settings import Settings

CALENDARS_IN_A_TABLE = 50
REFERENCE_DAYS = 30


def references(books: Books, settings: Settings, today: date) -> Iterator[Finding]:
    if not books.plan.pipeline.references:
        return
    try:
        rows = rows_by_name(books.plan, settings.project)
    except TapelineError as error:
        yield Finding("references", "ill", str(error), "Put the file there.")
        return
    for name, table in rows.items():
        last = _last_day(table)
        if last is None:
            continue
        words = f"reaches to {last}"
        if last < today:
            yield Finding(f"reference {name}", "ill", words, "It has run out: bring a newer one.")
        elif last < today + timedelta(days=REFERENCE_DAYS):
            yield Finding(
                f"reference {name}", "soon", words, "Bring a newer one before it runs out."
            )
        else:
            yield Finding(f"reference {name}", "well", words)


def _last_day(table: pa.Table) -> date | None:
    """The last day of a calendar: a table that names most of the days between its ends.

    Of several calendars in one table, by venue for example, the one that ends first.
    """
    for column in table.schema:
        if not pa.types.is_date(column.type) or _reach(table[column.name]) is None:
            continue
        ends = [_reach(table[column.name])]
        for text in (field.name for field in table.schema if pa.types.is_string(field.type)):
            values = pc.unique(table[text].drop_null())
            if len(values) <= CALENDARS_IN_A_TABLE:
                parts = (table.filter(pc.equal(table[text], one)) for one in values)
                ends += [_reach(part[column.name]) for part in parts]
        return min(end for end in ends if end is not None)
    return None


def _reach(days: pa.ChunkedArray) -> date | None:
    """The last of many days between which few are missing, else none."""
    named = pc.unique(days.drop_null())
    if len(named) < REFERENCE_DAYS:
        return None
    low, high = (one.as_py() for one in pc.min_max(named).values())
    found: date = high
    return found if len(named) > 0.6 * ((high - low).days + 1) else None
