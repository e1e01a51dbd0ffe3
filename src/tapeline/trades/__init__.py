"""The brokerage: trades from three terminals, their summary and what is due for settlement."""

from tapeline.trades.pipeline import pipeline

__all__ = ["pipeline"]
