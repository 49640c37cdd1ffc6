"""What an embedded API server is told when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stowplan.apis.machinery.access import AccessControl, AlwaysAllow
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import (
    AdmissionPlugin,
    ChangeObserver,
    ResourceRegistry,
    ServerContext,
)


class NonResourcePages(Protocol):
    """Paths that are no resources: discovery, version, health, OpenAPI."""

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        """The answer, or None for a path that this one does not have. May raise ApiError.

        Rights are checked before: verb in lower case on `path` (`Attributes.path`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerOptions:
    """What an `ApiServer` is made of and its bounds.

    durable: writes leave as `PersistBatch` and are seen by watchers only when saved; False: at
    once, and `unsaved` is always None. history_max, history_bytes_max: changes kept for watches and
    continued lists; a watch that falls further behind is cut off. chunk_bytes_max: about how much
    one `read` returns. bookmark_s: how often a watch that asked for bookmarks gets one. watch_s: a
    watch that names no timeoutSeconds ends after between one and two times this. future_s: how long
    a request for a version of the future is held.
    """

    registry: ResourceRegistry
    access: AccessControl = field(default_factory=AlwaysAllow)
    admission: Sequence[AdmissionPlugin] = ()
    pages: Sequence[NonResourcePages] = ()
    observers: Sequence[ChangeObserver] = ()
    durable: bool = False
    history_max: int = 50_000
    history_bytes_max: int = 128 << 20
    body_bytes_max: int = 3 << 20
    bookmark_s: float = 60.0
    watch_s: float = 1800.0
    future_s: float = 3.0
    chunk_bytes_max: int = 256 << 10
