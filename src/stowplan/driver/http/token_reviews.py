"""Token reviews: whether the API server lets the user of a token read a path of ours.

Source: Kubernetes API v1.36, TokenReview and SubjectAccessReview.
"""

from __future__ import annotations

from stowplan.client.access_reviews import (
    is_access_allowed,
    subject_access_review,
    token_review,
    user_of_token_review,
)
from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.clocks import monotonic_ns
from stowplan.objects.encoding.duration import SECOND

CACHE_TTL_S = 10
"""How long the API server's review of a token is cached."""
CACHE_SIZE = 1000


class TokenReviews:
    """Asks the API server of a client configuration; of one event loop."""

    def __init__(self, client_config: ClientConfig) -> None:
        self._client_config = client_config
        self._api: ApiClient | None = None
        self._known: dict[tuple[str, str, str], tuple[int, bool]] = {}

    async def refusal(self, token: str, path: str, verb: str = "get") -> int:
        """401 or 403, 0 when access is allowed. token: "" for none."""
        if not token:
            return 401
        key = token, path, verb
        known = self._known.get(key)
        if known is None or monotonic_ns() - known[0] > CACHE_TTL_S * SECOND:
            answer = await self._ask(*key)
            if answer is None:
                return 401
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            known = self._known[key] = monotonic_ns(), answer
        return 0 if known[1] else 403

    async def close(self) -> None:
        """Close the connections."""
        if self._api is not None:
            await self._api.close()

    async def _ask(self, token: str, path: str, verb: str) -> bool | None:
        """Whether a token's user may access a path; None for a token that the API server does not
        know."""
        if self._api is None:
            self._api = ApiClient(self._client_config)
        user = user_of_token_review(await self._api.send(token_review(token)))
        if user is None:
            return None
        return is_access_allowed(await self._api.send(subject_access_review(user, path, verb)))


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header, "" for none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
