"""Notifications: a command or a webhook of the user's choice, retried until it succeeds.

The webhook is called by Python's own client: an alarm must not depend on an extra package, and it
trusts the certificates that this machine trusts.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import urllib.request
from collections import deque
from typing import Any

from tapeline.errors import DeclarationError
from tapeline.settings import NotifySettings
from tapeline.supervisor import back_off

COMMAND_SECONDS = 30.0
WEBHOOK_SECONDS = 10.0
MAX_WAIT_SECONDS = 60.0
MOST_KEPT = 1_000  # then the oldest message is dropped


class _StaysHere(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: a POST that follows one becomes a GET without the message."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Notifier:
    """Sends messages in order, on its own thread; batches never wait for it."""

    def __init__(self, settings: NotifySettings) -> None:
        self._command = shlex.split(settings.command)
        self._webhook = settings.webhook
        self._slack = settings.webhook_format == "slack"
        if self._webhook and not self._webhook.startswith(("http://", "https://")):
            raise DeclarationError("notify.webhook must start with http:// or https://.")
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MOST_KEPT)
        self._something = threading.Condition()
        self._stop = False
        self.problem: str | None = None
        self._thread: threading.Thread | None = None

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message until it is sent; does nothing if no notification is set up."""
        if not self._command and not self._webhook:
            return
        with self._something:
            self._waiting.append(message)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
                self._thread.start()
            self._something.notify()

    def close(self, seconds: float = 5.0) -> None:
        """Send waiting messages, for at most a few seconds."""
        with self._something:
            self._stop = True
            self._something.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        attempts = 0
        while True:
            with self._something:
                while not self._waiting and not self._stop:
                    self._something.wait()
                if not self._waiting:
                    return
                message = self._waiting[0]
            try:
                self._deliver(message)
            except Exception as error:  # noqa: BLE001 - a broken channel must not end the thread
                # The address may contain a secret: name only the type of the error.
                self.problem = f"notification not sent: {type(error).__name__}"
                attempts += 1
                with self._something:
                    if self._stop:
                        return
                    self._something.wait(back_off(attempts, MAX_WAIT_SECONDS))
                continue
            attempts, self.problem = 0, None
            with self._something:
                self._waiting.popleft()

    def _deliver(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        for_webhook = json.dumps(slack(message)).encode() if self._slack else text
        if self._command:
            subprocess.run(
                self._command,
                input=text,
                timeout=COMMAND_SECONDS,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        if self._webhook:
            request = urllib.request.Request(
                self._webhook, for_webhook, {"Content-Type": "application/json"}
            )
            opener = urllib.request.build_opener(_StaysHere)
            with opener.open(request, timeout=WEBHOOK_SECONDS):
                pass


def slack(message: dict[str, Any]) -> dict[str, str]:
    """A message as Slack's incoming webhooks take it: one text, with nothing that is markup."""
    mark = ":white_check_mark:" if message["event"] in ("over", "closed") else ":warning:"
    what = message.get("alert") or message.get("part", "")
    words = message.get("about") or message.get("error", "")
    event = message["event"].replace("_", " ")
    text = f"{message['pipeline']}: {what} ({event}): {words}"
    for character, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, safe)
    return {"text": f"{mark} {text}"}
