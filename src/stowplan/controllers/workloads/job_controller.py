"""Job controller: runs pods to completion, until enough have succeeded or too many have failed.

A finished pod is counted once: its uid is first written to `uncountedTerminatedPods`, then its
tracking finalizer is removed, and only then is the counter incremented and the uid removed. After a
crash in between, the objects show which step comes next.

Source: kube-controller-manager v1.36, pkg/controller/job.
"""

from __future__ import annotations

import copy

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.controller_ref_manager import claim_pods
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    controller_reference,
    find_condition,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time
from stowplan.controller_runtime.resource_paths import JOBS, PODS
from stowplan.controllers.workloads import completion_indexes
from stowplan.controllers.workloads.job_failure_policy import JobFailures, match_success_policy
from stowplan.controllers.workloads.job_pod_groups import JobPodGroups
from stowplan.controllers.workloads.job_sync_state import (
    COMPLETION_INDEX_ANNOTATION,
    JOB_TRACKING_FINALIZER,
    JobBackoff,
    JobSyncState,
    completion_index,
    ensure_condition,
    finished_at,
    finished_condition,
    job_condition,
)
from stowplan.controllers.workloads.pod_control import deletion_order, pod_from_template
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "job-controller"
MANAGER = "kubernetes.io/job-controller"
BATCH_SECONDS = 1.0
"""How long pod changes are batched before their Job is synced."""
_PODS_PER_SYNC_MAX = 100
_COUNTERS = ("active", "succeeded", "failed", "completedIndexes")
_REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")


