"""Kueue's admission on the objects of a cluster: reserves quota, admits and evicts Workloads.

Jobs and pods follow their Workloads by controllers of their own (`controllers/kueue`). Cycles run
one after the other while they have an effect, and again after a change that may matter.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/scheduler/scheduler.go,
pkg/controller/core/workload_controller.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.timestamps import format_time
from stowplan.assembly.kueue.cluster_objects import (
    COMPONENT,
    read_nodes,
    read_objects,
    read_other_pods,
    read_workload,
)
from stowplan.assembly.kueue.restarted_queues import requeue_restarted
from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    EVICTED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    AdmissionWorkload,
)
from stowplan.batch.queue_models.kueue.kueue_admission import (
    CycleOutcome,
    KueueAdmission,
)
from stowplan.batch.queue_models.kueue.kueue_objects import Workload
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.reports.quota_reports import problem_of
from stowplan.batch.queue_models.kueue.reports.status_trees import (
    active_condition,
    admission_tree,
    local_queue_status,
    queue_status,
)
from stowplan.batch.queue_models.kueue.reports.workload_reports import SUSPENDED, why_pending
from stowplan.batch.queue_models.kueue.stopped_queues import stopped_by
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import NAMESPACES, NODES, PODS
from stowplan.controllers.kueue.kueue_kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    TOPOLOGIES,
    WORKLOADS,
)
from stowplan.controllers.kueue.workload_status import (
    DEACTIVATED,
    PODS_READY,
    condition_of,
    drop_reservation,
    is_true,
    note,
    note_evicted,
    note_not_admitted,
    queued_at,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

CHECK_BACKOFF_S = 60.0
"""Until a workload is tried again that a check sent back; doubled each time."""
IDLE_CYCLES = 6
"""Cycles without effect after which the next change is waited for."""
_REBUILT = frozenset(
    {CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, FLAVORS, TOPOLOGIES, CHECKS, NAMESPACES, "limitranges"}
)
WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
_NOT_TRIED = (DEACTIVATED, "PendingEvaluation", SUSPENDED, "Pending")
"""Reasons of workloads that wait for being tried, as far as their conditions say."""
_WHY = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}


class KueueAdmissionController:
    """Runs the cycles of a cluster. admission: its state; None before the first cycle."""

    name = "kueue-admission"
    observed: tuple[str, ...] = ()

    def __init__(self, api: Store, recorder: EventRecorder, options: KueueOptions) -> None:
        self.api = api
        self.recorder = recorder
        self.options = options
        self.admission: KueueAdmission | None = None
        self.n_failing = 0
        self._is_due = False
        self._is_stale = True
        self._is_writing = False
        self._idle = 0
        self._changed: dict[str, None] = {}
        self._has_new_places = True
        self._unready: set[str] = set()
        # When another LocalQueue may come first for what it uses.
        self._reorder_at: float | None = None
        # Waiting workload -> how many were preempted for it, the last time that any was.
        self._n_victims: dict[str, int] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Note what a change makes due."""
        if self._is_writing:
            return
        if change.path == WORKLOADS:
            self._changed[f"{change.namespace}/{change.name}"] = None
        elif change.path in _REBUILT:
            if not _is_other_object(change):
                return
            self._is_stale = True
        elif change.path in (NODES, PODS):
            self._has_new_places = True
            if not self._uses_topologies:
                return
        else:
            return
        self._is_due, self._idle = True, 0

    def work_once(self) -> bool:
        """Run a cycle, if one is due; False otherwise."""
        at = self.next_at()
        if at is None or at > self.api.now:
            return False
        self._is_writing = True
        try:
            self._run()
        except ApiError:
            # What was decided is not in the store: the state is read from it again, and what was
            # not written is, though nothing else changes.
            self._is_stale = self._is_due = True
            self._idle = 0
            raise
        finally:
            self._is_writing = False
        return True

    def next_at(self) -> float | None:
        """When the next cycle is due: at once, when a second pass is, or usage of LocalQueues may
        change their order; None: after a change."""
        if self._is_due:
            return 0.0
        second = None if self.admission is None else self.admission.second_pass.next_at()
        times = (at for at in (second, self._reorder_at) if at is not None)
        return min(times, default=None)

    def sample_usage(self) -> None:
        """Follow what LocalQueues have used, and write it; a cycle is due where it counts."""
        if self.admission is None:
            return
        self.admission.sample_usage(self.api.now)
        if self._is_stale or self._is_due:
            # A cycle follows, which writes it.
            return
        self._is_writing = True
        try:
            self._write_local_queues(self.admission)
        finally:
            self._is_writing = False
        if self._reorder_at is not None:
            self._is_due, self._idle = True, 0

    @property
    def _uses_topologies(self) -> bool:
        return self.admission is not None and any(
            one.spec.topology_name for one in self.admission.objects.resource_flavors
        )

    def _run(self) -> None:
        if self.admission is not None:
            self.admission.sample_usage(self.api.now)
        if not self._is_stale and self.admission is not None:
            self._follow(self.admission)
        else:
            self._rebuild()
        admission = self.admission
        assert admission is not None, "the state was just read"
        admission.now = self.api.now
        if self._has_new_places and self._uses_topologies:
            nodes, pods = read_nodes(self.api), read_other_pods(self.api)
            admission.objects = replace(admission.objects, nodes=nodes, pods=pods)
        self._has_new_places = False
        outcome = None if self._is_blocked else admission.run_cycle()
        if outcome is not None:
            self._write(admission, outcome)
        has_effect = outcome is not None and outcome.has_effect
        self._idle = 0 if has_effect else self._idle + 1
        if outcome is None or self._idle >= IDLE_CYCLES:
            self._is_due = False
            self._write_rest(admission)
        self._reorder_at = None if self._is_due else admission.order_may_change_at()

    @property
    def _is_blocked(self) -> bool:
        """Whether an admitted workload has to get its pods ready first."""
        rules = self.options.pods_ready
        return rules is not None and rules.blocks and bool(self._unready)

    def _rebuild(self) -> None:
        """Read the state from the store."""
        before = self.admission
        requeue_restarted(self.api)
        self.admission = KueueAdmission(read_objects(self.api), self.options)
        if before is not None:
            self.admission.evictions = before.evictions
            if self.admission.usage is not None and before.usage is not None:
                self.admission.usage.take_over(before.usage)
        self._is_stale, self._has_new_places = False, True
        self._changed.clear()
        self._unready = {
            f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"
            for tree in self.api.list(WORKLOADS)
            if _waits_for_pods(tree)
        }
        for one in list(self.admission.workloads.values()):
            self._note_checks(self.admission, one)

    def _follow(self, admission: KueueAdmission) -> None:
        """Take over what others wrote into Workloads."""
        for key in list(self._changed):
            tree = self.api.get(WORKLOADS, *key.split("/"))
            held = admission.workloads.get(key)
            self._unready.discard(key)
            if tree is not None and _waits_for_pods(tree):
                self._unready.add(key)
            if tree is None or is_true(tree, "Finished"):
                admission.finish([key])
            elif (
                held is not None
                and held.is_evicted
                and held.holds_quota
                and not is_true(tree, QUOTA_RESERVED)
            ):
                admission.release(key)
            else:
                found = read_workload(self.api, tree)
                if found is None:
                    admission.finish([key])
                elif (
                    held is None
                    or _counts(found) != _counts(held.workload)
                    or (_may_not_return(held) and is_true(tree, REQUEUED))
                ):
                    admission.replace(found)
                    self._note_checks(admission, admission.workloads[key])
            del self._changed[key]

    # What is written.

    def _write(self, admission: KueueAdmission, outcome: CycleOutcome) -> None:
        for key in outcome.admitted:
            self._write_admitted(admission, admission.workloads[key])
        for key, (reason, preemptor) in outcome.preempted.items():
            by = admission.workloads[preemptor]
            victim = admission.workloads[key]
            text = (
                f"Preempted to accommodate a workload (UID: {by.uid}, JobUID: {_job_uid(by)}) due "
                f"to {_WHY.get(reason, reason)}; preemptor path: {_path(admission, by)}; "
                f"preemptee path: {_path(admission, victim)}"
            )
            self._write_evicted(key, PREEMPTED, reason, text)
            self._record_preemption(by, victim, text)
        for key, reason in outcome.evicted.items():
            text = "Workload was evicted as there was no replacement for a failed node"
            self._write_evicted(key, reason, "", text)
        self._n_victims.update(Counter(by for _, by in outcome.preempted.values()))
        for key in outcome.admitted:
            self._n_victims.pop(key, None)
        for key in outcome.heads:
            if key not in outcome.admitted and key in admission.workloads:
                self._write_pending(admission, admission.workloads[key])

    def _write_admitted(self, admission: KueueAdmission, one: AdmissionWorkload) -> None:
        tree = self._tree(one.key)
        if tree is None:
            return
        now, queue = self.api.now, one.cluster_queue
        is_new = not is_true(tree, QUOTA_RESERVED)
        reserved = condition_of(tree, QUOTA_RESERVED) or {}
        status = tree.setdefault("status", {})
        status["admission"] = admission_tree(one)
        status.pop("unhealthyNodes", None)
        text = f"Quota reserved in ClusterQueue {queue}"
        note(tree, QUOTA_RESERVED, True, QUOTA_RESERVED, text, now)
        for kind in (EVICTED, PREEMPTED):
            before = condition_of(tree, kind)
            if before is not None and before["status"] == "True":
                text_before = f"Previously: {before['message']}"
                note(tree, kind, False, QUOTA_RESERVED, text_before, now)
        self._list_checks(admission, one, tree)
        if is_new:
            waited = max(0.0, now - queued_at(tree))
            text = f"{text}, wait time since queued was {waited:.0f}s"
            self._event(tree, QUOTA_RESERVED, text)
        if one.is_condition(ADMITTED):
            note(tree, ADMITTED, True, ADMITTED, "The workload is admitted", now)
            self._unready.add(one.key)
            since = now if is_new else unix_seconds(reserved.get("lastTransitionTime"))
            text = f"Admitted by ClusterQueue {queue}, wait time since reservation was"
            self._event(tree, ADMITTED, f"{text} {max(0.0, now - since):.0f}s")
        elif any(state != "Ready" for state in one.checks.values()):
            reason = "UnsatisfiedAdmissionChecks"
            note(tree, ADMITTED, False, reason, "The workload has not all checks ready", now)
        else:
            text = "There are pending delayed topology requests"
            note(tree, ADMITTED, False, "PendingDelayedTopologyRequests", text, now)
        self.api.update_status(WORKLOADS, tree)

    def _list_checks(self, admission: KueueAdmission, one: AdmissionWorkload, tree: Tree) -> None:
        """List the checks that the flavors of a workload need, as Pending."""
        needed = _needed_checks(admission, one)
        listed = {
            check["name"]: check
            for check in tree["status"].get("admissionChecks") or ()
            if check["name"] in needed
        }
        for name in sorted(needed - set(listed)):
            listed[name] = {"name": name, "state": "Pending", "message": ""}
            one.checks[name] = "Pending"
        if listed:
            tree["status"]["admissionChecks"] = list(listed.values())

    def _note_checks(self, admission: KueueAdmission, one: AdmissionWorkload) -> None:
        """Admit a workload whose checks are Ready by now; evict one that a check refuses, or that
        is deactivated."""
        if not one.holds_quota or one.is_evicted:
            return
        tree = self._tree(one.key)
        if tree is None:
            return
        stopped = stopped_by(one, admission)
        if stopped is not None and one.is_condition(ADMITTED):
            if stopped.is_drained:
                self._evict(one, stopped.eviction, stopped.text)
                return
        elif stopped is not None:
            drop_reservation(tree, SUSPENDED, stopped.message, self.api.now)
            found = read_workload(self.api, self.api.update_status(WORKLOADS, tree))
            if found is not None:
                admission.replace(found)
            return
        refused = any(state in ("Retry", "Rejected") for state in one.checks.values())
        if one.workload.spec.active is False:
            self._evict(one, DEACTIVATED, "The workload is deactivated")
        elif refused:
            self._refuse(one, tree)
        elif not one.is_condition(ADMITTED):
            needed = _needed_checks(admission, one)
            is_delayed = any(demand.delayed == "Pending" for demand in one.demands)
            is_listed = needed <= set(one.checks)
            if is_listed and not is_delayed and all(s == "Ready" for s in one.checks.values()):
                one.set_condition(ADMITTED, True, ADMITTED, self.api.now)
                admission.settle_usage(one, self.api.now)
                self._write_admitted(admission, one)

    def _refuse(self, one: AdmissionWorkload, tree: Tree) -> None:
        """A check refuses a workload: for some time, or for good."""
        # The tree is read again, since the model has the spec and the backoff of before.
        self._changed[one.key] = None
        if "Rejected" in one.checks.values():
            tree["spec"]["active"] = False
            self.api.update(WORKLOADS, tree)
            text = _checks_in(tree, "Rejected")
            self._event(tree, "AdmissionCheckRejected", f"Deactivated due to {text}", "Warning")
            reason = f"{DEACTIVATED}DueToAdmissionCheck"
            self._evict(one, reason, f"The workload is deactivated due to {text}")
            return
        count = int((tree["status"].get("requeueState") or {}).get("count", 0)) + 1
        at = format_time(self.api.now + CHECK_BACKOFF_S * 2.0 ** (count - 1))
        tree["status"]["requeueState"] = {"count": count, "requeueAt": at}
        self.api.update_status(WORKLOADS, tree)
        self._evict(one, "AdmissionCheck", f"Evicted due to {_checks_in(tree, 'Retry')}")

    def _evict(self, one: AdmissionWorkload, reason: str, text: str) -> None:
        one.set_condition(EVICTED, True, reason, self.api.now)
        self._write_evicted(one.key, reason, "", text)

    def _write_evicted(self, key: str, reason: str, why: str, text: str) -> None:
        tree = self._tree(key)
        if tree is None:
            return
        note_evicted(tree, reason, text, self.api.now)
        if why:
            note(tree, PREEMPTED, True, why, text, self.api.now)
        self.api.update_status(WORKLOADS, tree)
        self._event(tree, f"EvictedDueTo{reason}", text)

    def _record_preemption(
        self, by: AdmissionWorkload, victim: AdmissionWorkload, text: str
    ) -> None:
        """The events of a preemption, on both workloads."""
        trees = self._tree(by.key), self._tree(victim.key)
        if trees[0] is None or trees[1] is None:
            return
        known = (f"{one.priority} (base: {one.priority}, boost: 0)" for one in (by, victim))
        priorities = "preemptor effective priority: {}; preemptee effective priority: {}".format(
            *known
        )
        self._event(trees[1], PREEMPTED, f"{text}; {priorities}")
        text = (
            f"Preempted workload {victim.key} (UID: {victim.uid}) in ClusterQueue "
            f"{victim.cluster_queue}; {priorities}"
        )
        self._event(trees[0], "PreemptedWorkload", text)

    def _write_pending(self, admission: KueueAdmission, one: AdmissionWorkload) -> None:
        tree = self._tree(one.key)
        if tree is None or one.holds_quota:
            return
        reason, message = why_pending(one, admission)
        n_victims = self._n_victims.get(one.key, 0)
        if n_victims and reason == WAITING_FOR_PREEMPTED:
            message = f"{message}. Pending the preemption of {n_victims} workload(s)"
        is_new = note(tree, QUOTA_RESERVED, False, reason or "Pending", message, self.api.now)
        if note_not_admitted(tree, self.api.now) or is_new:
            self.api.update_status(WORKLOADS, tree)
        if is_new:
            self._event(tree, reason or "Pending", message, "Warning")

    def _write_bypassed(self, admission: KueueAdmission, one: AdmissionWorkload) -> None:
        """A workload that was requeued, and is not tried since one that asks for the same failed.

        Source: pkg/controller/core/workload_controller.go (shouldCheckEquivalenceHash).
        """
        known = one.conditions.get(QUOTA_RESERVED)
        reason = admission.pending[one.cluster_queue].why_bypassed(one)
        tree = self._tree(one.key) if reason and known and known.reason in _NOT_TRIED else None
        if tree is None:
            return
        one.set_condition(QUOTA_RESERVED, False, reason, self.api.now)
        text = "Bypassed scheduling evaluation because an equivalent workload recently failed"
        is_new = note(tree, QUOTA_RESERVED, False, reason, text, self.api.now)
        if note_not_admitted(tree, self.api.now) or is_new:
            self.api.update_status(WORKLOADS, tree)

    def _write_rest(self, admission: KueueAdmission) -> None:
        """Workloads that no queue takes, and the status of queues."""
        for one in admission.workloads.values():
            if not one.cluster_queue or not admission.is_active(one.cluster_queue):
                self._write_pending(admission, one)
            elif not one.holds_quota:
                self._write_bypassed(admission, one)
        for name, queue in admission.queues.items():
            pending = admission.pending[name]
            status = queue_status(queue, pending, is_fair=self.options.is_fair)
            active = active_condition(queue, admission.objects)
            self._write_status(CLUSTER_QUEUES, ("", name), status, active)
        self._write_local_queues(admission)

    def _write_local_queues(self, admission: KueueAdmission) -> None:
        for local in admission.objects.local_queues:
            owner = admission.queues.get(local.spec.cluster_queue)
            waiting = admission.pending.get(local.spec.cluster_queue)
            key = local.metadata.namespace, local.name
            held = [] if waiting is None else waiting.all()
            status = local_queue_status(owner, held, "/".join(key), admission.usage)
            active = (True, "Ready", "Can submit new workloads to localQueue")
            if local.spec.stop_policy not in (None, "None"):
                active = False, "Stopped", "LocalQueue is stopped"
            elif owner is None or problem_of(owner):
                active = (
                    False, "ClusterQueueIsInactive" if owner else "ClusterQueueDoesNotExist",
                    "Can't submit new workloads to clusterQueue",
                )  # fmt: skip
            self._write_status(LOCAL_QUEUES, key, status, active)

    def _write_status(
        self, path: str, key: tuple[str, str], status: Tree, active: tuple[bool, str, str]
    ) -> None:
        tree = self.api.get(path, *key)
        if tree is None:
            return
        before = dict(tree.get("status") or {})
        tree["status"] = {**before, **status}
        is_new = note(tree, "Active", *active, self.api.now)
        if is_new or {**before, **status} != before:
            self.api.update_status(path, tree)

    def _tree(self, key: str) -> Tree | None:
        return self.api.get(WORKLOADS, *key.split("/"))

    def _event(self, tree: Tree, reason: str, text: str, type_: str = "Normal") -> None:
        self.recorder.record(tree, COMPONENT, reason, text, type=type_)


