"""The verdicts of a register add up to its input's records, as the commits rows say."""

from __future__ import annotations

from collections.abc import Iterator

from tapeline.books.query import register_table
from tapeline.declare import Table
from tapeline.watch.audit.checks import Check, compared, equal
from tapeline.watch.audit.look import Look


def check_register(look: Look, table: Table) -> Iterator[Check]:
    name = f"register_{table.name}"
    folder = look.books.layout.register(table.name)
    if not register_table(look.connection, name, folder, look.range):
        yield from look.gone(table.name)
        return
    found = _verdicts(look, name)
    yield compared(
        f"{table.name}: verdicts = records of {table.stream}",
        _given(look, table),
        {batch: sum(found.get(batch, {}).values()) for batch in look.bodies},
    )
    said = {
        batch: {k: v for k, v in body["tables"][table.name]["verdicts"].items() if v}
        for batch, body in look.bodies.items()
        if table.name in body["tables"]
    }
    differs = next((b for b in said if said[b] != found.get(b, {})), None)
    yield equal(f"{table.name}: each verdict = its commits rows", differs)
    yield look.proved(name, f"silver/{table.name}", table.name)


def _verdicts(look: Look, view: str) -> dict[int, dict[str, int]]:
    """How many records got each verdict, by batch."""
    rows = look.connection.execute(
        f"select _batch, _verdict, sum(_sign) filter (_row = 0)::bigint from {view} "
        f"where {look.within} group by all"
    ).fetchall()
    found: dict[int, dict[str, int]] = {}
    for batch, verdict, count in rows:
        if count:
            found.setdefault(batch, {})[verdict] = count
    return found


def _given(look: Look, table: Table) -> dict[int, int]:
    """The records of a table's input, by batch: of its tape, or kept by the table before it."""
    stream = table.stream
    if stream in look.books.plan.pipeline.sources:
        return {b: body["tapes"].get(stream, {}).get("records", 0)
                for b, body in look.bodies.items()}  # fmt: skip
    return {b: body["tables"].get(stream, {}).get("verdicts", {}).get("kept", 0)
            for b, body in look.bodies.items()}  # fmt: skip
