"""The pages. Their files are listed when the server starts; no request can name a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tapeline.plan import Plan

HERE = Path(__file__).parent
# Pages that every pipeline has, after its own.
OWN = {
    "summary": "Summaries",
    "search": "Search",
    "deliveries": "Deliveries",
    "exceptions": "Exceptions",
    "balance": "Balance",
    "health": "Health",
}
CHARTS = Path(str(files("plotly") / "package_data" / "plotly.min.js"))
# The chart library adds a style element for maps unless there is an element with this id already.
MAP_STYLE = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class ServedPage:
    """A page of this server."""

    name: str
    title: str
    html: Path
    script: Path
    facts: Mapping[str, str] = field(default_factory=dict)


def pages_of(plan: Plan) -> dict[str, ServedPage]:
    """The pipeline's own pages first."""
    found = {
        p.name: ServedPage(p.name, p.title, p.html, p.script, p.facts)
        for p in plan.pipeline.pages.values()
    }
    for name, title in OWN.items():
        path = HERE / "pages" / f"{name}.html"
        found.setdefault(name, ServedPage(name, title, path, path.with_suffix(".js")))
    return found


def framed(plan: Plan, shown: dict[str, ServedPage], page: ServedPage) -> str:
    """The HTML of a page, inside the frame that all pages share."""
    links = "".join(
        f'<a href="/{one.name}"{" aria-current=page" * (one is page)}>{escape(one.title)}</a>'
        for one in shown.values()
    )
    frame = (HERE / "pages" / "frame.html").read_text(encoding="utf-8")
    facts = "".join(
        f' data-{name.replace("_", "-")}="{escape(str(fact))}"' for name, fact in page.facts.items()
    )
    parts = {
        "title": escape(page.title),
        "pipeline": escape(plan.name),
        "links": links,
        "quiet": "".join(f'<meta id="{one}" name="no-map-style">' for one in _map_styles()),
        "script": f"/scripts/{page.name}.js",
        "facts": facts,
        "content": page.html.read_text(encoding="utf-8"),
    }
    # In one pass, so that a mark inside a part stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], frame)


@cache
def _map_styles() -> list[str]:
    """Ids of the chart library's inline styles, which our Content-Security-Policy would block.

    Charts need none of them. With these ids taken, the library does not try to add them.
    """
    return MAP_STYLE.findall(CHARTS.read_text(encoding="utf-8"))


def router(plan: Plan) -> APIRouter:
    """Routes of the pages, their scripts and shared files."""
    routes = APIRouter(include_in_schema=False)
    shown = pages_of(plan)
    static = {path.name: path for path in (HERE / "static").iterdir()}
    static[CHARTS.name] = CHARTS

    @routes.get("/")
    def home() -> Response:
        return RedirectResponse(f"/{next(iter(shown))}", 303)

    @routes.get("/static/{name}")
    def file(name: str) -> Response:
        path = static.get(name)
        if path is None:
            raise HTTPException(404, "file not found.")
        # The library is 4.8 MB and changes only with the installed version.
        kept = "public, max-age=86400" if name == CHARTS.name else "no-cache"
        return Response(
            path.read_bytes(), media_type=MEDIA[path.suffix], headers={"cache-control": kept}
        )

    @routes.get("/scripts/{name}.js")
    def script(name: str) -> Response:
        if name not in shown:
            raise HTTPException(404, "script not found.")
        headers = {"cache-control": "no-cache"}
        return Response(shown[name].script.read_bytes(), media_type=MEDIA[".js"], headers=headers)

    @routes.get("/{name}")
    def page(name: str) -> HTMLResponse:
        if name not in shown:
            raise HTTPException(
                404, "page not found. The links at the top of each page list all pages."
            )
        return HTMLResponse(framed(plan, shown, shown[name]))

    return routes
