"""Access control by static tokens, impersonation, rate limits and RBAC."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.http_messages import HttpRequest, User
from stowplan.apis.machinery.resource import ServerContext, StoreChange
from stowplan.apiserver.auth.flow_control import RequestRateLimiter
from stowplan.apiserver.auth.impersonation import impersonate, impersonated_user
from stowplan.apiserver.auth.rbac import GROUP, RbacAuthorizer, forbidden_by_rbac
from stowplan.apiserver.auth.request_info import attributes_of
from stowplan.apiserver.auth.service_account_tokens import (
    DEFAULT_AUDIENCE,
    InvalidToken,
    ServiceAccountTokens,
)
from stowplan.apiserver.auth.static_tokens import StaticTokens, bearer_token, unauthorized


class TokenRbacAccess:
    """`access.AccessControl` and `resource.ChangeObserver`; `ApiServerOptions` needs both."""

    def __init__(
        self,
        tokens: StaticTokens,
        flow: RequestRateLimiter | None = None,
        audience: str = DEFAULT_AUDIENCE,
    ) -> None:
        """audience: of the server, in tokens of service accounts."""
        self.tokens = tokens
        self.accounts = ServiceAccountTokens(tokens.secret(), audience)
        self._objects: ServerContext | None = None
        self.rbac = RbacAuthorizer()
        self._flow = flow or RequestRateLimiter()

    def changed(self, server: ServerContext, change: StoreChange, now: float) -> None:
        self._objects = server
        if change.resource.group != GROUP:
            return
        _, namespace, name = change.key.rsplit("/", 2)
        deleted = change.type == "DELETED"
        obj = None if deleted else msgspec.json.decode(change.value)
        self.rbac.put(change.resource.kind, namespace, name, obj)

    def authenticate(self, request: HttpRequest, now: float) -> User:
        token = bearer_token(request.headers)
        user = self._account(token, now) or self.tokens.user_of(token)
        wanted = impersonated_user(request.headers)
        if wanted is None:
            return user
        return impersonate(user, wanted, attributes_of(request), self.rbac)

    def _account(self, token: str, now: float) -> User | None:
        """The service account of a token. Raises ApiError 401."""
        if not token or token.count(".") != 2:
            return None
        try:
            return self.owner(token, (self.accounts.audience,), now)
        except InvalidToken:
            raise unauthorized() from None

    def owner(self, token: str, audiences: Sequence[str], now: float) -> User | None:
        """The user of a token, None if it is unknown. Raises InvalidToken."""
        if self.accounts.audience in audiences:
            user = self.tokens.owner(token)
            if user is not None:
                return user
        return self.accounts.owner(token, audiences, self._objects, now)

    def flow(self, user: User, request: HttpRequest, now: float) -> None:
        self._flow.admit(user, request.peer, now)

    def authorize(self, user: User, wanted: Attributes) -> None:
        decision = self.rbac.authorize(user, wanted)
        if not decision.allowed:
            raise forbidden_by_rbac(user, wanted, decision.reason)

    def decision(self, user: User, wanted: Attributes) -> tuple[bool, str]:
        found = self.rbac.authorize(user, wanted)
        return found.allowed, found.reason
