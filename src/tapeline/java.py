"""Java and the jars that set-up fetched: where they are, and whether they are the pinned ones."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tapeline.errors import OperationError

OLDEST_JAVA = 17
LIST = Path(__file__).parents[2] / "jars.sha256"


def java_command() -> str | None:
    """The Java that Spark takes, too: of $JAVA_HOME, else of the path."""
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else shutil.which("java")
    return command if command and Path(command).exists() else None


def java_version() -> int | None:
    """Its version, such as 17."""
    command = java_command()
    if command is None:
        return None
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match[1]) if match else None


def jars_folder() -> Path | None:
    """Where set-up put the jars: $TAPELINE_JARS, else .jars here or beside the package."""
    said = os.environ.get("TAPELINE_JARS")
    beside = Path(__file__).parents[2] / ".jars"
    for folder in [Path(said)] if said else [Path.cwd() / ".jars", beside]:
        if folder.is_dir():
            return folder.absolute()
    return None


def find_jar(prefix: str) -> Path | None:
    """The jar of that name, whatever its version."""
    folder = jars_folder()
    return next(iter(sorted(folder.glob(f"{prefix}*.jar"))), None) if folder else None


def listed_jars() -> dict[str, str]:
    """The SHA-256 of every pinned jar, by its path below the folder; empty without a checkout."""
    if not LIST.exists():
        return {}
    lines = [line.split() for line in LIST.read_text().splitlines() if line.strip()]
    return {name.removeprefix("*"): digest for digest, name in lines}


def wrong_jars(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of the pinned jars that are missing or are not what was pinned."""
    listed = listed_jars()
    return [name for name in names if name in listed and _sum(folder / name) != listed[name]]


def refuse_wrong_jars(folder: Path, names: Iterable[str]) -> None:
    """Never load a jar that is not the pinned one."""
    wrong = wrong_jars(folder, names)
    if wrong:
        raise OperationError(
            f"{folder}: missing, or not the jars of jars.sha256: {', '.join(wrong)}. "
            "Run 'make setup', which fetches them again."
        )


def _sum(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
