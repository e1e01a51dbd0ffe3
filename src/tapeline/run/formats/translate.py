"""From the tape's bytes to the JSON that decoding reads, for formats that are not text of ours.

The tape keeps a record as it came, and so do proofs and quarantine; only what goes to Spark is
translated. A record that cannot be read goes on as an empty one with its fault beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tapeline.connect import Files, Kafka
from tapeline.run.decode import UNREADABLE
from tapeline.run.formats.avro import AvroReader
from tapeline.run.formats.fix import trade_of
from tapeline.run.formats.schemas import schemas_of
from tapeline.run.intake.rows import json_line
from tapeline.settings import Settings

Translate = Callable[[pa.Table], pa.Table]
Read = Callable[[bytes, bytes | None], bytes]
NOTHING = b"{}"


def translator(connector: Files | Kafka, settings: Settings, pipeline: str) -> Translate | None:
    """How the records of a source become JSON; None where they are text already."""
    if connector.format == "fix":
        in_a_log = isinstance(connector, Files)
        return lambda rows: translated(
            rows, lambda raw, _: json_line(trade_of(raw, remarks=in_a_log))
        )
    if connector.format == "avro":
        reader = AvroReader(schemas_of(connector, settings, pipeline), connector.fields)
        return lambda rows: translated(rows, reader.begin().read)
    return None


def translated(rows: pa.Table, read: Read) -> pa.Table:
    """Tape rows with JSON in the place of their bytes; a ValueError of `read` is a fault."""
    raws, faults = [], rows["fault"].to_pylist()
    given = zip(rows["raw"].to_pylist(), rows["header"].to_pylist(), strict=True)
    for place, (raw, header) in enumerate(given):
        text = NOTHING
        if faults[place] is None and raw is not None:
            try:
                text = read(raw, header)
            except ValueError as error:
                faults[place] = f"{UNREADABLE} {error}"
        raws.append(text)
    columns = {"raw": pa.array(raws, pa.binary()), "fault": pa.array(faults, pa.string())}
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows
