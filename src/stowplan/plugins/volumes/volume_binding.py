"""VolumeBinding: a pod runs where its claims' volumes are accessible or can be provisioned.

PreFilter classifies the claims, Filter searches volumes node by node or for all nodes at once
(`volume_search`), Reserve assumes the bindings and provisions (`volume_reservation`), and PreBind
writes them and waits until the claims are bound.

Source: kube-scheduler v1.36, plugins/volumebinding.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    ConfigError,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    ObjectStore,
    PreBindWait,
    Problem,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
)
from stowplan.framework.clusterevents import RegisteredEvents
from stowplan.framework.deciders.kernel_terms import DeviceTerms, KernelTerm, NodeRules
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import QuantityError, value
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.utilization_shape import (
    POINT_SCORE_MAX,
    UTILIZATION_MAX,
    UtilizationShapePoint,
    piecewise_linear_scores,
    shape_problems,
)
from stowplan.plugins.volumes.claims.bound_claims import bound_claims
from stowplan.plugins.volumes.claims.claim_kinds import ClaimKinds
from stowplan.plugins.volumes.claims.unbound_claims import VolumesForClass, unbound_claims
from stowplan.plugins.volumes.hints import volume_binding_events
from stowplan.plugins.volumes.volume_claims import (
    NO_STATE,
    binding_mode_missing_message,
    claims_signature,
    find_claim,
    has_storage,
    is_fully_bound,
    not_found_message,
    ownership_error,
    requested_size,
    storage_class_of,
    volume_uses_of,
    waits_for_first_consumer,
)
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_reservation import (
    AssumedPodVolumes,
    assume_pod_volumes,
    binding_error,
    check_bindings,
)
from stowplan.plugins.volumes.volume_search import (
    BIND_CONFLICT,
    FIRST_FAULT_CODE,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    PV_NOT_EXIST,
    PodVolumeBindings,
    VolumeBindingError,
    VolumeSearch,
)

REASONS = {
    NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    PV_NOT_EXIST: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
UNBOUND_IMMEDIATE_CLAIMS = unresolvable("pod has unbound immediate PersistentVolumeClaims")
DEADLINE_EXCEEDED = binding_error("context deadline exceeded")

DEFAULT_SHAPE = (
    UtilizationShapePoint(0, POINT_SCORE_MAX),
    UtilizationShapePoint(UTILIZATION_MAX, 0),
)


class VolumeBindingArgs(PluginArgs, frozen=True):
    """bind_timeout_seconds: limit of binding. shape: score by utilization, increasing; only with
    the feature gate StorageCapacityScoring."""

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments."""
        if self.bind_timeout_seconds < 0:
            yield Problem(f"{path}.bindTimeoutSeconds", str(self.bind_timeout_seconds), "0 or more")
        if self.shape:
            yield from shape_problems(self.shape, f"{path}.shape")


class VolumeBindingState:
    """Result of PreFilter; `found` is cached per node."""

    def __init__(self, search: VolumeSearch | None, nodes: NodeTable | None) -> None:
        """search, nodes: None for a pod without claims."""
        self.search = search
        self._nodes = nodes
        self._found: dict[str, PodVolumeBindings] = {}

    def found(self, node_name: str) -> PodVolumeBindings:
        """The bindings on a node; raises VolumeBindingError."""
        if self.search is None or self._nodes is None:
            return PodVolumeBindings()
        found = self._found.get(node_name)
        if found is None:
            row = self._nodes.row(node_name)
            found = self.search.on_node(self._nodes.nodes[row]) if row >= 0 else PodVolumeBindings()
            self._found[node_name] = found
        return found


NO_VOLUME_BINDING_STATE = VolumeBindingState(None, None)


