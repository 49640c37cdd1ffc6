"""Controller manager of the embedded cluster: runs controllers and hollow nodes.

`ControllerManager` observes the API server. A change is only noted; `step` does the work and
returns when to call it again. Nothing happens outside `step`, so the driver decides when
controllers run and how fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from stowplan.apis.core.binding import assign
from stowplan.apis.core.pod_lifecycle import PodLifecycleDefaults
from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.errors import no_such_path
from stowplan.apis.machinery.resource import Resource, ServerContext, StoreChange
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import ObjectIndex, PodFacts
from stowplan.controllers.autoscaling.horizontal_pod_autoscaler import (
    HorizontalPodAutoscalerController,
)
from stowplan.controllers.batch.cron_job import CronJobController
from stowplan.controllers.batch.ttl_after_finished import TtlAfterFinishedController
from stowplan.controllers.device_taints.device_taint_eviction import DeviceTaintEvictionController
from stowplan.controllers.disruption_controller import DisruptionController
from stowplan.controllers.ephemeral_volume import EphemeralVolumeController
from stowplan.controllers.garbage_collector import GarbageCollector
from stowplan.controllers.kai.kai_binder import KaiBinder
from stowplan.controllers.kai.kai_group_controller import KaiGroupController
from stowplan.controllers.kai.kai_pod_grouper import KaiPodGrouper
from stowplan.controllers.kai.kai_queue_controller import KaiQueueController
from stowplan.controllers.namespace_deletion import NamespaceController
from stowplan.controllers.node_lifecycle.node_lifecycle_controller import (
    NodeLifecycleController,
)
from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
from stowplan.controllers.persistent_volume import PersistentVolumeController
from stowplan.controllers.pod_garbage_collector import PodGarbageCollector
from stowplan.controllers.pod_group_protection import PodGroupProtectionController
from stowplan.controllers.replication_controller import ReplicationControllerController
from stowplan.controllers.resource_claim import ResourceClaimController
from stowplan.controllers.resource_quota import ResourceQuotaController
from stowplan.controllers.root_ca_publisher import RootCertificatePublisher
from stowplan.controllers.service_account import ServiceAccountController
from stowplan.controllers.service_endpoints.endpoint_slice import EndpointSliceController
from stowplan.controllers.taint_eviction import TaintEvictionController
from stowplan.controllers.volcano.volcano_job_controller import VolcanoJobController
from stowplan.controllers.volcano.volcano_pod_group_controller import VolcanoPodGroupController
from stowplan.controllers.volcano.volcano_queue_controller import VolcanoQueueController
from stowplan.controllers.workloads.daemon_set.daemon_set_controller import DaemonSetController
from stowplan.controllers.workloads.deployment import DeploymentController
from stowplan.controllers.workloads.job_controller import JobController
from stowplan.controllers.workloads.job_pod_groups import JobPodGroups
from stowplan.controllers.workloads.replica_set import ReplicaSetController
from stowplan.controllers.workloads.stateful_set.stateful_set_controller import (
    StatefulSetController,
)
from stowplan.framework.feature_gates import FeatureGates
from stowplan.kubelet.device_publisher import DevicePublisher
from stowplan.kubelet.heartbeats import NodeHeartbeats
from stowplan.kubelet.kubelets import Kubelets
from stowplan.objects.store import DeleteOptions, WatchEvent
from stowplan.objects.timing.due_times import exponential_backoff
from stowplan.plugins.gpu_share.card_admission import CardAdmission

Tree = dict[str, Any]

STEP_ITEMS_MAX = 64
"""Maximum number of objects per step, so that the caller gets control back."""
WRITES_PER_STEP_MAX = 200
"""A step also ends after this many writes; processing one object may cause a hundred."""
BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MAX_SECONDS = 60.0
"""Backoff of a controller after a failure outside any object; it doubles each time."""

CONTROLLERS = (
    DeploymentController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    CronJobController,
    TtlAfterFinishedController,
    HorizontalPodAutoscalerController,
    ResourceQuotaController,
    EndpointSliceController,
    ServiceAccountController,
    RootCertificatePublisher,
    DisruptionController,
    TaintEvictionController,
    DeviceTaintEvictionController,
    PodGarbageCollector,
    NamespaceController,
    PersistentVolumeController,
    EphemeralVolumeController,
    PodGroupProtectionController,
    ResourceClaimController,
)
"""Controllers that are made alike."""
VOLCANO_CONTROLLERS = (VolcanoJobController, VolcanoPodGroupController, VolcanoQueueController)
KAI_CONTROLLERS = (KaiPodGrouper, KaiGroupController, KaiQueueController, KaiBinder)
PERIODIC = frozenset(
    {"cronjob", "hollow-heartbeats", "horizontalpodautoscaler", "kueue-usage", "node-lifecycle"}
)
"""Controllers that always have a next time."""

_CONSECUTIVE_MAX = 4


@dataclass(frozen=True, slots=True)
class ControllerManagerOptions:
    """Which parts of the embedded cluster run. pod_lifecycle: defaults of the pod lifecycle.

    heartbeats: whether all nodes send heartbeats and are marked unreachable without; False in a
    simulation, where they would be most of the writes: there only nodes with an annotation about
    their kubelet do. node_lifecycle: when nodes are unreachable, and how fast they are evicted.
    root_certificate: PEM of the API server, which is published in each namespace; "" for none.
    volcano: with Volcano's controllers. kai: with those of KAI-Scheduler. kueue: with those of
    Kueue, by these options. job_sets: with those of JobSets and jobs of Kubeflow. gates: those that
    count are WorkloadWithJob and DRAWorkloadResourceClaims.
    """

    controllers: bool = True
    hollow_nodes: bool = True
    heartbeats: bool = True
    pod_lifecycle: PodLifecycleDefaults = field(default_factory=PodLifecycleDefaults)
    node_lifecycle: NodeLifecycleOptions = field(default_factory=NodeLifecycleOptions)
    root_certificate: str = ""
    volcano: bool = False
    kai: bool = False
    kueue: KueueOptions | None = None
    job_sets: bool = False
    gates: FeatureGates = field(default_factory=FeatureGates)


class ManagedController(Protocol):
    """A controller, or the hollow nodes, as `ControllerManager` runs them."""

    name: str

    @property
    def observed(self) -> tuple[str, ...]:
        """Resource paths of the objects whose changes it looks at; () for all."""
        ...

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Note which objects this change makes due."""

    def work_once(self) -> bool:
        """Process one object that is due; False if none is."""
        ...

    def next_at(self) -> float | None:
        """The next due time; None if only a change can make something due."""
        ...

    @property
    def n_failing(self) -> int:
        """Number of objects whose last processing failed."""
        ...


