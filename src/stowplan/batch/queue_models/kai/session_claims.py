"""Resource claims in a session of KAI-Scheduler: which pod has which devices, as placements and
evictions of the session change it.

A pod remembers what its claims were allocated when it was placed, so that an eviction that is
undone gives the same devices back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask, is_gpu_class
from stowplan.objects.devices.device_claim import (
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimStatus,
)
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import node_selector_matches

QUEUE_LABEL = "kai.scheduler/queue"
CONSUMERS_MAX = 256
INT64_MAX = 2**63 - 1

Allocate = Callable[
    [Sequence[ResourceClaim], KaiNode, Iterable[ResourceClaim]],
    Sequence[AllocationResult] | None,
]
"""Devices of a node for claims, one result each, beside all claims of the cluster; None if there
are not enough."""


def claim_keys(pod: Pod) -> dict[str, str | None]:
    """Name in the pod -> key of the claim, None while one from a template is not made."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    keys: dict[str, str | None] = {}
    for one in pod.spec.resource_claims:
        name = one.resource_claim_name or made.get(one.name)
        keys[one.name] = f"{pod.metadata.namespace}/{name}" if name else None
    return keys


def claimed_gpus(claims: Iterable[ResourceClaim]) -> dict[str, int]:
    """GPUs that claims ask for, by device class; a claim with several classes counts for the first.
    Sums stay within int64."""
    counts: dict[str, int] = {}
    for claim in claims:
        exact = [one.exactly for one in claim.spec.devices.requests if one.exactly is not None]
        gpus = [one for one in exact if is_gpu_class(one.device_class_name)]
        total = 0
        for one in gpus:
            if one.allocation_mode == "ExactCount":
                total += one.count if one.count > 0 else 1
            elif one.allocation_mode == "All":
                # How many these are is known once they are allocated.
                total += 1
        if gpus and total > 0:
            name = gpus[0].device_class_name
            counts[name] = min(INT64_MAX, counts.get(name, 0) + total)
    return counts


class SessionClaims:
    """The claims of a session, by key."""

    def __init__(
        self, claims: Iterable[ResourceClaim], classes: Iterable[str], allocate: Allocate
    ) -> None:
        """classes: names of the device classes."""
        self.claims: dict[str, ResourceClaim] = {claim.key: claim for claim in claims}
        self._classes = frozenset(classes)
        self._allocate = allocate

    def of(self, pod: Pod) -> list[ResourceClaim]:
        """The claims of a pod that are there."""
        found = (self.claims.get(key) for key in claim_keys(pod).values() if key is not None)
        return [claim for claim in found if claim is not None]

    def read_devices(self, task: KaiTask) -> None:
        """Note what a pod's claims are allocated when the session opens."""
        for name, key in claim_keys(task.pod).items():
            claim = self.claims.get(key or "")
            if claim is not None:
                task.devices = {**task.devices, name: claim.status.allocation}

    def problem(self, task: KaiTask, queue: str) -> str:
        """Why a pod may not start for its claims, "" if it may.

        A GPU claim that is not from a template belongs to the queue that its label names."""
        from_template = {
            one.name: one.resource_claim_template_name
            for one in task.pod.spec.resource_claims
            if not one.resource_claim_name
        }
        for name, key in claim_keys(task.pod).items():
            if key is None:
                template = from_template.get(name)
                return f'no ResourceClaim is made yet from ResourceClaimTemplate "{template}"'
            namespace, _, plain = key.partition("/")
            claim = self.claims.get(key)
            if claim is None:
                return f'resourceclaims "{plain}" not found in namespace "{namespace}"'
            text = self._problem_of(claim, None if name in from_template else queue)
            if text:
                return f'resourceclaims "{plain}" in namespace "{namespace}": {text}'
        return ""

    def _problem_of(self, claim: ResourceClaim, queue: str | None) -> str:
        """queue: that a claim for GPUs is to name; None where it need not."""
        if len(claim.status.reserved_for) >= CONSUMERS_MAX:
            return f"reserved for {CONSUMERS_MAX} pods, the most that one may have"
        exact = [one.exactly for one in claim.spec.devices.requests if one.exactly is not None]
        named = claim.metadata.labels.get(QUEUE_LABEL, "")
        is_gpu = any(is_gpu_class(one.device_class_name) for one in exact)
        if is_gpu and queue is not None and named != queue:
            return f'label {QUEUE_LABEL} is "{named}", not "{queue}", the queue of the pod'
        unknown = [
            one.device_class_name for one in exact if one.device_class_name not in self._classes
        ]
        if claim.status.allocation is None and unknown:
            return f'deviceclasses "{unknown[0]}" not found'
        return ""

    def fit(self, task: KaiTask, node: KaiNode) -> bool:
        """Whether a node has devices for a pod's claims, or can use those that they have."""
        missing: list[ResourceClaim] = []
        for claim in self.of(task.pod):
            allocation = claim.status.allocation
            if allocation is None:
                missing.append(claim)
                continue
            selector = allocation.node_selector
            if selector is not None and not node_selector_matches(
                selector, node.node.labels, node.name
            ):
                return False
        return not missing or self._allocate(missing, node, self.claims.values()) is not None

    def allocate(self, task: KaiTask, node: KaiNode) -> None:
        """A pod got a place: its claims are reserved for it and allocated, with the devices that it
        had if it had any."""
        for name, key in claim_keys(task.pod).items():
            claim = self.claims.get(key or "")
            if claim is None:
                continue
            allocation = task.devices.get(name) or claim.status.allocation
            if allocation is None:
                found = self._allocate([claim], node, self.claims.values())
                if not found:
                    continue
                allocation = found[0]
            consumers = claim.status.reserved_for
            if not claim.is_reserved_for(task.pod.uid):
                consumers = (*consumers, _consumer(task.pod))
            self._set(claim, allocation, consumers)
            task.devices = {**task.devices, name: allocation}

    def release(self, task: KaiTask) -> None:
        """A pod lost its place: its claims are deallocated unless others use them."""
        for name, key in claim_keys(task.pod).items():
            claim = self.claims.get(key or "")
            if claim is None:
                continue
            consumers = tuple(one for one in claim.status.reserved_for if one.uid != task.pod.uid)
            allocation = claim.status.allocation if consumers else None
            self._set(claim, allocation, consumers)
            if name in task.devices:
                task.devices = {**task.devices, name: allocation}

    def _set(
        self,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        consumers: tuple[ConsumerReference, ...],
    ) -> None:
        status = msgspec.structs.replace(
            claim.status, allocation=allocation, reserved_for=consumers
        )
        self.claims[claim.key] = msgspec.structs.replace(claim, status=status)


def _consumer(pod: Pod) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def claims_after(
    before: Mapping[str, ResourceClaim],
    session: SessionClaims,
    bound: Iterable[KaiTask],
    gone: Iterable[KaiTask],
) -> list[ResourceClaim]:
    """Claims once a session's decisions have taken effect: pods that were bound keep what they got,
    and claims of pods that are gone are free unless others use them."""
    kept = SessionClaims(before.values(), (), lambda *_: None)
    for task in gone:
        kept.release(task.clone())
    for task in bound:
        for claim in session.of(task.pod):
            held = kept.claims[claim.key]
            consumers = held.status.reserved_for
            if not held.is_reserved_for(task.pod.uid):
                consumers = (*consumers, _consumer(task.pod))
            status = ResourceClaimStatus(claim.status.allocation, consumers)
            kept.claims[claim.key] = msgspec.structs.replace(held, status=status)
    return list(kept.claims.values())
