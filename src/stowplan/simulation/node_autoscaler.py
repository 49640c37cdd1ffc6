"""Node autoscaler: adds and removes nodes of a cluster in virtual time.

It decides at multiples of the scan interval, as Cluster Autoscaler does, but only when the cluster
has changed or a delay has ended: in between, nothing else could be decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from stowplan.framework import Framework, ObjectStore
from stowplan.inputs.counts import count_of
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig, PoolNodes
from stowplan.insight.autoscaling.scale_down import Unneeded, cheaper_replacement, unneeded_nodes
from stowplan.insight.autoscaling.scale_up import scale_up
from stowplan.insight.capacity.allowed_disruptions import Budgets
from stowplan.insight.capacity.pools import runs_on_every_node
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.insight.node_pools import pool_of
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.simulation.cluster.cluster_api import ClusterApi
from stowplan.simulation.event_queue import in_seconds

HOUR = 3600 * SECOND
REMOVED = "scale-down"
"""Why pods of a removed node end."""


class NodeEvent(msgspec.Struct, frozen=True, rename="camel"):
    """What the autoscaler did to a node. action: `request`, `ready` or `remove`."""

    at_s: float
    action: str
    node: str
    pool: str
    reason: str


class NodeAutoscaler:
    """The autoscaler of one cluster. log: what it did, in order.

    frameworks: the scheduler's profiles. objects: the current objects that the scheduler knows.
    """

    def __init__(
        self,
        cluster: ClusterApi,
        config: AutoscaleConfig,
        pools: list[PoolNodes],
        frameworks: Mapping[str, Framework],
        rng: np.random.Generator,
        objects: ObjectStore,
    ) -> None:
        self.config = config
        self.log: list[NodeEvent] = []
        self.objects = objects
        self._cluster = cluster
        self._pools = {one.pool.name: one for one in pools}
        self._frameworks = frameworks
        self._rng = rng
        self._starting: dict[str, str] = {}
        self._replaced: dict[str, str] = {}
        self._planned: dict[str, str] = {}
        self._number = 0
        self._since: dict[str, int] = {}
        self._waits: dict[str, int] = {}
        self._last_added: int | None = None
        self._scan_at: int | None = None
        self._paid: Counter[str] = Counter()
        self._from: dict[str, tuple[str, int]] = {}
        self._peak = 0
        self._interval = _ns(config.scan_interval.total_seconds())
        for name, node in cluster.nodes.items():
            self._from[name] = pool_of(node), 0
        cluster.on_change.append(self._changed)
        self._changed()

    # When it decides.

    @property
    def is_busy(self) -> bool:
        """True while a decision is due, nodes start, or unneeded nodes wait for their removal."""
        return bool(self._scan_at is not None or self._starting or self._waits)

    def _changed(self) -> None:
        self._scan_by(self._cluster.event_queue.now)

    def _scan_by(self, at: int) -> None:
        """Scan at the first multiple of the interval from `at` on, but not now."""
        now = self._cluster.event_queue.now
        due = max(-(-at // self._interval), now // self._interval + 1) * self._interval
        if self._scan_at is None or due < self._scan_at:
            self._scan_at = due
            self._cluster.event_queue.at(due, self._scan, due)

    def _scan(self, due: int) -> None:
        if due != self._scan_at:
            return
        self._scan_at = None
        self._peak = max(self._peak, len(self._cluster.nodes))
        if self._scaled_up():
            self._scan_by(due)
        elif self.config.scale_down_enabled:
            self._scale_down()

    # State.

    def _copy(self, *, with_starting: bool) -> ClusterCopy:
        """A copy of the cluster; with the nodes that are starting."""
        nodes = list(self._cluster.nodes.values())
        bound = [p for p in self._cluster.pods.values() if p.node_name and not p.is_finished]
        if with_starting:
            for name, pool in self._starting.items():
                node = self._pools[pool].new_node(name)
                nodes.append(node)
                bound += self._pools[pool].daemon_pods(node)
        return ClusterCopy(nodes, bound, self.objects, self._frameworks)

    def _sizes(self) -> Counter[str]:
        """Nodes per pool, those that are starting included."""
        sizes = Counter(pool_of(node) for node in self._cluster.nodes.values())
        sizes.update(self._starting.values())
        return sizes

    # Scale-up.

    def _scaled_up(self) -> bool:
        """Request the nodes of one pool; False when no pod needs or none helps."""
        if self._fill_up():
            return True
        pending = [pod for pod in self._cluster.pods.values() if _is_unschedulable(pod)]
        if not pending:
            return False
        sizes = self._sizes()
        rooms = [(one, one.pool.max - sizes[name]) for name, one in self._pools.items()]
        copy = self._copy(with_starting=True)
        pending = self._without_planned(pending, copy)
        option = scale_up(pending, copy, rooms, self.config.expander, self._rng)
        if option is None:
            return False
        first = option.pods[0].key
        more = len(option.pods) - 1
        pods = f"pod {first}" + (f" and {more:,} more" if more else "")
        names = self._request(option.pool, option.n_nodes, f"for {pods}")
        homes = zip(option.pods, option.homes, strict=True)
        self._planned.update({pod.uid: names[home] for pod, home in homes})
        return True

    def _without_planned(self, pending: list[Pod], copy: ClusterCopy) -> list[Pod]:
        """Put the pods for which nodes are starting on these nodes of the copy; the others."""
        left = []
        for pod in pending:
            home = self._planned.get(pod.uid, "")
            if home in self._starting:
                copy.table.add_pod(pod, home)
            else:
                left.append(pod)
        return left

    def _fill_up(self) -> bool:
        """Request nodes of pools that are below their minimum."""
        sizes = self._sizes()
        short = [
            (one, one.pool.min - sizes[name])
            for name, one in self._pools.items()
            if sizes[name] < one.pool.min
        ]
        for pool, count in short:
            self._request(pool, count, f"minimum of {pool.pool.min}")
        return bool(short)

    def _request(self, pool: PoolNodes, count: int, reason: str) -> list[str]:
        """Start new nodes of a pool; their names."""
        queue = self._cluster.event_queue
        names: list[str] = []
        self._last_added = queue.now
        for _ in range(count):
            self._number += 1
            name = f"{pool.pool.name}-auto-{self._number}"
            while name in self._cluster.nodes:
                self._number += 1
                name = f"{pool.pool.name}-auto-{self._number}"
            names.append(name)
            self._starting[name] = pool.pool.name
            self._from[name] = pool.pool.name, queue.now
            self._note("request", name, reason)
            delay = _ns(pool.pool.startup_delay.total_seconds())
            queue.after(delay, self._ready, pool, name)
        return names

    def _ready(self, pool: PoolNodes, name: str) -> None:
        del self._starting[name]
        self._planned = {uid: home for uid, home in self._planned.items() if home != name}
        self._note("ready", name, "started")
        self._cluster.put_node(pool.new_node(name))
        old = self._replaced.pop(name, "")
        if old in self._cluster.nodes:
            bound = [p for p in self._cluster.pods.values() if p.node_name == old]
            moving = tuple(pod for pod in bound if not runs_on_every_node(pod))
            self._drop(old, f"replaced by {name}: {count_of(len(moving), 'pod')} evicted")
        self._peak = max(self._peak, len(self._cluster.nodes))

    # Scale-down.

    def _scale_down(self) -> None:
        now = self._cluster.event_queue.now
        copy = self._copy(with_starting=False)
        sizes = self._sizes()
        names = [
            name
            for name, node in self._cluster.nodes.items()
            if (pool := self._pools.get(pool_of(node))) is not None
            and sizes[pool.pool.name] > pool.pool.min
        ]
        bound = [p for p in self._cluster.pods.values() if p.node_name]
        budgets = Budgets(self.objects.all(PodDisruptionBudget), bound)
        found = unneeded_nodes(names, copy, budgets, self.config) if names else []
        self._since = {one.node: self._since.get(one.node, now) for one in found}
        ready = [one for one in found if now >= self._removable_at(one)]
        self._remove_some(ready, sizes)
        left = [one for one in found if one.node in self._cluster.nodes]
        self._waits = {
            one.node: max(self._removable_at(one), now + 1)
            for one in left
            if sizes[self._from[one.node][0]] > self._pools[self._from[one.node][0]].pool.min
        }
        if self._waits:
            self._scan_by(min(self._waits.values()))
        elif self.config.mode == "karpenter" and not self._starting:
            self._replace_one(names, budgets, sizes)

    def _replace_one(self, names: list[str], budgets: Budgets, sizes: Counter[str]) -> None:
        """Start a cheaper node in place of one; that one is drained when it is ready."""

        def cheaper_than(name: str) -> list[PoolNodes]:
            price = self._pools[self._from[name][0]].pool.price
            found = [
                one
                for pool, one in self._pools.items()
                if one.pool.price < price and sizes[pool] < one.pool.max
            ]
            return sorted(found, key=lambda one: one.pool.price)

        copy = self._copy(with_starting=False)
        there = [name for name in names if name in self._cluster.nodes]
        found = cheaper_replacement(there, copy, budgets, self.config, cheaper_than)
        if found is None:
            return
        name = self._request(found.pool, 1, f"cheaper than {found.node}")[0]
        self._replaced[name] = found.node

    def _removable_at(self, one: Unneeded) -> int:
        """When a node that stays unneeded may be removed."""
        if self.config.mode == "karpenter":
            return self._since[one.node] + _ns(self.config.consolidate_after.total_seconds())
        at = self._since[one.node] + _ns(self.config.scale_down_unneeded_time.total_seconds())
        if self._last_added is not None:
            delay = _ns(self.config.scale_down_delay_after_add.total_seconds())
            at = max(at, self._last_added + delay)
        return at

    def _remove_some(self, ready: list[Unneeded], sizes: Counter[str]) -> None:
        """Remove empty nodes together, up to a limit; else one node with pods."""
        empty = [one for one in ready if one.is_empty][: self.config.max_empty_bulk_delete]
        for one in empty or ready[:1]:
            pool = self._from[one.node][0]
            if sizes[pool] <= self._pools[pool].pool.min:
                continue
            sizes[pool] -= 1
            self._remove(one)

    def _remove(self, one: Unneeded) -> None:
        now = self._cluster.event_queue.now
        since = in_seconds(now - self._since.pop(one.node))
        pods = f", {count_of(len(one.pods), 'pod')} evicted" if one.pods else ""
        what = "empty" if one.is_empty else f"{one.utilization:.0%} utilized"
        self._drop(one.node, f"unneeded for {since:g}s: {what}{pods}")

    def _drop(self, name: str, reason: str) -> None:
        self._note("remove", name, reason)
        pool, start = self._from.pop(name)
        self._paid[pool] += self._cluster.event_queue.now - start
        self._cluster.drop_node(name)
        self._cluster.clear_node(name, REMOVED)

    # Results.

    def _note(self, action: str, name: str, reason: str) -> None:
        at_s = in_seconds(self._cluster.event_queue.now)
        self.log.append(NodeEvent(at_s, action, name, self._from[name][0], reason))

    def summary(self) -> dict[str, Any]:
        """Figures: nodes added and removed, at most there at once, hours and cost by pool.

        A node costs from the moment it is requested.
        """
        now = self._cluster.event_queue.now
        paid = Counter(self._paid)
        for pool, start in self._from.values():
            paid[pool] += now - start
        actions = Counter(event.action for event in self.log)
        hours = {name: round(paid[name] / HOUR, 6) for name in sorted(paid)}
        prices = {name: one.pool.price for name, one in self._pools.items()}
        costs = {name: round(n * prices[name], 6) for name, n in hours.items() if name in prices}
        return {
            "requested": actions["request"],
            "removed": actions["remove"],
            "peak_nodes": max(self._peak, len(self._cluster.nodes)),
            "node_hours": hours,
            "cost": round(sum(costs.values()), 6),
            "cost_by_pool": costs,
        }


def _is_unschedulable(pod: Pod) -> bool:
    """True for a pending pod that the scheduler has refused."""
    if pod.node_name or pod.is_finished or pod.metadata.deletion_timestamp is not None:
        return False
    return any(
        c.type == "PodScheduled" and c.status == "False" and c.reason == "Unschedulable"
        for c in pod.status.conditions
    )


def _ns(seconds: float) -> int:
    return round(seconds * SECOND)
