"""Objects of Kueue in manifests: read in the versions v1beta1 and v1beta2.

Source: sigs.k8s.io/kueue, apis/kueue/v1beta1 and v1beta2 (conversions and defaults).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stowplan.batch.queue_models.kueue.kueue_objects import (
    NEVER,
    AdmissionCheck,
    Cohort,
    KueueClusterQueue,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from stowplan.inputs.input_error import InputError
from stowplan.inputs.manifests import decode_object
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.meta import Object

Tree = dict[str, Any]

_OLD_CHOICES = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
_NAMESPACED = ("LocalQueue", "Workload")


class WorkloadPriorityClass(Object, frozen=True):
    """A WorkloadPriorityClass."""

    value: int = 0


_KINDS: Mapping[str, type[Object]] = {
    "ClusterQueue": KueueClusterQueue,
    "Cohort": Cohort,
    "LocalQueue": LocalQueue,
    "ResourceFlavor": ResourceFlavor,
    "Topology": Topology,
    "AdmissionCheck": AdmissionCheck,
    "Workload": Workload,
    "WorkloadPriorityClass": WorkloadPriorityClass,
}
KUEUE_KINDS = frozenset(f"{kind}.kueue.x-k8s.io" for kind in _KINDS)
"""Kinds that are read where Kueue decides, as `Cluster.ignored` names them."""


class KueueManifests:
    """Objects by kind."""

    def __init__(self, trees: Iterable[Tree]) -> None:
        """Raises InputError for an object that cannot be read, or is there twice."""
        self._found: dict[type[Object], dict[str, Any]] = {kind: {} for kind in _KINDS.values()}
        for tree in trees:
            kind = _KINDS.get(str(tree.get("kind")))
            if kind is None:
                continue
            try:
                one = decode_object(_current(tree), kind, "")
            except DecodeError as problem:
                raise InputError.at("", problem.path, problem.what) from None
            key = f"{one.metadata.namespace}/{one.name}"
            if self._found[kind].setdefault(key, one) is not one:
                raise InputError.at("", f"{tree['kind']} {one.name}", "Duplicate value")

    def all(self, kind: type[Object]) -> list[Any]:
        """All objects of a kind, in order."""
        return list(self._found[kind].values())

    def priority_of(self, name: str) -> int | None:
        """The value of a WorkloadPriorityClass; None if it is not there."""
        found = (one for one in self.all(WorkloadPriorityClass) if one.name == name)
        return next((one.value for one in found), None)


def _current(tree: Tree) -> Tree:
    """An object as v1beta2 with the defaults that the API server fills in."""
    spec = dict(tree.get("spec") or {})
    kind = tree["kind"]
    if kind == "ClusterQueue":
        spec = _cluster_queue(spec)
    elif kind == "Cohort" and "parent" in spec:
        spec["parentName"] = spec.pop("parent")
    found = {**tree, "spec": spec}
    if kind in _NAMESPACED:
        meta = tree.get("metadata") or {}
        found["metadata"] = {**meta, "namespace": meta.get("namespace") or "default"}
    if kind == "Workload":
        found["status"] = _workload_status(tree.get("status") or {})
    return found


def _cluster_queue(spec: Tree) -> Tree:
    if "cohort" in spec:
        spec["cohortName"] = spec.pop("cohort")
    preemption = spec.get("preemption")
    if isinstance(preemption, dict):
        never = {"withinClusterQueue": NEVER, "reclaimWithinCohort": NEVER}
        spec["preemption"] = {**never, **preemption}
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, dict):
        spec["flavorFungibility"] = {
            key: _OLD_CHOICES.get(value, value) for key, value in fungibility.items()
        }
    checks = spec.pop("admissionChecks", None)
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": one} for one in checks]}
    return spec


def _workload_status(status: Tree) -> Tree:
    """The status with places in columns, as v1beta2 has them."""
    admission = status.get("admission")
    if not isinstance(admission, dict):
        return status
    assigned = []
    for one in admission.get("podSetAssignments") or ():
        places = one.get("topologyAssignment") or {}
        if "domains" in places:
            slices = [
                {
                    "domainCount": 1,
                    "podCounts": {"universal": domain["count"]},
                    "valuesPerLevel": [{"universal": value} for value in domain["values"]],
                }
                for domain in places["domains"]
            ]
            levels = places.get("levels") or []
            one = {**one, "topologyAssignment": {"levels": levels, "slices": slices}}
        assigned.append(one)
    return {**status, "admission": {**admission, "podSetAssignments": assigned}}
