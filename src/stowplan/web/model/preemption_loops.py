"""Preemptions of the page: who gave way to whom, how long the room stayed empty, and loops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.decision_ring import BOUND, RecordedDecision

_GENERATED = re.compile(r"(-[a-z0-9]{4,10})?-[a-z0-9]{5}$")
"""End of the name of a pod that a controller created."""


def owner_of(pod: str, owners: Mapping[str, str]) -> str:
    """What a pod is counted as: its owner, else its name without the part that controllers
    generate: a victim that is created again is the same. owners: pod -> owner, where known."""
    return owners.get(pod) or _GENERATED.sub("", pod)


def preemption_trees(
    evictions: Sequence[RecordedDecision],
    decisions: Iterable[RecordedDecision],
    owners: Mapping[str, str],
) -> Tree:
    """Preemptions, newest first, and loops; see `GET preemptions`. decisions: all that are known,
    oldest first."""
    bound: dict[str, list[float]] = {}
    for one in decisions:
        if one.outcome == BOUND:
            bound.setdefault(one.pod, []).append(one.time)
    met: dict[frozenset[str], list[RecordedDecision]] = {}
    for one in evictions:
        if one.preemptor:
            pair = frozenset((owner_of(one.pod, owners), owner_of(one.preemptor, owners)))
            met.setdefault(pair, []).append(one)
    loops = {pair: found for pair, found in met.items() if _is_loop(found, owners, bound)}
    looping = {one.id for found in loops.values() for one in found}
    trees: list[Tree] = []
    for one in reversed(evictions):
        at = next((time for time in bound.get(one.preemptor, ()) if time >= one.time), None)
        trees.append(
            {
                "id": one.id,
                "time": one.time,
                "victim": one.pod,
                "node": one.node,
                "preemptor": one.preemptor,
                "victimPriority": one.priority,
                "preemptorPriority": one.preemptor_priority,
                "preemptorBound": at,
                "gapMs": None if at is None else round(at - one.time, 3),
                "message": one.message,
                "loop": one.id in looping,
            }
        )
    found_loops: list[Tree] = [
        {
            "pods": sorted(pair),
            "count": len(found),
            "first": found[0].time,
            "last": found[-1].time,
        }
        for pair, found in loops.items()
    ]
    found_loops.sort(key=lambda loop: (-loop["count"], loop["pods"]))
    return {"preemptions": trees, "loops": found_loops}


def _is_loop(
    found: Sequence[RecordedDecision],
    owners: Mapping[str, str],
    bound: Mapping[str, Sequence[float]],
) -> bool:
    """True where the two have changed sides, or where a pod preempts again after it or its later
    victim was bound: one preemption evicts several pods of one owner, and not all at one time.

    found: evictions of the two, oldest first. bound: pod -> when it was bound."""
    if len({owner_of(one.pod, owners) for one in found}) > 1:
        return True
    first: dict[str, float] = {}
    for one in found:
        before = first.setdefault(one.preemptor, one.time)
        times = (*bound.get(one.preemptor, ()), *bound.get(one.pod, ()))
        if any(before < time <= one.time for time in times):
            return True
    return False
