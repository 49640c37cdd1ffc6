"""Queues and gangs of the page, as JSON, from the shares that `stowplan queues` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from stowplan.forecast.queue_shares import Shares
from stowplan.framework.deciders.tasks import group_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KaiPodGroupObject,
    KaiQueueObject,
)
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.quantity import nanos

RUNNING, PENDING = "running", "pending"
NANOS = 1_000_000_000
GANG_KINDS = (PodGroup, KaiPodGroupObject)
QUEUE_KINDS = (Queue, KaiQueueObject)
DEFAULT_QUEUE, KAI_DEFAULT_QUEUE = "default", "default-queue"


def shares_tree(shares: Shares, objects: Iterable[Object], *, is_model: bool = False) -> Tree:
    """The queues of one scheduler: what they have and deserve, and what they borrow and lend.

    is_model: a queue model says what is above a queue and what it is guaranteed."""
    tree: Tree = msgspec.to_builtins(shares)
    specs = {one.name: one.spec for one in objects if isinstance(one, Queue)}
    borrowed: dict[str, dict[str, float]] = {}
    of_lenders: dict[str, dict[str, float]] = {}
    for loan in shares.loans:
        _add(borrowed, loan.borrower, loan.resource, loan.amount)
        _add(of_lenders, loan.lender, loan.resource, loan.amount)
    for queue in tree["queues"]:
        name = queue["name"]
        spec = specs.get(name)
        if not is_model and spec is not None:
            guarantee = spec.guarantee.resource
            queue["parent"] = spec.parent
            queue["guarantee"] = {key: nanos(n) / NANOS for key, n in guarantee.items()}
        queue |= {
            "borrowed": borrowed.get(name, {}),
            "lent": of_lenders.get(name, {}),
        }
    return {
        "schedulerName": shares.scheduler_name,
        "total": tree["total"],
        "queues": tree["queues"],
        "loans": tree["loans"],
    }


def _add(amounts: dict[str, dict[str, float]], queue: str, resource: str, amount: float) -> None:
    found = amounts.setdefault(queue, {})
    found[resource] = round(found.get(resource, 0.0) + amount, 3)


def gang_trees(objects: Iterable[Object], pods: Iterable[Pod]) -> list[Tree]:
    """PodGroups with the number of their pods."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        group = gang_key(pod)
        if group and not pod.is_finished:
            counts.setdefault(group, Counter())[RUNNING if pod.node_name else PENDING] += 1
    groups = (one for one in objects if isinstance(one, GANG_KINDS))
    return [_gang(group, counts.get(group.key, Counter())) for group in groups]


def gang_key(pod: Pod) -> str:
    """NAMESPACE/NAME of the PodGroup that a pod names, "" for none."""
    name = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION)
    return group_of(pod) or (f"{pod.namespace}/{name}" if name else "")


def queues_of_gangs(objects: Iterable[Object]) -> dict[str, str]:
    """PodGroup -> its queue."""
    return {one.key: _queue_of(one) for one in objects if isinstance(one, GANG_KINDS)}


def _queue_of(group: PodGroup | KaiPodGroupObject) -> str:
    unnamed = DEFAULT_QUEUE if isinstance(group, PodGroup) else KAI_DEFAULT_QUEUE
    return group.spec.queue or unnamed


def gang_of(pod: Pod, objects: Sequence[Object], pods: Iterable[Pod]) -> Tree | None:
    """The PodGroup of a pod, None if it has none."""
    key = gang_key(pod)
    groups = [one for one in objects if isinstance(one, GANG_KINDS) and one.key == key]
    return gang_trees(groups, pods)[0] if key and groups else None


def _gang(group: PodGroup | KaiPodGroupObject, count: Counter[str]) -> Tree:
    running, pending = count[RUNNING], count[PENDING]
    least = group.spec.min_member or 0
    return {
        "gang": group.key,
        "queue": _queue_of(group),
        "phase": group.status.phase if isinstance(group, PodGroup) else "",
        "min": least,
        "running": running,
        "pending": pending,
        "missing": max(0, least - running - pending),
    }
