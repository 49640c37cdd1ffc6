"""API resources that scheduling reads: group, version, plural and scope of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from stowplan.objects import storage, workload
from stowplan.objects.devices import device, device_claim
from stowplan.objects.devices.scv import Scv
from stowplan.objects.kai import bind_request, kai_kinds, node_topology
from stowplan.objects.kai.grouping import workload_owners
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_API_VERSIONS, PodGroup, Queue
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION, SchedulingGroup
from stowplan.objects.volcano.hyper_node import HYPER_NODE_API_VERSION, VolcanoHyperNode

RUNNING_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector that leaves out finished pods: they use no resources. Gangs do count their
finished pods."""


def path_segment(name: str) -> str:
    """A name as one percent-encoded path segment, so that it cannot address another object."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="@:!$&'()*+,;=~")


class ApiResource(msgspec.Struct, frozen=True):
    """A kind as one version of one API group serves it.

    api_version: `v1`, `apps/v1`. fields: field selector of every list and watch. is_needed:
    scheduling needs it; others may be absent, as custom resources often are.
    """

    kind: type[Object]
    api_version: str
    plural: str
    fields: str = ""
    is_needed: bool = False

    @property
    def is_namespaced(self) -> bool:
        """True for namespaced resources."""
        return issubclass(self.kind, NamespacedObject)

    @property
    def root(self) -> str:
        """The path of the group and version: `/api/v1`, `/apis/apps/v1`."""
        return f"/{'apis' if '/' in self.api_version else 'api'}/{self.api_version}"

    @property
    def title(self) -> str:
        """For logs and metrics: `pods`, `podgroups.scheduling.sigs.dev`."""
        group = self.api_version.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural

    def path(self, name: str = "", namespace: str = "") -> str:
        """The path of an object, names percent-encoded; without a name, of all of them (of a
        namespace, or anywhere)."""
        place = f"/namespaces/{path_segment(namespace)}" if namespace and self.is_namespaced else ""
        return f"{self.root}{place}/{self.plural}" + (f"/{path_segment(name)}" if name else "")


PODS = ApiResource(Pod, "v1", "pods", RUNNING_PODS, is_needed=True)
NODES = ApiResource(Node, "v1", "nodes", is_needed=True)

_STORAGE, _DEVICES = "storage.k8s.io/v1", "resource.k8s.io/v1"

RESOURCES: tuple[ApiResource, ...] = (
    NODES,
    PODS,
    ApiResource(workload.Namespace, "v1", "namespaces"),
    ApiResource(workload.Service, "v1", "services"),
    ApiResource(workload.ReplicationController, "v1", "replicationcontrollers"),
    ApiResource(storage.PersistentVolume, "v1", "persistentvolumes"),
    ApiResource(storage.PersistentVolumeClaim, "v1", "persistentvolumeclaims"),
    ApiResource(workload.ReplicaSet, "apps/v1", "replicasets"),
    ApiResource(workload.StatefulSet, "apps/v1", "statefulsets"),
    ApiResource(workload.PodDisruptionBudget, "policy/v1", "poddisruptionbudgets"),
    ApiResource(workload.PriorityClass, "scheduling.k8s.io/v1", "priorityclasses"),
    ApiResource(storage.StorageClass, _STORAGE, "storageclasses"),
    ApiResource(storage.CSINode, _STORAGE, "csinodes"),
    ApiResource(storage.CSIDriver, _STORAGE, "csidrivers"),
    ApiResource(storage.CSIStorageCapacity, _STORAGE, "csistoragecapacities"),
    ApiResource(storage.VolumeAttachment, _STORAGE, "volumeattachments"),
    ApiResource(device_claim.ResourceClaim, _DEVICES, "resourceclaims"),
    ApiResource(device.ResourceSlice, _DEVICES, "resourceslices"),
    ApiResource(device.DeviceClass, _DEVICES, "deviceclasses"),
    ApiResource(device.DeviceTaintRule, "resource.k8s.io/v1beta2", "devicetaintrules"),
    ApiResource(Scv, "core.run-linux.com/v1", "scvs"),
    *(ApiResource(PodGroup, version, "podgroups") for version in GROUP_API_VERSIONS),
    *(ApiResource(Queue, version, "queues") for version in GROUP_API_VERSIONS),
    ApiResource(VolcanoHyperNode, HYPER_NODE_API_VERSION, "hypernodes"),
    ApiResource(SchedulingGroup, SCHEDULING_API_VERSION, "podgroups"),
    ApiResource(kai_kinds.KaiPodGroupObject, kai_kinds.KAI_GROUP_API_VERSION, "podgroups"),
    ApiResource(kai_kinds.KaiQueueObject, kai_kinds.KAI_QUEUE_API_VERSION, "queues"),
    ApiResource(kai_kinds.KaiTopologyObject, kai_kinds.KAI_TOPOLOGY_API_VERSION, "topologies"),
    ApiResource(bind_request.KaiBindRequest, bind_request.KAI_BIND_API_VERSION, "bindrequests"),
    ApiResource(
        node_topology.NodeResourceTopology,
        node_topology.NODE_TOPOLOGY_API_VERSION,
        "noderesourcetopologies",
    ),
)
"""Nodes first: a pod is of more use once its node is known."""

OWNERS: tuple[ApiResource, ...] = (
    ApiResource(workload.Deployment, "apps/v1", "deployments"),
    ApiResource(workload.DaemonSet, "apps/v1", "daemonsets"),
    ApiResource(workload.Job, "batch/v1", "jobs"),
    ApiResource(workload.CronJob, "batch/v1", "cronjobs"),
    ApiResource(device_claim.ResourceClaimTemplate, _DEVICES, "resourceclaimtemplates"),
)
"""What only some schedulers read: questions about a cluster list them where they may."""

_KUBEFLOW, _RAY = "kubeflow.org/v1", "ray.io/v1"

KAI_OWNERS: tuple[ApiResource, ...] = (
    ApiResource(workload_owners.PyTorchJobOwner, _KUBEFLOW, "pytorchjobs"),
    ApiResource(workload_owners.TensorFlowJobOwner, _KUBEFLOW, "tfjobs"),
    ApiResource(workload_owners.XGBoostJobOwner, _KUBEFLOW, "xgboostjobs"),
    ApiResource(workload_owners.JaxJobOwner, _KUBEFLOW, "jaxjobs"),
    ApiResource(workload_owners.MpiJobOwner, _KUBEFLOW, "mpijobs"),
    ApiResource(workload_owners.MpiJobOwner, "kubeflow.org/v2beta1", "mpijobs"),
    ApiResource(workload_owners.NotebookOwner, "kubeflow.org/v1beta1", "notebooks"),
    ApiResource(workload_owners.TrainJobOwner, "trainer.kubeflow.org/v1alpha1", "trainjobs"),
    ApiResource(workload_owners.JobSetOwner, "jobset.x-k8s.io/v1alpha2", "jobsets"),
    ApiResource(
        workload_owners.LeaderWorkerSetOwner, "leaderworkerset.x-k8s.io/v1", "leaderworkersets"
    ),
    ApiResource(workload_owners.RayClusterOwner, _RAY, "rayclusters"),
    ApiResource(workload_owners.RayJobOwner, _RAY, "rayjobs"),
    ApiResource(workload_owners.RayServiceOwner, _RAY, "rayservices"),
)
"""Workloads of other projects, whose pods KAI-Scheduler groups by rules of their own."""


def resources_of(
    kinds: Iterable[type[Object]], *, with_ended: bool = False
) -> tuple[ApiResource, ...]:
    """API resources of these kinds, in a fixed order; several API groups serve some kinds.
    with_ended: include finished pods."""
    wanted = set(kinds)
    found = [resource for resource in (*RESOURCES, *OWNERS, *KAI_OWNERS) if resource.kind in wanted]
    if with_ended:
        found = [msgspec.structs.replace(one, fields="") if one == PODS else one for one in found]
    return tuple(found)


def resource_of(value: Object) -> ApiResource:
    """API resource of an object; raises LookupError for a kind that is not known."""
    version = getattr(value, "api_version", "")
    for resource in (*RESOURCES, *OWNERS, *KAI_OWNERS):
        if type(value) is resource.kind and version in ("", resource.api_version):
            return resource
    raise LookupError(f"no API resource for kind {type(value).__name__} in version {version!r}")
