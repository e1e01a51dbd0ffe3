"""What leaves: published batches become messages, on threads that never hold up the flow."""

from tapeline.run.sinks.delivering import Delivering
from tapeline.run.sinks.outbox import Outbox, Outgoing

__all__ = ["Delivering", "Outbox", "Outgoing"]
