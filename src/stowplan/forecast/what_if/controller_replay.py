"""A replay from now on in which the controllers of the cluster run.

The objects of a version are restored in the API server of a `WorkloadReplay`, pods as they run.
Controllers create pods in place of evicted ones, under names of their own. To compare two sides, a
pod that takes the place of another counts as that one.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from datetime import datetime

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.timestamps import format_time
from stowplan.assembly.deciders import Deciders
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.ignored_kinds import REPLAYED
from stowplan.insight.pod_owners import owners_of
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.workload import DaemonSet, Job, PriorityClass, StatefulSet
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.api_cluster.workload_documents import (
    DEFAULT_START_S,
    WORKLOAD_KINDS,
    with_restart_policy,
    with_selector,
)
from stowplan.simulation.cluster.cluster_api import OK
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.workload_replay import WorkloadReplay, tree_of

TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer of the pods that a Job counts."""
_KEPT_TEMPLATES = frozenset({"StatefulSet", "ReplicationController", "Job"})
"""Kinds with fields that typed objects lack, such as claim templates: taken from the input."""

Identity = tuple[str, str, str]
Owner = tuple[str, str, str]


def has_controllers(version: Cluster) -> bool:
    """True where a controller of the version creates pods."""
    replayed = {kind.partition(".")[0] for kind in REPLAYED}
    return any(type(one).__name__ in WORKLOAD_KINDS for one in version.objects) or any(
        tree.get("kind") in replayed for tree in version.manifests
    )


class ControllerReplay(WorkloadReplay):
    """A `WorkloadReplay` of a version that begins at `now`.

    takers: victim -> uid of the pod that evicted it. successors: pod -> the pod that was created in
    its place. added: pods that controllers created beside these, such as the next ones of a Job.
    """

    def __init__(
        self,
        version: Cluster,
        deciders: Deciders,
        scheduler: Scheduler,
        options: ReplayOptions,
        seed: int,
        run_s: float,
        now: datetime | None,
    ) -> None:
        """run_s: run time of pods of Jobs and bare pods that declare none. now: None where running
        pods start at the beginning."""
        self.takers: dict[str, str] = {}
        self.successors: dict[str, str] = {}
        self.added: list[str] = []
        self._given = {pod.key: pod for pod in version.pods}
        self._place_of: dict[str, str] = {}
        self._vacated: dict[Owner, deque[str]] = defaultdict(deque)
        self._unplaced: dict[Owner, deque[str]] = defaultdict(deque)
        self._run_s = run_s
        self._now = now
        objects = {
            _identity(type(one).__name__, one.metadata.namespace, one.name)
            for one in version.objects
        }
        self._unowned = {
            pod.key
            for pod in version.pods
            if (owner := pod.controller) is not None
            and _identity(owner.kind, pod.namespace, owner.name) not in objects
            and owner.kind in WORKLOAD_KINDS
        }
        super().__init__(version, deciders, scheduler, options, seed)

    def _documents_of(self, cluster: Cluster) -> list[Tree]:
        return VersionDocuments(cluster, self._now, self._run_s).all()

    @property
    def _start_s(self) -> float:
        return super()._start_s if self._now is None else self._now.timestamp()

    @property
    def _default_run_s(self) -> float:
        return self._run_s

    # Pods that take the place of others.

    def _created(self, pod: Pod) -> None:
        super()._created(pod)
        if pod.key in self._given:
            return
        owner = _owner(pod)
        if self._vacated[owner]:
            self._succeed(self._vacated[owner].popleft(), pod.key)
        else:
            self.added.append(pod.key)
            self._unplaced[owner].append(pod.key)

    def _succeed(self, key: str, new: str) -> None:
        self.successors[key] = new
        self._place_of[new] = key

    def _ended(self, pod: Pod, why: str) -> None:
        super()._ended(pod, why)
        key = self._place_of.get(pod.key, pod.key)
        if not why or key not in self._given:
            return
        if pod.key in self._unowned:
            if why == "deleted":
                self.event_queue.after(0, self._create_again, pod)
            return
        owner = _owner(pod)
        # A controller replaces a pod when it is terminating: before it is gone.
        if self._unplaced[owner]:
            new = self._unplaced[owner].popleft()
            self.added.remove(new)
            self._succeed(key, new)
        elif pod.controller is not None:
            self._vacated[owner].append(key)

    def _create_again(self, pod: Pod) -> None:
        """Create a pod whose owner is not in the input again, under its name."""
        tree = tree_of(self._given[pod.key])
        meta, spec = tree["metadata"], tree["spec"]
        for field in ("uid", "ownerReferences", "deletionTimestamp"):
            meta.pop(field, None)
        spec.pop("nodeName", None)
        tree.pop("status", None)
        resource = self._api.resource_of(tree)
        try:
            self._api.server.create(resource, tree, self._api.now_s, pod.namespace)
        except ApiError as refused:
            self.not_created[pod.key] = refused.message

    def _taken(self, effect: Effect, code: int) -> None:
        super()._taken(effect, code)
        if isinstance(effect, to_do.Evict) and code == OK:
            key = f"{effect.namespace}/{effect.name}"
            self.takers[self._place_of.get(key, key)] = effect.preemptor


