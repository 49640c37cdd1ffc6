"""Stays: what a replay says of a pod when it is over."""

from __future__ import annotations

from stowplan.framework.problems import ContractError
from stowplan.sim.agenda import in_seconds
from stowplan.sim.placement import Placement, nowhere, refusal_of
from stowplan.sim.replay import Replay, Stay


class TimedPlacement(Placement, frozen=True):
    """What became of a pod, in virtual seconds from the beginning; None for what did not happen.

    wait_s: from its arrival until it was bound for the first time. refusals: attempts that failed.
    restarts: how often it came again, evicted or because its node had left.
    """

    arrived_s: float = 0.0
    bound_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    wait_s: float | None = None
    refusals: int = 0
    restarts: int = 0


def stayed(stay: Stay, run: Replay) -> TimedPlacement:
    """The placement of a pod that came during a replay."""
    place = Placement(stay.pod.key, stay.node)
    if not stay.node:
        pod = run.world.pods.get(stay.pod.key, stay.pod)
        try:
            place = refusal_of(pod, stay.note, run.machine)
        except ContractError as fault:
            place = nowhere(pod, str(fault), stay.note or str(fault))
    return TimedPlacement(
        place.pod,
        place.node,
        place.reason,
        place.message,
        arrived_s=in_seconds(stay.arrived),
        bound_s=_seconds(stay.bound),
        started_s=_seconds(stay.started),
        ended_s=_seconds(stay.ended),
        wait_s=_seconds(stay.waited),
        refusals=stay.refusals,
        restarts=stay.restarts,
    )


def _seconds(at: int | None) -> float | None:
    return None if at is None else in_seconds(at)
