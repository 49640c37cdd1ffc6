"""Pod admission of the kubelet: checks once more whether a bound pod fits its node.

A pod that does not fit fails at once and is not retried: the scheduler was wrong about the node, or
another one was faster.

Source: kubelet v1.36, pkg/kubelet/lifecycle/predicate.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.objects.quantity import amount
from stowplan.objects.selectors import node_selector_matches
from stowplan.objects.taints import is_tolerated

Key = tuple[str, str]
Port = tuple[str, int]


GPU_RESOURCES = ("nvidia.com/", "amd.com/", "volcano.sh/vgpu-", "aliyun.com/gpu-mem")
"""Prefixes of resources that device plugins offer. Others may be set by hand on a node."""


@dataclass(frozen=True, slots=True)
class PodAdmitFailure:
    """Why a pod is rejected: `status.reason` and `status.message`."""

    reason: str
    message: str


class DeviceManager(Protocol):
    """The devices that a pod has been given before it came to its node, such as parts of GPUs."""

    def refusal(self, pod: Pod, node: Node) -> str:
        """Why the node's device plugins cannot give them, "" if they can."""
        ...

    def admit(self, pod: Pod) -> None:
        """Count the devices of a pod on its node, once."""

    def release(self, key: str, node: str) -> None:
        """Give back the devices of a pod, by its namespace and name."""

    def answers(self, pod: Pod, *, is_served: bool) -> dict[str, str]:
        """The annotations that the node's device plugins set on a pod that they have served, or
        could not serve."""
        ...

    def released_locks(self, pod: Pod, node_annotations: Mapping[str, str]) -> Sequence[str]:
        """The annotations of the node that they then remove."""
        ...


class AdmittedPods:
    """Resources that the admitted pods of a node use, updated by delta."""

    def __init__(self) -> None:
        self._held: dict[Key, tuple[Mapping[str, int], frozenset[Port]]] = {}
        self.used: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: Key) -> bool:
        return key in self._held

    def admit(self, key: Key, pod: Pod) -> None:
        """Add a pod, once."""
        if key in self._held:
            return
        self._add(key, (fit_requests(pod), frozenset(_host_ports(pod))))

    def _add(self, key: Key, held: tuple[Mapping[str, int], frozenset[Port]]) -> None:
        self._held[key] = held
        for name, n in held[0].items():
            self.used[name] = self.used.get(name, 0) + n

    def release(self, key: Key) -> bool:
        """Remove a pod; False if it was not admitted."""
        held = self._held.pop(key, None)
        for name, n in held[0].items() if held else ():
            self.used[name] -= n
        return held is not None

    def resize(self, key: Key, pod: Pod, node: Node) -> PodAdmitFailure | None:
        """Count a pod with other requests; why `node` lacks them, and then it counts as before."""
        before = self._held.get(key)
        self.release(key)
        found = _insufficient_resource(pod, node, self)
        if found is None:
            self.admit(key, pod)
        elif before is not None:
            self._add(key, before)
        return found

    def holds_port(self, ports: frozenset[Port]) -> bool:
        """True if an admitted pod uses one of these host ports."""
        return bool(ports) and any(ports & theirs for _, theirs in self._held.values())


def check_admit(
    pod: Pod, node: Node, account: AdmittedPods, devices: DeviceManager | None = None
) -> PodAdmitFailure | None:
    """Why `node` rejects `pod` beside its admitted pods; None if it fits.

    Devices are allocated before anything else is checked, as in the kubelet.
    """
    why = "" if devices is None else devices.refusal(pod, node)
    if why:
        return unexpected_admission_error(why)
    found = _insufficient_resource(pod, node, account)
    if found is not None:
        return found
    if not _matches_node_affinity(pod, node):
        text = "node(s) didn't match Pod's node affinity/selector"
        return _predicate_failure("NodeAffinity", text)
    if account.holds_port(frozenset(_host_ports(pod))):
        return _predicate_failure(
            "NodePorts", "node(s) didn't have free ports for the requested pod ports"
        )
    no_execute = [taint for taint in node.taints if taint.effect == "NoExecute"]
    if not all(is_tolerated(taint, pod.spec.tolerations) for taint in no_execute):
        return _predicate_failure("TaintToleration", "node(s) had untolerated taint(s)")
    return None


def _insufficient_resource(pod: Pod, node: Node, account: AdmittedPods) -> PodAdmitFailure | None:
    """The first insufficient resource; the number of pods is checked first.

    Source for extended resources: predicate.go, removeMissingExtendedResources.
    """
    room = {name: amount(name, q) for name, q in node.status.allocatable.items()}
    if len(account) + 1 > room.get("pods", 0):
        return _out_of("pods", 1, len(account), room.get("pods", 0))
    wanted = fit_requests(pod)
    for name in sorted(wanted, key=_resource_order):
        if "/" in name and name not in room:
            # An extended resource that the node does not know is the scheduler's affair.
            continue
        used = account.used.get(name, 0)
        if wanted[name] and used + wanted[name] > room.get(name, 0):
            if name.startswith(GPU_RESOURCES):
                return unexpected_admission_error(
                    f"requested number of devices unavailable for {name}. "
                    f"Requested: {wanted[name]}, Available: {max(room.get(name, 0) - used, 0)}"
                )
            return _out_of(name, wanted[name], used, room.get(name, 0))
    return None


def _resource_order(resource: str) -> tuple[int, str]:
    first = ("cpu", "memory", "ephemeral-storage")
    return (first.index(resource) if resource in first else len(first), resource)


def unexpected_admission_error(why: str) -> PodAdmitFailure:
    """The failure of a pod whose devices could not be allocated."""
    text = f"Pod was rejected: Allocate failed due to {why}, which is unexpected"
    return PodAdmitFailure("UnexpectedAdmissionError", text)


def _out_of(resource: str, wanted: int, used: int, capacity: int) -> PodAdmitFailure:
    text = (
        f"Pod was rejected: Node didn't have enough resource: {resource}, requested: {wanted}, "
        f"used: {used}, capacity: {capacity}"
    )
    return PodAdmitFailure(f"OutOf{resource}", text)


def _predicate_failure(name: str, why: str) -> PodAdmitFailure:
    return PodAdmitFailure(name, f"Pod was rejected: Predicate {name} failed: {why}")


def _matches_node_affinity(pod: Pod, node: Node) -> bool:
    selector = pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return required is None or node_selector_matches(required, node.labels, node.name)


def _host_ports(pod: Pod) -> set[Port]:
    """Protocol and number of the host ports; Differs: host IPs are ignored."""
    return {
        (port.protocol or "TCP", port.host_port)
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port
    }
