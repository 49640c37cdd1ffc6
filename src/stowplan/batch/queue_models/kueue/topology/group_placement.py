"""Places of one pod set, or of the workers and the leader of a group.

Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def place_group(
    tree: TopologyPlaces,
    group: Sequence[PlacementRequest],
    assumed: Mapping[DomainValues, Requests],
    gates: frozenset[str],
    uid: str,
    *,
    is_empty: bool = False,
    within: DomainValues = (),
) -> Placed | None:
    """Places of a pod set, or of workers and leader; None if there are none. is_empty: as if no
    other workload ran. within: a domain outside of which nothing counts."""
    workers, leader = group[0], None
    if len(group) > 1:
        leader = group[1]
        if leader.count > workers.count:
            workers, leader = leader, workers
    task = None if workers.has_conflict else task_of(tree, workers, leader, gates)
    if task is None:
        return None
    fill_counts(tree, task, workers, leader, assumed, uid, is_empty=is_empty, within=within)
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
