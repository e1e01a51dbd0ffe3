"""Where data comes from and goes to: one module per system, pyspark only inside methods."""

from tapeline.connect.files import Files

__all__ = ["Files"]