class VolumeBinding:
    """Filter, Reserve and PreBind for claims; Score by free storage behind a feature gate."""

    name = "VolumeBinding"
    declaration = Plugin(
        name=name,
        by_outline=True,
        reads=(
            PersistentVolume,
            PersistentVolumeClaim,
            StorageClass,
            CSINode,
            CSIDriver,
            CSIStorageCapacity,
        ),
        repeatable=True,
        rests_when_skipped=True,
        perform_in_parallel=True,
    )
    Args = VolumeBindingArgs
    RESERVED = "VolumeBinding/reserved"

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        """Raises ConfigError for a shape without its feature gate."""
        self.args = args
        self._shared = handle.shared
        handle.shared.read_from_start(ClaimKinds.of)
        self._scores = handle.gates.storage_capacity_scoring
        if args.shape is not None and not self._scores:
            wanted = "nothing, or the feature gate StorageCapacityScoring turned on"
            raise ConfigError("VolumeBindingArgs", [Problem("shape", "a shape", wanted)])
        self._line = piecewise_linear_scores(args.shape or DEFAULT_SHAPE)

    # Before any node.

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without claims and disks."""
        return has_storage(pod)

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Classify the claims. Refuses a pod with a claim that is missing, lost, being deleted or
        waiting for its volume; Skip for a pod without claims."""
        object_store = snapshot.object_store
        if not pod.spec.volumes or not volume_uses_of(pod.spec).claims:
            state.write(self.name, NO_VOLUME_BINDING_STATE)
            return SKIP
        claims, refusal = pod_claims(pod, object_store)
        if refusal:
            return unresolvable(refusal)
        bound = [claim for claim in claims if is_fully_bound(claim)]
        unbound = [claim for claim in claims if not is_fully_bound(claim)]
        waits = [waits_for_first_consumer(object_store, claim) for claim in unbound]
        if None in waits:
            return error(binding_mode_missing_message(storage_class_of(unbound[waits.index(None)])))
        if not all(waits) or any(claim.spec.volume_name for claim in unbound):
            return UNBOUND_IMMEDIATE_CLAIMS
        try:
            search = VolumeSearch(object_store, VolumeIndex.of(object_store), bound, unbound)
        except QuantityError as fault:
            return error(str(fault))
        state.write(self.name, VolumeBindingState(search, snapshot.nodes))
        if not unbound:
            alike = bound_claims(pod, object_store)
            if alike is not None:
                state.row_signatures[self.name] = alike
        return OK

    # One node.

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where every claim has an accessible volume or can be provisioned."""
        volumes: VolumeBindingState | None = state.find(self.name)
        if volumes is None:
            return NO_STATE
        if volumes.search is None:
            return OK
        try:
            conflicts = volumes.search.on_node(node.node).conflicts
        except VolumeBindingError as fault:
            return error(str(fault))
        return conflict_status(conflicts) if conflicts else OK

    # Every node.

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        volumes: VolumeBindingState | None = state.find(self.name)
        if volumes is None:
            return np.full(n_rows_of(rows), FIRST_FAULT_CODE, dtype=np.int64)
        if volumes.search is None:
            return np.zeros(n_rows_of(rows), dtype=np.int64)
        return volumes.search.column(nodes, rows)

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, of a code of `filter_column`."""
        volumes: VolumeBindingState | None = state.find(self.name)
        if volumes is None or volumes.search is None:
            return NO_STATE
        if code >= FIRST_FAULT_CODE:
            return error(volumes.search.faults[code - FIRST_FAULT_CODE])
        return conflict_status(code)

    # Scoring.

    def pre_score(self) -> Status:
        """Skip, unless the feature gate StorageCapacityScoring is on."""
        return OK if self._scores else SKIP

    def score(self, node: NodeInfo, state: CycleState) -> int:
        """The shape's score for the share of the storage that the pod would use, 0 to 100.

        Unproved: no recorded answer has the feature gate on.
        """
        volumes: VolumeBindingState | None = state.find(self.name)
        if volumes is None or not self._scores:
            return 0
        return storage_score(requested_and_capacity_by_class(volumes.found(node.name)), self._line)

    # After the node is chosen.

    def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Assume the bindings and provisions, so that the next pods see them."""
        if self.reserved(state) is not None:
            # Kernels have reserved for pods that they placed.
            return OK
        volumes: VolumeBindingState | None = state.find(self.name)
        if volumes is None:
            return NO_STATE
        reserved = assume_pod_volumes(volumes.found(node_name), node_name)
        reserved.apply(self._shared.object_store)
        state.write(self.RESERVED, reserved)
        return OK

    def unreserve(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """Revert the assumed bindings. What was written by then remains."""
        reserved = self.reserved(state)
        if reserved is not None:
            reserved.revert(self._shared.object_store)
            state.write(self.RESERVED, None)

    def pre_bind_pre_flight(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Success where something has to be bound or provisioned."""
        reserved = self.reserved(state)
        if reserved is None or reserved.node_name != node_name:
            return error(f'no pod volume found for node "{node_name}"')
        return SKIP if reserved.is_empty else OK

    def pre_bind(self, pod: Pod, node_name: str, state: CycleState) -> Status | PreBindWait:
        """Write the changes, and wait until the claims are bound."""
        reserved = self.reserved(state)
        if reserved is None or reserved.node_name != node_name:
            return error(f'no pod volume found for node "{node_name}"')
        if reserved.is_empty:
            return OK
        return PreBindWait(
            reserved.changes, self.args.bind_timeout_seconds, DEADLINE_EXCEEDED.message
        )

    def pre_bind_progress(
        self, pod: Pod, node_name: str, snapshot: Snapshot, state: CycleState
    ) -> Status:
        """Success when every claim is bound, Wait until then, an error when one cannot be bound."""
        row = snapshot.nodes.row(node_name)
        if row < 0:
            return binding_error(
                f'failed to get node "{node_name}": {not_found_message("node", node_name)}'
            )
        reserved = state.read(self.RESERVED, AssumedPodVolumes)
        return check_bindings(reserved, snapshot.object_store, snapshot.nodes.nodes[row])

    def reserved(self, state: CycleState) -> AssumedPodVolumes | None:
        """The assumed volumes of Reserve; None before it, and after Unreserve."""
        reserved: AssumedPodVolumes | None = state.find(self.RESERVED)
        return reserved

    def bindings(self, state: CycleState, node_name: str) -> dict[str, list[Any]]:
        """The decisions about the claims on a node that passed.

        static: [claim, volume] to be bound. dynamic: claims to be provisioned. Absent when empty.
        """
        volumes = state.read(self.name, VolumeBindingState)
        found = volumes.found(node_name)
        static = [[claim.name, volume.name] for claim, volume in found.static]
        dynamic = [provision.claim.name for provision in found.dynamic]
        return {k: v for k, v in (("static", static), ("dynamic", dynamic)) if v}

    def explain(self, pod: Pod, node: NodeInfo, state: CycleState) -> list[str]:
        """Per conflict, the claim and its need."""
        volumes: VolumeBindingState | None = state.find(self.name)
        if volumes is None or volumes.search is None:
            return []
        try:
            return list(volumes.search.on_node(node.node).why)
        except VolumeBindingError as fault:
            return [str(fault)]

    def events_to_register(self) -> RegisteredEvents:
        """Claims, volumes, classes, nodes, drivers or their capacity are added or changed."""
        return volume_binding_events()

    def signature(self, pod: Pod) -> object:
        """The claims."""
        return claims_signature(pod)

    def claims_signature(self, pod: Pod, object_store: ObjectStore) -> Hashable | None:
        """Equal for pods with claims that are bound to volumes of the same kinds, and for pods with
        claims that ask for the same."""
        return bound_claims(pod, object_store) or unbound_claims(pod, object_store)

    def kernel_terms(self, pod: Pod, snapshot: Snapshot) -> tuple[KernelTerm, ...] | None:
        """A rule about nodes where all claims are bound; where some wait for their first consumer,
        the volumes that nodes have for them; None where they have to be looked at by name."""
        store = snapshot.object_store
        if self._scores:
            return None
        if bound_claims(pod, store) is not None:
            return (NodeRules(),)
        claims = unbound_claims(pod, store)
        if claims is None:
            return None
        return (DeviceTerms(VolumesForClass(claims, pod, store, self.RESERVED)),)


