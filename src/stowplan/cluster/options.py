"""What an embedded API server is told when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from stowplan.cluster.access import Access, Everybody
from stowplan.cluster.resource import Admission, Observer, Registry
from stowplan.cluster.wire import Request, Response, User

if TYPE_CHECKING:
    from stowplan.cluster.server import ApiServer


class Pages(Protocol):
    """Paths that are no resources: discovery, version, health, OpenAPI."""

    def answer(
        self, request: Request, user: User, server: ApiServer, now: float
    ) -> Response | None:
        """The answer, or None for a path that this one does not have. May raise ApiError.

        Rights are checked before: verb in lower case on `path` (`Attributes.path`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an `ApiServer` is made of and its bounds.

    durable: writes leave as `Persist` and are seen by watchers only when saved; False: at once, and
    `unsaved` is always None. history_max, history_bytes_max: changes kept for watches and continued
    lists; a watch that falls further behind is cut off. chunk_bytes_max: about how much one `read`
    returns. bookmark_s: how often a watch that asked for bookmarks gets one. watch_s: a watch that
    names no timeoutSeconds ends after between one and two times this. future_s: how long a request
    for a version of the future is held.
    """

    registry: Registry
    access: Access = field(default_factory=Everybody)
    admission: Sequence[Admission] = ()
    pages: Sequence[Pages] = ()
    observers: Sequence[Observer] = ()
    durable: bool = False
    history_max: int = 50_000
    history_bytes_max: int = 128 << 20
    body_bytes_max: int = 3 << 20
    bookmark_s: float = 60.0
    watch_s: float = 1800.0
    future_s: float = 3.0
    chunk_bytes_max: int = 256 << 10
