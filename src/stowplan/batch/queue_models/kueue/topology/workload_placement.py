"""Places of all pod sets of a workload, each beside what the earlier ones took.

Source: Kueue, pkg/cache/scheduler: tas_flavor_snapshot.go, clusterqueue_snapshot.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stowplan.batch.queue_models.kueue.admission_workload import (
    DomainValues,
    PodSetPlaces,
    Requests,
)
from stowplan.batch.queue_models.kueue.topology.balanced_placement import balanced_domains
from stowplan.batch.queue_models.kueue.topology.placement_search import (
    PlacementRequest,
    assignment_of,
    descend,
    domains_of_level,
    fill_counts,
    task_of,
)
from stowplan.batch.queue_models.kueue.topology.topology_places import TopologyPlaces

Placed = dict[str, PodSetPlaces]
"""Pod set -> places."""


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Places per pod set; failed: (pod set, flavor) of one that has none."""

    placed: Placed
    failed: tuple[str, str] | None = None


def place_workload(
    places: Mapping[str, TopologyPlaces],
    requests: Mapping[str, Sequence[PlacementRequest]],
    gates: frozenset[str],
    uid: str,
    *,
    is_empty: bool = False,
) -> PlacementResult:
    """Place pod sets. requests: by flavor. is_empty: as if no other workload ran."""
    placed: Placed = {}
    failed = None
    on_nodes: dict[DomainValues, Requests] = {}
    for flavor in sorted(requests):
        tree = places[flavor]
        assumed = on_nodes if tree.ends_at_nodes else {}
        for group in _grouped(requests[flavor]):
            found = _place_group(tree, group, assumed, gates, uid, is_empty=is_empty)
            if found is None:
                failed = failed or (group[0].pod_set.name, flavor)
                break
            placed |= found
            for one in group:
                _assume(assumed, one, found[one.pod_set.name])
    return PlacementResult(placed, failed)


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


def _place_group(
    tree: TopologyPlaces,
    group: Sequence[PlacementRequest],
    assumed: Mapping[DomainValues, Requests],
    gates: frozenset[str],
    uid: str,
    *,
    is_empty: bool,
) -> Placed | None:
    """Places of a pod set, or of workers and leader."""
    workers, leader = group[0], None
    if len(group) > 1:
        leader = group[1]
        if leader.count > workers.count:
            workers, leader = leader, workers
    task = task_of(tree, workers, leader, gates)
    if task is None:
        return None
    fill_counts(tree, task, workers, leader, assumed, uid, is_empty=is_empty)
    balanced = None
    if "TASBalancedPlacement" in gates and not task.is_required and not task.is_unconstrained:
        balanced = balanced_domains(tree, task)
    found = balanced or domains_of_level(tree, task, task.level)
    if found is None:
        return None
    domains = descend(tree, task, *found, is_balanced=balanced is not None)
    placed = {workers.pod_set.name: assignment_of(tree, domains, of_leader=False)}
    if leader is not None:
        with_leader = [one for one in domains if one.leaders > 0]
        placed[leader.pod_set.name] = assignment_of(tree, with_leader, of_leader=True)
    return placed
