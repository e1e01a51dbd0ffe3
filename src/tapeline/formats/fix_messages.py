"""FIX messages that follow each other on one line, as sessions are stored: one record each."""

from __future__ import annotations

import re

import numpy as np

from tapeline.formats.lines import Lines

# A message's first field. Behind a digit it is the end of another tag, such as a text (58).
BEGIN = re.compile(rb"(?<![0-9])8=FIXT?\.[0-9.]+(?:SP[0-9])?")


def one_each(lines: Lines) -> Lines:
    """Lines with every message in a record of its own; those of one line share its number.

    What a log writes before a line's first message stays with it.
    """
    records = lines.records()
    starts = [[m.start() for m in BEGIN.finditer(record)][1:] for record in records]
    if not any(starts):
        return lines
    cut: list[bytes] = []
    first: list[int] = []  # of each line, its first record
    for record, places in zip(records, starts, strict=True):
        first.append(len(cut))
        cut += [record[a:b] for a, b in zip([0, *places], [*places, len(record)], strict=True)]
    counts = np.diff([*first, len(cut)])
    return Lines(
        values=b"".join(cut),
        lengths=np.fromiter(map(len, cut), np.int64, len(cut)),
        numbers=np.repeat(lines.numbers, counts),
        # A line that was cut lacks its end, which is its last message's.
        faults={first[i] + int(counts[i]) - 1: fault for i, fault in lines.faults.items()},
    )
