"""Pod group cases: a small cluster with groups, and a script of steps."""

from __future__ import annotations

from typing import Any

from stowplan.conformance.case_lines import case_reader
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup, SchedulingWorkload
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.objects.workload import Namespace, PodDisruptionBudget


class PodGroupStep(Value, frozen=True, gc=True):
    """One step; the fields used depend on `op`. ms: the clock moves before it. object: of a kind
    that follows from `op`."""

    op: str
    ms: int = 1
    key: str = ""
    node: str = ""
    max: int = 0
    object: dict[str, Any] = {}


class PodGroupCase(Value, frozen=True, gc=True):
    """A cluster and steps. graceful_eviction: evicted pods stay, terminating, until the script
    deletes them."""

    id: str
    steps: tuple[PodGroupStep, ...]
    feature_gates: dict[str, bool] = {}
    profile: dict[str, Any] | None = None
    graceful_eviction: bool = False
    nodes: tuple[Node, ...] = ()
    pod_groups: tuple[SchedulingGroup, ...] = ()
    pods: tuple[Pod, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    workloads: tuple[SchedulingWorkload, ...] = ()
    pvs: tuple[PersistentVolume, ...] = ()
    pvcs: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()


read_case = case_reader(PodGroupCase)
