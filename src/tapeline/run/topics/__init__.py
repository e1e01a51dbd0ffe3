"""Topics: messages out of a Kafka cluster, immutable pieces into the tape."""

from tapeline.run.topics.intake import TopicIntake
from tapeline.run.topics.losses import Owner

__all__ = ["Owner", "TopicIntake"]
