"""Queues and gangs of the page, as JSON, from the shares that `stowplan queues` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from stowplan.forecast.queue_shares import Shares
from stowplan.framework.deciders.tasks import group_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.quantity import nanos

RUNNING, PENDING = "running", "pending"
NANOS = 1_000_000_000


def shares_tree(shares: Shares, objects: Iterable[Object]) -> Tree:
    """The queues of one scheduler: what they have and deserve, and what they borrow and lend."""
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
        guarantee = {} if spec is None else spec.guarantee.resource
        queue |= {
            "parent": "" if spec is None else spec.parent,
            "guarantee": {key: nanos(value) / NANOS for key, value in guarantee.items()},
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
        group = group_of(pod)
        if group and not pod.is_finished:
            counts.setdefault(group, Counter())[RUNNING if pod.node_name else PENDING] += 1
    groups = (one for one in objects if isinstance(one, PodGroup))
    return [_gang(group, counts.get(group.key, Counter())) for group in groups]


def gang_of(pod: Pod, objects: Sequence[Object], pods: Iterable[Pod]) -> Tree | None:
    """The PodGroup of a pod, None if it has none."""
    key = group_of(pod)
    groups = [one for one in objects if isinstance(one, PodGroup) and one.key == key]
    return gang_trees(groups, pods)[0] if key and groups else None


def _gang(group: PodGroup, count: Counter[str]) -> Tree:
    running, pending = count[RUNNING], count[PENDING]
    return {
        "gang": group.key,
        "queue": group.spec.queue or "default",
        "phase": group.status.phase,
        "min": group.spec.min_member,
        "running": running,
        "pending": pending,
        "missing": max(0, group.spec.min_member - running - pending),
    }
