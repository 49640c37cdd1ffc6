"""KAI-Scheduler's cases: divisions of a cluster among queues, and sessions."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.batch.queue_models.kai.fair_share import DEFAULT_K, KaiQueueShares, KaiShare, divide
from stowplan.conformance.queue_models.kai_sessions import answer_rounds
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.objects.meta import Value

Answer = dict[str, Any]

KAI = "kai"
"""Compat name. What is answered so far is KAI's own rule; nothing of it is mended."""

FAIR_SHARE = "fairshare"
"""The area of divisions; all others are of sessions."""


class KaiAmountsCase(Value, frozen=True, gc=True):
    """One resource of a queue of a case."""

    quota: float
    limit: float
    over_quota_weight: float
    request: float
    usage: float = 0.0


class KaiQueueCase(Value, frozen=True, gc=True):
    """A queue of a case. created: seconds."""

    name: str
    gpu: KaiAmountsCase
    cpu: KaiAmountsCase
    memory: KaiAmountsCase
    parent: str = ""
    priority: int = 100
    created: float = 0.0


class KaiDivisionCase(Value, frozen=True, gc=True):
    """`cluster` of a case. total: by resource."""

    total: dict[str, float]
    queues: tuple[KaiQueueCase, ...] = ()


RESOURCES = ("cpu", "memory", "gpu")
"""What KAI divides."""


def answer(case: QueueModelCase, compat: str = "") -> Answer:
    """The answer to one case. compat: makes no difference."""
    if case.area != FAIR_SHARE:
        return answer_rounds(case, case.rounds)
    config = case.config if isinstance(case.config, dict) else {}
    cluster = msgspec.convert(case.cluster, KaiDivisionCase)
    queues = [_shares(queue) for queue in cluster.queues]
    divide(cluster.total, queues, config.get("kValue", DEFAULT_K))
    return {
        "fairShare": {
            queue.name: {name: share.fair for name, share in queue.shares.items()}
            for queue in queues
        }
    }


def _shares(queue: KaiQueueCase) -> KaiQueueShares:
    shares = {}
    for resource in RESOURCES:
        one: KaiAmountsCase = getattr(queue, resource)
        shares[resource] = KaiShare(
            one.quota, one.limit, one.over_quota_weight, one.request, one.usage
        )
    return KaiQueueShares(queue.name, queue.parent, queue.priority, queue.created, shares)
