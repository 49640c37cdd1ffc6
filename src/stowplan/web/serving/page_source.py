"""PageSource: where the page's server gets its data, and the state of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.page_frames import FrameBody, Topic


class TopicState(Protocol):
    """State of a topic at one time; immutable."""

    def snapshot(self) -> FrameBody:
        """All of it."""

    def update_since(self, before: Self) -> FrameBody | None:
        """What differs from an earlier state; None where a snapshot is needed."""


class NotFound(LookupError):
    """There is no object of this name; the text is for the user."""


class BadRequest(ValueError):
    """The request is invalid; the text is for the user."""


class Unavailable(RuntimeError):
    """The source has no such data, or not now; the text is for the user."""


class PageSource(Protocol):
    """A live scheduler, or a finished simulation. Its methods are called in the page's event
    loop; none blocks it.

    epoch: changes when sequence numbers and pod ids begin anew.
    """

    epoch: int

    async def look(self, last: Mapping[Topic, TopicState | None]) -> dict[Topic, TopicState]:
        """States of the topics of `last` that have changed since the states there; None: never
        looked at. Raises TimeoutError."""

    async def cluster(self) -> Tree:
        """See docs/page-api.md, as for all that follow."""

    async def labels(self, key: str) -> Tree:
        """Nodes by the values of a label."""

    async def node(self, name: str, pod: str) -> Tree:
        """One node. Raises NotFound."""

    async def pending(self, query: Mapping[str, str]) -> Tree:
        """A page of pending pods. Raises BadRequest."""

    async def why(self, pod: str, at: float | None = None, *, quickly: bool = False) -> Tree:
        """Why a pod is where it is. at: seconds from the start of a recording; None: now, or at
        its end. quickly: without changes that help where their search takes long. Raises
        NotFound and Unavailable."""

    async def queues(self, since: float) -> Tree:
        """Queues with history from `since`, milliseconds."""

    async def decisions(self, query: Mapping[str, str]) -> Tree:
        """A page of decisions. Raises BadRequest."""

    async def decision(self, number: int) -> Tree:
        """One decision. Raises NotFound."""

    async def preemptions(self) -> Tree:
        """Evictions and loops."""

    async def what_if(self, asked: Tree) -> Tree:
        """What changes would do. Raises BadRequest and Unavailable."""

    async def replay(self) -> FrameBody:
        """The intervals of a finished run. Raises Unavailable."""
