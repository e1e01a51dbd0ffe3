"""The cluster's own record of how far a source is: written for lag tools, and never read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from tapeline.run.topics.cluster import Cluster

LAST_WORD_SECONDS = 5.0


class Group:
    """What the cluster was told last; nobody waits for its answer, but for the last one.

    The consumer itself must not tell it: while a cluster is away, one with an unanswered commit
    never finishes closing.
    """

    def __init__(self, name: str, cluster: Cluster) -> None:
        self._name = name
        self._cluster = cluster
        self._told: dict[str, int] = {}
        self._answer: Future[Any] | None = None

    def tell(self, reached: Mapping[str, int]) -> None:
        if self._answer is not None:
            if not self._answer.done():
                return  # with the next messages
            if self._answer.exception() is not None:
                self._told = {}  # once more
            self._answer = None
        moved = {name: at for name, at in reached.items() if self._told.get(name) != at}
        if moved:
            self._answer = self._cluster.note_group(self._name, moved)
            self._told |= moved

    def close(self, reached: Mapping[str, int]) -> None:
        """The last word, if the cluster takes it soon."""
        for _ in range(2):
            self.tell(reached)
            if self._answer is not None:
                wait([self._answer], LAST_WORD_SECONDS)
