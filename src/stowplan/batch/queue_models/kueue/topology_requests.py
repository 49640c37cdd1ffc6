"""Which pod sets of a workload ask for a topology, and in which flavor they get it.

Source: Kueue, pkg/scheduler/flavorassigner/tas_flavorassigner.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue, AdmissionSnapshot
from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload, PlaceUse
from stowplan.batch.queue_models.kueue.flavor_assignment import FlavorAssignment, PodSetChoice
from stowplan.batch.queue_models.kueue.kueue_objects import (
    PodSet,
    PodSetUpdate,
    ResourceFlavor,
)
from stowplan.batch.queue_models.kueue.topology.group_placement import Placed
from stowplan.batch.queue_models.kueue.topology.placement_search import PlacementRequest
from stowplan.batch.queue_models.kueue.topology.workload_placement import (
    PlacementResult,
    place_workload,
)

PENDING, READY = "Pending", "Ready"


def asks_for_topology(pod_set: PodSet) -> bool:
    """Whether a pod set asks by itself."""
    return pod_set.topology_request is not None and pod_set.topology_request.is_explicit


def is_topology_implied(pod_set: PodSet, queue: AdmissionQueue) -> bool:
    """Whether a pod set that does not ask gets a topology, since its queue has nothing else."""
    return not asks_for_topology(pod_set) and queue.is_topology_only


def topology_mismatch(
    snapshot: AdmissionSnapshot,
    queue: AdmissionQueue,
    pod_set: PodSet,
    flavor: ResourceFlavor,
    covered: Iterable[str],
    requested: Iterable[str],
) -> bool:
    """Whether pod set and flavor do not agree about topology. covered: resources of the group."""
    name = flavor.spec.topology_name
    if not asks_for_topology(pod_set):
        return not queue.is_topology_only and name is not None
    request = pod_set.topology_request
    if name is None:
        return bool(set(covered) & set(requested))
    places = snapshot.places.get(flavor.name)
    return places is None or request is None or not places.has_levels(request)


def placement_requests(
    queue: AdmissionQueue,
    workload: AdmissionWorkload,
    assignment: FlavorAssignment,
    places: Mapping[str, object],
) -> dict[str, list[PlacementRequest]]:
    """Pod sets to place, by flavor; those that cannot be placed fail."""
    found: dict[str, list[PlacementRequest]] = {}
    for pod_set in workload.pod_sets:
        if not asks_for_topology(pod_set) and not queue.is_topology_only:
            continue
        choice = assignment.pod_set(pod_set.name)
        if choice.has_error or choice.demand.count == 0:
            continue
        if choice.places is not None and not workload.is_on_failed_node(choice.places):
            continue
        flavor = topology_flavor(choice, queue, places)
        if flavor is None:
            assignment.fail(pod_set.name)
        elif queue.delays_topology or (not workload.holds_quota and flavor in queue.provisioned):
            choice.delayed = PENDING
        else:
            request = pod_set.topology_request
            updated = updated_pod_set(pod_set, workload.updates_of(pod_set.name))
            found.setdefault(flavor, []).append(
                PlacementRequest(
                    pod_set if updated is None else updated,
                    choice.demand.per_pod,
                    choice.demand.count,
                    is_topology_implied(pod_set, queue),
                    request.pod_set_group_name if request is not None else None,
                    has_conflict=updated is None,
                )
            )
    return found


def updated_pod_set(pod_set: PodSet, updates: Iterable[PodSetUpdate]) -> PodSet | None:
    """A pod set with the selectors and tolerations that admission checks add; None if a label of a
    selector would get a second value."""
    spec = pod_set.template.spec
    selector, tolerations = dict(spec.node_selector or {}), list(spec.tolerations)
    for one in updates:
        if any(selector.get(key, value) != value for key, value in one.node_selector.items()):
            return None
        selector |= one.node_selector
        tolerations += [added for added in one.tolerations if added not in tolerations]
    if selector == (spec.node_selector or {}) and len(tolerations) == len(spec.tolerations):
        return pod_set
    spec = replace(spec, node_selector=selector, tolerations=tuple(tolerations))
    return replace(pod_set, template=replace(pod_set.template, spec=spec))


def topology_flavor(
    choice: PodSetChoice, queue: AdmissionQueue, places: Mapping[str, object]
) -> str | None:
    """The one flavor with a topology of a pod set; None if there is none, or several."""
    flavors = {one.flavor for one in choice.flavors.values()}
    held = sorted(name for name in flavors if name in queue.topologies and name in places)
    return held[0] if len(held) == 1 else None


def place(
    snapshot: AdmissionSnapshot,
    workload: AdmissionWorkload,
    requests: Mapping[str, list[PlacementRequest]],
    *,
    is_empty: bool = False,
) -> PlacementResult:
    """Search places for pod sets."""
    gates = snapshot.options.gates
    return place_workload(snapshot.places, requests, gates, workload, is_empty=is_empty)


def note_places(
    assignment: FlavorAssignment,
    queue: AdmissionQueue,
    placed: Placed,
    names: Iterable[str],
    places: Mapping[str, object],
) -> None:
    """Write places into an assignment, and those beyond what a workload with quota holds already
    into its usage. names: pod sets that were searched for."""
    for name in names:
        choice = assignment.pod_set(name)
        choice.places = placed.get(name)
        if choice.places is not None and choice.delayed is not None:
            choice.delayed = READY
    uses = []
    for choice in assignment.pod_sets:
        flavor = topology_flavor(choice, queue, places)
        if choice.places is not None and flavor is not None:
            held = choice.demand.places
            before = dict(held.domains) if held is not None else {}
            uses += [
                PlaceUse(flavor, values, choice.demand.per_pod, count - before.get(values, 0))
                for values, count in choice.places.domains
                if count > before.get(values, 0)
            ]
    assignment.places = tuple(uses)
