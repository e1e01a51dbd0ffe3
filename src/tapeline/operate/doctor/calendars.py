"""Reference data, and calendars in it that will run out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books import Books
from tapeline.books.references import rows_by_name
from tapeline.errors import TapelineError
from tapeline.operate.doctor.finding import Finding
from tapeline.settings import Settings

CALENDARS_IN_A_TABLE = 50
REFERENCE_DAYS = 30


def references(books: Books, settings: Settings, today: date) -> Iterator[Finding]:
    if not books.plan.pipeline.references:
        return
    try:
        rows = rows_by_name(books.plan, settings.project)
    except TapelineError as error:
        yield Finding("references", "error", str(error), "Put the file there or correct it.")
        return
    for name, table in rows.items():
        end = _first_end(table)
        if end is None:
            continue
        last, whose = end
        words = f"{whose} ends on {last}" if whose else f"ends on {last}"
        path = books.plan.pipeline.references[name].connector.path
        remedy = f"Add later days to {path}. See 'When a calendar runs out' in docs/operate.md."
        if last < today:
            yield Finding(f"reference {name}", "error", words, remedy)
        elif last < today + timedelta(days=REFERENCE_DAYS):
            yield Finding(f"reference {name}", "warning", words, remedy)
        else:
            yield Finding(f"reference {name}", "ok", words)


def _first_end(table: pa.Table) -> tuple[date, str] | None:
    """The last day of a calendar: a table that names most of the days between its ends.

    Of several calendars in one table, by venue for example, the one that ends first, and whose.
    """
    for column in table.schema:
        last = _reach(table[column.name]) if pa.types.is_date(column.type) else None
        if last is None:
            continue
        ends = [(last, "")]
        for text in (field.name for field in table.schema if pa.types.is_string(field.type)):
            values = pc.unique(table[text].drop_null())
            if len(values) > CALENDARS_IN_A_TABLE:
                continue
            for value in values:
                end = _reach(table.filter(pc.equal(table[text], value))[column.name])
                ends += [(end, f"{text} {value}")] if end is not None else []
        return min(ends)
    return None


def _reach(days: pa.ChunkedArray) -> date | None:
    """The last of many days between which few are missing, else none."""
    named = pc.unique(days.drop_null())
    if len(named) < REFERENCE_DAYS:
        return None
    low, high = (one.as_py() for one in pc.min_max(named).values())
    found: date = high
    return found if len(named) > 0.6 * ((high - low).days + 1) else None
