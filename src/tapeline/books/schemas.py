"""The columns that Tapeline adds to a user's own, and the tables that are all its own."""

from __future__ import annotations

import pyarrow as pa

MOMENT = pa.timestamp("us", "UTC")
BEGINNING = -(2**63)  # a table's clock before its first record with a time, in microseconds
POSITION = pa.struct([("source", pa.string()), ("part", pa.int64()), ("at", pa.int64())])

TAPE_BATCHES = pa.schema(
    [
        ("batch", pa.int64()),
        ("at", MOMENT),
        ("pieces", pa.list_(pa.int64())),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("deliveries", pa.string()),
    ]
)

# What the tape of topics keeps of a message besides its value; its offset is its line.
MESSAGE = pa.schema(
    [
        ("key", pa.binary()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", MOMENT),
    ]
)
MESSAGE_COLUMNS = ("line", *MESSAGE.names)

# What the tape keeps of a record's file, where steps ask for it or the file is in an archive.
FILE = pa.schema([("path", pa.string()), ("modified", MOMENT)])
FILE_COLUMNS = ("line", *FILE.names)

# What a flow reads of the tape, and the record's place in the batch.
TAPE_LEAF = pa.schema(
    [
        ("part", pa.int64()),
        ("at", pa.int64()),
        ("arrived_at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("header", pa.binary()),
        ("fault", pa.string()),
        ("ordinal", pa.int64()),
    ]
)

# The same, for steps that ask for the message itself.
MESSAGE_LEAF = pa.schema([*TAPE_LEAF, pa.field("line", pa.int64()), *MESSAGE])

# The same, for steps that ask for the file.
FILE_LEAF = pa.schema([*TAPE_LEAF, pa.field("line", pa.int64()), *FILE])

REGISTER = [
    ("_position", POSITION),
    ("_row", pa.int32()),
    ("_verdict", pa.string()),
    ("_reasons", pa.list_(pa.string())),
    ("_sign", pa.int32()),
    ("_cause", pa.string()),
    ("_batch", pa.int64()),
    ("_key", pa.string()),
    ("_key_hash", pa.int64()),
    ("_content_hash", pa.binary()),
    ("_sequence", pa.int64()),
    ("_raw", pa.binary()),
]

# What a table's readers do not see of its register.
UNREAD = ("_raw", "_content_hash", "_key_hash")

LINKS = [
    ("_position", POSITION),
    ("_sign", pa.int32()),
    ("_cause", pa.string()),
    ("_batch", pa.int64()),
]

JOURNAL = [
    ("_entries", pa.int64()),
    ("_cause", pa.string()),
    ("_batch", pa.int64()),
    ("_clock", pa.int64()),  # the table's highest event time before this batch, in microseconds
]

COMMITS = pa.schema(
    [
        ("batch", pa.int64()),
        ("event", pa.string()),
        ("at", MOMENT),
        ("epoch", pa.int32()),
        ("hash", pa.string()),
        ("body", pa.string()),
    ]
)

KEY_SEPARATOR = "\x1f"  # between the columns of a stored key

# Of records that are versions of their key: they take part in deciding about the next one.
OF_VERSIONS = ("kept", "applied", "superseded")
VERDICTS = (*OF_VERSIONS, "duplicate", "quarantined", "dropped", "dismissed")


def with_columns(own: pa.Schema, added: list[tuple[str, pa.DataType]]) -> pa.Schema:
    """A user's columns, then Tapeline's."""
    return pa.schema([pa.field(f.name, f.type) for f in own] + [pa.field(n, t) for n, t in added])


def key_words(key: str) -> str:
    """A stored key for people: its columns separated by slashes."""
    return key.replace(KEY_SEPARATOR, " / ")
