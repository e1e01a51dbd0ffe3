"""What leaves: published batches become messages, on threads that never hold up the flow."""

from tapeline.declare.destination import SinkBatch
from tapeline.deliver.outbox import Outbox
from tapeline.deliver.workers import SinkWorkers

__all__ = ["Outbox", "SinkBatch", "SinkWorkers"]
