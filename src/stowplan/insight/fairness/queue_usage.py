"""What queues have, request and deserve, kept by delta from the pods of sessions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stowplan.batch.session_plugins.proportion import fill_by_weight
from stowplan.batch.state.task_requests import EPSILON, format_resource, task_request_of
from stowplan.framework.deciders.resource_vector import parse_resources
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import Queue

Amounts = dict[str, float]


class QueueUse(msgspec.Struct):
    """Use of a queue. allocated, pending: resource -> amount, milli-cores, bytes or thousandths.
    below_since: since when it has pending pods and less than it deserves, None if it has not."""

    allocated: Amounts = {}
    pending: Amounts = {}
    n_pending: int = 0
    below_since: int | None = None
    short_of: str = ""


class QueueUsage:
    """Queues by name. Pods are added and removed by their owner with what was counted."""

    def __init__(self) -> None:
        self.uses: dict[str, QueueUse] = {}
        self._queues: dict[str, Queue] = {}
        self._nodes: dict[str, Amounts] = {}

    def put_queue(self, queue: Queue) -> None:
        """Add or replace a queue."""
        self._queues[queue.name] = queue
        self.uses.setdefault(queue.name, QueueUse())

    def drop_queue(self, name: str) -> None:
        """Remove a queue."""
        self._queues.pop(name, None)

    def put_node(self, node: Node) -> None:
        """Add or replace a node."""
        self._nodes[node.name] = dict(parse_resources(node.status.allocatable).pairs())

    def drop_node(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)

    def count(self, pod: Pod, queue: str, sign: int) -> None:
        """Count a pod of a queue, or with sign -1 no longer count it, as it was counted."""
        use = self.uses.setdefault(queue, QueueUse())
        amounts = use.allocated if pod.node_name else use.pending
        for name, amount in task_request_of(pod).running.pairs():
            amounts[name] = amounts.get(name, 0.0) + sign * amount
        if not pod.node_name:
            use.n_pending += sign

    def update(self, now: int) -> None:
        """Compute which queues have less than they deserve."""
        total: Amounts = {}
        for amounts in self._nodes.values():
            for name, amount in amounts.items():
                total[name] = total.get(name, 0.0) + amount
        deserved = self.deserved(total)
        for name, use in self.uses.items():
            use.short_of = self._short_of(use, deserved.get(name, {}))
            if not use.short_of:
                use.below_since = None
            elif use.below_since is None:
                use.below_since = now

    def deserved(self, total: Amounts) -> dict[str, Amounts]:
        """Queue -> resource -> what it deserves: its part by weight, at most what it requests and
        its capability allows; the rest goes to the others."""
        found: dict[str, Amounts] = {name: {} for name in self._queues}
        weights = {name: queue.spec.weight or 1 for name, queue in self._queues.items()}
        for resource, amount in total.items():
            limits = {name: self._limit(name, resource) for name in self._queues}
            for name, part in fill_by_weight(amount, limits, weights).items():
                found[name][resource] = part
        return found

    def _limit(self, name: str, resource: str) -> float:
        use = self.uses[name]
        wanted = use.allocated.get(resource, 0.0) + use.pending.get(resource, 0.0)
        capability = self._queues[name].spec.capability
        if not capability:
            return wanted
        limits = dict(parse_resources(capability).pairs())
        return min(wanted, limits[resource]) if limits.get(resource) else wanted

    def _short_of(self, use: QueueUse, deserved: Mapping[str, float]) -> str:
        """What the queue has and deserves of the resource it lacks most of, "" for none."""
        if not use.n_pending:
            return ""
        lacking = [
            (use.allocated.get(name, 0.0) / amount, name)
            for name, amount in deserved.items()
            if use.pending.get(name, 0.0) > EPSILON
            and use.allocated.get(name, 0.0) + EPSILON < amount
        ]
        if not lacking:
            return ""
        _, name = min(lacking)
        has = format_resource(name, use.allocated.get(name, 0.0))
        return f"{name} {has} of {format_resource(name, deserved[name])} deserved"
