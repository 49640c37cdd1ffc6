"""Policies of a JobSet: when its Jobs may start, when it has succeeded, and what a failure causes.

Differs: a rule that restarts one Job restarts all; in the original that is behind a gate.

Source: sigs.k8s.io/jobset of 2026-08-18, pkg/controllers: depends_on.go, failure_policy.go,
startup_policy.go, success_policy.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers.job_sets.child_jobs import REPLICATED_JOB, replicas_of
from stowplan.objects.encoding.tree import Tree

FAIL, RESTART = "FailJobSet", "RestartJobSet"
_UNCOUNTED = "AndIgnoreMaxRestarts"


class JobSetFailure(NamedTuple):
    """What a failed Job causes. action: `FailJobSet`, or `RestartJobSet` for all restarts.

    reason, message: of the condition and the event. rule: the name of the rule that decided, ""
    for the default. counts: whether a restart counts towards the maximum.
    """

    action: str
    reason: str
    message: str
    rule: str = ""
    counts: bool = True


def is_in_order(job_set: Tree) -> bool:
    """Whether replicated jobs start one after the other."""
    policy = job_set["spec"].get("startupPolicy") or {}
    return bool(policy.get("startupPolicyOrder") == "InOrder")


def has_started(replicated: Tree, counts: Mapping[str, int]) -> bool:
    """Whether all Jobs of a replicated job are ready or have ended. counts: of its status."""
    return replicas_of(replicated) == counts["failed"] + counts["ready"] + counts["succeeded"]


def are_dependencies_met(
    job_set: Tree, replicated: Tree, counts: Mapping[str, Mapping[str, int]]
) -> bool:
    """Whether the replicated jobs that one depends on are ready, or complete. counts: by name."""
    others = {one["name"]: one for one in job_set["spec"]["replicatedJobs"]}
    for one in replicated.get("dependsOn") or ():
        other = others.get(one["name"])
        if other is None:
            return False
        known = counts[other["name"]]
        if one.get("status") == "Complete" and known["succeeded"] != replicas_of(other):
            return False
        if one.get("status") == "Ready" and not has_started(other, known):
            return False
    return True


def has_succeeded(job_set: Tree, complete: Sequence[Tree]) -> bool:
    """Whether enough Jobs are complete."""
    policy = job_set["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or ()
    n_done = sum(not targets or replicated_name(job) in targets for job in complete)
    if policy.get("operator") == "Any":
        return n_done > 0
    wanted = (
        replicas_of(one)
        for one in job_set["spec"]["replicatedJobs"]
        if not targets or one["name"] in targets
    )
    return n_done >= sum(wanted)


def failure_of(job_set: Tree, failed: Sequence[Tree]) -> JobSetFailure:
    """What failed Jobs cause. failed: at least one."""
    policy = job_set["spec"].get("failurePolicy")
    first = min(failed, key=_failed_at)
    if policy is None:
        text = _with_job("jobset failed due to one or more job failures", first)
        return JobSetFailure(FAIL, "FailedJobs", text)
    action, rule, job = RESTART, "", first
    for i, one in enumerate(policy.get("rules") or ()):
        matching = [each for each in failed if _applies(one, each)]
        if matching:
            action, job = str(one["action"]), min(matching, key=_failed_at)
            rule = str(one.get("name") or f"failurePolicyRule{i}")
            break
    if action == FAIL:
        text = _with_job("applying FailJobSet failure policy action", job)
        return JobSetFailure(FAIL, "FailJobSetFailurePolicyAction", text, rule)
    counts = not action.endswith(_UNCOUNTED)
    restarts = int((job_set.get("status") or {}).get("restartsCountTowardsMax") or 0)
    if counts and restarts >= int(policy.get("maxRestarts") or 0):
        text = _with_job("jobset failed due to reaching max number of restarts", job)
        return JobSetFailure(FAIL, "ReachedMaxRestarts", text, rule)
    text = _with_job(f"applying {action} failure policy action", job)
    return JobSetFailure(RESTART, f"{action}FailurePolicyAction", text, rule, counts)


def replicated_name(job: Tree) -> str:
    """Name of the replicated job of a Job; "" for none."""
    return str((job["metadata"].get("labels") or {}).get(REPLICATED_JOB, ""))


def _failure(job: Tree) -> Tree:
    return find_condition((job.get("status") or {}).get("conditions") or (), "Failed") or {}


def _failed_at(job: Tree) -> str:
    return str(_failure(job).get("lastTransitionTime") or "")


def _with_job(text: str, job: Tree) -> str:
    return f"{text} (first failed job: {job['metadata']['name']})"


def _applies(rule: Tree, job: Tree) -> bool:
    found = _failure(job)
    reasons = rule.get("onJobFailureReasons") or ()
    patterns = rule.get("onJobFailureMessagePatterns") or ()
    targets = rule.get("targetReplicatedJobs") or ()
    message = str(found.get("message") or "")
    return (
        (not reasons or found.get("reason") in reasons)
        and (not patterns or any(_matches(one, message) for one in patterns))
        and (not targets or replicated_name(job) in targets)
    )


def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text; one that is no expression matches nothing."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False
