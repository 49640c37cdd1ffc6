"""KaiState: the cluster as sessions read it, kept from one session to the next.

Only what has changed since, and what a session has left changed, is made anew; a test compares
it with one that is made anew as a whole. Clusters with resource claims or devices for them are
made anew for each session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from stowplan.batch.queue_models.kai.kai_objects import (
    JobContext,
    KaiObjects,
    job_of,
    resource_index,
    resource_names,
    session_of,
    task_of,
    topologies_of,
)
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.kai_session import KaiRules, KaiSession, KeptCluster
from stowplan.batch.queue_models.kai.model.bind_requests import BindRequests
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory
from stowplan.batch.queue_models.kai.model.node_zones import NodeZones
from stowplan.batch.queue_models.kai.model.pod_grouper import PodGrouper, stated_group
from stowplan.batch.queue_models.kai.model.queue_sums import QueueSums
from stowplan.batch.queue_models.kai.session_claims import Allocate, SessionClaims
from stowplan.batch.queue_models.kai.state.kai_amount import ResourceIndex
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_queue import Shares
from stowplan.batch.queue_models.kai.state.kai_task import USED_STATUSES, KaiStatus, KaiTask
from stowplan.batch.queue_models.kai.state.node_rows import NodeRows
from stowplan.batch.queue_models.queue_model import ModelCluster
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.kai.bind_request import reserves_card
from stowplan.objects.kai.kai_kinds import (
    KAI_PRIORITY_CLASSES,
    KaiPodGroupObject,
    KaiQueueObject,
    KaiTopologyObject,
)
from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace, PriorityClass

T = TypeVar("T", bound=Object)
NO_CLAIMS = SessionClaims((), (), lambda *_: None)


class KaiState:
    """The pods, nodes and jobs of a cluster. own: job -> a pod of it, for jobs whose group is made
    for pods that name none. orphans: group that does not exist -> its pods. refusals: by uid, why a
    pod that names no group has none. remade: keys of the jobs that are new or made anew since the
    last session. left_out: pods that ask for a part of a card where none are shared. outside: job
    -> its pods that belong to none of its sub-groups, which no session counts."""

    def __init__(
        self,
        scheduler_names: tuple[str, ...],
        memory: KaiMemory,
        rules: KaiRules,
        devices: Callable[[Iterable[ResourceSlice], Iterable[DeviceClass]], Allocate],
    ) -> None:
        self._names = scheduler_names
        self._memory = memory
        self._rules = rules
        self._devices = devices
        self._grouper = PodGrouper()
        self._requests = BindRequests()
        self._zones = NodeZones()
        self.own: dict[str, Pod] = {}
        self.orphans: dict[str, list[Pod]] = {}
        self.remade: set[str] = set()
        self.left_out: dict[str, Pod] = {}
        self.outside: dict[str, Sequence[KaiTask]] = {}
        self._shares_cards = True
        self._forget()

    def _forget(self) -> None:
        self._index = ResourceIndex(())
        self._fixed: tuple[object, ...] | None = None
        self._grouper = PodGrouper()
        self._context: JobContext
        self._class_names: frozenset[str] = frozenset()
        # Pods as they were when they were last read: what sessions do is done to copies.
        self._tasks: dict[str, KaiTask] = {}
        self._pods: dict[str, Pod] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._on: dict[str, dict[str, KaiTask]] = {}
        self._foreign: dict[str, KaiTask] = {}
        self._terminating: set[str] = set()
        self._nodes: dict[str, KaiNode] = {}
        self._given: Mapping[str, Node] = {}
        self._rows = NodeRows(())
        self._jobs: dict[str, KaiJob] = {}
        self._sums = QueueSums()
        for held in (self.own, self.orphans, self.left_out, self.outside):
            held.clear()
        # What is to be made anew.
        self._old_jobs: dict[str, None] = {}
        self._old_nodes: dict[str, None] = {}

    def task(self, uid: str) -> KaiTask | None:
        """A pod as it was when the session opened."""
        return self._tasks.get(uid)

    @property
    def refusals(self) -> Mapping[str, str]:
        """By uid: why a pod that names no group has none."""
        return self._grouper.refusals

    def owned(self) -> dict[str, str]:
        """Job -> its name, of jobs whose group is made for pods that name none: that of the pod, or
        of the owner for which the group is made."""
        return {uid: _own_name(pod, self._grouper.owner_of(pod)) for uid, pod in self.own.items()}

    def terminating(self) -> Iterator[float]:
        """Times in seconds at which pods were deleted that are still there."""
        for uid in self._terminating:
            since = self._pods[uid].metadata.deletion_timestamp
            if since is not None:
                yield since.timestamp()

    def makes_group_of(self, pod: Pod) -> bool:
        """Whether the group that a pod names is that which the pod-grouper makes for it."""
        return self._grouper.makes_group_of(pod)

    # Sessions.

    def open(
        self,
        cluster: ModelCluster,
        options: KaiOptions,
        usage: Mapping[str, Shares] | None = None,
    ) -> KaiSession:
        """The session of a cluster. usage: of queues over time."""
        session = self._open(cluster, options, usage or {})
        session.volumes = self._rules.volumes(cluster.snapshot)
        session.namespaces = {one.name: one.labels for one in _all(cluster, Namespace)}
        return session

    def _open(
        self, cluster: ModelCluster, options: KaiOptions, usage: Mapping[str, Shares]
    ) -> KaiSession:
        self.remade.clear()
        self._shares_cards = options.shares_cards
        self._zones.follow(cluster, options.zones)
        nodes = _nodes(cluster)
        requested = self._requests.follow(cluster, {node.name for node in nodes})
        if any(cluster.objects.get(kind) for kind in (ResourceClaim, ResourceSlice, DeviceClass)):
            return self._open_anew(cluster, options, usage)
        self._follow(cluster, nodes, requested)
        self._follow_nodes(nodes, cluster)
        self._make_nodes()
        self._make_jobs(cluster)
        queues = self._sums.tree(_all(cluster, KaiQueueObject), self._total())
        topology = topologies_of(_all(cluster, KaiTopologyObject), self._rows.nodes)
        kept = KeptCluster(self._rows, self._jobs, self._jobs_off_nodes())
        return KaiSession(
            options, self._rows.nodes, (), queues, topology, cluster.now / 1e9, self._rules,
            NO_CLAIMS, kept, usage,
        )  # fmt: skip

    def settle(self, session: KaiSession) -> Iterable[KaiJob]:
        """A session has ended: what it left changed is made anew for the next one. Returns jobs
        with what it changed, and those that were made anew before it."""
        found = []
        for job in session.jobs.values():
            if job.was_touched:
                found.append(job)
                if self._is_as_read(job):
                    job.was_touched = False
                else:
                    self._old_jobs[job.uid] = None
            elif job.uid in self.remade:
                found.append(job)
        for node in session.nodes.values():
            if node.was_touched and not self._is_node_as_read(node):
                self._old_nodes[node.name] = None
            node.was_touched = False
        return found

    def outdated(self, keys: Iterable[str]) -> None:
        """What is remembered of groups has changed."""
        self._old_jobs.update(dict.fromkeys(keys))

    def _is_as_read(self, job: KaiJob) -> bool:
        return all(
            (read := self._tasks.get(task.uid)) is not None
            and task.status == read.status
            and task.node == read.node
            and task.groups == read.groups
            and (not task.node or task.numa == read.numa)
            for task in job.tasks()
        )

    def _is_node_as_read(self, node: KaiNode) -> bool:
        read = self._on.get(node.name, {})
        if node.used_memory or len(node.tasks) != len(read):
            return False
        statuses = {task.uid: task.status for task in node.tasks.values()}
        return all(statuses.get(uid) == task.status for uid, task in read.items())

    def _open_anew(
        self, cluster: ModelCluster, options: KaiOptions, usage: Mapping[str, Shares]
    ) -> KaiSession:
        self._forget()
        self._grouper.follow(cluster.objects, cluster.pods)
        self._class_names = frozenset(one.name for one in classes_of(cluster))
        pods = []
        for uid, given in cluster.pods.items():
            pod = self._requests.applied(given)
            key, sub_group = self._place(pod)
            if key is not None:
                self._pods[uid] = pod
                pods.append(self._zones.pod(self._memory.pod(pod, key, sub_group)))
                if key:
                    self._members.setdefault(key, {})[uid] = None
        groups = {one.key: one for one in _all(cluster, KaiPodGroupObject)}
        for key in self._members:
            group = self._group(key, groups.get(key))
            if group is not None:
                groups[key] = group
        self.remade.update(groups)
        slices, devices = _all(cluster, ResourceSlice), _all(cluster, DeviceClass)
        objects = KaiObjects(
            cluster.now / 1e9,
            _nodes(cluster),
            pods,
            [self._memory.group(one) for one in groups.values()],
            _all(cluster, KaiQueueObject),
            classes_of(cluster),
            _all(cluster, KaiTopologyObject),
            numa=self._zones.of,
            claims=_all(cluster, ResourceClaim),
            slices=slices,
            device_classes=devices,
            allocate=self._devices(slices, devices),
            scheduler_names=self._names,
            usage=usage,
        )
        session = session_of(objects, options, self._rules)
        for job in session.jobs.values():
            self._tasks.update((task.uid, task.clone()) for task in job.tasks())
            if job.outside:
                self.outside[job.uid] = job.outside
        return session

    # What has changed.

    def _follow(
        self, cluster: ModelCluster, nodes: Sequence[Node], requested: Iterable[str]
    ) -> None:
        fixed = (*_fixed(cluster), self._shares_cards, self._zones.rules)
        is_new = fixed != self._fixed
        if not is_new:
            names = (
                resource_names(pod)
                for uid in cluster.changed_pods
                if (pod := cluster.pods.get(uid)) is not None
            )
            is_new = any(not all(self._index.has(name) for name in own) for own in names)
        if not is_new:
            changed = (n for n in nodes if self._is_changed(n))
            is_new = any(
                not self._index.has(name) for n in changed for name in n.status.allocatable
            )
        if is_new:
            self._read_anew(cluster, nodes)
            self._fixed = fixed
            return
        self._grouper.follow(cluster.objects, cluster.pods)
        regrouped = self._grouper.outdated(cluster.changed_objects)
        for uid in dict.fromkeys(
            (*regrouped, *requested, *cluster.changed_pods, *self._terminating)
        ):
            self._read(uid, cluster)
        for kind, key in cluster.changed_objects:
            if kind is KaiPodGroupObject:
                self._old_jobs[key] = None
        self._old_nodes.update(dict.fromkeys(self._zones.changed(cluster)))

    def _is_changed(self, node: Node) -> bool:
        known = self._nodes.get(node.name)
        return known is None or known.node is not node

    def _read_anew(self, cluster: ModelCluster, nodes: Sequence[Node]) -> None:
        self._forget()
        self._grouper.follow(cluster.objects, cluster.pods)
        classes = classes_of(cluster)
        self._index = resource_index(nodes, cluster.pods.values())
        self._context = JobContext(
            _all(cluster, KaiQueueObject), classes, _all(cluster, KaiTopologyObject), self._index
        )
        self._class_names = frozenset(one.name for one in classes)
        for uid in cluster.pods:
            self._read(uid, cluster)
        groups = cluster.objects.get(KaiPodGroupObject, {})
        # Groups come in their own order, before those that are made for pods.
        self._old_jobs = dict.fromkeys((*groups, *self._old_jobs))

    def _place(self, pod: Pod) -> tuple[str | None, str]:
        """Key of its group, "" for pods of other schedulers on nodes; None for others of them, and
        for those that are left out. And its sub-group, "" for what its label says."""
        self.left_out.pop(pod.uid, None)
        if not self._shares_cards and not pod.node_name and asks_for_share(pod):
            if pod.spec.scheduler_name in self._names:
                self.left_out[pod.uid] = pod
            return None, ""
        if pod.spec.scheduler_name not in self._names:
            return ("" if pod.node_name else None), ""
        return self._grouper.place(pod)

    def _read(self, uid: str, cluster: ModelCluster) -> None:
        """Read a pod that was added, changed or deleted."""
        given = cluster.pods.get(uid)
        pod = None if given is None else self._requests.applied(given)
        key, sub_group = (None, "") if pod is None else self._place(pod)
        self._drop(uid, key)
        if given is None or pod is None or key is None:
            self._memory.forget(uid)
            self._grouper.forget(uid)
            if pod is None:
                self.left_out.pop(uid, None)
            return
        known = self._zones.pod(self._memory.pod(pod, key, sub_group))
        task = task_of(known, cluster.now / 1e9, self._index, NO_CLAIMS)
        if task.status == KaiStatus.BOUND and not given.node_name:
            task.status = int(KaiStatus.BINDING)
        self._tasks[uid], self._pods[uid] = task, pod
        if pod.metadata.deletion_timestamp is not None:
            self._terminating.add(uid)
        if key:
            self._members.setdefault(key, {})[uid] = None
            self._old_jobs[key] = None
        if task.status & USED_STATUSES:
            # Also those that run and name no node: they are on none that is there.
            self._on.setdefault(task.node, {})[uid] = task
            self._old_nodes[task.node] = None
            if not key and not reserves_card(pod.labels):
                self._foreign[uid] = task

    def _drop(self, uid: str, key: str | None) -> None:
        """Forget a pod. key: of the group that it has now, whose place in it stays."""
        known = self._tasks.pop(uid, None)
        if known is None:
            return
        if known.job:
            self._old_jobs[known.job] = None
            if key != known.job:
                self._members.get(known.job, {}).pop(uid, None)
        on = self._on.get(known.node, {})
        if on.pop(uid, None) is not None:
            self._old_nodes[known.node] = None
            if not on:
                # Names of nodes that are gone do not pile up.
                del self._on[known.node]
        for held in (self._pods, self._foreign):
            held.pop(uid, None)
        self._terminating.discard(uid)

    def _follow_nodes(self, nodes: Sequence[Node], cluster: ModelCluster) -> None:
        by_name = {node.name: node for node in nodes}
        if by_name.keys() != self._nodes.keys():
            for name in [one for one in self._nodes if one not in by_name]:
                # Pods have nothing on a node that is gone.
                for uid in [*self._on.get(name, ())]:
                    self._read(uid, cluster)
            kept = {
                name: known
                for name in sorted(by_name)
                if (known := self._nodes.get(name)) is not None
            }
            self._old_nodes.update((name, None) for name in by_name if name not in kept)
            self._nodes = {
                name: kept.get(name) or KaiNode(by_name[name], self._index)
                for name in sorted(by_name)
            }
            self._rows = NodeRows([*self._nodes.values()])
        self._old_nodes.update((n.name, None) for n in nodes if self._is_changed(n))
        self._given = by_name

    # What is made anew.

    def _make_nodes(self) -> None:
        for name in self._old_nodes:
            old, given = self._nodes.get(name), self._given.get(name)
            if old is None or given is None:
                continue
            node = KaiNode(given, self._index, self._zones.of(name, self._index))
            for task in self._on.get(name, {}).values():
                had = task.accepted, task.numa
                task.numa = node.recorded_zones(task)
                node.add(task)
                if had != (task.accepted, task.numa) and task.job:
                    self._old_jobs[task.job] = None
            node.open_zones()
            node.was_touched = False
            self._nodes[name] = node
            has_same_rules = given is old.node or (
                given.labels == old.node.labels and given.taints == old.node.taints
            )
            self._rows.replace(old.row, node, has_same_rules)
        self._old_nodes.clear()

    def _make_jobs(self, cluster: ModelCluster) -> None:
        groups = {
            key: one
            for key, one in cluster.objects.get(KaiPodGroupObject, {}).items()
            if key in self._old_jobs and isinstance(one, KaiPodGroupObject)
        }
        memories = [node.memory for node in self._nodes.values() if node.memory > 100]
        least = min(memories, default=None)
        for key in self._old_jobs:
            self.remade.add(key)
            self.outside.pop(key, None)
            if not self._members.get(key):
                self._members.pop(key, None)
            group = self._group(key, groups.get(key))
            if group is None:
                self._jobs.pop(key, None)
                self._sums.drop(key)
                continue
            job = job_of(self._memory.group(group), self._context)
            for uid in self._members.get(key, ()):
                job.add(self._tasks[uid].clone())
            if job.outside:
                self.outside[key] = job.outside
            self._jobs[key] = job
            self._sums.set(job, least)
        self._old_jobs.clear()

    def _group(self, key: str, group: KaiPodGroupObject | None) -> KaiPodGroupObject | None:
        """A group that exists, or else the one that is made for its pods."""
        self.own.pop(key, None)
        self.orphans.pop(key, None)
        pods = [self._pods[uid] for uid in self._members.get(key, ())]
        unstated = [pod for pod in pods if not stated_group(pod)]
        if unstated:
            self.own[key] = unstated[0]
        if group is not None:
            return group
        made = self._grouper.group(unstated, self._class_names) if unstated else None
        if made is not None:
            return made
        if pods:
            self.orphans[key] = pods
        return None

    def _jobs_off_nodes(self) -> frozenset[str]:
        gone = self._on.keys() - self._nodes.keys()
        return frozenset(task.job for name in gone for task in self._on[name].values() if task.job)

    def _total(self) -> list[float]:
        """What queues divide: what ready nodes offer, without what pods of others have there."""
        rows = self._rows
        offered = rows.offered[:, rows.is_ready].sum(axis=1).tolist()
        total = [*self._index.shares(offered)] if offered else [0.0, 0.0, 0.0]
        for task in self._foreign.values():
            node = self._nodes.get(task.node)
            if node is not None and node.is_ready:
                shares = self._index.shares(task.request)
                total = [a - b for a, b in zip(total, shares, strict=True)]
        return total


def classes_of(cluster: ModelCluster) -> Sequence[PriorityClass]:
    """Priority classes with KAI's own."""
    given = _all(cluster, PriorityClass)
    names = {one.name for one in given}
    own = [
        PriorityClass(metadata=ObjectMeta(name=name), value=number)
        for name, number in KAI_PRIORITY_CLASSES.items()
        if name not in names
    ]
    return [*given, *own]


def asks_for_share(pod: Pod) -> bool:
    """Whether a pod asks for a part of a card."""
    notes = pod.metadata.annotations
    return "gpu-fraction" in notes or "gpu-memory" in notes


def _nodes(cluster: ModelCluster) -> list[Node]:
    table = cluster.snapshot.nodes
    return [table.nodes[row] for row in table.order.tolist()]


def _all(cluster: ModelCluster, kind: type[T]) -> Sequence[T]:
    return [one for one in cluster.objects.get(kind, {}).values() if isinstance(one, kind)]


def _fixed(cluster: ModelCluster) -> tuple[object, ...]:
    """What everything is made anew for."""
    classes = [(one.name, one.value, one.global_default) for one in _all(cluster, PriorityClass)]
    topologies = [(one.name, one.spec) for one in _all(cluster, KaiTopologyObject)]
    return sorted(cluster.objects.get(KaiQueueObject, {})), classes, topologies


def _own_name(pod: Pod, owner: OwnerReference | None) -> str:
    if owner is None or owner.kind in ("Pod", "ReplicaSet", "Deployment"):
        return pod.key
    return f"{pod.namespace}/{owner.kind}/{owner.name}"
