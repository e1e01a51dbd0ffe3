"""What people ask of a pipeline from another terminal: pause, resume, stop.

A pause is a file beside the books: it holds across restarts until somebody resumes. While it lies
there the flow publishes nothing; intake and the tape go on, so that nothing waits at the senders.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Any

from tapeline.books.durable import replace_file
from tapeline.books.layout import Layout
from tapeline.errors import OperationError
from tapeline.run.lock import holder
from tapeline.watch.quarantine import Signed, user

POLL_SECONDS = 0.1


def pause(layout: Layout, signed: Signed) -> dict[str, Any]:
    """Let the flow rest from its next batch on; a second pause changes nothing."""
    known = paused(layout)
    if known is not None:
        return known
    facts = {"at": signed.at.isoformat(), "who": signed.who or user(), "note": signed.note}
    layout.home.mkdir(parents=True, exist_ok=True)
    replace_file(layout.paused, json.dumps(facts).encode())
    return facts


def resume(layout: Layout) -> dict[str, Any] | None:
    """Let the flow go on; gives back the pause that is over, if there was one."""
    known = paused(layout)
    layout.paused.unlink(missing_ok=True)
    return known


def paused(layout: Layout) -> dict[str, Any] | None:
    """Who paused the flow, when and why."""
    try:
        facts: dict[str, Any] = json.loads(layout.paused.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return {"at": None, "who": "unknown", "note": f"{layout.paused} cannot be read"}
    return facts


def refuse_paused(layout: Layout) -> None:
    facts = paused(layout)
    if facts is not None:
        raise OperationError(
            f"PAUSED: {facts['who']} paused this pipeline at {facts['at']}"
            f"{': ' + facts['note'] if facts['note'] else ''}. 'tapeline resume' lets it go on."
        )


def stop(layout: Layout, seconds: float) -> bool:
    """Ask the process that runs to end after its batch, and wait for it; False if none runs."""
    found = holder(layout.home)
    if found is None:
        return False
    pid, host = found.get("pid"), found.get("host")
    if not isinstance(pid, int) or host != socket.gethostname():
        raise OperationError(f"the pipeline runs on '{host}', not on this machine: stop it there.")
    with suppress(ProcessLookupError):  # it may have ended a moment ago
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while holder(layout.home) is not None:
        if time.monotonic() > deadline:
            raise OperationError(
                f"process {pid} was asked to stop and is still at work after {seconds:g} seconds. "
                f"Wait, or end it with 'kill -9 {pid}': nothing is lost or doubled."
            )
        time.sleep(POLL_SECONDS)
    return True
