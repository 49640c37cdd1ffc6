"""Dry runs of single rows that classes of preemptors share.

What evictions on a row give depends on the pods there, on the priority of the preemptor and on what
it requests. Preemptors of one priority that request about the same evict the same pods: each dry
run is kept with the least and the most that may be requested for it to end so.
"""

from __future__ import annotations

from operator import le, sub
from typing import NamedTuple

from stowplan.columns import PodInfo
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.plugins.preemption.dry_runs import candidate_costs
from stowplan.plugins.preemption.pods_by_importance import ImportantPod
from stowplan.plugins.preemption.ranked_pods import pod_importance

ANY_MOST = 2**62
"""No pod requests more."""

OUTCOMES_MAX = 64
"""Dry runs that are kept of a row, before they are forgotten."""

Amounts = tuple[int, ...]
Names = tuple[str, ...]
"""Resources, and amounts of them in base units, in the order in which a class requests them."""


class RowRoom(NamedTuple):
    """What is free on a row beside nominated pods: pod slots, and of each resource. offered: what
    the node has of each."""

    n_slots: int
    free: Amounts
    offered: Amounts


class EvictablePods:
    """The pods of a row that are below a priority, and the dry runs of preemptors of this priority
    that request the same resources. protected, free_to_go: those whose eviction
    takes a disruption budget below zero, and the others, the most important first. every: both, in
    the order of their reprieve."""

    __slots__ = ("_outcomes", "every", "free_to_go", "protected")

    def __init__(self, protected: list[ImportantPod], free_to_go: list[ImportantPod]) -> None:
        self.protected, self.free_to_go = protected, free_to_go
        self.every = [*protected, *free_to_go]
        self._outcomes: list[DryRunOutcome] = []

    def __len__(self) -> int:
        return len(self.every)

    def known(self, wanted: Amounts) -> DryRunOutcome | None:
        """The outcome for a preemptor that requests so much, if one is kept that holds for it."""
        for one in self._outcomes:
            if all(map(le, one.least, wanted)) and all(map(le, wanted, one.most)):
                return one
        return None

    def keep(self, outcome: DryRunOutcome) -> DryRunOutcome:
        """Keep an outcome; returns it."""
        if len(self._outcomes) >= OUTCOMES_MAX:
            self._outcomes.clear()
        self._outcomes.append(outcome)
        return outcome


class DryRunOutcome(NamedTuple):
    """What a dry run of a row ends with. candidate: None where eviction does not help. costs: of
    it. least, most: what may be requested of each resource for this outcome."""

    candidate: PreemptionCandidate | None
    costs: tuple[float, ...]
    least: Amounts
    most: Amounts


def dry_run(
    evictable: EvictablePods, names: Names, wanted: Amounts, room: RowRoom, node_name: str
) -> PreemptionCandidate | None:
    """Evict all, and let stay who can, the protected first, for a pod that requests this much; None
    where eviction does not help. room: before evictions."""
    protected, free_to_go = evictable.protected, evictable.free_to_go
    every = evictable.every
    n_slots = room.n_slots + len(every) - 1
    left: list[int] = []
    for name, amount, free in zip(names, wanted, room.free, strict=True):
        for one in every:
            free += one.requested.get(name, 0)
        if free < amount:
            return None
        left.append(free - amount)
    if n_slots < 0:
        return None
    victims: list[PodInfo] = []
    n_violations = 0
    for place, one in enumerate(every):
        requested = one.requested
        taken = [requested.get(name, 0) for name in names]
        if n_slots > 0 and all(map(le, taken, left)):
            n_slots -= 1
            left = list(map(sub, left, taken))
        else:
            victims.append(one.info)
            n_violations += place < len(protected)
    if not victims:
        return None
    if protected and free_to_go:
        victims.sort(key=pod_importance)
    return PreemptionCandidate(node_name, tuple(victims), n_violations)


def shared_dry_run(
    evictable: EvictablePods, names: Names, wanted: Amounts, room: RowRoom, node_name: str
) -> DryRunOutcome:
    """As `dry_run`, with the requests for which it ends so: which pods stay is the same."""
    found = dry_run(evictable, names, wanted, room, node_name)
    costs = () if found is None else candidate_costs(found)
    least, most = [0] * len(names), [ANY_MOST] * len(names)
    every = evictable.every
    n_slots = room.n_slots + len(every) - 1
    offered = [
        free + sum(one.requested.get(name, 0) for one in every)
        for name, free in zip(names, room.free, strict=True)
    ]
    lacks = next((at for at, have in enumerate(offered) if have < wanted[at]), -1)
    if lacks >= 0:
        least[lacks] = offered[lacks] + 1
    if lacks >= 0 or n_slots < 0:
        return DryRunOutcome(found, costs, tuple(least), tuple(most))
    most = list(offered)
    left = list(map(sub, offered, wanted))
    for one in every:
        after = [have - one.requested.get(name, 0) for have, name in zip(left, names, strict=True)]
        lowest = min(after, default=0)
        if n_slots > 0 and lowest >= 0:
            n_slots -= 1
            left = after
            most = [min(a, b + c) for a, b, c in zip(most, wanted, after, strict=True)]
        elif n_slots > 0:
            # It goes as long as this resource lacks.
            at = after.index(lowest)
            least[at] = max(least[at], wanted[at] + lowest + 1)
    return DryRunOutcome(found, costs, tuple(least), tuple(most))
