"""What the user says: frozen values, no Spark."""

from tapeline.declare.alert import Alert, Each
from tapeline.declare.destination import (
    Destination,
    FencedError,
    SinkBatch,
    SinkContext,
    SinkPosition,
)
from tapeline.declare.expectations import (
    Expectation,
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
)
from tapeline.declare.format import Format, RecordFile
from tapeline.declare.pipeline import (
    DeclaredSource,
    Input,
    Page,
    Pipeline,
    Pull,
    Reference,
    Snapshot,
    Step,
    Stream,
    Summary,
    Table,
    View,
)
from tapeline.declare.schema import Field, parse_schema
from tapeline.declare.sink import Alerts, Changes, Rows, Sink
from tapeline.declare.source import Polled, Source
from tapeline.declare.where import Where

__all__ = [
    "Alert",
    "Alerts",
    "Changes",
    "DeclaredSource",
    "Destination",
    "Each",
    "Expectation",
    "FencedError",
    "Field",
    "Format",
    "Input",
    "Page",
    "Pipeline",
    "Polled",
    "Pull",
    "RecordFile",
    "Reference",
    "Rows",
    "Sink",
    "SinkBatch",
    "SinkContext",
    "SinkPosition",
    "Snapshot",
    "Source",
    "Step",
    "Stream",
    "Summary",
    "Table",
    "View",
    "Where",
    "expect",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "parse_schema",
]
