"""Explanations from a simulation: why a pod was unschedulable at its attempt."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from stowplan.cycle.explanation import SIMULATED, Explanation, SimulationOutcome
from stowplan.cycle.explanation import explain as explain_attempt
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.insight.pod_owners import pod_in_question, pods_of_owner
from stowplan.insight.pod_placement import Placement, frameworks_of
from stowplan.objects.pod import Pod
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.placement_run import PlacementRun, Progress
from stowplan.simulation.pod_group_run import PendingGroups
from stowplan.simulation.replay import Replay


class ExplainedPlacements(NamedTuple):
    """Placements of a placement run, and the explanation of one pod."""

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
    """Place pods in their order, and explain the one with this key at its attempt.

    rest: also place the pods after it. Raises InputError when it is not among them or no profile
    has its schedulerName.
    """
    at = position_of(key, pods)
    pod = pods[at]
    check_profile(pod, fill.scheduler)
    members = PendingGroups(pods, fill.scheduler).of(at)
    if members:
        return _explain_member(fill, pods, at, members, on_progress)
    placements = fill.place_all(pods[:at], _part(on_progress, 0, len(pods)))
    explained = _explained(pod, fill.scheduler)
    placements += fill.place_all([pod], None)
    found = placements[at]
    placed = sum(1 for one in placements[:at] if one.node)
    outcome = SimulationOutcome(at, placed, found.node, found.message)
    # A simulation breaks ties at random.
    node = found.node or explained.node
    explanation = replace(explained, node=node, evaluated_on=SIMULATED, simulation=outcome)
    if rest:
        after = _part(on_progress, at + 1, len(pods))
        placements += fill.place_all(pods[at + 1 :], after)
    return ExplainedPlacements(placements, explanation)


def _explain_member(
    fill: PlacementRun,
    pods: list[Pod],
    at: int,
    members: list[int],
    on_progress: Progress | None,
) -> ExplainedPlacements:
    """As `place_and_explain`, of a pod that is placed with its group. members: places of the
    group's pods; it is tried in the place of the last one. All pods are placed."""
    last, own = members[-1], set(members)
    before = [place for place in range(last) if place not in own]
    found = dict(zip(before, fill.place_all([pods[one] for one in before], None), strict=True))
    groups = fill.scheduler.pod_groups
    assert groups is not None, "only then pods have members"
    for place in members:
        groups.put(pods[place], 0)
    explained = _explained(pods[at], fill.scheduler)
    for place in members:
        groups.drop(pods[place])
    found |= dict(zip(members, fill.groups.place([pods[one] for one in members]), strict=True))
    rest = fill.place_all(pods[last + 1 :], _part(on_progress, last + 1, len(pods)))
    found |= dict(enumerate(rest, last + 1))
    own_place = found[at]
    placed = sum(1 for place in before if found[place].node)
    outcome = SimulationOutcome(len(before), placed, own_place.node, own_place.message)
    explanation = replace(
        explained, node=own_place.node, evaluated_on=SIMULATED, simulation=outcome
    )
    return ExplainedPlacements([found[place] for place in range(len(pods))], explanation)


def explained_pod(key: str, owners: list[tuple[str, str]], run: Replay) -> tuple[str, str]:
    """Key of the pod that a replay explains, and the beginning of a note if it is not pending.

    key: of a pod of the input. owners: its controllers, if they make pods of other names in the
    replay; of those the last pending one is explained.
    """
    if key in run.pod_histories or not owners:
        return key, f"{key} is not"
    namespace, (kind, name) = key.partition("/")[0], owners[-1]
    pods = pods_of_owner(run.cluster.pods.values(), kind, name, namespace)
    pod = pod_in_question(pods) if pods else None
    is_pending = pod is not None and not pod.node_name and not pod.is_finished
    return pod.key if pod is not None and is_pending else key, f"no pod of {kind.lower()}/{name} is"


def explain_after_replay(key: str, run: Replay) -> Explanation | None:
    """Why a pod is pending at the end of a replay; None for one that is not."""
    pod_history = run.pod_histories.get(key)
    pod = run.cluster.pods.get(key)
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
    """Index of the pod with this key among pending pods; raises InputError."""
    for at, pod in enumerate(pods):
        if pod.key == key:
            return at
    hint = did_you_mean(key, (pod.key for pod in pods))
    wanted = f"one of the {count_of(len(pods), 'pending pod')}" + (f"; {hint}" if hint else "")
    raise InputError(f"pod {key}", "", "no pending pod of this name", wanted)


def check_profile(pod: Pod, scheduler: Scheduler) -> None:
    """Raise InputError when no profile has the pod's schedulerName."""
    name, known = pod.spec.scheduler_name, frameworks_of(scheduler)
    if name not in known:
        raise InputError(f"pod {pod.key}", "profile", repr(name), f"one of {', '.join(known)}")


def _explained(pod: Pod, scheduler: Scheduler) -> Explanation:
    framework = frameworks_of(scheduler)[pod.spec.scheduler_name]
    return explain_attempt(pod, scheduler.cache.snapshot(), framework)


def _part(on_progress: Progress | None, done: int, total: int) -> Progress | None:
    """A progress callback for a part of the pods, in terms of all."""
    if on_progress is None:
        return None
    return lambda n, _: on_progress(done + n, total)
