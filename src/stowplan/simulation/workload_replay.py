"""Workload replay: a replay in which the controllers and kubelets of `stowplan up` run.

The input's objects are created in the API server's store as they arrive; controllers create the
pods, kubelets run them, and the scheduler sees all of it through the production client.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from stowplan.apis.core.pod_lifecycle import PodLifecycleDefaults
from stowplan.apis.machinery.errors import ApiError, BodyDecodeError
from stowplan.apis.machinery.resource import Resource
from stowplan.apis.machinery.timestamps import format_time
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.watched_kinds import kinds_read
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.client.resources import resource_of, resources_of
from stowplan.controllers.kueue.kueue_kinds import WORKLOADS
from stowplan.controllers.volcano.volcano_kinds import VOLCANO_POD_GROUPS
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.manifests import kind_of
from stowplan.kubelet.hollow_nodes import node_status
from stowplan.messages.extender_api import object_tree
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.api_cluster.api_cluster import ApiCluster
from stowplan.simulation.api_cluster.client_dispatcher import ClientDispatcher
from stowplan.simulation.api_cluster.informer_stream import InformerStream
from stowplan.simulation.api_cluster.volcano_jobs import VOLCANO_JOB, is_volcano_job, waiting_notes
from stowplan.simulation.api_cluster.workload_documents import (
    WORKLOAD_KINDS,
    Arrival,
    TimedChange,
    WorkloadDocuments,
)
from stowplan.simulation.cluster.cluster_api import ClusterApi
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.kueue.replayed_workloads import (
    ReplayedWorkload,
    group_titles,
    queued_documents,
    replay_notes,
    replayed_workloads,
)
from stowplan.simulation.replay import IDLE_TIMEOUT, PodHistory, Replay, ReplayOptions

_FIRST = ("Namespace", "PriorityClass", "StorageClass", "RuntimeClass", "Node")
"""Kinds that others depend on: created first among objects that arrive together."""


class WorkloadReplay(Replay):
    """A replay on an `ApiCluster`.

    Pods are those that controllers create and those of the input; a pod that is evicted is created
    again by its controller, if it has one. not_created: pod of the input -> why the API server
    rejects it (ResourceQuota, RuntimeClass), known after the run.
    """

    def __init__(
        self,
        cluster: Cluster,
        deciders: Deciders,
        scheduler: Scheduler,
        options: ReplayOptions,
        seed: int = 0,
        profile: str = "",
    ) -> None:
        """cluster: with `manifests`. profile: schedulerName of all pending pods, "" for theirs.
        Raises InputError."""
        documents = self._documents_of(cluster)
        self._group_titles = group_titles(cluster)
        self._manifests = cluster.manifests
        self._has_job_sets = deciders.kueue is not None and bool(cluster.job_sets)
        if deciders.kueue is not None:
            documents = list(queued_documents(documents, cluster))
        self._documents = WorkloadDocuments(documents, options.speedup, profile, options.start_s)
        if options.until_s is None:
            trees = [arrival.tree for arrival in self._documents.arrivals]
            _check_ends(trees, departures=options.departures)
        self._seed = seed
        self._deciders = deciders
        super().__init__(cluster, scheduler, options, seed)

    def _documents_of(self, cluster: Cluster) -> list[Tree]:
        """The objects that are created, as manifests."""
        return _documents(cluster)

    @property
    def _start_s(self) -> float:
        """Unix seconds of virtual time 0."""
        return self._documents.start_s

    @property
    def _default_run_s(self) -> float:
        """Run time of pods that end and declare none, in seconds."""
        return PodLifecycleDefaults().run_s

    def _make_cluster(self) -> ClusterApi:
        options = self.options
        rng = np.random.default_rng([self._seed, 3])
        lifecycle = PodLifecycleDefaults(
            options.pace.start_s, self._default_run_s, options.pace.grace_s, options.departures
        )
        self._api = ApiCluster(
            self.event_queue,
            rng,
            self._start_s,
            options.pace,
            lifecycle,
            options.node_lifecycle,
            self._deciders.kueue,
            self._deciders.gates,
            volcano=any(map(is_volcano_job, self._manifests)),
            job_sets=self._has_job_sets,
        )
        self._api.on_created = self._created
        return self._api

    def _make_instance(self) -> SchedulerInstance:
        deciders = self._deciders
        kinds: tuple[type[Object], ...] = (Node, Pod, *kinds_read(deciders))
        resources = resources_of(kinds, with_ended=deciders.batch is not None)
        rng = np.random.default_rng([self._seed, 4])
        cluster = self._api
        stream = InformerStream(cluster.transport, resources, self.event_queue, rng)
        dispatcher = ClientDispatcher(cluster, self.scheduler.plugin_io)
        return SchedulerInstance(
            "scheduler", cluster, self.scheduler, [stream], self._observe, dispatcher
        )

    def _load(self, source: Cluster) -> None:
        """Create what is there at the start, and schedule the other arrivals."""
        # Those of the expanded input do not count: its controllers create the pods here.
        self.not_created = {}
        for arrival in sorted(self._documents.arrivals, key=_order):
            self.n_to_arrive += 1
            if arrival.at_s:
                self.event_queue.at(round(arrival.at_s * SECOND), self._create, arrival)
            else:
                self._create(arrival)

    def _create(self, arrival: Arrival) -> None:
        self.n_to_arrive -= 1
        server, tree, now = self._api.server, arrival.tree, self._api.now_s
        try:
            resource = self._api.resource_of(tree)
            place = _place(resource, tree)
            self._api.ensure_namespace(place)
            if arrival.is_stored:
                server.restore(resource, _with_namespace(tree, place), now)
            else:
                made = server.create(resource, _new(resource, tree, now), now, place)
                if tree.get("status") and "status" in resource.subresources:
                    server.update_status(resource, made | {"status": tree["status"]}, now)
        except (ApiError, BodyDecodeError) as refused:
            text = refused.message if isinstance(refused, ApiError) else str(refused)
            if tree.get("kind") == "Pod" and isinstance(refused, ApiError) and refused.code == 403:
                self.not_created[f"{place}/{tree['metadata'].get('name', '')}"] = text
                return
            raise InputError(
                _title(tree), "", text, "an object that the API server accepts"
            ) from None
        for change in arrival.changes:
            self.n_to_arrive += 1
            at = self.event_queue.now + round(change.at_s * SECOND)
            self.event_queue.at(at, self._change, resource, place, tree["metadata"]["name"], change)

    def _change(self, resource: Resource, place: str, name: str, change: TimedChange) -> None:
        self.n_to_arrive -= 1
        if resource.path == "nodes" and name not in self._api.nodes:
            self._api.change_dropped_node(name, change.apply)
            return
        self._api.server.modify(resource, place, name, change.apply, self._api.now_s)

    @property
    def workloads(self) -> list[ReplayedWorkload] | None:
        """Kueue's Workloads; None where nothing is admitted."""
        resource = self._api.server.registry.by_path(WORKLOADS)
        if self._deciders.kueue is None or resource is None:
            return None
        trees = self._api.server.list(resource, "")
        return replayed_workloads(trees, self._start_s, self._group_titles)

    # Pod lifecycle.

    def _created(self, pod: Pod) -> None:
        history = PodHistory(pod, self.event_queue.now)
        former = self.pod_histories.get(pod.key)
        if pod.node_name and not self.event_queue.now:
            history = PodHistory(pod, 0, pod.node_name, 0, bound_at_start=True)
        elif former is not None:
            # A pod of a StatefulSet, created again under its name: one history, as in a trace.
            history.restarts, history.refusals = former.restarts + 1, former.refusals
            if not former.bound_at_start:
                history.arrived, history.waited = former.arrived, former.waited
        self.pod_histories[pod.key] = history

    def _ended(self, pod: Pod, why: str) -> None:
        self.last_left = self.event_queue.now
        history = self.pod_histories[pod.key]
        history.ended = self.event_queue.now
        self.disrupted += bool(why)

    def _bound(self, pod: Pod) -> None:
        if not self.pod_histories[pod.key].bound_at_start:
            super()._bound(pod)

    def _run_of(self, pod: Pod) -> int | None:
        """None: the ends of pods are the kubelets' work, which `_is_over` asks for."""
        return None

    @property
    def has_served_volumes(self) -> bool:
        """False: the volume controller provisions with the latency that classes declare."""
        return False

    @property
    def failure_notes(self) -> list[str]:
        """What controllers or kubelets could not process, if anything, and why."""
        admitted = self.workloads
        notes = [] if admitted is None else replay_notes(admitted)
        groups = self._api.server.registry.by_path(VOLCANO_POD_GROUPS)
        if groups is not None:
            notes += waiting_notes(self._api.server.list(groups, ""), self._waiting_reasons())
        n_failing = sum(self._api.cluster.controller_manager.failing().values())
        errors = self._api.cluster.faults.take()
        if not n_failing or not errors:
            return notes
        last = errors[-1]
        text = f"{count_of(n_failing, 'object')} could not be processed by controllers"
        return [*notes, f"{text}; {last.component}, {last.about}: {last.error!r}"]

    def _waiting_reasons(self) -> dict[str, str]:
        """Why jobs wait, as the last session has it."""
        deciders = [lane.decider for lane in self.scheduler.lanes.batch]
        models = (one for one in deciders if isinstance(one, ModelDecider))
        return {key: text for one in models for key, text in one.waiting_reasons.items()}

    def _is_over(self) -> bool:
        if self.options.until_s is not None:
            # Services run on, and nodes may leave: an idle cluster costs no time.
            return False
        kubelets, controllers = self._api.next_work_at
        if kubelets is not None or not super()._is_over():
            return False
        # A controller that cannot do its work, for a quota say, tries again for ever.
        since = self.event_queue.now - max(self.last_bound, self.last_left)
        return controllers is None or since > IDLE_TIMEOUT


