"""Pod placements of a replay, with times."""

from __future__ import annotations

from stowplan.framework.problems import ContractError
from stowplan.insight.pod_placement import Placement, refusal_of, unplaced
from stowplan.simulation.event_queue import in_seconds
from stowplan.simulation.replay import PodHistory, Replay


class TimedPlacement(Placement, frozen=True):
    """Placement with times in virtual seconds since the start; None for what did not happen.

    wait_s: from arrival to the first binding. refusals: failed attempts. restarts: how often the
    pod was created again after an eviction or a node loss.
    """

    arrived_s: float = 0.0
    bound_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    wait_s: float | None = None
    refusals: int = 0
    restarts: int = 0


def placement_of(pod_history: PodHistory, run: Replay) -> TimedPlacement:
    """The placement of a pod that arrived during a replay."""
    place = Placement(pod_history.pod.key, pod_history.node)
    if not pod_history.node:
        pod = run.cluster.pods.get(pod_history.pod.key, pod_history.pod)
        try:
            place = refusal_of(pod, pod_history.note, run.scheduler)
        except ContractError as fault:
            place = unplaced(pod, str(fault), pod_history.note or str(fault))
    return TimedPlacement(
        place.pod,
        place.node,
        place.reason,
        place.message,
        arrived_s=in_seconds(pod_history.arrived),
        bound_s=_seconds(pod_history.bound),
        started_s=_seconds(pod_history.started),
        ended_s=_seconds(pod_history.ended),
        wait_s=_seconds(pod_history.waited),
        refusals=pod_history.refusals,
        restarts=pod_history.restarts,
    )


def _seconds(at: int | None) -> float | None:
    return None if at is None else in_seconds(at)