class ObservedChange(msgspec.Struct, gc=False):
    """A `StoreChange` as plain attributes, because each controller asks for each of them."""

    type: str
    resource: Resource
    key: str
    path: str
    namespace: str
    name: str
    value: bytes
    previous: bytes | None


class InProcessApi:
    """`Store` on an `ServerContext` in the same process."""

    def __init__(self) -> None:
        self.now = 0.0
        self._server: ServerContext | None = None

    def attach(self, server: ServerContext) -> None:
        """Set the server; called before any other method."""
        self._server = server

    @property
    def server(self) -> ServerContext:
        """The API server."""
        assert self._server is not None, "the controller manager has no API server yet"
        return self._server

    @property
    def faults(self) -> ComponentErrors:
        """Log of unexpected failures."""
        return self.server.faults

    def get(self, path: str, namespace: str, name: str) -> Tree | None:
        """Return a copy of a stored object, or None."""
        resource = self.server.registry.by_path(path)
        return None if resource is None else self.server.get(resource, namespace, name)

    def list(self, path: str, namespace: str = "") -> Iterator[Tree]:
        """Return copies of all objects of a kind; an empty list for a kind that is not served."""
        resource = self.server.registry.by_path(path)
        return iter(()) if resource is None else self.server.list(resource, namespace)

    def create(self, path: str, obj: Tree) -> Tree:
        """Create an object; returns it as stored."""
        return self.server.create(self._resource(path), obj, self.now)

    def update(self, path: str, obj: Tree) -> Tree:
        """Update an object; returns it as stored."""
        return self.server.update(self._resource(path), obj, self.now)

    def update_status(self, path: str, obj: Tree) -> Tree:
        """Update an object's status; returns it as stored."""
        return self.server.update_status(self._resource(path), obj, self.now)

    def delete(
        self, path: str, namespace: str, name: str, deletion: DeleteOptions | None = None
    ) -> None:
        """Delete an object as a DELETE request would."""
        self.server.delete(self._resource(path), namespace, name, self.now, deletion)

    def bind(self, pod: Tree, node: str) -> None:
        """Bind a pod, as read, to a node."""
        meta = pod["metadata"]

        def change(stored: Tree) -> None:
            if stored["metadata"]["uid"] == meta["uid"]:
                assign(stored, node, {}, self.now)

        pods = self._resource("pods")
        self.server.modify(pods, meta["namespace"], meta["name"], change, self.now, "binding")

    def finalize(self, obj: Tree) -> Tree:
        """Update a namespace through its finalize subresource."""
        return self.server.update(self._resource("namespaces"), obj, self.now, "finalize")

    def path_of(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        """Path of a kind, and whether it is namespaced."""
        group, _, version = api_version.rpartition("/")
        found = self.server.registry.by_kind(group, version, kind)
        return None if found is None else (found.path, found.namespaced)

    def paths(self, namespaced: bool) -> Sequence[str]:
        """Paths of all kinds that support list and delete."""
        found = (
            each.path
            for each in self.server.registry.all()
            if each.namespaced == namespaced and {"list", "delete"} <= set(each.verbs)
        )
        return sorted(set(found))

    def _resource(self, path: str) -> Resource:
        found = self.server.registry.by_path(path)
        if found is None:
            raise no_such_path()
        return found


class ControllerManager:
    """Runs the controllers and hollow nodes of one cluster."""

    def __init__(self, manager_options: ControllerManagerOptions | None = None) -> None:
        manager_options = manager_options or ControllerManagerOptions()
        self.api = InProcessApi()
        self.index = ObjectIndex()
        recorder = EventRecorder(self.api)
        self.parts: list[ManagedController] = []
        self._observing: tuple[list[ManagedController], dict[str, list[ManagedController]]] = (
            self.parts,
            {},
        )
        self._backoffs: dict[str, tuple[float, int]] = {}
        self._first = 0
        if manager_options.controllers:
            self.parts += [kind(self.api, self.index, recorder) for kind in CONTROLLERS]
            self._open_gates(manager_options.gates)
            for part in self.parts:
                if isinstance(part, RootCertificatePublisher):
                    part.certificate = manager_options.root_certificate
            lifecycle = NodeLifecycleController(
                self.api,
                self.index,
                recorder,
                heartbeats=manager_options.heartbeats,
                options=manager_options.node_lifecycle,
            )
            self.parts += [lifecycle, GarbageCollector(self.api, self.index)]
            if manager_options.volcano:
                self.parts += [kind(self.api, self.index, recorder) for kind in VOLCANO_CONTROLLERS]
            if manager_options.kai:
                self.parts += [kind(self.api, self.index, recorder) for kind in KAI_CONTROLLERS]
            if manager_options.kueue is not None:
                # Imported here: most clusters run without Kueue.
                from stowplan.assembly.kueue.kueue_parts import kueue_controllers

                found = kueue_controllers(self.api, self.index, recorder, manager_options.kueue)
                self.parts += found
            if manager_options.job_sets:
                from stowplan.controllers.job_sets.job_set_parts import job_set_controllers

                self.parts += job_set_controllers(self.api, self.index, recorder)
        if manager_options.hollow_nodes:
            self.parts.append(
                Kubelets(
                    self.api, self.index, recorder, manager_options.pod_lifecycle, CardAdmission()
                )
            )
            self.parts.append(DevicePublisher(self.api, self.index, recorder))
            self.parts.append(NodeHeartbeats(self.api, for_all=manager_options.heartbeats))

    def _open_gates(self, gates: FeatureGates) -> None:
        """Let controllers do what is off by default."""
        for part in self.parts:
            if isinstance(part, JobController) and gates.workload_with_job:
                part.pod_groups = JobPodGroups(self.api, part.recorder)
            elif isinstance(part, ResourceClaimController) and gates.dra_workload_resource_claims:
                part.has_group_claims = True

    def changed(self, server: ServerContext, stored: StoreChange, now: float) -> None:
        """Note a change. It is called inside the write that made it."""
        self.api.attach(server)
        self.api.now = now
        change = ObservedChange(
            stored.type, stored.resource, stored.key, stored.path, stored.namespace, stored.name,
            stored.value, stored.previous,
        )  # fmt: skip
        before: PodFacts | None = None
        try:
            before = self.index.observe(change)
        # A failure here must not undo the write, and concerns this object only.
        except Exception as error:  # noqa: BLE001
            self.api.faults.add("index", object_name(change), error)
        for part in self._parts_for(change.path):
            try:
                part.observe(change, before)
            except Exception as error:  # noqa: BLE001
                self.api.faults.add(part.name, object_name(change), error)

    def _parts_for(self, path: str) -> list[ManagedController]:
        """The parts that look at changes of a resource path."""
        if self._observing[0] is not self.parts:
            self._observing = self.parts, {}
        found = self._observing[1].get(path)
        if found is None:
            found = self._observing[1][path] = [
                part for part in self.parts if not part.observed or path in part.observed
            ]
        return found

    def step(self, now: float, most: int = STEP_ITEMS_MAX) -> float | None:
        """Process at most `most` due objects; returns when to call again (None: not needed).

        Returns `now` if it stopped before all due objects were processed.
        """
        self.api.now = now
        looked = 0
        enough = self.api.server.version + WRITES_PER_STEP_MAX
        while looked < most and self.api.server.version < enough:
            # Each step starts with another controller, so that none starves the others.
            self._first = (self._first + 1) % max(len(self.parts), 1)
            turns = (*self.parts[self._first :], *self.parts[: self._first])
            worked = sum(self._work_slice(part, enough) for part in turns)
            if not worked:
                break
            looked += worked
        return self.next_at()

    def _work_slice(self, part: ManagedController, enough: int) -> int:
        """Let one controller process a few objects; returns their number."""
        until, _ = self._backoffs.get(part.name, (0.0, 0))
        if until > self.api.now:
            return 0
        for looked in range(_CONSECUTIVE_MAX):
            if self.api.server.version >= enough:
                return looked
            try:
                if not part.work_once():
                    return looked
            # A failure outside any object, or while recording one: the other controllers go on.
            except Exception as error:  # noqa: BLE001
                self._back_off(part, error)
                return looked
            self._backoffs.pop(part.name, None)
        return _CONSECUTIVE_MAX

    def _back_off(self, part: ManagedController, error: Exception) -> None:
        """Skip a controller until its backoff has ended."""
        self.api.faults.add(part.name, "", error)
        _, n_before = self._backoffs.get(part.name, (0.0, 0))
        wait = exponential_backoff(n_before, BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS)
        self._backoffs[part.name] = (self.api.now + wait, n_before + 1)

    def next_at(self) -> float | None:
        """The next due time; a time in the past or 0.0 means at once."""
        moments = []
        for part in self.parts:
            moment = part.next_at()
            if moment is not None:
                moments.append(max(moment, self._backoffs.get(part.name, (0.0, 0))[0]))
        return min(moments, default=None)

    def next_work_at(self) -> tuple[float | None, float | None]:
        """The next due times of kubelets, and of the controllers that end their work some day:
        without CronJobs and other periodic ones, and without kubelets of which only failures are
        retried."""
        kubelets = (
            part.next_at()
            for part in self.parts
            if isinstance(part, Kubelets) and len(part.queue) > part.n_failing
        )
        others = (
            part.next_at()
            for part in self.parts
            if part.name not in PERIODIC and not isinstance(part, Kubelets)
        )
        return _earliest(kubelets), _earliest(others)

    def failing(self) -> dict[str, int]:
        """Objects whose last processing failed, by controller."""
        return {part.name: part.n_failing for part in self.parts}


def _earliest(moments: Iterable[float | None]) -> float | None:
    return min((at for at in moments if at is not None), default=None)


def object_name(change: WatchEvent) -> str:
    """A changed object as logs name it: path/namespace/name."""
    return f"{change.path}/{change.namespace}/{change.name}"