def _documents(cluster: Cluster) -> list[Tree]:
    """The objects of the input; nodes as `--node-count` leaves or adds them."""
    by_name = {
        tree["metadata"]["name"]: tree for tree in cluster.manifests if tree.get("kind") == "Node"
    }
    nodes = [by_name.get(node.name) or tree_of(node) for node in cluster.nodes]
    others = (tree for tree in cluster.manifests if tree.get("kind") != "Node")
    return [*nodes, *others, *_without_controller(cluster)]


def _without_controller(cluster: Cluster) -> Iterator[Tree]:
    """The pods and groups that reading made of objects for which no controller runs: jobs of
    Volcano, JobSets, jobs of Kueue, traces."""
    given = {_identity(tree) for tree in cluster.manifests}
    for group in cluster.objects:
        if not isinstance(group, PodGroup | Queue) or _key(group) in given:
            continue
        if not _jobs_of(group) & given:
            yield _without_owner(group)
    for pod in cluster.pods:
        if _key(pod) not in given and not _owners(pod) & given:
            yield _without_owner(pod)


def _owners(pod: Pod) -> set[tuple[str, str, str]]:
    """The workloads that may have made the pod: its controller, and the Deployment of it."""
    owner = pod.controller
    if owner is not None and ".volcano." in owner.api_version:
        return _jobs_of(pod)
    if owner is None or owner.kind not in WORKLOAD_KINDS:
        return set()
    found = {(owner.kind, pod.namespace, owner.name)}
    if owner.kind == "ReplicaSet":
        found.add(("Deployment", pod.namespace, owner.name.rpartition("-")[0]))
    return found


