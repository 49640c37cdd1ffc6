"""VolcanoState: jobs, nodes and queues between sessions, kept at the cost of what changes.

Source: volcano master of 2026-08-20, pkg/scheduler/cache (Snapshot, event handlers).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from stowplan.batch.queue_models.queue_model import ModelCluster
from stowplan.batch.queue_models.volcano.model.hyper_node_members import hyper_nodes_of
from stowplan.batch.queue_models.volcano.model.solo_groups import solo_group, solo_group_key
from stowplan.batch.queue_models.volcano.queue_books import QueueBooks
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_queue import OPEN, ROOT, VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoCluster
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import (
    COMPLETED_STATUSES,
    NO_ANNOTATIONS,
    VolcanoTask,
)
from stowplan.columns import NodeTable
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import VOLCANO_API_VERSION, PodGroup, Queue, QueueSpec
from stowplan.objects.volcano.hyper_node import VolcanoHyperNode
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

UNDECIDED = (TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


class VolcanoState:
    """The cluster as sessions of Volcano see it.

    jobs: by id, also those whose queue is missing. orphans: id of a missing PodGroup -> uids of the
    pods that name it. tasks: of all pods that count, by uid. solo: ids of jobs whose group has no
    object.
    """

    def __init__(self, scheduler_names: Collection[str], default_queue: str) -> None:
        self.scheduler_names = frozenset(scheduler_names)
        self.default_queue = default_queue
        self.jobs: dict[str, VolcanoSessionJob] = {}
        self.nodes: dict[str, VolcanoNode] = {}
        self.queues: dict[str, VolcanoQueue] = {}
        self.tasks: dict[str, VolcanoTask] = {}
        self.orphans: dict[str, dict[str, None]] = {}
        self.solo: set[str] = set()
        self._classes: dict[str, PriorityClass] | None = None
        self._books: QueueBooks = {}
        self._last_runs: dict[str, float] = {}
        # Nominated pods of other schedulers, during a session.
        self._held: list[tuple[VolcanoNode, VolcanoTask]] = []
        self._on_node: dict[str, dict[str, VolcanoTask]] = {}

    def follow(self, cluster: ModelCluster) -> None:
        """Take over what has changed since the last session."""
        changed = cluster.changed_objects
        self._queues_of(cluster)
        if self._classes is None or any(kind is PriorityClass for kind, _ in changed):
            self._classes_changed(cluster)
        groups = cluster.objects.get(PodGroup, {})
        for kind, key in changed:
            if kind is PodGroup:
                self._group_changed(key, groups.get(key))
        self._nodes_changed(cluster.snapshot.nodes)
        self._pods_changed(cluster.pods, cluster.changed_pods)

    def opened(self, cluster: ModelCluster, time_of_day: int) -> VolcanoCluster:
        """What a session opens on."""
        jobs = {uid: job for uid, job in self.jobs.items() if job.queue in self.queues}
        budgets = [
            one
            for one in cluster.objects.get(PodDisruptionBudget, {}).values()
            if isinstance(one, PodDisruptionBudget)
        ]
        found = cluster.objects.get(VolcanoHyperNode, {}).values()
        objects = [one for one in found if isinstance(one, VolcanoHyperNode)]
        known = {node.name: node.node for node in self.nodes.values()} if objects else {}
        tree = hyper_nodes_of(objects, known)
        self._hold(cluster)
        now = cluster.now / 1e9
        return VolcanoCluster(
            jobs,
            self.nodes,
            self.queues,
            tree,
            budgets,
            now,
            time_of_day,
            books=self._books,
            last_runs=self._last_runs,
        )

    def settle(self, jobs: Iterable[VolcanoSessionJob]) -> None:
        """Undo what a session did not decide."""
        for job in jobs:
            for status in UNDECIDED:
                if job.of(status):
                    for task in list(job.of(status)):
                        self._unplace(job, task)
            if job.infeasible:
                job.infeasible = {}
            if job.may_have_topology:
                self._rebuild(job)
        for node, task in self._held:
            node.remove(task)
        self._held.clear()

    def _unplace(self, job: VolcanoSessionJob, task: VolcanoTask) -> None:
        node = self.nodes.get(task.node)
        if node is not None:
            node.remove(task)
        job.move(task, TaskStatus.PENDING)
        task.node = task.near = ""
        task.annotations = NO_ANNOTATIONS

    def _rebuild(self, job: VolcanoSessionJob) -> None:
        """Make a job anew: a session resolves its topology in place."""
        made = VolcanoSessionJob(job.group, job.priority, self.default_queue)
        made.phase = job.phase
        for task in job.tasks.values():
            made.enter(task)
        self.jobs[job.uid] = made

    # Objects.

    def _queues_of(self, cluster: ModelCluster) -> None:
        """The queues, with those that Volcano makes when it starts. A queue is open until its
        controller says otherwise."""
        found = cluster.objects.get(Queue, {})
        given = [one for one in found.values() if isinstance(one, Queue)]
        for name in (ROOT, self.default_queue):
            if name not in found:
                spec = QueueSpec(weight=1, reclaimable=name != ROOT)
                given.append(
                    Queue(ObjectMeta(name=name), api_version=VOLCANO_API_VERSION, spec=spec)
                )
        self.queues = {}
        for queue in given:
            if not queue.status.state:
                queue = replace(queue, status=replace(queue.status, state=OPEN))
            if not queue.spec.weight:
                queue = replace(queue, spec=replace(queue.spec, weight=1))
            self.queues[queue.name] = VolcanoQueue(queue)

    def _classes_changed(self, cluster: ModelCluster) -> None:
        found = cluster.objects.get(PriorityClass, {}).values()
        self._classes = {one.name: one for one in found if isinstance(one, PriorityClass)}
        for job in self.jobs.values():
            job.priority = self._priority(job.group.spec.priority_class_name)

    def _priority(self, name: str) -> int:
        classes = self._classes or {}
        default = next((one.value for one in classes.values() if one.global_default), 0)
        return classes[name].value if name in classes else default

    def _group_changed(self, key: str, group: PodGroup | object | None) -> None:
        job = self.jobs.get(key)
        if not isinstance(group, PodGroup):
            if job is not None and key not in self.solo:
                del self.jobs[key]
                self.orphans.setdefault(key, {}).update(dict.fromkeys(job.tasks))
            return
        if job is not None and _is_same_but_status(job.group, group):
            job.group, job.phase = group, group.status.phase
            return
        made = VolcanoSessionJob(
            group, self._priority(group.spec.priority_class_name), self.default_queue
        )
        self.jobs[key] = made
        self.solo.discard(key)
        members = self.orphans.pop(key, {}) if job is None else job.tasks
        for uid in members:
            if uid in self.tasks:
                made.enter(self.tasks[uid])

    def _nodes_changed(self, table: NodeTable) -> None:
        """Nodes as the table has them, in its order."""
        before, self.nodes = self.nodes, {}
        for row in table.order.tolist():
            node = table.nodes[row]
            known = before.get(node.name)
            if known is None or known.node is not node:
                known = VolcanoNode(node, row)
                for task in self._on_node.get(node.name, {}).values():
                    known.add(task)
            known.row = row
            self.nodes[node.name] = known

    # Pods.

    def _pods_changed(self, pods: Mapping[str, Pod], changed: Iterable[str]) -> None:
        """Changed pods, by uid. Pods of other schedulers without a node do not count."""
        tasks, names = self.tasks, self.scheduler_names
        placed: dict[str, list[VolcanoTask]] = {}
        for uid in changed:
            if uid in tasks:
                self._leave(uid)
            pod = pods.get(uid)
            if pod is not None and (pod.spec.node_name or pod.spec.scheduler_name in names):
                self._enter(VolcanoTask.of(pod), placed)
        for name, found in placed.items():
            if name in self.nodes:
                self.nodes[name].add_all(found)

    def _enter(self, task: VolcanoTask, placed: dict[str, list[VolcanoTask]]) -> None:
        """Count a task. placed: those on nodes, by node; it is added."""
        ours = task.pod.spec.scheduler_name in self.scheduler_names
        if not task.job and ours:
            task.job = solo_group_key(task.pod)
            if task.job not in self.jobs:
                self.solo.add(task.job)
                group = solo_group(task.pod)
                priority = self._priority(group.spec.priority_class_name)
                self.jobs[task.job] = VolcanoSessionJob(group, priority, self.default_queue)
        self.tasks[task.uid] = task
        job = self.jobs.get(task.job)
        if job is not None:
            job.enter(task)
        elif task.job:
            self.orphans.setdefault(task.job, {})[task.uid] = None
        if task.node and task.status not in COMPLETED_STATUSES:
            there = self._on_node.get(task.node)
            if there is None:
                there = self._on_node[task.node] = {}
            there[task.uid] = task
            on_node = placed.get(task.node)
            if on_node is None:
                on_node = placed[task.node] = []
            on_node.append(task)

    def _leave(self, uid: str) -> None:
        task = self.tasks.pop(uid)
        job = self.jobs.get(task.job)
        if job is not None:
            job.leave(task)
            if not job.tasks and task.job in self.solo:
                del self.jobs[task.job]
                self.solo.discard(task.job)
        elif task.job in self.orphans:
            self.orphans[task.job].pop(uid, None)
            if not self.orphans[task.job]:
                del self.orphans[task.job]
        self._on_node.get(task.node, {}).pop(uid, None)
        node = self.nodes.get(task.node)
        if node is not None:
            node.remove(task)

    def _hold(self, cluster: ModelCluster) -> None:
        """Nodes that are kept for nominated pods of other schedulers have them on them."""
        for place in cluster.nominated:
            node = self.nodes.get(place.node)
            if node is not None and place.pod.uid not in self.tasks:
                spec = replace(place.pod.spec, node_name=place.node)
                task = VolcanoTask.of(replace(place.pod, spec=spec))
                if node.add(task):
                    self._held.append((node, task))


def _is_same_but_status(before: PodGroup, after: PodGroup) -> bool:
    old, new = before.metadata, after.metadata
    return (
        before.spec == after.spec
        and old.annotations == new.annotations
        and old.labels == new.labels
        and old.creation_timestamp == new.creation_timestamp
    )


def time_of_day(now: int) -> int:
    """Minutes since midnight UTC. now: Unix time in nanoseconds."""
    moment = datetime.datetime.fromtimestamp(now // 1_000_000_000, datetime.UTC)
    return moment.hour * 60 + moment.minute