def _waits_for_pods(tree: Tree) -> bool:
    """Whether a workload is admitted and its pods are not ready yet."""
    if is_true(tree, "Finished") or is_true(tree, EVICTED) or not is_true(tree, ADMITTED):
        return False
    return not is_true(tree, PODS_READY)


def _checks_in(tree: Tree, state: str) -> str:
    """The checks of a Workload in a state, as Kueue's messages name them."""
    checks = (tree.get("status") or {}).get("admissionChecks") or ()
    held = sorted(
        (one for one in checks if one.get("state") == state), key=lambda one: str(one["name"])
    )
    parts = [
        f'"{one["name"]}" ({one["message"]})' if one.get("message") else f'"{one["name"]}"'
        for one in held
    ]
    noun = "AdmissionChecks" if len(held) > 1 else "AdmissionCheck"
    return f"{noun} in {state} state: {'; '.join(parts)}"


def _needed_checks(admission: KueueAdmission, one: AdmissionWorkload) -> set[str]:
    queue = admission.queues.get(one.cluster_queue)
    if queue is None:
        return set()
    flavors = {flavor for demand in one.demands for flavor in demand.flavors.values()}
    return {name for name, on in queue.checks.items() if on & flavors}


def _may_not_return(one: AdmissionWorkload) -> bool:
    """Whether a workload was evicted and is not to be tried again yet."""
    return REQUEUED in one.conditions and not one.is_condition(REQUEUED)


