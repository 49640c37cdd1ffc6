"""The API server's access by static tokens, impersonation, flow limits and stored roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stowplan.cluster.access import Attributes
from stowplan.cluster.flow import Flow
from stowplan.cluster.impersonation import impersonate, wanted_user
from stowplan.cluster.rbac import GROUP, Rbac, refusal
from stowplan.cluster.resource import Change
from stowplan.cluster.routes import attributes_of
from stowplan.cluster.tokens import Tokens
from stowplan.cluster.wire import Request, User

if TYPE_CHECKING:
    from stowplan.cluster.server import ApiServer


class Guard:
    """`access.Access` and `resource.Observer`: to be given to `Options` as both."""

    def __init__(self, tokens: Tokens, flow: Flow | None = None) -> None:
        self.tokens = tokens
        self.rbac = Rbac()
        self._flow = flow or Flow()

    def attach(self, server: object) -> None:
        """Nothing to remember: roles arrive through `changed`."""

    def changed(self, server: ApiServer, change: Change, now: float) -> None:
        """Follow what is stored of roles and bindings."""
        if change.resource.group != GROUP:
            return
        _, namespace, name = change.key.rsplit("/", 2)
        gone = change.type == "DELETED"
        obj = None if gone else msgspec.json.decode(change.value)
        self.rbac.put(change.resource.kind, namespace, name, obj)

    def identify(self, request: Request, now: float) -> User:
        """Who asks, impersonation done. Raises ApiError 400, 401 or 403."""
        user = self.tokens.identify(request.headers)
        wanted = wanted_user(request.headers)
        if wanted is None:
            return user
        return impersonate(user, wanted, attributes_of(request), self.rbac)

    def flow(self, user: User, request: Request, now: float) -> None:
        """Raises ApiError 429 for a client that has used up its allowance."""
        self._flow.admit(user, request.peer, now)

    def authorize(self, user: User, wanted: Attributes) -> None:
        """Raises ApiError 403 in the original's words."""
        verdict = self.rbac.verdict(user, wanted)
        if not verdict.allowed:
            raise refusal(user, wanted, verdict.reason)
