"""Showing the books: an API, a live feed and pages, without Spark."""