def _counts(workload: Workload) -> bytes:
    """What of a Workload decides, beside the conditions that the admission itself writes."""
    status = workload.status
    return msgspec.msgpack.encode(
        (
            workload.spec, status.admission_checks, status.reclaimable_pods,
            status.requeue_state, status.unhealthy_nodes,
        )
    )  # fmt: skip


def _is_other_object(change: WatchEvent) -> bool:
    """Whether more than a status has changed; that of an admission check counts."""
    if change.previous is None or change.type == "DELETED" or change.path == CHECKS:
        return True
    before, after = (msgspec.json.decode(one) for one in (change.previous, change.value))
    return any(before.get(name) != after.get(name) for name in ("spec", "value")) or before[
        "metadata"
    ].get("labels") != after["metadata"].get("labels")


def _job_uid(one: AdmissionWorkload) -> str:
    owners: Iterable[str] = (ref.uid for ref in one.workload.metadata.owner_references)
    return next(iter(owners), "UNKNOWN")


def _path(admission: KueueAdmission, one: AdmissionWorkload) -> str:
    """Cohorts and queue, the root first."""
    queue = admission.queues.get(one.cluster_queue)
    if queue is None:
        return f"/{one.cluster_queue}"
    names = [node.name for node in queue.node.ancestors]
    return "/" + "/".join([*reversed(names), queue.name])
