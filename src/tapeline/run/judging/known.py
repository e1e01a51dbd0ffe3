"""What identity says of the records that passed every rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.run.judging.bench import CODES, OPEN, Bench, numbers
from tapeline.run.judging.given import Numbers
from tapeline.run.judging.identity import CONFLICT, Folded, Identity, Records

# Identity's answers, in its own order.
IDENTIFIED = np.array(
    [CODES[word] for word in ("kept", "applied", "superseded", "duplicate", "quarantined")],
    dtype=np.int8,
)


@dataclass(frozen=True)
class Known:
    """What identity found out of the records that passed every rule."""

    places: Numbers  # of the records in the batch
    records: Records
    folded: Folded


def identify(bench: Bench, identity: Identity | None) -> Known | None:
    """The verdicts of identity; also what to remember once the batch is decided."""
    if identity is None:
        return None
    step, facts = bench.step, bench.facts
    keys, sequences = facts.of("key"), facts.of("sequence")
    for found, names in ((keys, ", ".join(step.table.key)), (sequences, step.table.sequence_by)):
        lacking = pc.is_null(found).to_numpy(zero_copy_only=False) & bench.has(OPEN)
        what = "key" if found is keys else "sequence"
        for record in np.flatnonzero(lacking).tolist():
            bench.give(record, "quarantined", [f"the {what} is missing: {names}"])
    places = np.flatnonzero(bench.has(OPEN))
    chosen = pa.array(places)
    records = Records(
        keys.take(chosen),
        numbers(facts.of("key_hash").take(chosen)),
        facts.of("content_hash").take(chosen),
        numbers(sequences.take(chosen)),
        facts.deletes[places],
        bench.given.positions.take(chosen),
    )
    folded = identity.judge(records)
    bench.verdict[places] = IDENTIFIED[folded.verdicts]
    for record in places[folded.verdicts == CONFLICT].tolist():
        version = " and version" if step.table.sequence_by else ""
        bench.reasons[record] = [f"the same key{version} was kept before with other content"]
    return Known(places, records, folded)
