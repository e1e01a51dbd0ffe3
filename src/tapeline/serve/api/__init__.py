"""The API: the books as JSON or CSV. Every answer has a size limit.

One module per topic: rows, history of a number, deliveries, quarantine, and state of the
pipeline.
"""

from __future__ import annotations

from fastapi import FastAPI

from tapeline.serve.api import deliveries, health, quarantine, read, why
from tapeline.serve.api.context import ApiContext


def add_api(app: FastAPI, desk: ApiContext) -> None:
    """Add all routes under /api. Routes that change something need serve.acts = 'yes'."""
    app.state.desk = desk
    rooms = [
        read.routes, why.routes, deliveries.routes, quarantine.routes, health.routes,
    ]  # fmt: skip
    if desk.settings.acts == "yes":
        rooms.append(quarantine.acts)
    for routes in rooms:
        app.include_router(routes)