def pod_claims(pod: Pod, object_store: ObjectStore) -> tuple[list[PersistentVolumeClaim], str]:
    """The pod's claims in the order of its volumes, or why one of them cannot be used."""
    claims: list[PersistentVolumeClaim] = []
    for use in volume_uses_of(pod.spec).claims:
        name = use.claim_name(pod)
        claim = find_claim(object_store, pod, name)
        if claim is None:
            if use.is_ephemeral:
                waiting = "waiting for ephemeral volume controller to create the"
                return [], f'{waiting} persistentvolumeclaim "{name}"'
            return [], not_found_message("persistentvolumeclaim", name)
        if claim.status.phase == "Lost":
            gone = f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
            return [], f'persistentvolumeclaim "{name}" {gone}'
        if claim.metadata.deletion_timestamp is not None:
            return [], f'persistentvolumeclaim "{name}" is being deleted'
        foreign = ownership_error(pod, claim) if use.is_ephemeral else ""
        if foreign:
            return [], foreign
        claims.append(claim)
    return claims, ""


def conflict_status(conflicts: int) -> Status:
    """The refusal for a node with these conflicts.

    Unresolvable: evicting pods frees no volume.
    """
    return unresolvable(*(text for bit, text in REASONS.items() if conflicts & bit))


def requested_and_capacity_by_class(found: PodVolumeBindings) -> dict[str, tuple[int, int]]:
    """Storage class -> (requested bytes, capacity), of the volumes to be bound, or of those to be
    provisioned if there are none.

    Differs: the original breaks down where a capacity gives only its maximum volume size, or a
    claim names its class by annotation; here these count as 0 bytes and as that class.
    """
    storage: dict[str, tuple[int, int]] = {}
    for claim, volume in found.static:
        name = volume.spec.storage_class_name
        asked, there = storage.get(name, (0, 0))
        size = value(volume.spec.capacity.get("storage", 0))
        storage[name] = asked + value(requested_size(claim) or 0), there + size
    if found.static:
        return storage
    for provision in found.dynamic:
        if provision.capacity is None:
            continue
        name = provision.claim.spec.storage_class_name or storage_class_of(provision.claim)
        asked = storage.get(name, (0, 0))[0] + value(requested_size(provision.claim) or 0)
        # The same storage serves all claims of a class, so it counts once.
        storage[name] = asked, value(provision.capacity.capacity or 0)
    return storage


def storage_score(storage: dict[str, tuple[int, int]], line: Ints) -> int:
    """The mean of the classes' scores, rounded half up. line: int64 (101,): score by percent."""
    if not storage:
        return 0
    total = sum(int(line[_utilization_percent(*sizes)]) for sizes in storage.values())
    return (2 * total + len(storage)) // (2 * len(storage))


def _utilization_percent(asked: int, there: int) -> int:
    """Percent, 0 to 100; a request above the capacity counts as 100."""
    if there == 0 or asked > there:
        return UTILIZATION_MAX
    return max(0, asked * UTILIZATION_MAX // there)
