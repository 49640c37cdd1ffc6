"""Preemptions of the page: who gave way to whom, how long the room stayed empty, and loops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.decision_ring import BOUND, RecordedDecision

LOOP_MIN = 2
"""So many times the same two must have met."""
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
    loops = {pair: found for pair, found in met.items() if _is_loop(found, owners)}
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


def _is_loop(found: Sequence[RecordedDecision], owners: Mapping[str, str]) -> bool:
    """True where the two have met at different times, or have changed sides: one preemption may
    have several victims of one owner at once."""
    sides = {owner_of(one.pod, owners) for one in found}
    times = {(one.preemptor, one.time) for one in found}
    return len(sides) > 1 or len({time for _, time in times}) >= LOOP_MIN
