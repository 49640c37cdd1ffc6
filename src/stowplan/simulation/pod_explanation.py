"""Explanations from within a simulation: why a pod was refused when its turn came."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from stowplan.cycle.explanation import SIMULATED, Explanation, SimulationOutcome
from stowplan.cycle.explanation import explain as explain_attempt
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError
from stowplan.insight.pod_placement import Placement, frameworks_of
from stowplan.objects.pod import Pod
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.placement_run import PlacementRun, Progress
from stowplan.simulation.replay import Replay


class ExplainedPlacements(NamedTuple):
    """What became of pods in a fill, and the explanation of one of them."""

    placements: list[Placement]
    explanation: Explanation


def place_and_explain(
    fill: PlacementRun,
    pods: list[Pod],
    key: str,
    on_progress: Progress | None = None,
    *,
    rest: bool = True,
) -> ExplainedPlacements:
    """Place pods in their order, and explain the one with this key when its turn comes.

    rest: place those after it, too. Raises InputError where it is not among them, or where no
    profile decides it.
    """
    at = position_of(key, pods)
    pod = pods[at]
    check_profile(pod, fill.scheduler)
    placements = fill.place_all(pods[:at], _part(on_progress, 0, len(pods)))
    judged = _explained(pod, fill.scheduler)
    placements += fill.place_all([pod], None)
    found = placements[at]
    placed = sum(1 for one in placements[:at] if one.node)
    outcome = SimulationOutcome(at, placed, found.node, found.message)
    # Among equal nodes a simulation draws.
    node = found.node or judged.node
    explanation = replace(judged, node=node, evaluated_on=SIMULATED, simulation=outcome)
    if rest:
        after = _part(on_progress, at + 1, len(pods))
        placements += fill.place_all(pods[at + 1 :], after)
    return ExplainedPlacements(placements, explanation)


def explain_after_replay(key: str, run: Replay) -> Explanation | None:
    """Why a pod has no node at the end of a replay; None where it has, had, or never came."""
    pod_history = run.pod_histories.get(key)
    pod = run.world.pods.get(key)
    if pod_history is None or pod is None or pod_history.node or pod.is_finished:
        return None
    if pod.spec.scheduler_name not in frameworks_of(run.scheduler):
        return None
    came = [
        one
        for one in run.pod_histories.values()
        if not one.bound_at_start and one is not pod_history
    ]
    placed = sum(1 for one in came if one.node)
    outcome = SimulationOutcome(len(came), placed, "", pod_history.note)
    return replace(_explained(pod, run.scheduler), evaluated_on=SIMULATED, simulation=outcome)


def position_of(key: str, pods: list[Pod]) -> int:
    """Where the pod with this key stands among pending pods; raises InputError."""
    for at, pod in enumerate(pods):
        if pod.key == key:
            return at
    hint = did_you_mean(key, (pod.key for pod in pods))
    wanted = f"one of the {len(pods)} pending pods" + (f"; {hint}" if hint else "")
    raise InputError(f"pod {key}", "", "no pending pod of this name", wanted)


def check_profile(pod: Pod, scheduler: Scheduler) -> None:
    """Raises InputError where no profile decides the pod."""
    name, known = pod.spec.scheduler_name, frameworks_of(scheduler)
    if name not in known:
        raise InputError(f"pod {pod.key}", "profile", repr(name), f"one of {', '.join(known)}")


def _explained(pod: Pod, scheduler: Scheduler) -> Explanation:
    framework = frameworks_of(scheduler)[pod.spec.scheduler_name]
    return explain_attempt(pod, scheduler.cache.snapshot(), framework)


def _part(on_progress: Progress | None, done: int, total: int) -> Progress | None:
    """Progress of a part of the pods as progress of all of them."""
    if on_progress is None:
        return None
    return lambda n, _: on_progress(done + n, total)
