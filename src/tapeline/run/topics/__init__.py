"""Topics: messages out of a Kafka cluster, immutable pieces into the tape."""

from tapeline.run.topics.intake import TopicIntake

__all__ = ["TopicIntake"]