def _jobs_of(value: Pod | PodGroup | Queue) -> set[tuple[str, str, str]]:
    """The Jobs of Volcano that own an object."""
    namespace = value.metadata.namespace or "default"
    owners = value.metadata.owner_references
    return {(VOLCANO_JOB, namespace, one.name) for one in owners if ".volcano." in one.api_version}


def _without_owner(value: Object) -> Tree:
    """The object as if written by hand: the garbage collector deletes those whose owner is not
    in the cluster."""
    tree = tree_of(value)
    for field in ("uid", "resourceVersion", "ownerReferences"):
        tree["metadata"].pop(field, None)
    return tree


def _identity(tree: Tree) -> tuple[str, str, str]:
    """Kind, namespace and name; pods and groups without a namespace are in `default`."""
    meta = tree.get("metadata") or {}
    namespace = meta.get("namespace") or "default"
    kind = VOLCANO_JOB if is_volcano_job(tree) else str(tree.get("kind"))
    return kind, str(namespace), str(meta.get("name"))


def _key(value: Object) -> tuple[str, str, str]:
    meta = value.metadata
    return type(value).__name__, meta.namespace or "default", meta.name


def tree_of(value: Object) -> Tree:
    """A typed object as a manifest."""
    version = getattr(value, "api_version", "") or resource_of(value).api_version
    kind: Tree = {"apiVersion": version, "kind": kind_of(value)}
    # Through JSON: the API server takes lists, and typed objects have tuples.
    tree: Tree = msgspec.json.decode(msgspec.json.encode(object_tree(value)))
    return kind | tree


def _check_ends(documents: list[Tree], *, departures: bool) -> None:
    """Raise InputError for an object that goes on for ever when the replay has no end."""
    for tree in documents:
        kind, spec = tree.get("kind"), tree.get("spec") or {}
        template = spec if kind == "Pod" else (spec.get("template") or {}).get("spec") or {}
        meta = tree if kind == "Pod" else spec.get("template") or {}
        notes = (meta.get("metadata") or {}).get("annotations") or {}
        restarts = template.get("restartPolicy", "Always") == "Always" and kind != "Job"
        if not departures:
            continue
        if kind in ("CronJob", "HorizontalPodAutoscaler") or (restarts and RUN_ANNOTATION in notes):
            text = "containers that end and start again" if RUN_ANNOTATION in notes else "no end"
            end = "an end (--until SECONDS, or --horizon of `stowplan eta`)"
            raise InputError(_title(tree), "", f"a replay with {text}", end)


def _order(arrival: Arrival) -> int:
    kind = arrival.tree.get("kind")
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _place(resource: Resource, tree: Tree) -> str:
    namespace = (tree.get("metadata") or {}).get("namespace") or "default"
    return str(namespace) if resource.namespaced else ""


def _with_namespace(tree: Tree, place: str) -> Tree:
    return {**tree, "metadata": {**tree["metadata"], "namespace": place}} if place else tree


def _new(resource: Resource, tree: Tree, now: float) -> Tree:
    """A manifest as it is created: nodes with the status of a healthy kubelet."""
    if resource.path != "nodes":
        return tree
    status = node_status(tree, format_time(now))
    tree["status"] = status
    return tree


def _title(tree: Tree) -> str:
    meta = tree.get("metadata") or {}
    place = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{tree.get('kind', 'object')} {place}{meta.get('name', '')}"
