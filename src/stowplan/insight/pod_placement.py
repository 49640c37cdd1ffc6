"""Placement: what became of a pod, and why it went nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.cycle.attempt import filter_pod, score_pod
from stowplan.framework import Framework
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.diagnosis import NO_NODES
from stowplan.framework.problems import ContractError
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.pod import Pod, PodCondition
from stowplan.scheduler.scheduler import Scheduler

FAILED = "FailedScheduling"
_OF_A_POD = re.compile(r" (?:of|for) pod '[^']*'")
_ON_NO_NODE = re.compile(r"0/[0-9]+ nodes are available:(?: (.*?)\.)?(?: .*)?")
_COUNT = re.compile(r"(?:^|, )[0-9]+ ")


class Placement(msgspec.Struct, frozen=True):
    """What became of a pod.

    node: "" when it went nowhere. reason: why, without numbers, so that pods can be counted by
    it. message: the text that users of a cluster read.
    """

    pod: str
    node: str = ""
    reason: str = ""
    message: str = ""


def frame_of(placements: Sequence[Placement], library: str = "") -> Any:
    """Placements as a DataFrame, a row each; see `frame`."""
    kind = type(placements[0]) if placements else Placement
    names = [field.name for field in msgspec.structs.fields(kind)]
    columns = {name: [getattr(one, name) for one in placements] for name in names}
    return to_dataframe(columns, library)


def unplaced(pod: Pod, reason: str, message: str = "") -> Placement:
    """The placement of a pod that has no node.

    A reason that is a plugin's fault does not name the pod, so that pods can be counted by it.
    """
    return Placement(pod.key, "", _OF_A_POD.sub("", reason), message or reason)


def frameworks_of(scheduler: Scheduler) -> Mapping[str, Framework]:
    """The frameworks by which a machine decides."""
    return scheduler._context.frameworks


def refused_by(decision: Decision, pod: Pod, scheduler: Scheduler) -> Placement:
    """What `refusal_of` says of a pod at the moment at which an attempt refuses it."""
    message, refusal = decision.message, decision.refusal
    if refusal is None or not refusal.is_rejected or not message:
        said = PodCondition("PodScheduled", "False", decision.reason, message)
        status = replace(pod.status, conditions=(said,))
        return refusal_of(replace(pod, status=status), message or FAILED, scheduler)
    return unplaced(pod, "; ".join(decision.near_misses or tuple(decision.reasons)), message)


def refusal_of(pod: Pod, note: str, scheduler: Scheduler) -> Placement:
    """Why a pending pod has no node, in the cluster as the machine knows it.

    note: of its last failure, "" when there was none. Where a plugin breaks its contract that is
    the reason.
    """
    try:
        return _refusal(pod, note, scheduler)
    except ContractError as fault:
        return unplaced(pod, str(fault), condition_message(pod) or note)


def _refusal(pod: Pod, note: str, scheduler: Scheduler) -> Placement:
    name = pod.spec.scheduler_name
    framework = frameworks_of(scheduler).get(name)
    if scheduler.sessions is not None and name in scheduler.sessions.decider.scheduler_names:
        message = condition_message(pod) or note
        return unplaced(pod, strip_node_counts(message) or "no session has tried it", message)
    if framework is None:
        return unplaced(pod, f"no profile has the schedulerName {name!r}")
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
        # A node was chosen and something came between, or extenders kept none.
        return unplaced(pod, strip_node_counts(note) or "not tried yet", message)
    # Sorted by text: the counts of the message differ from pod to pod, the reasons do not.
    reasons = attempt.diagnosis.near_misses() or tuple(attempt.diagnosis.reasons())
    return unplaced(pod, "; ".join(reasons), message)


def strip_node_counts(note: str) -> str:
    """What a failure says but for how many nodes it says it of, so that pods can be counted by it;
    a text that counts no nodes stays as it is."""
    found = _ON_NO_NODE.fullmatch(note)
    if found is None:
        return note
    reasons = [reason for reason in _COUNT.split(found[1] or "") if reason]
    return "; ".join(sorted(reasons)) or "extenders kept no node"


def condition_message(pod: Pod) -> str:
    """What the pod's PodScheduled condition says, "" where it has none."""
    conditions = pod.status.conditions
    return next((c.message for c in conditions if c.type == "PodScheduled"), "")
