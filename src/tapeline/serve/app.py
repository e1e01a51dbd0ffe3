"""The server of one pipeline's books: API, live feed and pages."""

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
from tapeline.errors import OperationError, TapelineError
from tapeline.serve import pages
from tapeline.serve.api import add_api
from tapeline.serve.api.context import ApiContext
from tapeline.serve.cache import ResponseCache
from tapeline.serve.connections import HEADER_BYTES, Limits, connections_of
from tapeline.serve.door import COOKIE, SESSION_SECONDS, Door, TooManyAttempts, session_in
from tapeline.serve.feed import Feed, TooManyClients
from tapeline.serve.guard import Guard
from tapeline.serve.metrics import metrics_of
from tapeline.serve.proxies import Proxies
from tapeline.serve.tokens import Token, read_tokens
from tapeline.settings import ServeSettings
from tapeline.store.delta_files import read_files
from tapeline.terminal import HarmlessFormatter

# Threads that compute answers. Few, because the pipeline may run on the same machine.
THREADS = 4
SHUTDOWN_SECONDS = 3
# A client that reads nothing of its answer for this long is disconnected.
ANSWER_SECONDS = 60.0


def build(
    books: Books, settings: ServeSettings, tokens: list[Token], feed: Feed, project: Path
) -> ASGIApp:
    """The application, behind its guard."""

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
        description="The published books of a stream. Amounts are text, never floats.",
        version="1",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    answers = ResponseCache(settings.answers_megabytes * 1024 * 1024)
    add_api(app, ApiContext(books, feed, answers, settings, project))
    _add_errors(app)
    door = Door(tokens, settings)
    _add_plain_routes(app, books, feed, project)
    _add_login(app, door, settings)
    app.include_router(pages.router(books.plan))
    return Guard(app, settings, door)


def _open_tables(books: Books) -> None:
    """Open all tables before the first request: opening costs far more than an update."""
    with suppress(TapelineError, OSError):
        cut = books.cut()
        for table in books.plan.tables:
            read_files(books.layout.table(cut.register(table.name)))
        for summary in books.plan.summaries:
            books.read(summary.name)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(TapelineError)
    async def refuse(_: Request, error: TapelineError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(TooManyAttempts)
    async def wait_a_minute(_: Request, error: TooManyAttempts) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 429, {"retry-after": "60"})

    @app.exception_handler(TooManyClients)
    async def wait(_: Request, error: TooManyClients) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 503, {"retry-after": "5"})


def _add_plain_routes(app: FastAPI, books: Books, feed: Feed, project: Path) -> None:
    @app.get("/healthz", include_in_schema=False)
    def healthz() -> JSONResponse:
        return JSONResponse({"ok": feed.problem is None}, 200 if feed.problem is None else 503)

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return metrics_of(books, feed, project)


def _add_login(app: FastAPI, door: Door, settings: ServeSettings) -> None:
    frame = (Path(__file__).parent / "pages" / "login.html").read_text(encoding="utf-8")

    @app.get("/login", include_in_schema=False)
    def login_page(wrong: bool = False) -> HTMLResponse:
        note = "Unknown token. Check it and try again." if wrong else ""
        return HTMLResponse(frame.replace("{{note}}", note))

    @app.post("/login", include_in_schema=False)
    def login(request: Request, given: str = Form(alias="token", max_length=500)) -> Response:
        reader = door.reader_with(given.strip(), request.client.host if request.client else "")
        if reader is None:
            return RedirectResponse("/login?wrong=true", 303)
        answer = RedirectResponse("/", 303)
        if door.takes_tokens:
            answer.set_cookie(
                COOKIE,
                door.begin_session(reader),
                max_age=SESSION_SECONDS,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https" or settings.behind_proxy == "yes",
            )
        return answer

    @app.post("/logout", include_in_schema=False)
    def logout(request: Request) -> Response:
        door.end_session(session_in(request.scope))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


class _Uvicorn(uvicorn.Server):
    """Closes the live streams on exit; otherwise shutdown would wait for them."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._feed.close()
        super().handle_exit(sig, frame)


class Server:
    """A uvicorn server for one application."""

    def __init__(self, books: Books, settings: ServeSettings, project: Path) -> None:
        tokens = read_tokens(settings, project)
        feed = Feed(books, settings.clients)
        app = build(books, settings, tokens, feed, project)
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
            proxy_headers=False,  # the guard reads them, and only from trusted proxies
            http=connections_of(_limits(settings)),
            limit_concurrency=settings.clients + 200,  # our own limits apply first
            h11_max_incomplete_event_size=HEADER_BYTES,
            log_config=None,
        )
        self._server = _Uvicorn(config, feed)

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(HarmlessFormatter("%(message)s"))
        logging.basicConfig(handlers=[handler], level=logging.WARNING)
        logging.getLogger("tapeline.serve").setLevel(logging.INFO)
        self._server.run(sockets=[self._socket])


def _limits(settings: ServeSettings) -> Limits:
    return Limits(
        most=settings.clients + 100,
        most_per_address=settings.connections_per_address,
        request_seconds=settings.request_seconds,
        answer_seconds=ANSWER_SECONDS,
        proxies=Proxies(settings.trusted_proxies),
    )


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
            f"cannot listen on {address}:{port}: {error.strerror}. Choose another port with "
            "--port, or use --port 0 for any free port."
        ) from None
    return found
