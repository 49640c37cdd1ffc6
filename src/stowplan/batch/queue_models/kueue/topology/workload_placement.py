"""Places of all pod sets of a workload, each beside what the earlier ones took.

Source: Kueue, pkg/cache/scheduler: tas_flavor_snapshot.go, clusterqueue_snapshot.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stowplan.batch.queue_models.kueue.admission_workload import (
    AdmissionWorkload,
    DomainValues,
    PodSetPlaces,
    Requests,
)
from stowplan.batch.queue_models.kueue.topology.group_placement import Placed, place_group
from stowplan.batch.queue_models.kueue.topology.node_replacement import replaced_places
from stowplan.batch.queue_models.kueue.topology.placement_search import PlacementRequest
from stowplan.batch.queue_models.kueue.topology.topology_places import TopologyPlaces


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Places per pod set; failed: (pod set, flavor) of one that has none."""

    placed: Placed
    failed: tuple[str, str] | None = None


def place_workload(
    places: Mapping[str, TopologyPlaces],
    requests: Mapping[str, Sequence[PlacementRequest]],
    gates: frozenset[str],
    workload: AdmissionWorkload,
    *,
    is_empty: bool = False,
) -> PlacementResult:
    """Place pod sets; where nodes of the workload failed, only the pods that they ran. requests: by
    flavor. is_empty: as if no other workload ran."""
    placed: Placed = {}
    failed = None
    on_nodes: dict[DomainValues, Requests] = {}
    for flavor in sorted(requests):
        tree = places[flavor]
        assumed = on_nodes if tree.ends_at_nodes else {}
        for group in _grouped(requests[flavor]):
            if workload.unhealthy_nodes:
                unplaced = _replace_group(tree, group, assumed, gates, workload, placed)
            else:
                found = place_group(tree, group, assumed, gates, workload.uid, is_empty=is_empty)
                unplaced = group[0].pod_set.name if found is None else None
                placed |= found or {}
                for one in group if found is not None else ():
                    _assume(assumed, one, placed[one.pod_set.name])
            if unplaced is not None:
                failed = failed or (unplaced, flavor)
                break
    return PlacementResult(placed, failed)


def _replace_group(
    tree: TopologyPlaces,
    group: Sequence[PlacementRequest],
    assumed: dict[DomainValues, Requests],
    gates: frozenset[str],
    workload: AdmissionWorkload,
    placed: Placed,
) -> str | None:
    """Replace the first failed node of pod sets, into `placed`; the name of one without other
    places."""
    held = {one.name: one.places for one in workload.demands}
    for one in group:
        name = one.pod_set.name
        before = held.get(name)
        if before is None:
            continue
        node = workload.unhealthy_nodes[0]
        found = replaced_places(tree, one, before, node, assumed, gates, workload.uid)
        if found is None:
            return name
        placed[name], added = found
        _assume(assumed, one, added)
    return None


def _grouped(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    groups: dict[str, list[PlacementRequest]] = {}
    for i, one in enumerate(requests):
        groups.setdefault(str(i) if one.group is None else one.group, []).append(one)
    return list(groups.values())


def _assume(
    assumed: dict[DomainValues, Requests], request: PlacementRequest, places: PodSetPlaces
) -> None:
    for values, count in places.domains:
        held = assumed.setdefault(values, {})
        for name, n in {**request.per_pod, "pods": 1}.items():
            held[name] = held.get(name, 0) + n * count
