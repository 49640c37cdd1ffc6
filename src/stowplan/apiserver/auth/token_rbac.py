"""Access control by static tokens, impersonation, rate limits and RBAC."""

from __future__ import annotations

import msgspec

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.http_messages import HttpRequest, User
from stowplan.apis.machinery.resource import ServerContext, StoreChange
from stowplan.apiserver.auth.flow_control import RequestRateLimiter
from stowplan.apiserver.auth.impersonation import impersonate, impersonated_user
from stowplan.apiserver.auth.rbac import GROUP, RbacAuthorizer, forbidden_by_rbac
from stowplan.apiserver.auth.request_info import attributes_of
from stowplan.apiserver.auth.static_tokens import StaticTokens


class TokenRbacAccess:
    """`access.AccessControl` and `resource.ChangeObserver`; `ApiServerOptions` needs both."""

    def __init__(self, tokens: StaticTokens, flow: RequestRateLimiter | None = None) -> None:
        self.tokens = tokens
        self.rbac = RbacAuthorizer()
        self._flow = flow or RequestRateLimiter()

    def changed(self, server: ServerContext, change: StoreChange, now: float) -> None:
        if change.resource.group != GROUP:
            return
        _, namespace, name = change.key.rsplit("/", 2)
        deleted = change.type == "DELETED"
        obj = None if deleted else msgspec.json.decode(change.value)
        self.rbac.put(change.resource.kind, namespace, name, obj)

    def authenticate(self, request: HttpRequest, now: float) -> User:
        user = self.tokens.authenticate(request.headers)
        wanted = impersonated_user(request.headers)
        if wanted is None:
            return user
        return impersonate(user, wanted, attributes_of(request), self.rbac)

    def flow(self, user: User, request: HttpRequest, now: float) -> None:
        self._flow.admit(user, request.peer, now)

    def authorize(self, user: User, wanted: Attributes) -> None:
        decision = self.rbac.authorize(user, wanted)
        if not decision.allowed:
            raise forbidden_by_rbac(user, wanted, decision.reason)
