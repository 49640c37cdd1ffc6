"""What happens to Volcano Jobs and their pods, and which policy is due for it.

Differs: a policy on `Unknown` also counts after a Job was restarted; in Volcano the event carries
no version of the Job, and counts as outdated from then on.

Source: volcano master of 2026-08-20, pkg/controllers/job/job_controller.go,
job_controller_handler.go, pkg/controllers/cache/cache.go (TaskCompleted, TaskFailed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stowplan.controller_runtime.object_index import Key, PodFacts
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controller_runtime.work_queue import WorkQueue
from stowplan.controllers.volcano.volcano_job_expansion import (
    JOB_VERSION,
    PARTITION,
    TASK_SPEC,
    pod_name_of,
)
from stowplan.controllers.volcano.volcano_job_phases import (
    ANY,
    JOB_UNKNOWN,
    POD_EVICTED,
    POD_FAILED,
    POD_PENDING,
    SYNC,
    TASK_COMPLETED,
    TASK_FAILED,
    JobAction,
    JobEvent,
    action_for,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store
from stowplan.objects.volcano.job_defaults import MAX_RETRY

Pods = Mapping[str, PodFacts]


class VolcanoJobEvents:
    """Events of Jobs that no policy has been carried out for yet. queue: of the Job controller."""

    def __init__(self, api: Store, queue: WorkQueue[Key]) -> None:
        self._api = api
        self._queue = queue
        # Deletions by the controller are no evictions: uids of pods.
        self._deleted: set[str] = set()
        self._noted: dict[Key, list[JobEvent]] = {}
        # Events whose policy waits for its timeout: when it is due.
        self._waiting: dict[tuple[Key, JobEvent], float] = {}
        self._group_phases: dict[Key, str] = {}

    def expect_deletion(self, pod: PodFacts) -> None:
        """The controller deletes a pod."""
        self._deleted.add(pod.uid)

    def pod_gone(self, key: Key, before: PodFacts | None) -> None:
        """A pod of a job was deleted: an eviction, unless it had ended or the controller did."""
        if before is None or before.uid in self._deleted:
            self._deleted.discard("" if before is None else before.uid)
        elif not before.is_finished:
            self._noted.setdefault(key, []).append(_of_pod(POD_EVICTED, before))

    def group_changed(self, key: Key, phase: str) -> None:
        """The PodGroup of a job has a phase; "" if it was deleted."""
        before = self._group_phases.pop(key, "")
        if phase:
            self._group_phases[key] = phase
        if phase == JOB_UNKNOWN != before:
            self._noted.setdefault(key, []).append(JobEvent(JOB_UNKNOWN, ""))

    def forget(self, key: Key) -> None:
        """Drop what is known of a job that is gone."""
        self._noted.pop(key, None)
        self._end_waits(key)

    def _end_waits(self, key: Key) -> None:
        self._waiting = {one: at for one, at in self._waiting.items() if one[0] != key}

    def due_action(self, key: Key, job: Tree, pods: Pods) -> JobAction:
        """The action of the first policy that is due; those with a timeout wait for it."""
        now = self._api.now
        for waiting in [one for one in self._waiting if one[0] == key and _is_over(one[1], pods)]:
            del self._waiting[waiting]
        known = {event for waiting, event in self._waiting if waiting == key}
        for event in (*known, *self._events(key, job, pods)):
            found = action_for(job, event)
            if found.action == SYNC:
                continue
            due = self._waiting.setdefault((key, event), now + found.delay_s)
            if due <= now:
                self._end_waits(key)
                return found
            self._queue.add(key, due)
        return JobAction(SYNC, JobEvent("", ""))

    def _events(self, key: Key, job: Tree, pods: Pods) -> Iterator[JobEvent]:
        yield from self._noted.pop(key, ())
        has_policies = job["spec"].get("policies") or any(
            task.get("policies") for task in job["spec"]["tasks"]
        )
        if not has_policies:
            return
        version = str((job.get("status") or {}).get("version") or 0)
        phases = ("Failed", "Pending", "") if _limits_pending(job) else ("Failed",)
        for pod in pods.values():
            if pod.deleting or pod.phase not in phases:
                continue
            tree = self._api.get(PODS, *pod.key) or {}
            notes = (tree.get("metadata") or {}).get("annotations") or {}
            if notes.get(JOB_VERSION) != version:
                continue
            if pod.phase == "Failed":
                yield _of_pod(POD_FAILED, pod, _exit_code(tree))
            else:
                yield _of_pod(POD_PENDING, pod)
        for task in job["spec"]["tasks"]:
            names = [pod_name_of(job, task, i) for i in range(task["replicas"])]
            found = [pods[name] for name in names if name in pods]
            if names and sum(pod.phase == "Succeeded" for pod in found) == len(names):
                yield JobEvent(TASK_COMPLETED, task["name"])
            if has_failed(task, found):
                yield JobEvent(TASK_FAILED, task["name"])


def _limits_pending(job: Tree) -> bool:
    """True if a policy with a timeout may be about pods that stay pending."""
    spec = job["spec"]
    policies = [*(spec.get("policies") or ())]
    policies += [one for task in spec["tasks"] for one in task.get("policies") or ()]
    return any(
        {POD_PENDING, ANY} & {*(policy.get("events") or ()), policy.get("event")}
        for policy in policies
        if policy.get("timeout")
    )


def has_failed(task: Tree, pods: list[PodFacts]) -> bool:
    """True for a task whose containers have started again `maxRetry` times in all."""
    most = task.get("maxRetry") or MAX_RETRY
    alive = [pod for pod in pods if pod.phase in ("Running", "Pending")]
    return most != -1 and sum(pod.restarts_sum for pod in alive) >= most


def _of_pod(event: str, pod: PodFacts, exit_code: int = 0) -> JobEvent:
    labels = pod.labels
    task, partition = labels.get(TASK_SPEC, ""), labels.get(PARTITION, "")
    return JobEvent(event, task, pod.key[1], exit_code, pod.uid, partition)


def _is_over(event: JobEvent, pods: Pods) -> bool:
    """True for an event that waits and no longer counts: the pod has started, or is another."""
    pod = pods.get(event.pod)
    if event.event == POD_PENDING:
        return pod is None or pod.uid != event.uid or pod.phase not in ("Pending", "")
    return event.event in (POD_FAILED, POD_EVICTED) and pod is not None and pod.phase == "Running"


def _exit_code(pod: Tree) -> int:
    """The exit code of the first container that failed, 0 for none."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return int(ended["exitCode"])
    return 0