class VersionDocuments:
    """The objects of a version as documents of an API server that has stored them."""

    def __init__(self, version: Cluster, now: datetime | None, run_s: float) -> None:
        self._version = version
        self._now = now
        self._run_s = run_s
        self._manifests = {
            _tree_identity(tree): tree for tree in version.manifests if tree.get("kind") != "List"
        }
        self._uids: dict[Identity, str] = {}

    def all(self) -> list[Tree]:
        """Every object, owners with the uid by which their dependents name them."""
        version = self._version
        typed: list[Tree] = [tree_of(node) for node in version.nodes]
        typed += [self._object(one) for one in version.objects]
        replayed = {kind.partition(".")[0] for kind in REPLAYED}
        typed += [dict(tree) for tree in version.manifests if tree.get("kind") in replayed]
        typed += self._priority_classes()
        active = [pod for pod in version.pods if not pod.is_finished]
        typed += [self._pod(pod) for pod in active]
        for tree in typed:
            meta = tree["metadata"] = dict(tree.get("metadata") or {})
            identity = _tree_identity(tree)
            meta["uid"] = str(meta.get("uid") or "-".join(identity).lower())
            meta.pop("resourceVersion", None)
            meta.setdefault("creationTimestamp", _moment(self._now))
            self._uids[identity] = meta["uid"]
        return [self._owned(tree) for tree in typed]

    def _owned(self, tree: Tree) -> Tree:
        """With references to owners that are there; the garbage collector deletes what names one
        that is not."""
        meta = tree["metadata"]
        kept = []
        for owner in meta.pop("ownerReferences", ()):
            namespace = "" if owner["kind"] == "Node" else meta.get("namespace") or ""
            uid = self._uids.get(_identity(owner["kind"], namespace, owner["name"]))
            if uid is not None:
                kept.append({**owner, "uid": uid})
        if kept:
            meta["ownerReferences"] = kept
        return tree

    def _object(self, one: Object) -> Tree:
        tree = tree_of(one)
        kind = tree["kind"]
        if kind not in WORKLOAD_KINDS:
            return tree
        given = self._manifests.get(_tree_identity(tree))
        if kind in _KEPT_TEMPLATES and given is not None:
            sizes = ("replicas", "parallelism", "completions")
            changed = {name: tree["spec"][name] for name in sizes if name in tree["spec"]}
            tree = {**given, "spec": {**given["spec"], **changed}}
        tree = with_selector(with_restart_policy(_unstored(tree)))
        if isinstance(one, StatefulSet | DaemonSet):
            # The revisions of pods that were made in another way are not those of this controller.
            tree["spec"] = {**tree["spec"], "updateStrategy": {"type": "OnDelete"}}
        if isinstance(one, Job):
            tree = _with_job_selector(tree)
            tree.setdefault("status", {"succeeded": self._n_succeeded(one)})
        return tree

    def _n_succeeded(self, job: Job) -> int:
        return sum(
            pod.status.phase == "Succeeded"
            and pod.namespace == job.namespace
            and pod.controller is not None
            and (pod.controller.kind, pod.controller.name) == ("Job", job.name)
            for pod in self._version.pods
        )

    def _priority_classes(self) -> Iterator[Tree]:
        """The classes that pods name and the input lacks, with the priority of these pods."""
        known = {one.name for one in self._version.objects if isinstance(one, PriorityClass)}
        for pod in self._version.pods:
            name = pod.spec.priority_class_name
            if name and name not in known and not name.startswith("system-"):
                known.add(name)
                yield {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": pod.priority,
                }

    def _pod(self, pod: Pod) -> Tree:
        tree = tree_of(pod)
        owner = pod.controller
        notes = tree["metadata"].setdefault("annotations", {})
        if owner is None and RUN_ANNOTATION not in notes and math.isfinite(self._run_s):
            notes[RUN_ANNOTATION] = f"{self._run_s:g}"
            tree["spec"]["restartPolicy"] = "Never"
        tree = with_restart_policy(tree)
        if owner is not None and owner.kind == "Job":
            tree["metadata"]["finalizers"] = [TRACKING]
            tree["spec"].setdefault("restartPolicy", "Never")
        if pod.node_name:
            since = pod.status.start_time if self._now is not None else None
            at = _moment(since or self._now)
            status = tree["status"] = dict(tree.get("status") or {})
            status.update(phase="Running", startTime=at)
            status["containerStatuses"] = [
                {
                    "name": one.get("name", ""),
                    "ready": True,
                    "state": {"running": {"startedAt": at}},
                }
                for one in tree["spec"].get("containers", ())
            ]
        return tree


def _with_job_selector(tree: Tree) -> Tree:
    """A Job with a selector: the API server adds one when a Job is created."""
    spec = tree["spec"]
    if spec.get("selector"):
        return tree
    labels = {"job-name": tree["metadata"]["name"]}
    template = spec.get("template") or {}
    meta = template.get("metadata") or {}
    meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    spec = {**spec, "selector": {"matchLabels": labels}, "template": {**template, "metadata": meta}}
    return {**tree, "spec": spec}


def _unstored(tree: Tree) -> Tree:
    """Without the uid, for what is only done to manifests that were not stored."""
    meta = {name: value for name, value in tree["metadata"].items() if name != "uid"}
    return {**tree, "metadata": meta}


def _moment(at: datetime | None) -> str:
    return format_time(DEFAULT_START_S if at is None else at.timestamp())


def _owner(pod: Pod) -> Owner:
    owners = owners_of(pod)
    return (pod.namespace, *owners[-1]) if owners else (pod.namespace, "Pod", pod.name)


def _identity(kind: str, namespace: str, name: str) -> Identity:
    """The namespace `default` is "", so that manifests need not name it."""
    return kind, "" if namespace == "default" else namespace, name


def _tree_identity(tree: Tree) -> Identity:
    meta = tree.get("metadata") or {}
    namespace = str(meta.get("namespace") or "")
    return _identity(str(tree.get("kind")), namespace, str(meta.get("name")))
