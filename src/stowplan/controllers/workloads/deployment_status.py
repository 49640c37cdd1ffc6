"""Status of a Deployment: counts, availability, and rollout progress.

Source: kube-controller-manager v1.36, pkg/controller/deployment/progress.go and sync.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controller_runtime.object_times import format_time, unix_seconds
from stowplan.controllers.workloads.rolling_update import RollingUpdateLimits
from stowplan.objects.encoding.tree import Tree

_NO_DEADLINE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DeploymentCounts:
    """Sums of the status of a Deployment's ReplicaSets. terminating: None if one does not report
    it."""

    wanted: int
    replicas: int
    updated: int
    ready: int
    available: int
    terminating: int | None
    observed: int = 0

    @classmethod
    def of(cls, sets: Sequence[Tree], newest: Tree | None) -> DeploymentCounts:
        """Counts of all ReplicaSets. newest: the one whose pods count as updated."""
        status = [each.get("status") or {} for each in sets]
        seen = [one for one in status if one.get("observedGeneration")]
        unreported = any("terminatingReplicas" not in one for one in seen)
        return cls(
            wanted=sum(each["spec"].get("replicas", 0) for each in sets),
            replicas=sum(one.get("replicas", 0) for one in status),
            updated=((newest or {}).get("status") or {}).get("replicas", 0),
            ready=sum(one.get("readyReplicas", 0) for one in status),
            available=sum(one.get("availableReplicas", 0) for one in status),
            terminating=None
            if unreported
            else sum(one.get("terminatingReplicas", 0) for one in seen),
        )

    @classmethod
    def of_status(cls, deployment: Tree) -> DeploymentCounts:
        """Counts in the Deployment's status."""
        status = deployment.get("status") or {}
        return cls(
            wanted=0,
            replicas=status.get("replicas", 0),
            updated=status.get("updatedReplicas", 0),
            ready=status.get("readyReplicas", 0),
            available=status.get("availableReplicas", 0),
            terminating=status.get("terminatingReplicas"),
            observed=status.get("observedGeneration", 0),
        )

    def is_complete(self, deployment: Tree) -> bool:
        """True when all pods are of the current template, enough, and available."""
        wanted = deployment["spec"].get("replicas", 1)
        seen = self.observed >= deployment["metadata"].get("generation", 0)
        return bool(seen and self.updated == self.replicas == self.available == wanted)

    def has_progressed_since(self, before: DeploymentCounts) -> bool:
        """True when there is progress since `before`."""
        return (
            self.updated > before.updated
            or self.replicas - self.updated < before.replicas - before.updated
            or self.ready > before.ready
            or self.available > before.available
        )


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """Input of a rollout's conditions. failure: ReplicaFailure of a ReplicaSet, if any."""

    deployment: Tree
    newest: Tree | None
    failure: Tree | None

    def describe(self, what: str) -> str:
        """`ReplicaSet "web-abc" WHAT`, or of the Deployment while it has none."""
        if self.newest is None:
            return f'Deployment "{self.deployment["metadata"]["name"]}" {what}'
        return f'ReplicaSet "{self.newest["metadata"]["name"]}" {what}'


def has_progress_deadline(deployment: Tree) -> bool:
    """True when the Deployment has a progress deadline."""
    limit = deployment["spec"].get("progressDeadlineSeconds")
    return limit is not None and limit != _NO_DEADLINE


def check_paused(deployment: Tree, now: float) -> bool:
    """Record that a Deployment was paused or resumed; True if that is new."""
    if not has_progress_deadline(deployment):
        return False
    old = find_condition((deployment.get("status") or {}).get("conditions") or (), "Progressing")
    if old is not None and old.get("reason") == "ProgressDeadlineExceeded":
        return False
    noted = old is not None and old.get("reason") == "DeploymentPaused"
    paused = bool(deployment["spec"].get("paused"))
    if paused == noted:
        return False
    if paused:
        set_progressing(deployment, "Unknown", "DeploymentPaused", "Deployment is paused", now)
    else:
        set_progressing(deployment, "Unknown", "DeploymentResumed", "Deployment is resumed", now)
    return True


def set_progressing(deployment: Tree, status: str, reason: str, message: str, now: float) -> None:
    """Set the Progressing condition in the Deployment's tree."""
    held = deployment.setdefault("status", {})
    held["conditions"] = _with_condition(
        held.get("conditions") or [], "Progressing", status, reason, message, now
    )


def scaling_status(
    deployment: Tree, counts: DeploymentCounts, limits: RollingUpdateLimits, now: float
) -> Tree:
    """Status without a rollout: counts and Available only."""
    old = deployment.get("status") or {}
    unavailable = max(0, counts.wanted - counts.available)
    fields = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": counts.replicas,
        "updatedReplicas": counts.updated,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "unavailableReplicas": unavailable,
    }
    status: Tree = {name: value for name, value in fields.items() if value}
    if counts.terminating is not None:
        status["terminatingReplicas"] = counts.terminating
    if "collisionCount" in old:
        status["collisionCount"] = old["collisionCount"]
    conditions = list(old.get("conditions") or ())
    if counts.available >= limits.available_least:
        text = "Deployment has minimum availability."
        entry = ("True", "MinimumReplicasAvailable", text)
    else:
        text = "Deployment does not have minimum availability."
        entry = ("False", "MinimumReplicasUnavailable", text)
    status["conditions"] = _with_condition(conditions, "Available", *entry, now)
    return status


