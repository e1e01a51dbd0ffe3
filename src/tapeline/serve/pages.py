"""The pages: files that were known when the server started. No request names a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tapeline.plan import Plan

HERE = Path(__file__).parent
# Pages that every pipeline has, behind its own.
OWN = {
    "summary": "Summaries",
    "exceptions": "Exceptions",
    "balance": "Balance",
    "health": "Health",
}
MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Shown:
    """A page as the server knows it."""

    name: str
    title: str
    html: Path
    script: Path
    facts: Mapping[str, str] = field(default_factory=dict)


def pages_of(plan: Plan) -> dict[str, Shown]:
    """The pipeline's own pages first."""
    found = {
        p.name: Shown(p.name, p.title, p.html, p.script, p.facts)
        for p in plan.pipeline.pages.values()
    }
    for name, title in OWN.items():
        path = HERE / "pages" / f"{name}.html"
        found.setdefault(name, Shown(name, title, path, path.with_suffix(".js")))
    return found


def framed(plan: Plan, shown: dict[str, Shown], page: Shown) -> str:
    """A page in the frame that all share."""
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
        "script": f"/scripts/{page.name}.js",
        "facts": facts,
        "content": page.html.read_text(encoding="utf-8"),
    }
    # In one pass: a mark inside a part is text.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], frame)


def router(plan: Plan) -> APIRouter:
    """Pages, their scripts, and the files they share."""
    routes = APIRouter(include_in_schema=False)
    shown = pages_of(plan)
    static = {path.name: path for path in (HERE / "static").iterdir()}
    static["plotly.min.js"] = Path(str(files("plotly") / "package_data" / "plotly.min.js"))

    @routes.get("/")
    def home() -> Response:
        return RedirectResponse(f"/{next(iter(shown))}", 303)

    @routes.get("/static/{name}")
    def file(name: str) -> Response:
        path = static.get(name)
        if path is None:
            raise HTTPException(404, "there is no such file.")
        # The library is 4.8 MB and changes with the installed version only.
        kept = "public, max-age=86400" if name == "plotly.min.js" else "no-cache"
        return Response(
            path.read_bytes(), media_type=MEDIA[path.suffix], headers={"cache-control": kept}
        )

    @routes.get("/scripts/{name}.js")
    def script(name: str) -> Response:
        if name not in shown:
            raise HTTPException(404, "there is no such script.")
        headers = {"cache-control": "no-cache"}
        return Response(shown[name].script.read_bytes(), media_type=MEDIA[".js"], headers=headers)

    @routes.get("/{name}")
    def page(name: str) -> HTMLResponse:
        if name not in shown:
            raise HTTPException(404, "there is no such page.")
        return HTMLResponse(framed(plan, shown, shown[name]))

    return routes
