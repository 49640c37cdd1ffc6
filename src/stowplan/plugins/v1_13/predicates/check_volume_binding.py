"""CheckVolumeBinding: a pod runs where its claims' volumes are accessible or can be provisioned.

Reserve and PreBind are those of VolumeBinding.

Source: Kubernetes v1.13, predicates.VolumeBindingChecker and
controller/volume/persistentvolume/scheduler_binder.go, index.go.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    NodeInfo,
    NodeTable,
    ObjectStore,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import QuantityError
from stowplan.objects.selectors import requirement_admits
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.plugins.volumes.volume_binding import VolumeBinding, VolumeBindingState
from stowplan.plugins.volumes.volume_claims import (
    SELECTED_NODE_ANNOTATION,
    binding_mode_missing_message,
    is_fully_bound,
    requested_size,
    size_nanos,
    storage_class_of,
    volume_uses_of,
    waits_for_first_consumer,
)
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_matching import VolumeCandidates, find_volume_candidates
from stowplan.plugins.volumes.volume_search import (
    BIND_CONFLICT,
    FIRST_FAULT_CODE,
    NO_PROVISIONER,
    NODE_CONFLICT,
    DynamicProvision,
    PodVolumeBindings,
    VolumeBindingError,
    smallest_matching_volume,
)
from stowplan.plugins.volumes.volume_topology import (
    ALL_NODES,
    AccessibleTopology,
    storage_class_topology,
    topology_admits,
)

REASONS = {
    NODE_CONFLICT: "node(s) had volume node affinity conflict",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
}
UNBOUND_IMMEDIATE_CLAIMS = "pod has unbound immediate PersistentVolumeClaims"


class ClaimBindingSearch:
    """The claims of one pod, classified. fault: why no node can be evaluated, "" for none. faults:
    the texts of codes."""

    def __init__(self, pod: Pod, object_store: ObjectStore) -> None:
        self._object_store = object_store
        self._bound: list[PersistentVolumeClaim] = []
        self._delayed: list[PersistentVolumeClaim] = []
        self._candidates: list[VolumeCandidates] = []
        self.faults: list[str] = []
        self.fault = self._sort_out(pod)
        if not self.fault:
            # Unproved: with more than twelve claims the original's sort may swap those of one size.
            self._delayed.sort(key=lambda claim: size_nanos(requested_size(claim)))
            self._candidates = [self._candidates_of(claim) for claim in self._delayed]

    def _sort_out(self, pod: Pod) -> str:
        immediate = False
        for use in volume_uses_of(pod.spec).claims:
            key = f"{pod.namespace}/{use.claim_name(pod)}"
            claim = self._object_store.find(PersistentVolumeClaim, key)
            if claim is None:
                return (
                    f'error getting PVC "{key}": {_not_found_error("PersistentVolumeClaim", key)}'
                )
            if is_fully_bound(claim):
                self._bound.append(claim)
                continue
            waits = self._waits(claim)
            if waits is None:
                return binding_mode_missing_message(storage_class_of(claim))
            if waits and not claim.spec.volume_name:
                self._delayed.append(claim)
            else:
                immediate = True
        return UNBOUND_IMMEDIATE_CLAIMS if immediate else ""

    def _waits(self, claim: PersistentVolumeClaim) -> bool | None:
        """True for a claim that waits for its first consumer; one with a selected node has had
        it."""
        if SELECTED_NODE_ANNOTATION in claim.metadata.annotations:
            return False
        return waits_for_first_consumer(self._object_store, claim)

    def _candidates_of(self, claim: PersistentVolumeClaim) -> VolumeCandidates:
        # Volumes are looked up by the class in the spec, and must be of the class that counts,
        # which an annotation may override; one that names the claim need not.
        index, looked_up = VolumeIndex.of(self._object_store), claim.spec.storage_class_name or ""
        naming = index.claimed.get((looked_up, claim.key), ())
        free = index.unclaimed.get(looked_up, ()) if looked_up == storage_class_of(claim) else ()
        return find_volume_candidates(claim, naming, free)

    def code(self, node: Node) -> int:
        """The conflicts on a node as bits, or FAULT and the place in `faults`."""
        try:
            return self.on_node(node).conflicts
        except VolumeBindingError as fault:
            if str(fault) not in self.faults:
                self.faults.append(str(fault))
            return FIRST_FAULT_CODE + self.faults.index(str(fault))

    def on_node(self, node: Node) -> PodVolumeBindings:
        """Evaluate one node; raises VolumeBindingError."""
        if self.fault:
            raise VolumeBindingError(self.fault)
        found = self._bound_on(node)
        static = []
        unmatched = []
        taken: set[str] = set()
        for claim, offered in zip(self._delayed, self._candidates, strict=True):
            if offered.fault:
                raise VolumeBindingError(offered.fault)
            volume = smallest_matching_volume(offered, node, taken, volume_node_topology)
            if volume is None:
                unmatched.append(claim)
            else:
                taken.add(volume.name)
                static.append((claim, volume))
        for claim in unmatched:
            if not self._provisions(claim, node):
                why = f"claim {claim.name}: no free volume fits, and its class makes none here"
                return found.but(BIND_CONFLICT, why)
        dynamic = tuple(DynamicProvision(claim, None) for claim in unmatched)
        return PodVolumeBindings(found.conflicts, tuple(static), dynamic, found.why)

    def _bound_on(self, node: Node) -> PodVolumeBindings:
        """The conflict of the first bound claim whose volume is not accessible from the node."""
        for claim in self._bound:
            name = claim.spec.volume_name
            volume = self._object_store.find(PersistentVolume, name)
            if volume is None:
                raise VolumeBindingError(_not_found_error("PersistentVolume", name))
            if not topology_admits(volume_node_topology(volume), node.labels):
                why = f"claim {claim.name}: needs volume {name}, which this node cannot reach"
                return PodVolumeBindings().but(NODE_CONFLICT, why)
        return PodVolumeBindings()

    def _provisions(self, claim: PersistentVolumeClaim, node: Node) -> bool:
        storage_class = self._object_store.find(StorageClass, storage_class_of(claim))
        if storage_class is None or storage_class.provisioner in NO_PROVISIONER:
            return False
        return topology_admits(storage_class_topology(storage_class), node.labels)


class CheckVolumeBindingState(VolumeBindingState):
    """Result of PreFilter, as VolumeBinding's Reserve reads it."""

    def __init__(self, state: ClaimBindingSearch, nodes: NodeTable) -> None:
        super().__init__(None, None)
        self.state = state
        self._table = nodes

    def found(self, node_name: str) -> PodVolumeBindings:
        """The bindings on a node; raises VolumeBindingError."""
        row = self._table.row(node_name)
        return self.state.on_node(self._table.nodes[row]) if row >= 0 else PodVolumeBindings()


