"""A real Kafka broker for development and tests."""

from tapeline.broker.broker import Broker, Status

__all__ = ["Broker", "Status"]
