"""Access control: authentication, rate limits and authorization of requests."""

from __future__ import annotations

from typing import Protocol

import msgspec

from stowplan.apis.machinery.http_messages import HttpRequest, User


class Attributes(msgspec.Struct, frozen=True):
    """Attributes of a request that authorization reads (authorizer.Attributes).

    verb: get list watch create update patch delete deletecollection. With `path` set it is a
    non-resource request (`/version`): verb is the HTTP method in lower case, the rest is "".
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class AccessControl(Protocol):
    """Called for every request: first `authenticate`, then `flow`, then `authorize`."""

    def authenticate(self, request: HttpRequest, now: float) -> User:
        """The user, impersonation applied. Raises ApiError 401 or 403."""

    def flow(self, user: User, request: HttpRequest, now: float) -> None:
        """Raises ApiError 429 with Retry-After for a client over its rate limit."""

    def authorize(self, user: User, wanted: Attributes) -> None:
        """Raises ApiError 403 with the recorded text when `user` is not allowed to."""

    def decision(self, user: User, wanted: Attributes) -> tuple[bool, str]:
        """Whether `user` is allowed to, and the reason, for the audit log."""


class AlwaysAllow:
    """Every client is the administrator. For simulations and tests."""

    ADMIN = User("system:admin", groups=("system:masters", "system:authenticated"))
    APISERVER = User("system:apiserver", groups=("system:masters", "system:authenticated"))

    def authenticate(self, request: HttpRequest, now: float) -> User:
        return self.ADMIN

    def flow(self, user: User, request: HttpRequest, now: float) -> None:
        """No limit."""

    def authorize(self, user: User, wanted: Attributes) -> None:
        """Everything is allowed."""

    def decision(self, user: User, wanted: Attributes) -> tuple[bool, str]:
        return True, ""
