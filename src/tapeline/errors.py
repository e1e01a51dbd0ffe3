"""Errors say what, where and what to do. Three families, by who must act."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TapelineError(Exception):
    """Something Tapeline can explain."""

    exit_code = 1


class DeclarationError(TapelineError):
    """The pipeline or its settings must change: its author acts."""

    exit_code = 2


class OperationError(TapelineError):
    """Something around the pipeline is wrong (disk, lock, input): whoever runs it acts."""

    exit_code = 3


class RefusedError(OperationError):
    """The other side says no: to who asks, to what it may do, or to a name."""


class QuestionError(OperationError):
    """What was asked for is not there, or not a question: whoever asks acts."""

    exit_code = 2


class ImbalanceError(OperationError):
    """The books do not balance."""

    exit_code = 4


class TapelineBug(TapelineError):
    """A promise of Tapeline's own was broken: its developers act."""

    exit_code = 70


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean 'trades'?' when something close is known, otherwise what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""


def in_words(error: Exception) -> str:
    """What went wrong, and for the ordinary troubles of a disk, what to do."""
    if isinstance(error, TapelineError):
        return str(error)
    text = str(error).split("JVM stacktrace")[0].strip()
    for sign, advice in REMEDIES.items():
        if sign in text:
            return f"{text}. {advice}"
    return f"{type(error).__name__}: {text}"


REMEDIES = {
    "No space left": "DISK_FULL: free some space; the run then continues.",
    "Read-only file system": "READ_ONLY: mount the disk for writing; the run then continues.",
    "Permission denied": "NO_ACCESS: give this user write access; the run then continues.",
    "Input/output error": "IO: check the disk. Data that did not reach the disk is not counted.",
}
