"""Rate limits of clients: a token bucket per user and address.

Source: the response is that of kube-apiserver v1.36, server/filters/maxinflight.go.
Differs: the original queues requests by priority and rejects them when a queue is full; here a
client over its limit is rejected at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import msgspec

from stowplan.apis.machinery.errors import too_many_requests
from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth.rbac import MASTERS_GROUP

TOO_MANY_REQUESTS = "Too many requests, please try again later."
_CLIENTS_MAX = 10_000


class RequestLimits(msgspec.Struct, frozen=True):
    """Limits of one client. rate_per_s: sustained requests per second. burst: size of the bucket.

    Members of `system:masters` are not limited, as in the original's `exempt` level.
    """

    rate_per_s: float = 5_000.0
    burst: int = 10_000

    def problems(self) -> list[str]:
        """Texts about invalid values."""
        texts = []
        if not self.rate_per_s > 0:
            texts.append(f"rate_per_s: Invalid value: {self.rate_per_s}: must be greater than 0")
        if self.burst < 1:
            texts.append(f"burst: Invalid value: {self.burst}: must be at least 1")
        return texts


class RequestRateLimiter:
    """Token buckets by client: user name and address.

    Beyond a bound the least recently used are dropped, which refills them.
    """

    def __init__(self, limits: RequestLimits | None = None) -> None:
        self.limits = limits or RequestLimits()
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def admit(self, user: User, peer: str, now: float) -> None:
        """Count a request. Raises ApiError 429 with Retry-After."""
        if MASTERS_GROUP in user.groups:
            return
        key = (user.name, peer.rpartition(":")[0] or peer)
        left, since = self._buckets.pop(key, (float(self.limits.burst), now))
        left += max(0.0, now - since) * self.limits.rate_per_s
        left = min(float(self.limits.burst), left)
        admitted = left >= 1.0
        self._buckets[key] = (left - 1.0 if admitted else left, now)
        if len(self._buckets) > _CLIENTS_MAX:
            self._buckets.popitem(last=False)
        if not admitted:
            wait_s = math.ceil((1.0 - left) / self.limits.rate_per_s)
            raise too_many_requests(TOO_MANY_REQUESTS, max(1, wait_s))
