"""Tapeline keeps the books of a stream."""
