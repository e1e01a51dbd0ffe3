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
# Part of the package: an installed Tapeline compares, too.
LIST = Path(__file__).parent / "jars.sha256"


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
    """Where set-up put the jars: $TAPELINE_JARS, else .jars beside the package.

    Never the current folder: whoever can write there would choose what the JVM runs.
    """
    said = os.environ.get("TAPELINE_JARS")
    folder = Path(said) if said else Path(__file__).parents[2] / ".jars"
    return folder.absolute() if folder.is_dir() else None


def listed_jars() -> dict[str, str]:
    """The SHA-256 of every pinned jar, by its path below the folder. Refuses a missing list."""
    try:
        lines = [line.split() for line in LIST.read_text().splitlines() if line.strip()]
        listed = {name.removeprefix("*"): digest for digest, name in lines}
    except (OSError, ValueError) as error:
        raise OperationError(
            f"{LIST} cannot be read ({error}), so no jar can be verified or loaded. Install "
            "Tapeline again, or restore the file from the repository."
        ) from None
    if not listed:
        raise OperationError(
            f"{LIST} is empty, so no jar can be verified or loaded. Install Tapeline again, or "
            "restore the file from the repository."
        )
    return listed


def named_jar(prefix: str) -> str:
    """The listed jar whose name begins so: the list decides on the version, not the folder."""
    found = [name for name in listed_jars() if name.startswith(prefix)]
    if len(found) != 1:
        raise OperationError(
            f"{LIST.name} lists {len(found)} jars that start with '{prefix}'; there must be "
            "exactly one. Restore the list from the repository."
        )
    return found[0]


def has_jar(name: str) -> bool:
    """Whether set-up fetched it. This says nothing of what it holds."""
    folder = jars_folder()
    return folder is not None and (folder / name).exists()


def wrong_jars(folder: Path, names: Iterable[str]) -> list[str]:
    """Those jars that are missing, are not on the list or are not what was pinned."""
    listed = listed_jars()
    return [name for name in names if listed.get(name, "") != _sum(folder / name)]


def compared_jars(names: Iterable[str]) -> list[Path]:
    """The paths of jars that are the pinned ones. Only these may reach a JVM."""
    wanted = list(names)
    folder = jars_folder()
    if folder is None:
        raise OperationError(
            f"jars are missing: {', '.join(wanted)}. Run 'make setup', or set TAPELINE_JARS to "
            "their folder."
        )
    unlisted = [name for name in wanted if name not in listed_jars()]
    if unlisted:
        raise OperationError(
            f"{folder}: not on the list of known jars ({LIST.name}), so never loaded: "
            f"{', '.join(unlisted)}. Run 'make lock-jars' if you changed ivy.xml."
        )
    wrong = wrong_jars(folder, wanted)
    if wrong:
        raise OperationError(
            f"{folder}: missing, or different from {LIST.name}: {', '.join(wrong)}. Run 'make "
            "setup' to download them again."
        )
    return [folder / name for name in wanted]


def _sum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
