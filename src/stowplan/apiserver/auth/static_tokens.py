"""Authentication by static bearer tokens, and anonymous requests.

Every token is compared each time in constant time; no text contains a token.

Source: kube-apiserver v1.36, authentication/request/bearertoken and authentication/request/union.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))


def unauthorized() -> ApiError:
    """401: the token is invalid, or missing while anonymous requests are disabled."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def bearer_token(headers: Mapping[str, str]) -> str:
    """The bearer token of the Authorization header; "" if there is none."""
    parts = headers.get("authorization", "").strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer":
        return ""
    return parts[1]


class StaticTokens:
    """The static tokens and their users.

    users: token and user, whose groups get `system:authenticated` added. anonymous: accept requests
    without a token as `system:anonymous`.
    """

    def __init__(self, users: Iterable[tuple[str, User]] = (), *, anonymous: bool = True) -> None:
        self.anonymous = anonymous
        self._known = [(_bytes(token), _authenticated(user)) for token, user in users]

    def owner(self, token: str) -> User | None:
        """The user of a token; None if it is unknown."""
        given = _bytes(token)
        found = None
        for known, user in self._known:
            # No early exit: the duration must not reveal a partial match.
            if hmac.compare_digest(known, given):
                found = user
        return found

    def secret(self) -> bytes:
        """Bytes that only who knows all tokens can compute."""
        return b"\0".join(sorted(token for token, _ in self._known))

    def authenticate(self, headers: Mapping[str, str]) -> User:
        """The user, without impersonation. Raises ApiError 401.

        A header without a bearer token counts as missing.
        """
        return self.user_of(bearer_token(headers))

    def user_of(self, token: str) -> User:
        """The user of a bearer token, "" for none. Raises ApiError 401."""
        if token:
            user = self.owner(token)
            if user is not None:
                return user
        elif self.anonymous:
            return ANONYMOUS
        raise unauthorized()


def _bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogateescape")


def _authenticated(user: User) -> User:
    if AUTHENTICATED in user.groups:
        return user
    return User(user.name, user.uid, (*user.groups, AUTHENTICATED), user.extra)
