"""Volcano Job controller: the PodGroup and the pods of Jobs, their policies and their status.

Pods are created once the scheduler has admitted the PodGroup, as in Volcano.

Differs: what a Job's plugins (env, svc, ssh and those of frameworks) add to pods, and volumes that
a Job creates are not there; neither changes where pods are placed.

Source: volcano master of 2026-08-20, pkg/controllers/job.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.volcano.volcano_commands import VolcanoCommands
from stowplan.controllers.volcano.volcano_job_events import VolcanoJobEvents
from stowplan.controllers.volcano.volcano_job_expansion import (
    JOB_NAME,
    PARTITION,
    TASK_SPEC,
    group_name_of,
    group_of_job,
    pod_name_of,
    pod_of_job,
)
from stowplan.controllers.volcano.volcano_job_phases import (
    ABORTED,
    ABORTING,
    ENDED,
    KILLS,
    PENDING,
    RESTART_PARTITION,
    RESTART_POD,
    RESTARTING,
    RESUME,
    SYNC,
    TARGETED,
    JobAction,
    JobCounts,
    JobEvent,
    next_phase,
)
from stowplan.controllers.volcano.volcano_kinds import (
    BATCH_VERSION,
    VOLCANO_COMMANDS,
    VOLCANO_JOBS,
    VOLCANO_POD_GROUPS,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent
from stowplan.objects.volcano.job_defaults import with_job_defaults

PRIORITY_CLASSES = "scheduling.k8s.io/priorityclasses"
_KEPT = frozenset({"Succeeded", "Failed"})


class VolcanoJobController(Controller):
    """Keys are those of Jobs of batch.volcano.sh."""

    name = "vc-job-controller"
    path = VOLCANO_JOBS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._events = VolcanoJobEvents(api, self.queue)
        self._commands = VolcanoCommands(api, BATCH_VERSION, "Job", namespaced=True)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Job, and that of a changed pod or PodGroup, or of a Command."""
        if change.path == VOLCANO_JOBS:
            self.queue.add(split_key(change))
        elif change.path == VOLCANO_POD_GROUPS:
            self._group_changed(change)
        elif change.path == PODS:
            facts = self.index.pods.get(split_key(change)) or before
            job = "" if facts is None else facts.labels.get(JOB_NAME, "")
            if facts is not None and job and facts.owner_kind == "Job":
                key = split_key(change)[0], job
                if change.type == "DELETED":
                    self._events.pod_gone(key, before)
                self.queue.add(key)
        elif change.path == VOLCANO_COMMANDS and change.type == "ADDED":
            target = self._commands.observe(change, self.decoded(change.value))
            if target is not None:
                self.queue.add(target)

    def _group_changed(self, change: WatchEvent) -> None:
        group = self.decoded(change.value) or {}
        for owner in (group.get("metadata") or {}).get("ownerReferences") or ():
            if owner.get("kind") == "Job":
                key = change.namespace, owner["name"]
                gone = change.type == "DELETED"
                self._events.group_changed(key, "" if gone else _phase_of_group(group))
                self.queue.add(key)

    def sync(self, key: Key) -> None:
        """Bring the PodGroup, the pods and the status of a Job up to date."""
        commands = self._commands.pending(key)
        stored = self.api.get(VOLCANO_JOBS, *key)
        if stored is None or is_deleting(stored):
            self._events.forget(key)
            self._commands.forget(key)
            return
        job = with_job_defaults(stored)
        pods = {pod.key[1]: pod for pod in self.index.of_owner(job["metadata"]["uid"])}
        if not commands:
            due = self._events.due_action(key, job, pods)
            self._execute(key, job, pods, due)
            return
        self._report_command(job, commands[0])
        self._execute(key, job, pods, JobAction(commands[0], JobEvent("", "")))
        self._commands.done(key)
        self.queue.add(key)

    def _report_command(self, job: Tree, action: str) -> None:
        text = f"Start to execute command {action}, and clean it up to make sure executed not more"
        self.recorder.record(job, self.name, "CommandIssued", f"{text} than once.")

    def _execute(self, key: Key, job: Tree, pods: dict[str, PodFacts], due: JobAction) -> None:
        """Do what an action does in the phase of a Job."""
        phase = _phase(job)
        if due.action != SYNC and phase not in ENDED:
            text = f"Start to execute action {due.action} "
            self.recorder.record(job, self.name, "ExecuteAction", text)
        if due.action == RESUME and phase in (ABORTING, ABORTED):
            self._kill(job, pods, RESTARTING, kept=True)
        elif phase in ENDED:
            self._finished(key, job, pods)
        elif due.action in KILLS and phase in ("", PENDING, "Running"):
            self._kill(job, pods, KILLS[due.action], kept=due.action != "RestartJob")
        elif due.action in TARGETED and phase in ("", PENDING, "Running"):
            self._restart(job, pods, due)
        elif phase in ("", PENDING, "Running"):
            self._keep_running(job, pods)
        else:
            # What is to go has been deleted; what had ended before a resumption stays.
            self._kill(job, pods, phase, kept=True)

    # What is done.

    def _keep_running(self, job: Tree, pods: dict[str, PodFacts]) -> None:
        group = self._group(job)
        counts = JobCounts()
        if group is not None and _phase_of_group(group) not in ("", PENDING):
            counts = self._sync_pods(job, pods)
        self._write(job, counts, next_phase(job, counts, _phase(job)))

    def _group(self, job: Tree) -> Tree | None:
        """The PodGroup, created where it is missing, and as large as the Job says."""
        name, namespace = group_name_of(job), job["metadata"]["namespace"]
        found = self.api.get(VOLCANO_POD_GROUPS, namespace, name)
        classes = self.api.list(PRIORITY_CLASSES)
        values = {one["metadata"]["name"]: int(one.get("value") or 0) for one in classes}
        wanted = group_of_job(job, values)
        if found is None:
            return self.api.create(VOLCANO_POD_GROUPS, wanted)
        changed = {
            field: wanted["spec"][field]
            for field in ("minMember", "minTaskMember", "minResources")
            if found["spec"].get(field) != wanted["spec"][field]
        }
        if changed:
            found["spec"].update(changed)
            return self.api.update(VOLCANO_POD_GROUPS, found)
        return found

    def _sync_pods(self, job: Tree, pods: dict[str, PodFacts]) -> JobCounts:
        counts, wanted = JobCounts(), set()
        for task in job["spec"]["tasks"]:
            may_start = _dependencies_met(job, task, pods)
            for i in range(task["replicas"]):
                name = pod_name_of(job, task, i)
                wanted.add(name)
                pod = pods.get(name)
                if pod is not None and pod.deleting:
                    counts.terminating += 1
                elif pod is not None:
                    counts.count(task["name"], pod.phase or PENDING)
                elif may_start:
                    self._create(job, task, i)
                    counts.count(task["name"], PENDING)
        for name, pod in pods.items():
            if name not in wanted:
                self._delete(pod)
                counts.terminating += 1
        return counts

    def _create(self, job: Tree, task: Tree, index: int) -> None:
        try:
            self.api.create(PODS, pod_of_job(job, task, index))
        except ApiError as error:
            if error.code == 409:
                return
            text = f"Error creating pods: {error.message}"
            self.recorder.record(job, self.name, "FailedCreate", text, type="Warning")
            raise

    def _delete(self, pod: PodFacts) -> None:
        if not pod.deleting:
            self._events.expect_deletion(pod)
            self.api.delete(PODS, *pod.key, DeleteOptions(uid=pod.uid))

    def _kill(self, job: Tree, pods: dict[str, PodFacts], phase: str, *, kept: bool) -> None:
        """Delete the pods of a Job and its PodGroup. kept: pods that have ended stay."""
        before, status = _phase(job), dict(job.get("status") or {})
        begins = phase != before
        retries = status.get("retryCount", 0) + (begins and phase == RESTARTING)
        is_last = retries >= job["spec"]["maxRetry"]
        counts = JobCounts()
        for pod in pods.values():
            task = pod.labels.get(TASK_SPEC, "")
            if pod.phase in _KEPT and not pod.deleting and (kept or is_last):
                counts.count(task, pod.phase)
            else:
                self._delete(pod)
                counts.terminating += 1
        if begins:
            status |= {"version": status.get("version", 0) + 1, "retryCount": retries}
        group = self.api.get(VOLCANO_POD_GROUPS, job["metadata"]["namespace"], group_name_of(job))
        if group is not None and not is_deleting(group):
            name = group["metadata"]["name"]
            self.api.delete(VOLCANO_POD_GROUPS, job["metadata"]["namespace"], name)
        job["status"] = status
        after = phase if begins else next_phase(job, counts, phase)
        self._write(job, counts, after)

    def _restart(self, job: Tree, pods: dict[str, PodFacts], due: JobAction) -> None:
        """Delete a pod, or the pods of a task or a partition; the PodGroup stays."""
        for pod in pods.values():
            if _is_target(pod, due):
                self._delete(pod)
        status = dict(job.get("status") or {})
        status["retryCount"] = status.get("retryCount", 0) + 1
        job["status"] = status
        if status["retryCount"] >= job["spec"]["maxRetry"]:
            self._write(job, self._counted(pods), "Failed")
        else:
            self._write(job, self._counted(pods), PENDING)

    def _counted(self, pods: dict[str, PodFacts]) -> JobCounts:
        counts = JobCounts()
        for pod in pods.values():
            if pod.deleting:
                counts.terminating += 1
            else:
                counts.count(pod.labels.get(TASK_SPEC, ""), pod.phase)
        return counts

    def _finished(self, key: Key, job: Tree, pods: dict[str, PodFacts]) -> None:
        """Delete what is left of a Job that has ended, and the Job after its time to live."""
        for pod in pods.values():
            if pod.phase not in _KEPT:
                self._delete(pod)
        namespace, name = job["metadata"]["namespace"], group_name_of(job)
        if self.api.get(VOLCANO_POD_GROUPS, namespace, name) is not None:
            self.api.delete(VOLCANO_POD_GROUPS, namespace, name)
        wait = job["spec"].get("ttlSecondsAfterFinished")
        if wait is None or _phase(job) == ABORTED:
            return
        since = unix_seconds(job["status"]["state"].get("lastTransitionTime"))
        if since + wait <= self.api.now:
            self.api.delete(VOLCANO_JOBS, *key, DeleteOptions(propagation="Foreground"))
        else:
            self.queue.add(key, since + wait)

    def _write(self, job: Tree, counts: JobCounts, phase: str) -> None:
        """Write the status if it has changed."""
        before = job.get("status") or {}
        state = dict(before.get("state") or {})
        numbers = {
            "pending": counts.pending,
            "running": counts.running,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "terminating": counts.terminating,
            "unknown": counts.unknown,
        }
        after: Tree = {
            **{name: before[name] for name in ("version", "retryCount") if before.get(name)},
            **{name: n for name, n in numbers.items() if n},
            "state": {**state, "phase": phase},
            "minAvailable": job["spec"]["minAvailable"],
        }
        if counts.by_task:
            after["taskStatusCount"] = {
                task: {"phase": phases} for task, phases in sorted(counts.by_task.items())
            }
        conditions = list(before.get("conditions") or ())
        if state.get("phase") != phase:
            now = format_time(self.api.now)
            after["state"]["lastTransitionTime"] = now
            conditions.append({"status": phase, "lastTransitionTime": now})
        if conditions:
            after["conditions"] = conditions
        stored = self.api.get(VOLCANO_JOBS, job["metadata"]["namespace"], job["metadata"]["name"])
        if stored is not None and stored.get("status") != after:
            stored["status"] = after
            self.api.update_status(VOLCANO_JOBS, stored)


def _phase(job: Tree) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "")


def _phase_of_group(group: Tree) -> str:
    return str((group.get("status") or {}).get("phase") or "")


def _is_target(pod: PodFacts, due: JobAction) -> bool:
    """True for a pod that an action on a pod, a task or a partition restarts."""
    if due.action == RESTART_POD:
        return pod.key[1] == due.event.pod
    if pod.labels.get(TASK_SPEC, "") != due.event.task:
        return False
    return due.action != RESTART_PARTITION or pod.labels.get(PARTITION, "") == due.event.partition


def _dependencies_met(job: Tree, task: Tree, pods: dict[str, PodFacts]) -> bool:
    """True if all tasks, or with `iteration: any` one, that a task depends on have started."""
    depends = task.get("dependsOn") or {}
    names = depends.get("name") or ()
    if not names:
        return True
    met = []
    for other in job["spec"]["tasks"]:
        if other["name"] in names:
            started = [
                pods[name]
                for i in range(other["replicas"])
                if (name := pod_name_of(job, other, i)) in pods
                and pods[name].phase in ("Running", "Succeeded")
            ]
            met.append(len(started) >= other["minAvailable"])
    return any(met) if depends.get("iteration") == "any" else len(met) == len(names) and all(met)
