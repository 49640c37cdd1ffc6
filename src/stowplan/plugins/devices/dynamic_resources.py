"""DynamicResources: devices for the claims of a pod, and for its extended resources.

PreFilter reads the claims, Filter searches devices node by node (`claim_search`), Reserve assumes
the allocation of the chosen node, and PreBind writes it into the claims (`claim_binding`).

Source: kube-scheduler v1.36, plugins/dynamicresources; dynamic-resource-allocation resourceclaim.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    ObjectChange,
    ObjectStore,
    PostFilterResult,
    PreBindWait,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Action,
    EventKeys,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.cycle_state import REFUSED_ALONE
from stowplan.framework.deciders.kernel_terms import DeviceTerms, KernelTerm
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.plugin import Plugin
from stowplan.framework.pod_groups.placements import N_ASSUMED
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.objects.devices.device import DeviceClass, DeviceTaintRule, ResourceSlice
from stowplan.objects.devices.device_claim import AllocationResult, ResourceClaim
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import pod_requests
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.plugins.arithmetic import default_normalize_score, n_rows_of
from stowplan.plugins.devices.claim_binding import (
    RESERVED,
    AssumedClaims,
    AssumedResourceClaim,
    PendingAllocations,
    assume_again,
    assume_claims,
    binding_wait,
    check_claims,
    deleted_claim,
    is_pending,
    released_claim,
    special_claim,
)
from stowplan.plugins.devices.claim_search import (
    CANNOT_ALLOCATE,
    NOT_AVAILABLE,
    STEPS_PER_SECOND,
    UNAVAILABLE,
    ClaimSearch,
    NodeAllocation,
    SearchSettings,
)
from stowplan.plugins.devices.device_selectors import DeviceSelectors
from stowplan.plugins.devices.dynamic_resources_args import DynamicResourcesArgs
from stowplan.plugins.devices.extended_resources import (
    in_memory_claim,
    is_device_resource,
    left_over_claim,
    named_claim,
)
from stowplan.plugins.devices.pod_claims import (
    changed_claim,
    claim_fault,
    consumers_of,
    named_claims,
    names_claim,
    releases_devices,
    resource_claims_of,
    usable_anywhere,
)
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.devices.states.class_claims import ClassClaims, content_of
from stowplan.plugins.devices.states.device_states import PER_NODE, REFUSED
from stowplan.plugins.pod_hints import queueing_hint

_ADD_OR_UPDATE = Action.ADD | Action.UPDATE
# Most changes of claims concern the pods that name them; devices that are given back, all.
_CLAIM_KEYS = EventKeys(changed_claim, named_claims)


class NoClaimSearch:
    """State of an attempt without claims, or in which PreFilter refused the pod."""


NO_CLAIM_SEARCH = NoClaimSearch()


class DynamicResources:
    """Every extension point from PreEnqueue to PreBind for pods with claims, and for pods with
    extended resources that a DeviceClass provides, for which a claim is created."""

    name = "DynamicResources"
    declaration = Plugin(
        name=name,
        weight=2,
        reads=(ResourceClaim, DeviceClass, ResourceSlice, DeviceTaintRule),
        repeatable=True, rests_when_skipped=True, gates_by_outline=True,
    )  # fmt: skip
    Args = DynamicResourcesArgs
    RESERVED = RESERVED
    UNUSED = "DynamicResources/unused"
    TRIED = "DynamicResources/tried"
    NO_STATE = error("not found")
    NO_ALLOCATION = error("claim allocation not found for node")
    NOTHING_TO_DEALLOCATE = unschedulable("no new claims to deallocate")
    NOTHING_HELPS = unschedulable("still not schedulable")
    DEALLOCATED = unschedulable("deallocation of ResourceClaim completed")
    UNRESERVED = unresolvable("ResourceClaim unreserved for PodGroup")
    DELETED = unschedulable("deletion of ResourceClaim completed")
    DISABLED = unschedulable("plugin disabled")

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self.args = args
        self.handle = handle
        self._is_enabled = handle.gates.dynamic_resource_allocation
        self._shares = handle.gates.dra_workload_resource_claims
        self._selectors = DeviceSelectors(with_lists=handle.gates.dra_list_type_attributes)
        self._pending = PendingAllocations()

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
        # As a change of the slices with their devices, which the original makes of it.
        of_rules = (
            (on(DEVICE_TAINT_RULE, Action.ADD | Action.UPDATE | Action.DELETE),)
            if self.handle.gates.dra_device_taint_rules
            else ()
        )
        of_nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        return (
            on(NODE, of_nodes),
            on(RESOURCE_CLAIM, _ADD_OR_UPDATE, self._after_claim, _CLAIM_KEYS),
            on(POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._after_pod),
            on(DEVICE_CLASS, _ADD_OR_UPDATE),
            on(RESOURCE_SLICE, _ADD_OR_UPDATE),
            *of_rules,
        )

    def _claims(self, pod: Pod) -> tuple[ResourceClaim, ...] | Status:
        return resource_claims_of(pod, self.handle.shared.object_store, of_group=self._shares)

    def _after_claim(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> QueueingHint:
        is_released = releases_devices(old, new)
        # Most claims are of other pods; many pods may wait.
        if not is_released and not names_claim(pod, new):
            return QUEUE_SKIP
        claims = self._claims(pod)
        if isinstance(claims, Status):
            return QUEUE_SKIP
        # Devices that another claim releases may serve this pod.
        if is_released:
            return QUEUE_POD
        if not any(claim.metadata.uid == new.metadata.uid for claim in claims):
            return QUEUE_SKIP
        return queueing_hint(old is None or old.status != new.status)

    def _after_pod(self, pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and not isinstance(self._claims(new), Status))

    # Before any node.

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without claims and without resources that devices may provide."""
        if pod.spec.resource_claims:
            return True
        object_store = self.handle.shared.object_store
        if not object_store.has_any(DeviceClass):
            return False
        amounts = self._amounts(pod)
        if not amounts:
            return False
        provided = self._devices(object_store).by_resource
        return any(name in provided for name in amounts)

    def answers_by_outline(self, pod: Pod, snapshot: Snapshot) -> bool:
        """True where no pod without claims gets devices; see `PluginPoints`."""
        store = self.handle.shared.object_store
        are_devices_asked = bool(pod.spec.resource_claims) or store.has_any(DeviceClass)
        return not are_devices_asked and snapshot.object_store is store

    def _devices(self, object_store: ObjectStore) -> ClusterDevices:
        return ClusterDevices.of(object_store, self.handle.gates)

    def _amounts(self, pod: Pod) -> dict[str, int]:
        """What the pod requests of resources that a class may provide; {} where that is off."""
        if not self.handle.gates.dra_extended_resource:
            return {}
        requests = pod_requests(pod, use_status=False)
        return {name: n for name, n in requests.items() if n and is_device_resource(name)}

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Read the claims. Refuses a pod with a claim that is missing, not the pod's, being
        allocated for another pod, or of a class that does not exist; Skip without claims."""
        if not self._is_enabled:
            return SKIP
        # Written in any case: PostFilter fails where PreFilter did not run.
        state.write(self.name, NO_CLAIM_SEARCH)
        search = self._search(pod, snapshot.object_store, state)
        if isinstance(search, Status):
            return search
        state.write(self.name, search)
        return OK

    def _search(
        self, pod: Pod, object_store: ObjectStore, state: CycleState
    ) -> ClaimSearch | Status:
        claims = resource_claims_of(pod, object_store, of_group=self._shares)
        if isinstance(claims, Status):
            return claims
        if self._shares and pod.spec.scheduling_group is not None:
            name = pod.spec.scheduling_group.pod_group_name
            if object_store.find(SchedulingGroup, group_key_of(pod)) is None:
                return unresolvable(f'podgroup.scheduling.k8s.io "{name}" not found')
        amounts = self._amounts(pod)
        if not claims and not amounts:
            return SKIP
        devices = self._devices(object_store)
        extended = None
        if any(name in devices.by_resource for name in amounts):
            extended = left_over_claim(pod, devices.special_claims_of(pod, object_store))
            extended = in_memory_claim(pod) if extended is None else extended
        if not claims and extended is None:
            return SKIP
        if extended is not None:
            # A claim may be left over for one pod of a template and not for another.
            state.write(REFUSED_ALONE, True)
        shared = self._shared_in_cycle(state)
        for claim in claims:
            if claim.metadata.uid in shared and is_pending(claim.key, object_store):
                continue
            fault = claim_fault(claim, object_store, devices)
            if fault is not None:
                return fault
        if self.handle.shared.has_group_defects:
            claims = tuple(
                usable_anywhere(one) if one.metadata.uid in shared else one for one in claims
            )
        return ClaimSearch(pod, claims, extended, amounts, devices, self._settings())

    def _shared_in_cycle(self, state: CycleState) -> set[str]:
        """Uids of the claims that members of the group have allocated in this cycle."""
        if state.group_values is None:
            return set()
        found: set[str] = state.group_values.setdefault(self.name, set())
        return found

    def _settings(self) -> SearchSettings:
        steps = int(self.args.filter_timeout.total_seconds() * STEPS_PER_SECOND)
        now = self.handle.shared.now
        return SearchSettings(self._selectors, steps, self.args.binding_timeout, now)

    # Nodes.

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        """Success where all claims are available or can be allocated."""
        if not self._is_enabled:
            return OK
        search = state.find(self.name)
        if search is None:
            return self.NO_STATE
        if not isinstance(search, ClaimSearch):
            return OK
        return search.on_node(node.node, node.allocatable).status

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        search = state.find(self.name)
        codes = np.zeros(n_rows_of(rows), dtype=np.int64)
        if not self._is_enabled or isinstance(search, NoClaimSearch):
            return codes
        statuses = self._statuses(state)
        asked = np.arange(nodes.n_nodes)[rows]
        if isinstance(search, ClaimSearch):
            found = search.on_rows(nodes, asked)
        else:
            found = np.full(asked.shape[0], PER_NODE, dtype=np.int64)
        for answer, status in ((REFUSED, CANNOT_ALLOCATE), (UNAVAILABLE, NOT_AVAILABLE)):
            if (found == answer).any():
                codes[found == answer] = statuses.setdefault(status, len(statuses) + 1)
        for place in np.flatnonzero(found == PER_NODE).tolist():
            status = self.filter(nodes.info(int(asked[place])), state)
            if not status.is_success:
                codes[place] = statuses.setdefault(status, len(statuses) + 1)
        return codes

    def _statuses(self, state: CycleState) -> dict[Status, int]:
        """Refusals of this attempt and their codes."""
        kept: dict[Status, int] | None = state.find(f"{self.name}/statuses")
        if kept is None:
            kept = {}
            state.write(f"{self.name}/statuses", kept)
        return kept

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, of a code of `filter_column`."""
        return next(status for status, own in self._statuses(state).items() if own == code)

    # No node.

    def may_help(self, pod: Pod, snapshot: Snapshot) -> bool:
        """False: the pod does not fit at once."""
        return False

    def post_filter(
        self, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """Deallocates a claim of the pod that no node can use and no other pod has reserved; an
        error where PreFilter did not run.

        Differs: of several such claims the original takes any, this the first.
        """
        if not self._is_enabled:
            return PostFilterResult(self.DISABLED)
        search = state.find(self.name)
        if search is None:
            return PostFilterResult(self.NO_STATE)
        if not isinstance(search, ClaimSearch):
            return PostFilterResult(self.NOTHING_TO_DEALLOCATE)
        unused = tuple(self._deallocatable(search, snapshot.nodes, diagnosis))
        state.write(self.UNUSED, unused)
        if unused:
            self._write(released_claim(unused[0]))
            return PostFilterResult(self.DEALLOCATED)
        if self._shares and self._unreserve_for_group(search.pod, state):
            return PostFilterResult(self.UNRESERVED)
        if search.has_left_over_claim and search.extended is not None:
            self.handle.shared.to_write += deleted_claim(search.extended)
            return PostFilterResult(self.DELETED)
        return PostFilterResult(self.NOTHING_HELPS)

    def _unreserve_for_group(self, pod: Pod, state: CycleState) -> bool:
        """Take the group out of one of its claims, so that other devices may be found; False where
        a member has a node, or no claim is reserved for the group."""
        store, groups = self.handle.shared.object_store, self.handle.shared.pod_groups
        group = store.find(SchedulingGroup, group_key_of(pod))
        members = None if groups is None else groups.of(pod)
        if group is None or members is None:
            return False
        in_cycle = 0 if state.group_values is None else state.group_values.get(N_ASSUMED, 0)
        if members.n_scheduled > in_cycle:
            return False
        statuses = {
            one.name: one.resource_claim_name for one in group.status.resource_claim_statuses
        }
        for use in group.spec.resource_claims:
            name = use.resource_claim_name or statuses.get(use.name)
            claim = store.find(ResourceClaim, f"{group.namespace}/{name}")
            if claim is None or claim.status.allocation is None:
                continue
            is_generated = use.resource_claim_name is None
            if is_generated and (claim.controller is None or claim.controller.uid != group.uid):
                continue
            if claim.is_reserved_for(pod.uid) or claim.is_reserved_for_group(group.name):
                self._write(released_claim(claim, group.uid))
                return True
        return False

    def _write(self, change: ObjectChange) -> None:
        """Have a claim written, and show it as it will be."""
        self.handle.shared.object_store.assume(change.value)
        self.handle.shared.to_write.append(change)

    def _deallocatable(
        self, search: ClaimSearch, nodes: NodeTable, diagnosis: Diagnosis
    ) -> Iterator[ResourceClaim]:
        """Claims for which this plugin refused a node, and that no other pod has reserved."""
        found: set[int] = set()
        for row in range(nodes.n_nodes):
            unavailable = search.unavailable_on(nodes.names[row])
            if unavailable and diagnosis.status_of(row).plugin == self.name:
                found.update(unavailable)
        for index in sorted(found):
            claim = search.claims[index]
            users = {one.uid for one in claim.status.reserved_for}
            if claim is not search.extended and users <= {search.pod.uid}:
                yield claim

    # Scores.

    def score(self, node: NodeInfo, state: CycleState) -> int:
        """Preference of the chosen alternatives; see `ClaimSearch.score`."""
        search = state.find(self.name)
        return search.score(node.name) if isinstance(search, ClaimSearch) else 0

    def score_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        search = state.find(self.name)
        if isinstance(search, ClaimSearch):
            return search.scores_of(nodes, np.arange(nodes.n_nodes)[rows])
        return np.zeros(n_rows_of(rows), dtype=np.int64)

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,): percentages of the highest score."""
        return default_normalize_score(scores)

    # After the node is chosen.

    def allocation(self, node_name: str, state: CycleState) -> NodeAllocation | None:
        """What Reserve would use on a node; None where nothing is to be allocated."""
        search = state.find(self.name)
        if not isinstance(search, ClaimSearch) or not search.to_allocate:
            return None
        return search.known(node_name)

    def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Assume the allocation, so that the next pods see its devices in use."""
        search = state.find(self.name)
        # Kernels have reserved for pods that they placed.
        if not isinstance(search, ClaimSearch):
            return OK
        object_store = self.handle.shared.object_store
        tried = state.find(self.TRIED)
        if isinstance(tried, AssumedClaims) and state.group_values is None:
            # The member was placed in the cycle of its group; now it is bound.
            tried.apply(self._pending, object_store)
            state.write(self.RESERVED, tried)
            return OK
        if search.version == self._devices(object_store).version:
            answer = search.known(node_name)
        else:
            # Pods of a session are decided together and reserved one after the other.
            again = self._search(pod, object_store, state)
            if isinstance(again, Status):
                return again
            answer, search = search.repeated_on(node_name, again), again
        if answer is None:
            return self.NO_ALLOCATION if search.to_allocate else OK
        if not answer.status.is_success:
            return answer.status
        reserved = self._assume(pod, search, answer, state)
        reserved.apply(self._pending, object_store)
        state.write(self.RESERVED, reserved)
        return OK

    def _assume(
        self,
        pod: Pod,
        search: ClaimSearch,
        answer: NodeAllocation,
        state: CycleState,
    ) -> AssumedClaims:
        """The claims as they become, with those that members of the group have allocated, and the
        one that is created for extended resources."""
        results: Sequence[AllocationResult] = answer.results
        claims = tuple(claim for claim in search.claims if claim is not search.extended)
        special: tuple[AssumedResourceClaim, ...] = ()
        if search.extended is not None:
            if answer.extended is not None:
                made = named_claim(answer.extended, pod, str(search.version))
                special = (special_claim(pod, made, results[-1], answer.mappings),)
            # The result of the claim without requests, where the node provides all.
            results = results[:-1]
        object_store = self.handle.shared.object_store
        in_cycle = self._shared_in_cycle(state)
        shared: dict[str, ResourceClaim] = {}
        pending: dict[str, AllocationResult] = {}
        for claim in claims:
            observed = object_store.observed(ResourceClaim, claim.key)
            if claim.metadata.uid in in_cycle and is_pending(claim.key, object_store):
                assumed = object_store.find(ResourceClaim, claim.key)
                if observed is not None and assumed is not None and assumed.status.allocation:
                    shared[claim.key] = observed
                    pending[claim.key] = assumed.status.allocation
        left = iter(results)
        if self.handle.shared.has_group_defects:
            # Differs: the original mixes up the allocations of shared and own claims; here with
            # `compat` only.
            results = (*results, *pending.values())
        else:
            results = tuple(
                pending[claim.key] if claim.key in pending else next(left)
                for claim in claims
                if claim.key in pending or claim.status.allocation is None
            )
        group_key = group_key_of(pod) if self._shares else ""
        group = object_store.find(SchedulingGroup, group_key) if group_key else None
        consumers = consumers_of(pod, group)
        name = group_key.partition("/")[2]
        reserved = assume_claims(pod, claims, results, consumers, shared, name)
        reserved = AssumedClaims((*reserved.claims, *special), reserved.group)
        if state.group_values is not None:
            taken = {one.after.metadata.uid for one in reserved.claims if one.is_allocated}
            self._shared_in_cycle(state).update(taken)
            state.write(self.TRIED, reserved)
        return reserved

    def unreserve(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """End the assumption. What was written by then remains."""
        reserved = state.find(self.RESERVED)
        if isinstance(reserved, AssumedClaims):
            object_store = self.handle.shared.object_store
            reserved.revert(self._pending, object_store)
            state.write(self.RESERVED, None)
            for one in reserved.claims:
                if one.is_allocated and not is_pending(one.after.key, object_store):
                    self._shared_in_cycle(state).discard(one.after.metadata.uid)

    def pre_bind(self, pod: Pod, node_name: str, state: CycleState) -> Status | PreBindWait:
        """Write allocation and reservation into the claims, and wait until devices are ready."""
        reserved = state.find(self.RESERVED)
        if not isinstance(reserved, AssumedClaims) or reserved.is_empty:
            return OK
        return binding_wait(reserved, node_name, self.handle.shared.now, self.args.binding_timeout)

    def pre_bind_conflict(
        self, pod: Pod, node_name: str, state: CycleState
    ) -> Status | PreBindWait:
        """Write again, on the versions that the watch shows now."""
        reserved = state.read(self.RESERVED, AssumedClaims)
        shared = self.handle.shared
        again = assume_again(pod, reserved, shared.object_store, repeats=shared.has_group_defects)
        if isinstance(again, Status):
            return again
        state.write(self.RESERVED, again)
        return binding_wait(again, node_name, shared.now, self.args.binding_timeout)

    def pre_bind_progress(
        self, pod: Pod, node_name: str, snapshot: Snapshot, state: CycleState
    ) -> Status:
        """Success when all devices are ready, Wait until then, an error where one has failed."""
        reserved = state.read(self.RESERVED, AssumedClaims)
        answer = check_claims(pod, reserved, snapshot.object_store)
        if answer.is_success:
            for one in reserved.claims:
                self._pending.written(one.after.key)
        return answer

    def explain(self, pod: Pod, node: NodeInfo, state: CycleState) -> list[str]:
        """Per request of the claims how many devices of the node serve it, and what refuses the
        others; for an allocated claim, that the node cannot use it."""
        search = state.find(self.name)
        if not isinstance(search, ClaimSearch):
            return []
        return search.details(node.node, node.allocatable)

    def claims_signature(self, pod: Pod, object_store: ObjectStore) -> Hashable | None:
        """What the claims ask for, where each is the pod's own and not allocated yet."""
        if not self._is_enabled or not pod.spec.resource_claims or self._amounts(pod):
            return None
        return content_of(pod, object_store, self.handle.gates)

    def kernel_terms(self, pod: Pod) -> tuple[KernelTerm, ...] | None:
        """The devices of nodes; None where claims have to be looked at by name."""
        store = self.handle.shared.object_store
        content = self.claims_signature(pod, store)
        if not isinstance(content, bytes):
            return None
        claims = ClassClaims(
            content, pod, store, self._devices(store), self._settings(), self._pending,
            self.RESERVED,
        )  # fmt: skip
        return (DeviceTerms(claims, claims.has_alternatives),)

    def signature(self, pod: Pod) -> object:
        """The claims, their generated names and the pod's identity: some belong to one pod."""
        claims = pod.spec.resource_claims
        amounts = tuple(self._amounts(pod).items())
        if not claims:
            return amounts
        return claims, amounts, pod.status.resource_claim_statuses, pod.namespace, pod.uid
