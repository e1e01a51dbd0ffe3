"""The archive of classes: what a JVM has loaded once, the next one maps from a file.

Loading and verifying classes is a large part of what a start of Spark costs. Java can write
them into a file when it ends, and compares version and jars itself before it uses the file. Set-up
makes it (operate/class_archive.py), with the name of what it was made for.

Who can write the file chooses what the JVM runs. It is treated as jars are: it lies beside them,
and only a file that nobody but its user can replace is used. Without one Spark starts as before.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from tapeline.java import wanted_folder
from tapeline.spark.launch import MODULES, class_path

# Java 25 writes one file in two steps and needs no archive of its own beneath, as older ones do.
AHEAD_OF_TIME = 25
SUFFIX = ".classes"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Why Java does not use a file is nobody's business: the terminal belongs to the command.
QUIET = "-Xlog:disable"


def archive_of(java: str, jars: Sequence[Path], options: str) -> Path:
    """Where the archive for this Java, these jars and options belongs."""
    program = Path(java).resolve()
    facts = [str(program), *MODULES, options]
    for file in (program.parents[1] / "release", program, *class_path(jars)):
        try:
            found = file.stat()
        except OSError:
            continue
        facts.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    return wanted_folder() / f"{digest[:20]}{SUFFIX}"


def is_trusted(archive: Path) -> bool:
    """Whether it is there, and nobody but its user or root can have written it."""
    try:
        found = [archive.parent.lstat(), archive.lstat()]
    except OSError:
        return False
    ours = all(f.st_uid in (os.geteuid(), 0) and not f.st_mode & OTHERS_WRITE for f in found)
    return ours and stat.S_ISDIR(found[0].st_mode) and stat.S_ISREG(found[1].st_mode)


def to_use(archive: Path, version: int) -> tuple[str, ...]:
    """What tells Java to use an archive; nothing if there is none to be trusted."""
    if not is_trusted(archive):
        return ()
    flag = "AOTCache" if version >= AHEAD_OF_TIME else "SharedArchiveFile"
    return (f"-XX:{flag}={archive}", QUIET)


def to_make(archive: Path, version: int) -> tuple[str, ...]:
    """What tells Java to write an archive when it ends."""
    flag = "AOTCacheOutput" if version >= AHEAD_OF_TIME else "ArchiveClassesAtExit"
    return (f"-XX:{flag}={archive}", QUIET)
