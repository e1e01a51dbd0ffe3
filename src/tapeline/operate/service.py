"""A service file for systemd: starts a pipeline with the machine and restarts what died."""

from __future__ import annotations

import getpass
import re
import sys
from pathlib import Path

from tapeline.declare.duration import parse_duration
from tapeline.errors import DeclarationError
from tapeline.plan import Plan
from tapeline.settings import Settings

# The one it asks for is the Python process; Java ends with it, between two batches.
UNIT = """\
# systemd: save as /etc/systemd/system/tapeline-{name}.service, then
#   systemctl daemon-reload && systemctl enable --now tapeline-{name}
[Unit]
Description=Tapeline pipeline {name}
After=local-fs.target network.target

[Service]
Type=exec
User={user}
WorkingDirectory={project}
ExecStart={command}
# SIGTERM goes to Tapeline only, which finishes its batch and stops Java itself.
KillMode=mixed
TimeoutStopSec=180
Restart=on-failure
RestartSec=10
# Do not restart after an error in the pipeline file or the settings.
RestartPreventExitStatus=2
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def unit(plan: Plan, target: str, settings: Settings, every: str, user: str | None) -> str:
    """The text of the service file, with absolute paths of this machine."""
    if every != "asap":
        parse_duration(every)
    name = user or getpass.getuser()
    if not re.fullmatch(r"[a-z_][a-z0-9_-]*", name):
        raise DeclarationError(f"'{name}' is not a user name.")
    file = Path(target)
    words = [sys.executable, "-m", "tapeline", "run"]
    words += [str(settings.within(file)) if file.suffix == ".py" else target, "--every", every]
    words += ["--project", str(settings.project), "--root", str(settings.within(settings.root))]
    return UNIT.format(
        name=plan.name,
        user=name,
        project=_escaped(str(settings.project)),
        command=" ".join(_quoted(word) for word in words),
    )


def _quoted(word: str) -> str:
    """A word of a command line, as systemd reads it."""
    text = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{text}"' if re.search(r"[\s\"'\\;]", text) else text


def _escaped(text: str) -> str:
    if not text.isprintable():
        raise DeclarationError(f"{text!r} cannot be used in a service file. Choose another path.")
    return text.replace("%", "%%")