class JobController(Controller):
    """Creates the pods of Jobs, counts finished pods, and finishes the Jobs."""

    name = "job"
    path = JOBS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._backoff: dict[Key, JobBackoff] = {}
        self._uids: dict[Key, set[str]] = {}
        self.pod_groups: JobPodGroups | None = None
        """Set where Jobs are gangs (gate WorkloadWithJob)."""

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Job, and (batched) the Job of a changed pod."""
        key = split_key(change)
        if self.pod_groups is not None:
            self.pod_groups.observe(change)
        if change.path == JOBS:
            self.queue.add(key)
        elif change.path == PODS:
            for pod in (before, self.index.pods.get(key)):
                if pod is not None and pod.owner_kind == "Job":
                    job = (key[0], pod.owner_name)
                    self._uids.setdefault(job, set()).add(pod.owner)
                    self.queue.add(job, self.api.now + BATCH_SECONDS)

    def sync(self, key: Key) -> None:
        """Count finished pods, create or delete pods, finish the Job."""
        job = self.api.get(JOBS, *key)
        self._release_orphans(key, job)
        if job is None:
            self._backoff.pop(key, None)
            return
        if job["spec"].get("managedBy", MANAGER) != MANAGER:
            return
        if finished_condition(job) is not None:
            self._backoff.pop(key, None)
            return
        old = copy.deepcopy(job.get("status") or {})
        job.setdefault("status", {}).setdefault("uncountedTerminatedPods", {})
        owner_ref = controller_reference(job, "Job", "batch/v1")
        pods = claim_pods(self.api, self.index, job, owner_ref)
        self._join_group(job, has_pods=bool(pods))
        state = JobSyncState.of(job, pods)
        failures = JobFailures(state, lambda pod: self.api.get(PODS, *pod.key))
        if not job["status"].get("startTime") and not state.is_suspended:
            job["status"]["startTime"] = format_time(self.api.now)
        backoff = self._backoff_after(key, state)
        active, problem = self._advance(key, state, failures, owner_ref, backoff)
        job["status"]["active"] = active
        job["status"]["ready"] = state.ready
        job["status"]["terminating"] = state.terminating
        self._count(key, state, failures, old, backoff)
        if problem is not None:
            raise problem

    def _join_group(self, job: Tree, *, has_pods: bool) -> None:
        """Let the pods that are created from here on name the PodGroup of the Job."""
        group = None
        if self.pod_groups is not None:
            group = self.pod_groups.group_of(job, has_pods=has_pods)
        if group is not None:
            name = group["metadata"]["name"]
            job["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": name}

    def _advance(
        self,
        key: Key,
        state: JobSyncState,
        failures: JobFailures,
        owner_ref: Tree,
        backoff: JobBackoff,
    ) -> tuple[int, ApiError | None]:
        """Finish the Job, or adjust the number of pods; returns the number of active pods."""
        now = self.api.now
        state.end = self._end(state, failures)
        if state.end is None and state.deadline():
            self.queue.add(key, state.deadline())
        if state.end is not None:
            self._delete(state, state.active)
            return 0, None
        if is_deleting(state.job):
            return len(state.active), None
        active, problem = self._manage(key, state, failures, owner_ref, backoff)
        if state.is_complete(active):
            state.end = job_condition("SuccessCriteriaMet", "True", *_REACHED, now)
        else:
            self._note_suspension(state)
        return active, problem

    def _end(self, state: JobSyncState, failures: JobFailures) -> Tree | None:
        """The condition that ends the Job: one that is set, failures, or the success policy."""
        conditions = state.job["status"].get("conditions") or ()
        for type_ in ("SuccessCriteriaMet", "FailureTarget"):
            found = find_condition(conditions, type_)
            if found is not None:
                return found
        now = self.api.now
        text = failures.fail_job_message(state)
        failed = ("PodFailurePolicy", text) if text else None
        failed = failed or state.failure(now) or failures.failure(state)
        if failed is not None:
            return job_condition("FailureTarget", "True", *failed, now)
        policy = state.job["spec"].get("successPolicy")
        met = match_success_policy(policy, state.completions or 0, state.indexes)
        if met:
            return job_condition("SuccessCriteriaMet", "True", "SuccessPolicy", met, now)
        return None

    def _manage(
        self,
        key: Key,
        state: JobSyncState,
        failures: JobFailures,
        owner_ref: Tree,
        backoff: JobBackoff,
    ) -> tuple[int, ApiError | None]:
        active = len(state.active)
        wanted = 0 if state.is_suspended else state.wanted()
        leaving = self._too_many(state, active - wanted)
        if leaving or state.is_suspended:
            for pod in leaving:
                # Without its finalizer a pod that the Job does not want is not counted as failed.
                self._release(pod)
            self._delete(state, leaving)
            return active - len(leaving), None
        missing = wanted - active - (state.terminating if state.waits_for_end else 0)
        if missing <= 0:
            return active, None
        missing = min(missing, _PODS_PER_SYNC_MAX)
        indexes = self._pending(state, failures, missing)
        waits = [backoff.until()]
        if failures.is_per_index:
            waits = [failures.index_ready_at(index) for index in indexes if index is not None]
            ready = zip(indexes, waits, strict=True)
            indexes = [index for index, at in ready if at <= self.api.now]
        if waits and min(waits) > self.api.now:
            # The backoff delays new pods only. 0 active, as v1.36.2 says here, is less than ready:
            # the API server refuses it, and no failed pod is counted until the backoff has ended.
            self.queue.add(key, min(waits))
            return active, None
        return self._create(state, failures, owner_ref, indexes)

    def _pending(self, state: JobSyncState, failures: JobFailures, count: int) -> list[int | None]:
        """Indexes of the next `count` pods; None for each without completion mode Indexed."""
        if not state.is_indexed:
            return [None] * count
        taken = state.indexes | {completion_index(pod) for pod in state.active}
        taken |= failures.failed_indexes or set()
        if state.waits_for_end:
            taken |= {completion_index(pod) for pod in state.pods if pod.deleting}
        return list(completion_indexes.pending_indexes(taken, count, state.completions or 0))

    def _too_many(self, state: JobSyncState, surplus: int) -> list[PodFacts]:
        """Active pods to delete: duplicate or excess indexes first, then any."""
        order = deletion_order(state.active, (), self.api.now)
        leaving: list[PodFacts] = []
        if state.is_indexed:
            seen: set[int] = set(state.indexes)
            for pod in reversed(order):
                index = completion_index(pod)
                if index in seen or not 0 <= index < (state.completions or 0):
                    leaving.append(pod)
                seen.add(index)
        others = (pod for pod in order if pod not in leaving)
        while len(leaving) < surplus:
            leaving.append(next(others))
        return leaving[:_PODS_PER_SYNC_MAX]

    def _create(
        self,
        state: JobSyncState,
        failures: JobFailures,
        owner_ref: Tree,
        indexes: list[int | None],
    ) -> tuple[int, ApiError | None]:
        active = len(state.active)
        for index in indexes:
            try:
                notes = {} if index is None else failures.annotations(index)
                made = self.api.create(PODS, _pod(state.job, owner_ref, index, notes))
            except ApiError as error:
                self._record(
                    state.job, "FailedCreate", f"Error creating: {error.message}", "Warning"
                )
                return active, error
            active += 1
            name = made["metadata"]["name"]
            self._record(state.job, "SuccessfulCreate", f"Created pod: {name}")
        return active, None

    def _delete(self, state: JobSyncState, pods: list[PodFacts]) -> None:
        for pod in list(pods):
            try:
                self.api.delete(PODS, *pod.key)
            except ApiError as error:
                if error.code != 404:
                    raise
            state.active = [each for each in state.active if each.uid != pod.uid]
            state.terminating += 1
            state.ready -= pod.ready
            self._record(state.job, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}")

    def _note_suspension(self, state: JobSyncState) -> None:
        status, now = state.job["status"], self.api.now
        conditions = status.setdefault("conditions", [])
        if state.is_suspended:
            if ensure_condition(
                conditions, job_condition("Suspended", "True", "JobSuspended", "Job suspended", now)
            ):
                self._record(state.job, "Suspended", "Job suspended")
                status.pop("startTime", None)
        elif ensure_condition(
            conditions, job_condition("Suspended", "False", "JobResumed", "Job resumed", now)
        ):
            self._record(state.job, "Resumed", "Job resumed")
            status["startTime"] = format_time(now)
        if not conditions:
            del status["conditions"]

    def _count(
        self,
        key: Key,
        state: JobSyncState,
        failures: JobFailures,
        old: Tree,
        backoff: JobBackoff,
    ) -> None:
        """Record finished pods, remove their finalizers, count them, and finish the Job if it is
        done."""
        job = state.job
        uncounted = job["status"]["uncountedTerminatedPods"]
        self._settle(job, state.pods)
        freed = self._write_down(state, failures, uncounted)
        self._note_end(state)
        if not _is_same_status(job["status"], old):
            self._store(job)
            self._backoff[key] = backoff
        before = copy.deepcopy(job["status"])
        for pod in freed:
            self._release(pod)
        self._settle(job, self.index.of_owner(job["metadata"]["uid"]))
        finished = self._finish(state)
        if not _is_same_status(job["status"], before):
            self._store(job)
        if finished:
            assert state.end is not None
            good = state.end["type"] == "SuccessCriteriaMet"
            if good:
                self._record(job, "Completed", "Job completed")
            else:
                self._record(job, state.end["reason"], state.end["message"], "Warning")

    def _write_down(
        self, state: JobSyncState, failures: JobFailures, uncounted: Tree
    ) -> list[PodFacts]:
        """Record the uids of finished pods; returns the pods whose finalizer can be removed."""
        freed = []
        ended_badly = state.end is not None and state.end["type"] != "SuccessCriteriaMet"
        for pod in self.index.of_owner(state.job["metadata"]["uid"]):
            failed = state.counts_as_failed(pod)
            done = pod.phase == "Succeeded"
            loose = is_deleting(state.job) or state.end is not None
            if JOB_TRACKING_FINALIZER not in pod.finalizers or not (loose or done or failed):
                continue
            replaced = failures.replaced.get(completion_index(pod))
            if not loose and not done and replaced is not None and replaced.uid == pod.uid:
                continue
            freed.append(pod)
            known = {*uncounted.get("succeeded", ()), *uncounted.get("failed", ())}
            if pod.uid in known:
                continue
            if done and not state.is_indexed:
                uncounted.setdefault("succeeded", []).append(pod.uid)
            elif not done and (failed or ended_badly) and failures.verdict(pod).is_counted:
                uncounted.setdefault("failed", []).append(pod.uid)
        if state.is_indexed:
            state.job["status"]["succeeded"] = len(state.indexes)
            state.job["status"]["completedIndexes"] = completion_indexes.format_indexes(
                state.indexes
            )
        if failures.failed_indexes is not None:
            state.job["status"]["failedIndexes"] = completion_indexes.format_indexes(
                failures.failed_indexes
            )
        return freed

    def _note_end(self, state: JobSyncState) -> None:
        if state.end is None:
            return
        conditions = state.job["status"].setdefault("conditions", [])
        if find_condition(conditions, state.end["type"]) is None:
            conditions.append(state.end)

    def _finish(self, state: JobSyncState) -> bool:
        """Set the final condition when all pods are counted and none is awaited."""
        status = state.job["status"]
        if state.end is None or any(status["uncountedTerminatedPods"].values()):
            return False
        if state.terminating > 0:
            return False
        now = self.api.now
        good = state.end["type"] == "SuccessCriteriaMet"
        kind = "Complete" if good else "Failed"
        last = job_condition(kind, "True", state.end["reason"], state.end["message"], now)
        ensure_condition(status.setdefault("conditions", []), last)
        if good:
            status["completionTime"] = format_time(now)
        return True

    def _settle(self, job: Tree, pods: list[PodFacts]) -> None:
        """Move uids of pods without finalizer from the list to the counters."""
        held = {pod.uid for pod in pods if JOB_TRACKING_FINALIZER in pod.finalizers}
        status = job["status"]
        uncounted = status["uncountedTerminatedPods"]
        for name in ("succeeded", "failed"):
            uids = uncounted.get(name) or []
            left = [uid for uid in uids if uid in held]
            if len(left) != len(uids):
                status[name] = status.get(name, 0) + len(uids) - len(left)
            if left:
                uncounted[name] = left
            else:
                uncounted.pop(name, None)

    def _store(self, job: Tree) -> None:
        for name in _COUNTERS:
            if not job["status"].get(name):
                job["status"].pop(name, None)
        stored = self.api.update_status(JOBS, job)
        job["metadata"] = stored["metadata"]

    def _release(self, facts: PodFacts) -> None:
        pod = self.api.get(PODS, *facts.key)
        if pod is None or pod["metadata"]["uid"] != facts.uid:
            return
        kept = [
            each
            for each in pod["metadata"].get("finalizers") or ()
            if each != JOB_TRACKING_FINALIZER
        ]
        pod["metadata"]["finalizers"] = kept
        try:
            self.api.update(PODS, pod)
        except ApiError as error:
            if error.code != 404:
                raise

    def _release_orphans(self, key: Key, job: Tree | None) -> None:
        """Remove the finalizers of pods whose Job is deleted or finished."""
        present = job["metadata"]["uid"] if job is not None else ""
        ended = job is not None and finished_condition(job) is not None
        for uid in sorted(self._uids.get(key, ())):
            pods = self.index.of_owner(uid)
            if uid != present or ended:
                for pod in pods:
                    if JOB_TRACKING_FINALIZER in pod.finalizers:
                        self._release(pod)
            if not pods and uid != present:
                self._uids[key].discard(uid)
        if not self._uids.get(key, True):
            del self._uids[key]

    def _backoff_after(self, key: Key, state: JobSyncState) -> JobBackoff:
        def ends(pods: list[PodFacts]) -> list[float]:
            trees = (self.api.get(PODS, *pod.key) for pod in pods)
            return [finished_at(tree) for tree in trees if tree is not None]

        known = self._backoff.get(key, JobBackoff())
        return known.after(ends(state.new_succeeded), ends(state.new_failed))

    def _record(self, about: Tree, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(about, COMPONENT, reason, message, type=type_)


def _is_same_status(one: Tree, other: Tree) -> bool:
    """True for equal statuses; a counter of 0 equals an absent one."""
    return all(
        (one.get(name) or None) == (other.get(name) or None)
        if name in _COUNTERS
        else one.get(name) == other.get(name)
        for name in {*one, *other}
    )


def _pod(job: Tree, owner_ref: Tree, index: int | None, notes: dict[str, str]) -> Tree:
    """A pod of the Job's template, with its completion index in all fields that carry it.

    notes: more annotations of a pod with an index.
    """
    name = job["metadata"]["name"]
    generate = "" if index is None else f"{name[: 63 - 7 - len(str(index))]}-{index}-"
    pod = pod_from_template(job["spec"]["template"], job, owner_ref, generate)
    meta = pod["metadata"]
    meta["finalizers"] = [*meta.get("finalizers", ()), JOB_TRACKING_FINALIZER]
    if index is not None:
        meta["annotations"] = {
            **meta.get("annotations", {}),
            COMPLETION_INDEX_ANNOTATION: str(index),
            **notes,
        }
        meta["labels"] = {**meta.get("labels", {}), COMPLETION_INDEX_ANNOTATION: str(index)}
        pod["spec"]["hostname"] = f"{name}-{index}"
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            _add_index_variable(container)
    return pod


def _add_index_variable(container: Tree) -> None:
    variables = container.setdefault("env", [])
    if not any(each.get("name") == "JOB_COMPLETION_INDEX" for each in variables):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX_ANNOTATION}']"}}
        variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
