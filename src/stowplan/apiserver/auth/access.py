"""What the API server asks of those who know users and rights, before it does anything."""

from __future__ import annotations

from typing import Protocol

import msgspec

from stowplan.apis.machinery.http_messages import HttpRequest, User


class Attributes(msgspec.Struct, frozen=True):
    """What a request wants to do, as rules of rights see it.

    verb: get list watch create update patch delete deletecollection, or the method in lower case
    when `path` is set, which is then a path that is no resource (`/version`), the rest "".
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
    """Who may do what. Called for every request, first `identify`, then `flow`, then `authorize`.

    All three are called with the time, and read the server through `ApiServer` if they need to
    (stored roles and bindings): `attach` is called once before the first request.
    """

    def attach(self, server: object) -> None:
        """Remember the `ApiServer` whose stored objects hold the rules."""

    def authenticate(self, request: HttpRequest, now: float) -> User:
        """Who asks, impersonation done. Raises ApiError 401, or 403 for a wrong impersonation."""
        ...

    def flow(self, user: User, request: HttpRequest, now: float) -> None:
        """Raises ApiError 429 with Retry-After for a client that asks too often."""

    def authorize(self, user: User, wanted: Attributes) -> None:
        """Raises ApiError 403 with the recorded text when `user` may not."""


class AlwaysAllow:
    """No users and no rights: everyone is the administrator. For simulations and tests."""

    ADMIN = User("system:admin", groups=("system:masters", "system:authenticated"))

    def attach(self, server: object) -> None:
        """Nothing to remember."""

    def authenticate(self, request: HttpRequest, now: float) -> User:
        """The administrator, always."""
        return self.ADMIN

    def flow(self, user: User, request: HttpRequest, now: float) -> None:
        """No limit."""

    def authorize(self, user: User, wanted: Attributes) -> None:
        """Everything is allowed."""
