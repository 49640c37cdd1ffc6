"""Answers of admission checks that have no controller here: an annotation of the AdmissionCheck.

`stowplan.dev/check-answer: Ready` answers every Workload at once, `Ready=90` after 90 seconds;
`Retry` and `Rejected` likewise. A check with the annotation counts as active.
"""

from __future__ import annotations

from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controllers.kueue.kueue_kinds import CHECKS, WORKLOADS
from stowplan.controllers.kueue.workload_status import (
    EVICTED,
    QUOTA_RESERVED,
    condition_of,
    is_true,
    note,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

ANSWER = "stowplan.dev/check-answer"
MULTI_KUEUE = "kueue.x-k8s.io/multikueue"
STATES = ("Ready", "Retry", "Rejected")


class CheckAnswers(Controller):
    """Keys are those of Workloads, and of AdmissionChecks (without namespace)."""

    name = "kueue-check-answers"

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Workload or check."""
        if change.path in (WORKLOADS, CHECKS):
            self.queue.add(split_key(change))

    def sync(self, key: Key) -> None:
        """Declare a check active, or answer the pending checks of a Workload."""
        if not key[0]:
            self._activate(key)
            return
        workload = self.api.get(WORKLOADS, *key)
        if workload is None or not is_true(workload, QUOTA_RESERVED) or is_true(workload, EVICTED):
            return
        since = (condition_of(workload, QUOTA_RESERVED) or {}).get("lastTransitionTime")
        is_new = False
        for check in workload["status"].get("admissionChecks") or ():
            answer = answer_of(self.api.get(CHECKS, "", check["name"]))
            if check.get("state") != "Pending" or answer is None:
                continue
            at = unix_seconds(since) + answer[1]
            if at > self.api.now:
                self.queue.add(key, at)
                continue
            check["state"] = answer[0]
            check["message"] = f"Answered by the annotation {ANSWER}"
            check["lastTransitionTime"] = format_time(self.api.now)
            is_new = True
        if is_new:
            self.api.update_status(WORKLOADS, workload)

    def _activate(self, key: Key) -> None:
        check = self.api.get(CHECKS, *key)
        if check is None:
            return
        if answer_of(check) is None:
            if (check.get("spec") or {}).get("controllerName") == MULTI_KUEUE:
                text = "MultiKueue is not run here"
                if note(check, "Active", False, "NotModelled", text, self.api.now):
                    self.api.update_status(CHECKS, check)
            return
        text = "The admission check is answered by an annotation"
        if note(check, "Active", True, "Active", text, self.api.now):
            self.api.update_status(CHECKS, check)


def answer_of(check: Tree | None) -> tuple[str, float] | None:
    """State and delay in seconds of the answer of a check; None without one."""
    notes = ((check or {}).get("metadata") or {}).get("annotations") or {}
    state, _, delay = str(notes.get(ANSWER, "")).partition("=")
    if state not in STATES or (delay and not delay.isdecimal()):
        return None
    return state, float(delay or 0)
