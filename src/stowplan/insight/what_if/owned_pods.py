"""Owned pods: copies that controllers create again, and which pods a controller deletes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod, PodSpec, PodStatus

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MIRROR = "kubernetes.io/config.mirror"
_EARLIEST = datetime.min.replace(tzinfo=UTC)


def is_of_daemon_set(pod: Pod) -> bool:
    """True for a pod of a DaemonSet."""
    return pod.controller is not None and pod.controller.kind == "DaemonSet"


def is_static(pod: Pod) -> bool:
    """True for the mirror of a static pod: its kubelet runs it, whatever the API says."""
    owner = pod.controller
    return MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "Node")


def is_created_again(pod: Pod) -> bool:
    """True for a pod that its controller replaces on another node."""
    return pod.controller is not None and not is_of_daemon_set(pod) and not is_static(pod)


class PodCopies:
    """Pods as their controllers create them again, under the same name.

    Pods of one template share a spec, so that they are decided together.
    """

    def __init__(self) -> None:
        self._specs: dict[bytes, PodSpec] = {}

    def spec(self, spec: PodSpec) -> PodSpec:
        """The spec without a node, shared with equal ones."""
        bare = replace(spec, node_name="") if spec.node_name else spec
        return self._specs.setdefault(msgspec.msgpack.encode(bare), bare)

    def again(self, pod: Pod) -> Pod:
        """The pod without node and status; it arrives after all others."""
        meta = replace(
            pod.metadata,
            uid=f"{pod.uid}#1",
            creation_timestamp=None,
            deletion_timestamp=None,
            resource_version="",
        )
        return Pod(meta, self.spec(pod.spec), PodStatus())

    def another(self, pod: Pod, name: str) -> Pod:
        """Another pod of the same template."""
        meta = pod.metadata
        fresh = ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=meta.annotations,
            owner_references=meta.owner_references,
        )
        return Pod(fresh, self.spec(pod.spec), PodStatus())


def free_names(stem: str, namespace: str, taken: Iterable[str], n_names: int) -> list[str]:
    """STEM-0, STEM-1 and so on, without names in use. taken: keys of pods."""
    used = taken if isinstance(taken, dict | set) else set(taken)
    found: list[str] = []
    index = 0
    while len(found) < n_names:
        if f"{namespace}/{stem}-{index}" not in used:
            found.append(f"{stem}-{index}")
        index += 1
    return found


def deletion_order(pods: list[Pod]) -> list[Pod]:
    """Pods in the order in which a ReplicaSet would delete them.

    Pending pods first, then by deletion cost, then those of the node with most of them, then the
    newest. Source: kube-controller-manager v1.36, pkg/controller ActivePodsWithRanks; the ages of
    readiness and restarts are not compared.
    """
    on_node = Counter(pod.node_name for pod in pods if pod.node_name)

    def rank(place: int) -> tuple[bool, int, int, float, int]:
        pod = pods[place]
        created = pod.metadata.creation_timestamp or _EARLIEST
        cost = pod.metadata.annotations.get(DELETION_COST, "0")
        points = int(cost) if cost.lstrip("-").isdecimal() else 0
        age = -(created - _EARLIEST).total_seconds()
        return bool(pod.node_name), points, -on_node[pod.node_name], age, -place

    return [pods[place] for place in sorted(range(len(pods)), key=rank)]
