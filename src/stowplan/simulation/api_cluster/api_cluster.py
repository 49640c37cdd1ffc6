"""API cluster: API server, controllers and kubelets of `stowplan up`, in virtual time.

The same code as behind `stowplan up`, called as functions by an event queue. A scheduler sees it
through the production client; a replay through typed pods and nodes, and callbacks.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from stowplan.apis.core.pod_lifecycle import PodLifecycleDefaults
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import Resource, ServerContext, StoreChange
from stowplan.apis.machinery.stored_form import decode as decode_stored
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.admission.queues.queued_job_admission import QueuedJobAdmission
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.client.requests import bind
from stowplan.client.resources import RESOURCES
from stowplan.controller_runtime.custom_kind import CustomKind
from stowplan.controllers.job_sets.job_set_kinds import job_set_definitions
from stowplan.controllers.kueue.kueue_kinds import kueue_definitions
from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
from stowplan.controllers.volcano.volcano_kinds import volcano_definitions
from stowplan.framework.feature_gates import FeatureGates
from stowplan.kubelet.hollow_nodes import node_status
from stowplan.messages.effects import Bind
from stowplan.messages.extender_api import object_tree
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.api_cluster.function_transport import FunctionTransport
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.event_queue import EventQueue

NODES, PODS = "nodes", "pods"
_DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"


class ApiCluster:
    """An `EmbeddedCluster` on an event queue.

    start_s: Unix seconds of virtual time 0. pods, nodes: the objects that are stored, typed.
    on_change: called after every change. on_created, on_bound, on_started, on_ended: called with
    the pod; on_ended also with the reason, "" when it succeeded.
    """

    def __init__(
        self,
        event_queue: EventQueue,
        rng: np.random.Generator,
        start_s: float,
        pace: Pace,
        lifecycle: PodLifecycleDefaults,
        node_lifecycle: NodeLifecycleOptions,
        kueue: KueueOptions | None = None,
        gates: FeatureGates | None = None,
        *,
        volcano: bool = False,
        job_sets: bool = False,
    ) -> None:
        """kueue: options of Kueue's admission; None for none. gates: of the controllers; all kinds
        are served. volcano: with Volcano's kinds and controllers. job_sets: with those of JobSets
        and TrainJobs."""
        self.event_queue = event_queue
        self.pace = pace
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.on_change: list[Callable[[], None]] = []
        self.on_created: Callable[[Pod], None] = _nothing
        self.on_bound: Callable[[Pod], None] = _nothing
        self.on_started: Callable[[Pod], None] = _nothing
        self.on_ended: Callable[[Pod, str], None] = _nothing_why
        self._start_s = start_s
        self._away: dict[str, Tree] = {}
        self._tick_at: int | None = None
        self.cluster = self._embedded(
            rng,
            ControllerManagerOptions(
                pod_lifecycle=lifecycle,
                heartbeats=False,
                node_lifecycle=node_lifecycle,
                volcano=volcano,
                kueue=kueue,
                job_sets=job_sets,
                gates=gates or FeatureGates(),
            ),
        )
        self.server = self.cluster.server
        self.transport = FunctionTransport(self.server, lambda: self.now_s)
        create_bootstrap_objects(self.server, self.now_s)
        definitions = self.server.registry.by_path(_DEFINITIONS)
        assert definitions is not None
        of_kueue = kueue_definitions() if kueue is not None else ()
        of_job_sets = job_set_definitions() if job_sets else ()
        for definition in (*of_kueue, *of_job_sets, *(volcano_definitions() if volcano else ())):
            self.server.create(definitions, definition, self.now_s)

    def _embedded(
        self, rng: np.random.Generator, manager_options: ControllerManagerOptions
    ) -> EmbeddedCluster:
        queued = (QueuedJobAdmission(),) if manager_options.kueue is not None else ()
        options = ApiServerOptions(
            registry=built_in_registry(workloads=True, device_taint_rules=True),
            admission=(*default_admission(), *queued),
            observers=(DefinitionController(), self),
            validates=False,
            keeps_managed_fields=False,
        )
        return EmbeddedCluster(options, rng, manager_options=manager_options)

    @property
    def now_s(self) -> float:
        """Unix seconds of the virtual time."""
        return self._start_s + self.event_queue.now / SECOND

    # Changes.

    def changed(self, server: ServerContext, change: StoreChange, now: float) -> None:
        """Observe a change: follow pods and nodes, and let controllers and watchers work on it."""
        if change.path == PODS:
            self._pod_changed(change)
        elif change.path == NODES:
            if change.type == "DELETED":
                self.nodes.pop(change.name, None)
            else:
                self.nodes[change.name] = decode(change.value, Node)
        self._schedule_tick(self.event_queue.now)
        for callback in self.on_change:
            callback()

    def _pod_changed(self, change: StoreChange) -> None:
        pod = decode(change.value, Pod)
        before = self.pods.get(pod.key)
        if change.type == "DELETED":
            self.pods.pop(pod.key, None)
            if before is not None and not before.is_finished:
                self.on_ended(pod, "deleted")
            return
        self.pods[pod.key] = pod
        if before is None:
            self.on_created(pod)
        if pod.node_name and (before is None or not before.node_name):
            self.on_bound(pod)
        was = "" if before is None else before.status.phase
        if pod.status.phase == "Running" and was != "Running":
            self.on_started(pod)
        if pod.is_finished and (before is None or not before.is_finished):
            self.on_ended(pod, "" if pod.status.phase == "Succeeded" else "failed")

    # Time.

    def _schedule_tick(self, at: int) -> None:
        if self._tick_at is None or at < self._tick_at:
            self._tick_at = at
            self.event_queue.at(at, self._tick, at)

    def _tick(self, at: int) -> None:
        if self._tick_at != at:
            # An earlier tick has replaced this one.
            return
        self._tick_at = None
        due = self.cluster.tick(self.now_s)
        if due is not None:
            self._schedule_tick(self._time_of(due))

    def _time_of(self, moment_s: float) -> int:
        """Virtual time of a moment; after the present one, since floats round."""
        at = round((moment_s - self._start_s) * SECOND)
        while self._start_s + at / SECOND < moment_s:
            at += 1000
        return max(at, self.event_queue.now)

    @property
    def next_work_at(self) -> tuple[float | None, float | None]:
        """When kubelets, and controllers without periodic work, are due next; Unix seconds."""
        return self.cluster.controller_manager.next_work_at()

    # Objects.

    def resource_of(self, tree: Tree) -> Resource:
        """The kind of an object, whatever version of it is served.

        A kind that the API server does not serve is defined first, as a custom resource of any
        content. Raises ApiError.
        """
        version, kind = str(tree.get("apiVersion", "")), str(tree.get("kind", ""))
        group, _, name = version.rpartition("/")
        # Workloads were in `extensions` first.
        group = "apps" if group == "extensions" else group
        served = (each for each in self.server.registry.all() if each.kind == kind)
        found = next((each for each in served if each.group == group), None)
        if found is None:
            self._define(group, name, kind, tree)
            found = self.server.registry.by_kind(group, name, kind)
        if found is None:
            raise ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{version}"')
        return found

    def _define(self, group: str, version: str, kind: str, tree: Tree) -> None:
        plural = next(
            (
                known.plural
                for known in RESOURCES
                if known.kind.__name__ == kind and known.api_version == f"{group}/{version}"
            ),
            f"{kind.lower()}s",
        )
        resource = self.server.registry.by_path(_DEFINITIONS)
        assert resource is not None
        namespaced = bool((tree.get("metadata") or {}).get("namespace"))
        custom = CustomKind(group, kind, plural, (version,), namespaced=namespaced)
        self.server.create(resource, custom.definition(), self.now_s)

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace that is missing; "" for none."""
        resource = self.server.registry.by_path("namespaces")
        assert resource is not None
        if name and self.server.get(resource, "", name) is None:
            self.server.create(resource, {"metadata": {"name": name}}, self.now_s)

    # Requests of others than the client.

    def bind(self, key: str, uid: str, node: str) -> int:
        """Bind a pod for an extender or a plugin; the status of the API."""
        namespace, _, name = key.partition("/")
        return self.transport.send(bind(Bind(0, 0, uid, namespace, name, node), {})).status

    def drop_node(self, name: str) -> None:
        """Delete a node; its pods are deleted by the pod garbage collector."""
        resource = self.server.registry.by_path(NODES)
        assert resource is not None
        stored = self.server.store.get(resource.key("", name))
        assert stored is not None, name
        self._away[name] = decode_stored(stored)
        self.server.delete(resource, "", name, self.now_s)

    def change_dropped_node(self, name: str, apply: Callable[[Tree], None]) -> None:
        """Change a node that was dropped: it comes back so."""
        if name in self._away:
            apply(self._away[name])

    def _ready_node(self, node: Node) -> Tree:
        """A typed node as an object, with the status of a healthy kubelet."""
        kind: Tree = {"apiVersion": "v1", "kind": "Node"}
        # Through JSON: the API server takes lists, and typed objects have tuples.
        tree: Tree = kind | msgspec.json.decode(msgspec.json.encode(object_tree(node)))
        tree["status"] = node_status(tree, format_time(self.now_s))
        return tree

    def clear_node(self, name: str, why: str) -> None:
        """Nothing: controllers delete the pods of a deleted node."""

    def compact(self, version: int) -> None:
        """Nothing: the server bounds its history."""

    def put_node(self, node: Node) -> None:
        """Create a node, or one again that was dropped."""
        resource = self.server.registry.by_path(NODES)
        assert resource is not None
        tree = self._away.pop(node.name, None) or self._ready_node(node)
        tree["metadata"].pop("resourceVersion", None)
        status = tree.get("status")
        made = self.server.create(resource, tree, self.now_s)
        self.server.update_status(resource, made | {"status": status}, self.now_s)


def _nothing(pod: Pod) -> None:
    """Default callback: does nothing."""


def _nothing_why(pod: Pod, why: str) -> None:
    """Default of `on_ended`: does nothing."""