def rollout_status(
    note: RolloutContext, counts: DeploymentCounts, limits: RollingUpdateLimits, now: float
) -> Tree:
    """Status during and after a rollout: as above, with Progressing and ReplicaFailure."""
    deployment = note.deployment
    status = scaling_status(deployment, counts, limits, now)
    conditions = status["conditions"]
    current = find_condition(conditions, "Progressing")
    if not has_progress_deadline(deployment):
        conditions = _without_condition(conditions, "Progressing")
    else:
        done = current is not None and current.get("reason") == "NewReplicaSetAvailable"
        if not (done and counts.replicas == counts.updated):
            conditions = _progress(note, counts, conditions, now)
    conditions = _without_condition(conditions, "ReplicaFailure", unless=note.failure)
    if note.failure is not None:
        failure = note.failure
        conditions = _with_condition(
            conditions,
            "ReplicaFailure",
            failure["status"],
            failure.get("reason", ""),
            failure.get("message", ""),
            unix_seconds(failure.get("lastTransitionTime")),
        )
    status["conditions"] = conditions
    return status


def _progress(
    note: RolloutContext, counts: DeploymentCounts, conditions: list[Tree], now: float
) -> list[Tree]:
    deployment = note.deployment
    current = find_condition(conditions, "Progressing")
    observed = deployment["metadata"].get("generation", 0)
    if _observed(counts, observed).is_complete(deployment):
        text = note.describe("has successfully progressed.")
        return _with_condition(
            conditions, "Progressing", "True", "NewReplicaSetAvailable", text, now
        )
    if counts.has_progressed_since(DeploymentCounts.of_status(deployment)):
        text = note.describe("is progressing.")
        since = format_time(now)
        if current is not None and current.get("status") == "True":
            since = current.get("lastTransitionTime", since)
        entry = _deployment_condition("Progressing", "True", "ReplicaSetUpdated", text, now, since)
        return [*_without_condition(conditions, "Progressing"), entry]
    if _timed_out(deployment, current, now):
        text = note.describe("has timed out progressing.")
        return _with_condition(
            conditions, "Progressing", "False", "ProgressDeadlineExceeded", text, now
        )
    return conditions


def _observed(counts: DeploymentCounts, generation: int) -> DeploymentCounts:
    return DeploymentCounts(
        counts.wanted,
        counts.replicas,
        counts.updated,
        counts.ready,
        counts.available,
        counts.terminating,
        generation,
    )


def _timed_out(deployment: Tree, current: Tree | None, now: float) -> bool:
    if current is None or current.get("reason") == "NewReplicaSetAvailable":
        return False
    if current.get("reason") == "ProgressDeadlineExceeded":
        return True
    limit = deployment["spec"]["progressDeadlineSeconds"]
    return bool(unix_seconds(current.get("lastUpdateTime")) + limit < now)


def next_progress_check(deployment: Tree, status: Tree, now: float) -> float:
    """Progress deadline of the current rollout; 0.0 for none."""
    current = find_condition(status.get("conditions") or (), "Progressing")
    if not has_progress_deadline(deployment) or current is None:
        return 0.0
    updated = {**deployment, "status": status}
    done = DeploymentCounts.of_status(updated).is_complete(deployment)
    if done or current.get("reason") in ("ProgressDeadlineExceeded", "DeploymentPaused"):
        return 0.0
    due = (
        unix_seconds(current.get("lastUpdateTime")) + deployment["spec"]["progressDeadlineSeconds"]
    )
    return float(max(due, now) + 1.0)


def _deployment_condition(
    type_: str, status: str, reason: str, message: str, now: float, since: str
) -> Tree:
    return {
        "type": type_,
        "status": status,
        "lastUpdateTime": format_time(now),
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }


def _with_condition(
    conditions: list[Tree], type_: str, status: str, reason: str, message: str, now: float
) -> list[Tree]:
    """`conditions` with this one appended, unless one with its status and reason exists."""
    old = find_condition(conditions, type_)
    if old is not None and old.get("status") == status and old.get("reason") == reason:
        return conditions
    since = format_time(now)
    if old is not None and old.get("status") == status:
        since = old.get("lastTransitionTime", since)
    entry = _deployment_condition(type_, status, reason, message, now, since)
    return [*_without_condition(conditions, type_), entry]


def _without_condition(conditions: list[Tree], type_: str, unless: object = None) -> list[Tree]:
    if unless is not None:
        return conditions
    return [each for each in conditions if each.get("type") != type_]
