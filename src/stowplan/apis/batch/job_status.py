"""Validation of the status of jobs.

Most rules check only what a write changes, so that an invalid status can be repaired.

Source: kubernetes v1.36, pkg/apis/batch/validation (ValidateJobStatusUpdate) and
pkg/registry/batch/job/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import INVALID, Cause, duplicate, invalid, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_CONDITIONS = "status.conditions"
_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")


def is_condition_true(status: Tree, kind: str) -> bool:
    """True if the condition has status True."""
    conditions = status.get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def validate_job_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """Counts, conditions and times are consistent; a finished job stays finished."""
    status, before = new["status"], old["status"]
    yield from field_checks.not_negative_fields(status, _COUNTS, "status")
    yield from _uncounted(status.get("uncountedTerminatedPods") or {})
    yield from _exclusive_conditions(status, before)
    yield from _finished(new, old)
    yield from _indexes(new, before)
    ready, active = status.get("ready"), status.get("active", 0)
    moved = (ready, active) != (before.get("ready"), before.get("active", 0))
    if moved and ready is not None and ready > active:
        yield invalid("status.ready", ready, "cannot set more ready pods than active")
    yield from _criteria(new)
    yield from _immutable_once_set(new, old)


def _conflict(text: str) -> Cause:
    """A cause of status.conditions that shows no value."""
    return Cause(_CONDITIONS, INVALID, f"Invalid value: {text}")


def _changed(new: Tree, old: Tree, *names: str) -> bool:
    return any(new.get(name) != old.get(name) for name in names)


def _condition_became_true(new: Tree, old: Tree, *kinds: str) -> bool:
    return any(is_condition_true(new, kind) != is_condition_true(old, kind) for kind in kinds)


def _uncounted(pods: Tree) -> Iterator[Cause]:
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        for at, uid in enumerate(pods.get(name) or ()):
            path = f"status.uncountedTerminatedPods.{name}[{at}]"
            if not uid:
                yield invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(path, uid)
            seen.add(uid)


def _exclusive_conditions(status: Tree, before: Tree) -> Iterator[Cause]:
    complete, failed = is_condition_true(status, "Complete"), is_condition_true(status, "Failed")
    target = is_condition_true(status, "FailureTarget")
    if _condition_became_true(status, before, "Complete", "Failed") and complete and failed:
        yield _conflict("cannot set Complete=True and Failed=true conditions")
    if _condition_became_true(status, before, "Complete", "FailureTarget") and complete and target:
        yield _conflict("cannot set Complete=True and FailureTarget=true conditions")
    started, ended = status.get("startTime"), status.get("completionTime")
    path = "status.completionTime"
    if _condition_became_true(status, before, "Complete") or _changed(
        status, before, "completionTime"
    ):
        if ended is not None and not complete:
            text = "cannot set completionTime when there is no Complete=True condition"
            yield invalid(path, ended, text)
        if ended is None and complete:
            yield required(path, "completionTime is required for Complete jobs")
    moved = _changed(status, before, "startTime", "completionTime")
    if moved and started is not None and ended is not None and ended < started:
        yield invalid(path, ended, "must be equal to or after `startTime`")
    moved = _condition_became_true(status, before, "Failed") or _changed(
        status, before, "failedIndexes"
    )
    without = "condition without the"
    if moved and failed and not target:
        yield _conflict(f"cannot set Failed=True {without} FailureTarget=true condition")
    met = "SuccessCriteriaMet"
    if (
        _condition_became_true(status, before, "Complete", met)
        and complete
        and not is_condition_true(status, met)
    ):
        yield _conflict(f"cannot set Complete=True {without} {met}=true condition")


def _finished(new: Tree, old: Tree) -> Iterator[Cause]:
    """A finished job has no active or terminating pods."""
    status, before, spec = new["status"], old["status"], new["spec"]
    ended = is_condition_true(status, "Complete") or is_condition_true(status, "Failed")
    if not ended:
        return
    now = not (is_condition_true(before, "Complete") or is_condition_true(before, "Failed"))
    active, terminating = status.get("active", 0), status.get("terminating", 0)
    if active and (now or _changed(status, before, "active")):
        yield invalid("status.active", active, "active>0 is invalid for finished job")
    idle = spec.get("suspend") is True and spec.get("completions") == 0
    moved = now or _changed(status, before, "startTime")
    if moved and not idle and status.get("startTime") is None:
        yield required("status.startTime", "startTime is required for finished job")
    pods = status.get("uncountedTerminatedPods") or {}
    if any(pods.values()) and (now or _changed(status, before, "uncountedTerminatedPods")):
        yield invalid("status.uncountedTerminatedPods", pods, "must be empty for finished job")
    if terminating and (now or _changed(status, before, "terminating")):
        text = "terminating>0 is invalid for finished job"
        yield invalid("status.terminating", terminating, text)


def _indexes(new: Tree, before: Tree) -> Iterator[Cause]:
    status, spec = new["status"], new["spec"]
    done, failed = status.get("completedIndexes", ""), status.get("failedIndexes")
    indexed = spec.get("completionMode") == "Indexed"
    if done and not indexed and _changed(status, before, "completedIndexes"):
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", done, text)
    limited = "backoffLimitPerIndex" in spec
    if failed is not None and not limited and _changed(status, before, "failedIndexes"):
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, text)


def _criteria(new: Tree) -> Iterator[Cause]:
    status = new["status"]
    met = is_condition_true(status, "SuccessCriteriaMet")
    if met and is_condition_true(status, "Failed"):
        yield _conflict("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if met and is_condition_true(status, "FailureTarget"):
        yield _conflict("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if "successPolicy" in new["spec"] and not met and is_condition_true(status, "Complete"):
        yield _conflict(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )


def _immutable_once_set(new: Tree, old: Tree) -> Iterator[Cause]:
    status, before, spec = new["status"], old["status"], new["spec"]
    for kind in ("Failed", "Complete", "FailureTarget"):
        if is_condition_true(before, kind) and not is_condition_true(status, kind):
            yield _conflict(f"cannot disable the terminal {kind}=True condition")
    together = spec.get("completions") == spec.get("parallelism")
    shrinks = spec.get("completionMode") == "Indexed" and together
    for name, free in (("failed", False), ("succeeded", shrinks)):
        if not free and status.get(name, 0) < before.get(name, 0):
            text = f"cannot decrease the {name} counter"
            yield invalid(f"status.{name}", status.get(name, 0), text)
    ended, was = status.get("completionTime"), before.get("completionTime")
    if ended is not None and was is not None and ended != was:
        yield invalid("status.completionTime", ended, field_checks.IMMUTABLE)
    started, had = status.get("startTime"), before.get("startTime")
    resuming = is_condition_true(before, "Suspended") and not is_condition_true(status, "Suspended")
    if had is not None and started != had and not spec.get("suspend") and not resuming:
        text = "field is immutable for unsuspended job once set"
        yield invalid("status.startTime", started, text)
    met = "SuccessCriteriaMet"
    if is_condition_true(before, met) and not is_condition_true(status, met):
        yield _conflict(f"cannot disable the {met}=True condition")
    if (
        is_condition_true(before, "Complete")
        and not is_condition_true(before, met)
        and is_condition_true(status, met)
    ):
        yield _conflict(f"cannot set {met}=True for Job already has Complete=true conditions")