class CheckVolumeBinding(VolumeBinding):
    """Filter on claims; Reserve and PreBind as VolumeBinding does."""

    name = "CheckVolumeBinding"
    declaration = msgspec.structs.replace(VolumeBinding.declaration, name=name)
    RESERVED = "CheckVolumeBinding/reserved"

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Classify the claims; Skip for a pod without claims."""
        if not volume_uses_of(pod.spec).claims:
            return SKIP
        try:
            search = ClaimBindingSearch(pod, snapshot.object_store)
        except QuantityError as fault:
            return error(str(fault))
        state.write(self.name, CheckVolumeBindingState(search, snapshot.nodes))
        return OK

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where every claim has an accessible volume or can be provisioned."""
        try:
            found = state.read(self.name, CheckVolumeBindingState).state.on_node(node.node)
        except VolumeBindingError as fault:
            return error(str(fault))
        # Unresolvable: evicting pods frees no volume.
        reasons = (text for bit, text in REASONS.items() if found.conflicts & bit)
        return unresolvable(*reasons) if found.conflicts else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        search = state.read(self.name, CheckVolumeBindingState).state
        asked = nodes.nodes[rows] if isinstance(rows, slice) else [nodes.nodes[r] for r in rows]
        return np.array([search.code(node) for node in asked], dtype=np.int64)

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, of a code of `filter_column`."""
        if code >= FIRST_FAULT_CODE:
            return error(
                state.read(self.name, CheckVolumeBindingState).state.faults[code - FIRST_FAULT_CODE]
            )
        return unresolvable(*(text for bit, text in REASONS.items() if code & bit))

    def explain(self, pod: Pod, node: NodeInfo, state: CycleState) -> list[str]:
        """Per conflict, the claim and its need."""
        try:
            return list(state.read(self.name, CheckVolumeBindingState).state.on_node(node.node).why)
        except VolumeBindingError as fault:
            return [str(fault)]


def volume_node_topology(volume: PersistentVolume) -> AccessibleTopology:
    """The nodes that a volume's node affinity allows.

    Requirements on fields are evaluated without fields, as the original passes none.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return ALL_NODES
    return tuple(
        term.match_expressions
        for term in affinity.required.node_selector_terms
        if not term.is_empty
        and not term.faults
        and all(requirement_admits(field, "") for field in term.match_fields)
    )


def _not_found_error(kind: str, name: str) -> str:
    return f'could not find v1.{kind} "{name}"'
