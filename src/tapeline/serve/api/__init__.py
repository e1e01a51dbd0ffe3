"""The API: everything that people look at, as JSON or CSV, with limits on everything.

A module per question: what the books hold, why it is so, what lies in quarantine, how things stand.
"""

from __future__ import annotations

from fastapi import FastAPI

from tapeline.serve.api import explaining, quarantine, reading, standing
from tapeline.serve.api.desk import Desk


def add_api(app: FastAPI, desk: Desk) -> None:
    """All routes under /api; those that change something only where the settings allow it."""
    app.state.desk = desk
    rooms = [reading.routes, explaining.routes, quarantine.routes, standing.routes]
    if desk.settings.acts == "yes":
        rooms.append(quarantine.acts)
    for routes in rooms:
        app.include_router(routes)
