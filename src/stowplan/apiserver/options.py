"""Options of an embedded API server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stowplan.apis.admissionregistration.webhook_calls import WebhookCaller
from stowplan.apis.machinery.access import AccessControl, AlwaysAllow
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import (
    AdmissionPlugin,
    ChangeObserver,
    ResourceRegistry,
    ServerContext,
)
from stowplan.apiserver.http.audit_events import AuditSink


class NonResourcePages(Protocol):
    """Non-resource paths: discovery, version, health, OpenAPI."""

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        """The response, or None for a path that these pages do not serve. May raise ApiError.

        The request is authorized already, as a non-resource request (`Attributes.path`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerOptions:
    """Parts and bounds of an `ApiServer`.

    validates: False: objects are stored as the client sends them, defaults apart, as a simulation
    accepts manifests that leave out what scheduling does not read. keeps_managed_fields: False:
    objects have none, and server-side apply is refused. manager: the name under which managedFields
    record in-process writes. durable: writes are returned
    as `PersistBatch`, and watchers see them once they are saved;
    False: watchers see them at once, and `unsaved` is always None. history_max, history_bytes_max:
    changes kept for watches and continued lists, and the bytes of their objects before and after
    them; a watch that falls further behind is closed.
    chunk_bytes_max: about how much one `read` returns. bookmark_s: interval of bookmarks. watch_s:
    a watch without timeoutSeconds ends after one to two times this. future_s: how long a request
    for a future resourceVersion is delayed. webhook_caller: calls webhooks; None: none is called,
    and each counts as one that does not answer. audit: takes an event of each request, with what
    `audit_level` says; None: none are made. clock: seconds by which requests are timed; None:
    none takes any.
    """

    registry: ResourceRegistry
    access: AccessControl = field(default_factory=AlwaysAllow)
    admission: Sequence[AdmissionPlugin] = ()
    pages: Sequence[NonResourcePages] = ()
    observers: Sequence[ChangeObserver] = ()
    validates: bool = True
    keeps_managed_fields: bool = True
    manager: str = "kube-controller-manager"
    durable: bool = False
    history_max: int = 50_000
    history_bytes_max: int = 192 << 20
    body_bytes_max: int = 3 << 20
    bookmark_s: float = 60.0
    watch_s: float = 1800.0
    future_s: float = 3.0
    chunk_bytes_max: int = 256 << 10
    webhook_caller: WebhookCaller | None = None
    audit: AuditSink | None = None
    clock: Callable[[], float] | None = None
    audit_level: str = "Metadata"
