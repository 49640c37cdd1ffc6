"""Owners of pods, as KAI-Scheduler's pod-grouper reads them, and the chain of owners of a pod.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/podgrouper.go and hub/hub.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stowplan.objects.meta import NamespacedObject, Object, ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.workload import CronJob, Deployment, Job, ReplicaSet, StatefulSet

SKIP = "kai.scheduler/skip-podgrouper"
"""Annotation that keeps the pod-grouper from a pod, or from the pods of an owner."""
_DEPTH_MAX = 16
"""Owners above each other; a chain that is longer is a circle."""


class KaiOwner(NamespacedObject, frozen=True):
    """A workload of another project. spec: as it was written."""

    spec: dict[str, Any] = {}


class PyTorchJobOwner(KaiOwner, frozen=True):
    """A PyTorchJob."""


class TensorFlowJobOwner(KaiOwner, frozen=True):
    """A TFJob."""


class XGBoostJobOwner(KaiOwner, frozen=True):
    """An XGBoostJob."""


class JaxJobOwner(KaiOwner, frozen=True):
    """A JAXJob."""


class MpiJobOwner(KaiOwner, frozen=True):
    """An MPIJob."""


class NotebookOwner(KaiOwner, frozen=True):
    """A Notebook of Kubeflow."""


class TrainJobOwner(KaiOwner, frozen=True):
    """A TrainJob."""


class JobSetOwner(KaiOwner, frozen=True):
    """A JobSet."""


class LeaderWorkerSetOwner(KaiOwner, frozen=True):
    """A LeaderWorkerSet."""


class RayClusterOwner(KaiOwner, frozen=True):
    """A RayCluster."""


class RayJobOwner(KaiOwner, frozen=True):
    """A RayJob. status: with the name of its cluster."""

    status: dict[str, Any] = {}


class RayServiceOwner(RayJobOwner, frozen=True):
    """A RayService. status: with the names of its clusters."""


OWNER_KINDS: Mapping[tuple[str, str], type[Object]] = {
    ("apps", "Deployment"): Deployment,
    ("apps", "ReplicaSet"): ReplicaSet,
    ("apps", "StatefulSet"): StatefulSet,
    ("batch", "Job"): Job,
    ("batch", "CronJob"): CronJob,
    ("kubeflow.org", "PyTorchJob"): PyTorchJobOwner,
    ("kubeflow.org", "TFJob"): TensorFlowJobOwner,
    ("kubeflow.org", "XGBoostJob"): XGBoostJobOwner,
    ("kubeflow.org", "JAXJob"): JaxJobOwner,
    ("kubeflow.org", "MPIJob"): MpiJobOwner,
    ("kubeflow.org", "Notebook"): NotebookOwner,
    ("trainer.kubeflow.org", "TrainJob"): TrainJobOwner,
    ("jobset.x-k8s.io", "JobSet"): JobSetOwner,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): LeaderWorkerSetOwner,
    ("ray.io", "RayCluster"): RayClusterOwner,
    ("ray.io", "RayJob"): RayJobOwner,
    ("ray.io", "RayService"): RayServiceOwner,
}
"""(group, kind) of owners that are read -> their type."""


class GroupingError(Exception):
    """The pod-grouper makes no group for a pod; the text says why."""


class GroupingSkipped(GroupingError):
    """An annotation keeps the pod-grouper from a pod."""


class Owner(msgspec.Struct, frozen=True):
    """An owner of a pod. is_known: its object was found; what is not is known by the reference to
    it, and has the labels and annotations of the pod."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}
    is_known: bool = True

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.rpartition("/")[0]

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`."""
        return self.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """`metadata.annotations`."""
        return self.metadata.annotations

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


FindOwner = Callable[[OwnerReference, str], Owner | None]
"""(reference, namespace) -> the owner by its name, None where it is not known."""


def owner_of_object(value: Object, reference: OwnerReference) -> Owner:
    """An object as the owner that a reference names."""
    spec = value.spec if isinstance(value, KaiOwner) else {}
    status = value.status if isinstance(value, RayJobOwner) else {}
    return Owner(reference.api_version, reference.kind, value.metadata, spec, status)


def owner_of_pod(pod: Pod) -> Owner:
    """A pod as the owner of itself."""
    return Owner("v1", "Pod", pod.metadata)


def owner_chain(pod: Pod, find: FindOwner) -> tuple[Owner, ...]:
    """The owners of a pod, the nearest first; the pod itself where it has none.

    KAI follows the first reference of the pod, and the only one of each owner. Raises
    GroupingError for an owner with several owners. Differs: an owner that is not found ends the
    chain by the reference to it; KAI makes no group then.
    """
    references = pod.metadata.owner_references
    chain: list[Owner] = []
    while references:
        if chain and len(references) > 1:
            last = chain[-1]
            raise GroupingError(f"found {last.kind} {last.title} with multiple owners")
        if len(chain) == _DEPTH_MAX:
            raise GroupingError(f"owners of pod {pod.key} form a circle")
        chain.append(_owner(references[0], pod, find))
        references = chain[-1].metadata.owner_references
    return tuple(chain) or (owner_of_pod(pod),)


def _owner(reference: OwnerReference, pod: Pod, find: FindOwner) -> Owner:
    found = find(reference, pod.namespace)
    if found is not None and _is_same(found.metadata.uid, reference.uid):
        return found
    meta = ObjectMeta(
        name=reference.name,
        namespace=pod.namespace,
        uid=reference.uid,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
    )
    return Owner(reference.api_version, reference.kind, meta, is_known=False)


def _is_same(uid: str, referred: str) -> bool:
    """Objects of files have no uid, and references to them may have none."""
    return not uid or not referred or uid == referred


def check_not_skipped(pod: Pod, chain: tuple[Owner, ...]) -> None:
    """Raises GroupingSkipped where the pod-grouper leaves a pod alone."""
    for notes, what in (
        (pod.metadata.annotations, f"pod {pod.key}"),
        *((owner.annotations, f"{owner.kind} {owner.title}") for owner in chain if owner.is_known),
    ):
        if notes.get(SKIP) == "true":
            raise GroupingSkipped(
                f"{what} has the annotation {SKIP}, and its pods name no PodGroup"
            )
