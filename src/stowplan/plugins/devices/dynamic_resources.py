"""DynamicResources: resource claims of pods.

Claims are not allocated yet. A pod without resource claims passes as in the original, down to the
message that PostFilter adds to every refusal. A pod with claims is refused, so that it never runs
without its devices.

Source: kube-scheduler v1.36, plugins/dynamicresources; dynamic-resource-allocation resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    Handle,
    NodeTable,
    ObjectStore,
    PostFilterResult,
    Problem,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import (
    DEVICE_CLASS,
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.devices.device import DeviceClass, ResourceClaim, ResourceSlice
from stowplan.objects.pod import Pod, PodResourceClaim
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import default_normalize_score, n_rows_of
from stowplan.plugins.pod_hints import queueing_hint


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """filter_timeout: limit of the device search per node, 0 for none. binding_timeout: limit until
    devices are ready. Both are validated and have no effect yet."""

    filter_timeout: timedelta = timedelta(seconds=10)
    binding_timeout: timedelta = timedelta(seconds=600)

    def problems(self, path: str) -> Iterator[Problem]:
        """Timeouts that are too short."""
        for name, length, least_s in (
            ("filterTimeout", self.filter_timeout, 0),
            ("bindingTimeout", self.binding_timeout, 1),
        ):
            if length.total_seconds() < least_s:
                got = f"{length.total_seconds():g}s"
                yield Problem(f"{path}.{name}", got, f"{least_s}s or more")


_ADD_OR_UPDATE = Action.ADD | Action.UPDATE
NO_RESOURCE_CLAIMS: tuple[str, ...] = ()


class DynamicResources:
    """Skips pods without resource claims and refuses the others."""

    name = "DynamicResources"
    declaration = Plugin(
        name=name,
        weight=2,
        reads=(ResourceClaim, DeviceClass, ResourceSlice),
        repeatable=True,
        rests_when_skipped=True,
    )
    Args = DynamicResourcesArgs
    # Differs: the original allocates devices. Device classes that provide extended resources are
    # not read either: such resources are read from the nodes only. Unresolvable: evicting pods does
    # not help, since no claim is allocated.
    REJECTED = unresolvable("resource claims are not supported yet, so the pod would lack devices")
    NO_STATE = error("not found")
    NOTHING_TO_DEALLOCATE = unschedulable("no new claims to deallocate")
    NOTHING_HELPS = unschedulable("still not schedulable")
    DISABLED = unschedulable("plugin disabled")

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self.args = args
        self.handle = handle
        self._is_enabled = handle.gates.dynamic_resource_allocation

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success once every claim of the pod exists and, if generated, belongs to the pod."""
        if not pod.spec.resource_claims or not self._is_enabled:
            return OK
        claims = self._claims(pod)
        return claims if isinstance(claims, Status) else OK

    def events_to_register(self) -> RegisteredEvents:
        """Claims, classes, slices or nodes are added or changed."""
        if not self._is_enabled:
            return ()
        of_nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        return (
            on(NODE, of_nodes),
            on(RESOURCE_CLAIM, _ADD_OR_UPDATE, self._after_claim),
            on(POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._after_pod),
            on(DEVICE_CLASS, _ADD_OR_UPDATE),
            on(RESOURCE_SLICE, _ADD_OR_UPDATE),
        )

    def _claims(self, pod: Pod) -> tuple[ResourceClaim, ...] | Status:
        return resource_claims_of(pod, self.handle.shared.object_store)

    def _after_claim(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> QueueingHint:
        claims = self._claims(pod)
        if isinstance(claims, Status):
            return QUEUE_SKIP
        # Devices that another claim releases may serve this pod.
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return QUEUE_POD
        if not any(claim.metadata.uid == new.metadata.uid for claim in claims):
            return QUEUE_SKIP
        return queueing_hint(old is None or old.status != new.status)

    def _after_pod(self, pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and not isinstance(self._claims(new), Status))

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without claims."""
        return bool(pod.spec.resource_claims)

    def pre_filter(self, pod: Pod, state: CycleState) -> Status:
        """Skip for a pod without claims. Refuses a pod whose claims are not generated yet."""
        if not self._is_enabled:
            return SKIP
        # Written in any case: PostFilter fails where PreFilter did not run.
        state.write(self.name, NO_RESOURCE_CLAIMS)
        if not pod.spec.resource_claims:
            return SKIP
        names = []
        for use in pod.spec.resource_claims:
            name = resource_claim_name_of(pod, use)
            if isinstance(name, Status):
                return name
            if name is not None:
                names.append(name)
        state.write(self.name, tuple(names))
        return OK if names else SKIP

    def filter(self, state: CycleState) -> Status:
        """Success without claims."""
        if not self._is_enabled:
            return OK
        names: tuple[str, ...] | None = state.find(self.name)
        if names is None:
            return self.NO_STATE
        return self.REJECTED if names else OK

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `filter` is the same for every row."""
        return np.full(n_rows_of(rows), not self.filter(state).is_success, dtype=np.int64)

    def filter_status(self, state: CycleState) -> Status:
        """The refusal of a code of `filter_column`."""
        return self.filter(state)

    def may_help(self, pod: Pod, snapshot: Snapshot) -> bool:
        """False: no claim is deallocated."""
        return False

    def post_filter(self, state: CycleState) -> PostFilterResult:
        """Refuses: no claim is deallocated; an error where PreFilter did not run."""
        if not self._is_enabled:
            return PostFilterResult(self.DISABLED)
        names: tuple[str, ...] | None = state.find(self.name)
        if names is None:
            return PostFilterResult(self.NO_STATE)
        return PostFilterResult(self.NOTHING_HELPS if names else self.NOTHING_TO_DEALLOCATE)

    def score(self) -> int:
        """0: the score ranks alternatives among devices, and there are no devices."""
        return 0

    def score_column(self, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return np.zeros(n_rows_of(rows), dtype=np.int64)

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,): percentages of the highest score."""
        return default_normalize_score(scores)

    def reserve(self) -> Status:
        """Success: a pod with claims is refused before."""
        return OK

    def unreserve(self) -> None:
        """No effect: nothing was reserved."""

    def pre_bind(self) -> Status:
        """Success: there is nothing to allocate."""
        return OK

    def explain(self, pod: Pod, state: CycleState) -> list[str]:
        """The claims of the pod."""
        return [f"resource claims: needs {', '.join(state.find(self.name) or ())}"]

    def signature(self, pod: Pod) -> object:
        """The claims, their generated names and the pod's identity: some belong to one pod."""
        claims = pod.spec.resource_claims
        if not claims:
            return ()
        return claims, pod.status.resource_claim_statuses, pod.namespace, pod.uid


def resource_claim_name_of(pod: Pod, use: PodResourceClaim) -> str | Status | None:
    """The claim of an entry of the pod: None where none is needed, or a refusal."""
    if use.resource_claim_name is not None:
        return use.resource_claim_name
    if use.resource_claim_template_name is None:
        text = f'pod "{pod.key}", spec.resourceClaim "{use.name}"'
        return unresolvable(f"{text}: none of the supported fields are set")
    for made in pod.status.resource_claim_statuses:
        if made.name == use.name:
            return made.resource_claim_name
    return unresolvable(f'pod "{pod.key}": ResourceClaim not created yet')


def resource_claims_of(pod: Pod, object_store: ObjectStore) -> tuple[ResourceClaim, ...] | Status:
    """The claims of the pod, or the refusal where one is missing, being deleted or another
    pod's."""
    claims = []
    for use in pod.spec.resource_claims:
        name = resource_claim_name_of(pod, use)
        if isinstance(name, Status):
            return name
        if name is None:
            continue
        key = f"{pod.namespace}/{name}"
        claim = object_store.find(ResourceClaim, key)
        if claim is None:
            return unresolvable(f'could not find ResourceClaim "{key}"')
        if claim.metadata.deletion_timestamp is not None:
            return unresolvable(f'resourceclaim "{name}" is being deleted')
        owner = claim.controller
        if use.resource_claim_name is None and (owner is None or owner.uid != pod.uid):
            text = f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)"
            return unresolvable(text)
        claims.append(claim)
    return tuple(claims)
