"""Formats that Spark does not read record by record: translated to JSON on the way to a step."""

from tapeline.run.formats.translate import Translate, translator

__all__ = ["Translate", "translator"]
