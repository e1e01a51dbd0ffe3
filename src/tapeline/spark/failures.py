"""Failures of a computation: which of Spark's errors a record itself can cause.

Such an error repeats whenever the same record is computed: an overflow, a division by zero, a text
that is no date. It comes out of a task and is about data. Input and output, memory, a lost process
and broken promises of the engine's own are none of it, whatever the record.
"""

from __future__ import annotations

import re

from tapeline.spark.internals import Thrown, thrown_by

# Classes of SQLSTATE: cardinality, data, constraints, and what a user's own code raises.
OF_DATA = ("21", "22", "23", "P0")
# The network, resources that run out, an operator's hand, the system, Spark's own mistakes.
NOT_OF_DATA = ("08", "53", "57", "58", "XX")
NEVER = {
    "java.io.IOException",
    "java.io.UncheckedIOException",
    "java.lang.Error",  # memory above all
    "java.lang.IllegalStateException",
    "java.lang.InterruptedException",
    "java.util.concurrent.CancellationException",
}
IN_A_TASK = "org.apache.spark.scheduler.Task.run"
MOST_WORDS = 500
ADVICE = re.compile(r'\s*If necessary set "spark\.sql\.ansi\.enabled"[^.]*\.')
SUGGESTION = re.compile(r"\.WITH(OUT)?_SUGGESTION$")


def of_computation(error: BaseException) -> bool:
    """Whether an error is of the computation, so that a record may be at fault."""
    thrown = thrown_by(error)
    if thrown is None or not _in_a_task(thrown):
        return False
    state = _said(thrown, "getSqlState")
    if state is not None and state.startswith(OF_DATA):
        return True
    if state is not None and state.startswith(NOT_OF_DATA):
        return False
    chain = _chain(thrown)
    return "java.lang.RuntimeException" in chain[0] and not any(NEVER & kinds for kinds in chain)


def condition_of(error: Exception) -> str:
    """What went wrong, in a word that is the same for every record it happens to."""
    thrown = thrown_by(error)
    condition = _said(thrown, "getCondition")
    if condition is not None and not condition.startswith("_LEGACY"):
        return SUGGESTION.sub("", condition)
    return str(thrown.getClass().getSimpleName()) if thrown is not None else type(error).__name__


def words_of(error: Exception) -> str:
    """What Spark says, without advice that cannot be followed here, on one line."""
    thrown = thrown_by(error)
    text = str(thrown.getMessage() or thrown.toString()) if thrown is not None else str(error)
    text = ADVICE.sub("", text.split("== DataFrame ==")[0])
    text = re.sub(r"\s+", " ", re.sub(r"\n\s*\^+", "", text)).strip()
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}..."


def _in_a_task(thrown: Thrown) -> bool:
    frames = list(thrown.getStackTrace())
    return any(f"{one.getClassName()}.{one.getMethodName()}" == IN_A_TASK for one in frames)


def _said(thrown: Thrown | None, what: str) -> str | None:
    """What one of Spark's own errors says of itself."""
    if thrown is None or not _implements(thrown, "org.apache.spark.SparkThrowable"):
        return None
    found = getattr(thrown, what)()
    return None if found is None else str(found)


def _implements(thrown: Thrown, name: str) -> bool:
    kind = thrown.getClass()
    while kind is not None:
        if any(one.getName() == name for one in kind.getInterfaces()):
            return True
        kind = kind.getSuperclass()
    return False


def _chain(thrown: Thrown | None) -> list[set[str]]:
    """The classes of an error and of those that caused it, each with what they inherit."""
    found: list[set[str]] = []
    while thrown is not None and len(found) < 20:
        kinds, kind = set(), thrown.getClass()
        while kind is not None:
            kinds.add(str(kind.getName()))
            kind = kind.getSuperclass()
        found.append(kinds)
        thrown = thrown.getCause()
    return found
