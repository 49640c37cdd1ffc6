"""Pod placement: the node of a pod, or why it has none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle.attempt import filter_pod, score_pod
from stowplan.framework import Framework
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.diagnosis import NO_NODES
from stowplan.framework.problems import ContractError
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.pod import Pod, PodCondition
from stowplan.scheduler.scheduler import Scheduler

FAILED = "FailedScheduling"
ONLY_PENDING = "sessions place only pods of phase Pending"
_OF_A_POD = re.compile(r" (?:of|for) pod '[^']*'")
_ON_NO_NODE = re.compile(r"0/[0-9]+ nodes are available:(?: (.*?)\.)?(?: .*)?")
_COUNT = re.compile(r"(?:^|, )[0-9]+ ")


class Placement(msgspec.Struct, frozen=True):
    """Placement of a pod.

    node: "" for an unplaced pod. reason: why, without numbers, so that pods can be grouped by it.
    message: the message of the PodScheduled condition.
    """

    pod: str
    node: str = ""
    reason: str = ""
    message: str = ""


def frame_of(placements: Sequence[Placement], library: str = "") -> Any:
    """Placements as a DataFrame, one row each; see `to_dataframe`."""
    kind = type(placements[0]) if placements else Placement
    names = [field.name for field in msgspec.structs.fields(kind)]
    columns = {name: [getattr(one, name) for one in placements] for name in names}
    return to_dataframe(columns, library)


def unplaced(pod: Pod, reason: str, message: str = "") -> Placement:
    """The placement of an unplaced pod.

    Pod names are removed from reasons, so that pods can be grouped by them.
    """
    return Placement(pod.key, "", _OF_A_POD.sub("", reason), message or reason)


def has_started_without_node(pod: Pod) -> bool:
    """True where the status says that the pod runs, or did until lately, while it has no node.
    Sessions place only pods of phase Pending; profiles do not look at the phase."""
    phase = pod.status.phase
    return not (pod.node_name or pod.is_finished) and phase not in ("", "Pending")


def unseen_reason(pod: Pod) -> str:
    """Why sessions do not place a pod without a node; "" where it is pending."""
    if has_started_without_node(pod):
        phase = pod.status.phase
        return f"its status.phase is {phase}, but it has no spec.nodeName: {ONLY_PENDING}"
    if pod.is_finished:
        return f"it has finished: its status.phase is {pod.status.phase}"
    return "it is being deleted" if pod.metadata.deletion_timestamp is not None else ""


def frameworks_of(scheduler: Scheduler) -> Mapping[str, Framework]:
    """The frameworks of a scheduler, by profile."""
    return scheduler._context.frameworks


def refused_by(decision: Decision, pod: Pod, scheduler: Scheduler) -> Placement:
    """`refusal_of` at the time of the failed attempt."""
    message, refusal = decision.message, decision.refusal
    if refusal is None or not refusal.is_rejected or not message:
        condition = PodCondition("PodScheduled", "False", decision.reason, message)
        status = replace(pod.status, conditions=(condition,))
        return refusal_of(replace(pod, status=status), message or FAILED, scheduler)
    return unplaced(pod, "; ".join(decision.near_misses or tuple(decision.reasons)), message)


def refusal_of(pod: Pod, note: str, scheduler: Scheduler) -> Placement:
    """Why a pending pod has no node, in the scheduler's current cluster state.

    note: message of its last failure, "" for none. A plugin that breaks its contract becomes the
    reason.
    """
    try:
        return _refusal(pod, note, scheduler)
    except ContractError as fault:
        return unplaced(pod, str(fault), condition_message(pod) or note)


def _refusal(pod: Pod, note: str, scheduler: Scheduler) -> Placement:
    name = pod.spec.scheduler_name
    framework = frameworks_of(scheduler).get(name)
    if any(name in lane.scheduler_names for lane in scheduler.lanes.batch):
        message = condition_message(pod) or note
        return unplaced(pod, strip_node_counts(message) or "not tried by any session", message)
    if framework is None:
        return unplaced(pod, no_profile(name))
    message = condition_message(pod) or note
    gate = framework.run_pre_enqueue(pod)
    if not gate.is_success:
        return unplaced(pod, gate.message, message)
    attempt = filter_pod(pod, scheduler.cache.snapshot(), framework)
    if attempt.no_nodes:
        return unplaced(pod, NO_NODES, message)
    if attempt.failure is not None:
        return unplaced(pod, attempt.failure.message, message)
    if attempt.passed.shape[0]:
        if framework.at("score"):
            score_pod(attempt)
        # The binding cycle failed, or extenders rejected all nodes.
        return unplaced(pod, strip_node_counts(note) or "not tried yet", message)
    # Without counts, which differ from pod to pod.
    reasons = attempt.diagnosis.near_misses() or tuple(attempt.diagnosis.reasons())
    return unplaced(pod, "; ".join(reasons), message)


def strip_node_counts(note: str) -> str:
    """A failure message without node counts, so that pods can be grouped by it; other texts are
    unchanged."""
    found = _ON_NO_NODE.fullmatch(note)
    if found is None:
        return note
    reasons = [reason for reason in _COUNT.split(found[1] or "") if reason]
    return "; ".join(sorted(reasons)) or "extenders rejected all nodes"


def condition_message(pod: Pod) -> str:
    """Message of the PodScheduled condition, "" without one."""
    conditions = pod.status.conditions
    return next((c.message for c in conditions if c.type == "PodScheduled"), "")
