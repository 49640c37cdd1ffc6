"""Zone disruption: how much of each zone is not ready, and how fast its nodes are tainted.

Nodes that are not ready wait in a queue per zone for their NoExecute taint. A zone's state decides
the rate of its queue; while no node of the cluster is ready, every queue stands still.

Source: kube-controller-manager v1.36, pkg/controller/nodelifecycle (handleDisruption) and its
scheduler/rate_limited_queue.go.

Differs: the original puts untainted nodes at the end of the queue every 5 seconds, in arbitrary
order; here they wait in the order in which they became not ready. A zone whose nodes are all
excluded from disruption checks keeps its queue; the original makes a new one, with a free taint,
every 5 seconds. A queue that stood still resumes also at the rate 1, which the original takes for
the rate of a queue that stands still.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions

Zone = tuple[str, str]
"""(region, zone) of a node; "" for a missing label."""
_UNHEALTHY_MIN = 2
"""A zone with no more nodes that are not ready than this is healthy, or fully disrupted."""


class ZoneState(Enum):
    """State of a zone. INITIAL: before it was first computed."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL_DISRUPTION = "PartialDisruption"
    FULL_DISRUPTION = "FullDisruption"


class ClusterDisruption(Enum):
    """What a change of states means for all nodes: no node is ready any more, or some are again."""

    NONE = "none"
    ENTERED = "entered"
    LEFT = "left"


@dataclass(slots=True)
class ZoneTaintQueue:
    """Nodes of a zone that wait for a NoExecute taint; a token bucket that holds one token.

    rate: taints per second. ready_at: Unix seconds of the next token, `math.inf` for never. nodes:
    names, in the order in which they became not ready.
    """

    rate: float
    ready_at: float = -math.inf
    nodes: dict[str, None] = field(default_factory=dict)

    def accept(self, now: float) -> bool:
        """Take a token; False while there is none."""
        if now < self.ready_at:
            return False
        self.ready_at = now + 1 / self.rate if self.rate > 0 else math.inf
        return True

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate; a queue that waits for a token waits for the next one at this rate."""
        if rate == self.rate:
            return
        self.rate = rate
        if rate <= 0:
            self.ready_at = math.inf
        elif now < self.ready_at:
            self.ready_at = now + 1 / rate


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """A node as zones count it. is_counted: False if it is excluded from disruption checks."""

    zone: Zone
    is_ready: bool
    is_counted: bool


class ZoneDisruption:
    """Nodes by zone, the states of the zones, and their queues of nodes to be tainted."""

    def __init__(self, options: NodeLifecycleOptions) -> None:
        self.options = options
        self.states: dict[Zone, ZoneState] = {}
        self.queues: dict[Zone, ZoneTaintQueue] = {}
        self._nodes: dict[str, NodeHealth] = {}
        self._sizes: dict[Zone, list[int]] = {}

    def set_node(self, name: str, health: NodeHealth) -> bool:
        """Note a node; True if states must be computed again."""
        before = self._nodes.get(name)
        if before == health:
            return False
        self._count(before, -1)
        self._count(health, 1)
        self._nodes[name] = health
        if before is not None and before.zone != health.zone:
            self._queue(before.zone).nodes.pop(name, None)
        return True

    def forget_node(self, name: str) -> None:
        """Note that a node was deleted; a place in a queue stays until its turn."""
        self._count(self._nodes.pop(name, None), -1)

    def _count(self, health: NodeHealth | None, n: int) -> None:
        if health is not None and health.is_counted:
            size = self._sizes.setdefault(health.zone, [0, 0])
            size[0] += n
            size[1] += 0 if health.is_ready else n

    def _queue(self, zone: Zone) -> ZoneTaintQueue:
        """The queue of a zone; a new one has a token."""
        found = self.queues.get(zone)
        if found is None:
            found = self.queues[zone] = ZoneTaintQueue(self.options.node_eviction_rate)
        return found

    def add(self, name: str) -> None:
        """Queue a node for a NoExecute taint."""
        self._queue(self._nodes[name].zone).nodes.setdefault(name)

    def remove(self, name: str) -> None:
        """Remove a node, which may have been deleted, from the queues."""
        for queue in self.queues.values():
            queue.nodes.pop(name, None)

    def take(self, now: float) -> str | None:
        """The next node that may be tainted, with its token; None if none may. It stays in its
        queue until it is removed."""
        for queue in self.queues.values():
            if queue.nodes and queue.accept(now):
                return next(iter(queue.nodes))
        return None

    def next_at(self) -> float | None:
        """When `take` has a node again, in Unix seconds; None: not without a change."""
        times = [queue.ready_at for queue in self.queues.values() if queue.nodes]
        soonest = min(times, default=math.inf)
        return None if soonest == math.inf else max(soonest, 0.0)

    def state_of(self, size: int, n_not_ready: int) -> ZoneState:
        """State of a zone with this number of nodes, at least one."""
        if n_not_ready == size:
            return ZoneState.FULL_DISRUPTION
        share = n_not_ready / size
        if n_not_ready > _UNHEALTHY_MIN and share >= self.options.unhealthy_zone_threshold:
            return ZoneState.PARTIAL_DISRUPTION
        return ZoneState.NORMAL

    def _rate(self, state: ZoneState, size: int) -> float:
        """Taints per second in a zone of this state; another zone has nodes that are ready."""
        if state is not ZoneState.PARTIAL_DISRUPTION:
            return self.options.node_eviction_rate
        is_large = size > self.options.large_cluster_size_threshold
        return self.options.secondary_node_eviction_rate if is_large else 0.0

    def update(self, now: float) -> ClusterDisruption:
        """Compute the states of all zones again, and the rates of those that changed."""
        sizes = {zone: size for zone, size in self._sizes.items() if size[0]}
        self._sizes = sizes
        states = {zone: self.state_of(*size) for zone, size in sizes.items()}
        before = {zone: self.states.get(zone, ZoneState.INITIAL) for zone in sizes}
        self._drop_empty_zones()
        all_before = all(each is ZoneState.FULL_DISRUPTION for each in before.values())
        all_now = all(each is ZoneState.FULL_DISRUPTION for each in states.values())
        if all_now and all_before:
            return ClusterDisruption.NONE
        self.states = states
        for zone, state in states.items():
            if all_now:
                self._queue(zone).set_rate(0.0, now)
            elif all_before or state is not before[zone]:
                self._queue(zone).set_rate(self._rate(state, sizes[zone][0]), now)
        if all_now:
            return ClusterDisruption.ENTERED
        return ClusterDisruption.LEFT if all_before else ClusterDisruption.NONE

    def _drop_empty_zones(self) -> None:
        """Forget zones without nodes: when they have some again, they begin anew."""
        for zone in [zone for zone in self.states if zone not in self._sizes]:
            del self.states[zone]
            if zone in self.queues and not self.queues[zone].nodes:
                del self.queues[zone]
