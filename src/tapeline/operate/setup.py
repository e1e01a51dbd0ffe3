"""Set-up: fetches the pinned jars with the Ivy inside PySpark and compares them before use."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tapeline.errors import OperationError
from tapeline.java import (
    LIST,
    OLDEST_JAVA,
    file_sum,
    java_command,
    java_version,
    listed_jars,
    packaged_java,
    spark_home,
    wanted_folder,
    wrong_jars,
)
from tapeline.operate.trust_store import java_options, trusted_certificates, write_trust_store

# Which jars: part of the package, as the list of their hashes is.
IVY_FILE = Path(__file__).parents[1] / "ivy.xml"
TRUST_STORE = "trusted.jks"
# The broker's are in a folder of their own: versions differ from Spark's.
FOLDERS = {"spark": "", "broker": "broker/"}


def is_ready(folder: Path | None = None) -> bool:
    """Whether every listed jar is there and unchanged, and no other jar is."""
    place = folder or wanted_folder()
    if not place.is_dir():
        return False
    present = {str(path.relative_to(place)) for path in place.rglob("*.jar")}
    return present == listed_jars().keys() and not wrong_jars(place, present)


def fetch_jars(folder: Path | None = None) -> Path:
    """Put the pinned jars into their folder. What differs from the list is never put there."""
    place = folder or wanted_folder()
    with _alone(place):
        if is_ready(place):
            return place
        with _fresh_folder(place) as fresh:
            retrieve(fresh)
            wrong = wrong_jars(fresh, listed_jars())
            if wrong:
                raise OperationError(
                    f"the downloaded jars differ from {LIST.name}: {', '.join(wrong)}. Nothing was "
                    "installed. Check where this machine gets its jars from."
                )
            for path in fresh.rglob("*.jar"):
                if str(path.relative_to(fresh)) not in listed_jars():
                    path.unlink()
            _put(fresh, place)
    return place


def pin_jars() -> int:
    """Write the hashes of what ivy.xml names today, for developers. Returns how many."""
    place = wanted_folder()
    with _alone(place), _fresh_folder(place) as fresh:
        retrieve(fresh)
        names = sorted(str(path.relative_to(fresh)) for path in fresh.rglob("*.jar"))
        names.sort(key=lambda name: "/" in name)
        LIST.write_text("".join(f"{file_sum(fresh / name)}  {name}\n" for name in names))
        _put(fresh, place)
    return len(names)


def retrieve(folder: Path) -> None:
    """Let Ivy fetch the jars of ivy.xml from wherever this machine's settings say."""
    java, ivy = _java(), _ivy()
    trust: list[str] = []
    if java == packaged_java():
        write_trust_store(folder / TRUST_STORE, trusted_certificates())
        trust = java_options(folder / TRUST_STORE)
    for conf, below in FOLDERS.items():
        pattern = f"{folder}/{below}[artifact]-[revision].[ext]"
        command = [java, *trust, "-jar", ivy, "-cache", f"{folder}/.ivy", "-ivy", str(IVY_FILE)]
        command += ["-confs", conf, "-types", "jar", "bundle", "-retrieve", pattern]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise OperationError(
                f"the jars could not be downloaded. Check the network, or the settings of Ivy on "
                f"this machine. Ivy's last lines:\n{last}"
            )
    shutil.rmtree(folder / ".ivy", ignore_errors=True)
    (folder / TRUST_STORE).unlink(missing_ok=True)


def _java() -> str:
    command, version = java_command(), java_version()
    if command is None or version is None or version < OLDEST_JAVA:
        raise OperationError(
            f"Spark needs Java {OLDEST_JAVA} or newer; found: {version or 'none'}. Install one, or "
            "run: pip install 'tapeline[java]'"
        )
    return command


def _ivy() -> str:
    """The jar of Ivy in PySpark's package."""
    found = list(spark_home().glob("jars/ivy-*.jar"))
    if len(found) != 1:
        raise OperationError(
            "the Ivy inside PySpark was not found. Install PySpark again: pip install "
            "--force-reinstall pyspark"
        )
    return str(found[0])


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One set-up at a time; whoever waited finds it done. Only its user may look or write there."""
    for folder in reversed((place.parent, *place.parent.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700)
    handle = os.open(place.with_name(f"{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _fresh_folder(place: Path) -> Iterator[Path]:
    """A folder beside the jars, so that moving it there is one rename; gone at the end."""
    fresh = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    (fresh / "broker").mkdir(mode=0o700)
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put(fresh: Path, place: Path) -> None:
    """Let one folder take the place of another."""
    if place.exists():
        old = fresh.with_name(f"{fresh.name}.old")
        place.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    fresh.rename(place)
