"""What a pipeline means: its graph, checked without Spark."""

from tapeline.plan.graph import Plan, resolve
from tapeline.plan.load import load_pipeline

__all__ = ["Plan", "load_pipeline", "resolve"]
