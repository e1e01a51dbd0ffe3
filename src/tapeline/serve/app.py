"""The server: the API, the live feed and the pages of one pipeline's books."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from tapeline.books import Books
from tapeline.books.delta import read_files
from tapeline.errors import OperationError, TapelineError
from tapeline.serve import pages
from tapeline.serve.answers import Answers
from tapeline.serve.api import add_api
from tapeline.serve.api.desk import Desk
from tapeline.serve.feed import Feed, TooManyClients
from tapeline.serve.guard import COOKIE, SESSION_SECONDS, Guard, equal, read_token, session_of
from tapeline.serve.metrics import metrics_of
from tapeline.settings import ServeSettings

# Answers are computed by so many threads: the pipeline runs on the same machine.
THREADS = 4
SHUTDOWN_SECONDS = 3


def build(books: Books, settings: ServeSettings, token: str | None, feed: Feed) -> ASGIApp:
    """The application, guarded."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        await asyncio.to_thread(_open_tables, books)
        following = asyncio.create_task(feed.run())
        yield
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    app = FastAPI(
        title=f"Tapeline: {books.plan.name}",
        description="The books of a stream, read without Spark. Money is text, never a float.",
        version="1",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    answers = Answers(settings.answers_megabytes * 1024 * 1024)
    add_api(app, Desk(books, feed, answers, settings))
    _add_errors(app)
    _add_plain_routes(app, books, feed, token, settings)
    app.include_router(pages.router(books.plan))
    return Guard(app, settings, token)


def _open_tables(books: Books) -> None:
    """Before the first page asks: opening a table costs many times what following it does."""
    with suppress(TapelineError, OSError):
        for table in books.plan.tables:
            read_files(books.layout.register(table.name))
        for summary in books.plan.summaries:
            books.read(summary.name)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(TapelineError)
    async def refuse(_: Request, error: TapelineError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(TooManyClients)
    async def wait(_: Request, error: TooManyClients) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 503, {"retry-after": "5"})


def _add_plain_routes(
    app: FastAPI, books: Books, feed: Feed, token: str | None, settings: ServeSettings
) -> None:
    frame = (Path(__file__).parent / "pages" / "login.html").read_text(encoding="utf-8")

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> JSONResponse:
        return JSONResponse({"ok": feed.problem is None}, 200 if feed.problem is None else 503)

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return metrics_of(books, feed)

    @app.get("/login", include_in_schema=False)
    def login_page(wrong: bool = False) -> HTMLResponse:
        note = "That is not the token." if wrong else ""
        return HTMLResponse(frame.replace("{{note}}", note))

    @app.post("/login", include_in_schema=False)
    def login(request: Request, given: str = Form(alias="token", max_length=500)) -> Response:
        if token is None:
            return RedirectResponse("/", 303)
        if not equal(given.strip(), token):
            return RedirectResponse("/login?wrong=true", 303)
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https" or settings.behind_proxy == "yes"
        answer.set_cookie(
            COOKIE,
            session_of(token),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return answer


class _Uvicorn(uvicorn.Server):
    """Ends the live streams when it is asked to end: they would keep it waiting."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._feed.close()
        super().handle_exit(sig, frame)


class Server:
    """A uvicorn server of one application."""

    def __init__(self, books: Books, settings: ServeSettings, project: Path) -> None:
        token = read_token(settings, project)
        feed = Feed(books, settings.clients)
        app = build(books, settings, token, feed)
        self._socket = _listen(settings.address, settings.port)
        host, port = self._socket.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            limit_concurrency=settings.clients + 100,
            h11_max_incomplete_event_size=16 * 1024,
        )
        self._server = _Uvicorn(config, feed)

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
        logging.getLogger("tapeline.serve").setLevel(logging.INFO)
        self._server.run(sockets=[self._socket])


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address, port))
        found.listen(2048)
    except OSError as error:
        found.close()
        raise OperationError(
            f"{address}:{port} cannot be used: {error.strerror}. Choose another with --port, or "
            "--port 0 for any free one."
        ) from None
    return found
