"""What people ask of a pipeline from another terminal: pause, resume, stop.

A pause is a file beside the books: it survives restarts until somebody resumes. While it is
there the flow publishes nothing. Intake continues, so that nothing waits at the senders.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress

from tapeline.books.layout import Layout
from tapeline.books.quarantine import Actor, user
from tapeline.books.status import Pause
from tapeline.errors import OperationError
from tapeline.store.files import make_folder, read_bytes, remove, replace_json
from tapeline.store.lock import holder

POLL_SECONDS = 0.1


def pause(layout: Layout, signed: Actor) -> Pause:
    """Pause the flow before its next batch. A second pause changes nothing."""
    known = paused(layout)
    if known is not None:
        return known
    made = Pause(at=signed.at.isoformat(), who=signed.who or user(), note=signed.note)
    make_folder(layout.home)
    replace_json(layout.paused, made.as_dict())
    return made


def resume(layout: Layout) -> Pause | None:
    """Resume the flow. Returns the pause that is over, if there was one."""
    known = paused(layout)
    remove(layout.paused)
    return known


def paused(layout: Layout) -> Pause | None:
    """Who paused the flow, when and why."""
    try:
        return Pause.from_json(read_bytes(layout.paused))
    except FileNotFoundError:
        return None
    except ValueError:
        return Pause(at=None, who="unknown", note=f"{layout.paused} cannot be read")


def refuse_paused(layout: Layout) -> None:
    found = paused(layout)
    if found is not None:
        raise OperationError(
            f"PAUSED: {found.who} paused this pipeline at "
            f"{found.at}{': ' + found.note if found.note else ''}. Resume it with "
            "'tapeline resume'."
        )


def stop(layout: Layout, seconds: float) -> bool:
    """Ask the process that runs to end after its batch, and wait for it; False if none runs."""
    found = holder(layout.home)
    if found is None:
        return False
    pid, host = found.get("pid"), found.get("host")
    if not isinstance(pid, int) or host != socket.gethostname():
        raise OperationError(
            f"the pipeline is running on '{host}', not on this machine. Stop it there."
        )
    with suppress(ProcessLookupError):  # it may have ended a moment ago
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while holder(layout.home) is not None:
        if time.monotonic() > deadline:
            raise OperationError(
                f"process {pid} was asked to stop and is still running after {seconds:g} seconds. "
                f"Wait, or kill it with 'kill -9 {pid}': nothing is lost or counted twice."
            )
        time.sleep(POLL_SECONDS)
    return True
