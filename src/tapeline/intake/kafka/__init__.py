"""Topics: messages out of a Kafka cluster, immutable pieces into the tape."""

from tapeline.intake.kafka.intake import TopicIntake
from tapeline.intake.kafka.losses import TopicOwner

__all__ = ["TopicIntake", "TopicOwner"]
