"""Node replacement: other places for pods of an admitted workload whose node failed.

What is on other nodes stays. New places are in the domain that the request requires, or in the one
that holds the rest of a broken slice.

Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from stowplan.batch.queue_models.kueue.admission_workload import (
    DomainValues,
    PodSetPlaces,
    Requests,
)
from stowplan.batch.queue_models.kueue.kueue_objects import PodSetTopologyRequest, SliceConstraint
from stowplan.batch.queue_models.kueue.topology.group_placement import place_group
from stowplan.batch.queue_models.kueue.topology.placement_search import PlacementRequest
from stowplan.batch.queue_models.kueue.topology.topology_places import TopologyPlaces

DomainCounts = Sequence[tuple[DomainValues, int]]
"""Domains with their pods."""


def replaced_places(
    tree: TopologyPlaces,
    request: PlacementRequest,
    held: PodSetPlaces,
    node: str,
    assumed: Mapping[DomainValues, Requests],
    gates: frozenset[str],
    uid: str,
) -> tuple[PodSetPlaces, PodSetPlaces] | None:
    """All places of a pod set, and those that are new; None if there are none, or if another node
    of the pod set is gone too. held: the places before; node: that failed."""
    kept = [one for one in held.domains if one[0][-1] != node]
    if any(values not in tree.leaves for values, _ in kept):
        return None
    count = sum(n for values, n in held.domains if values[-1] == node)
    moved = replace(request, count=count)
    within = _required_domain(tree, moved, kept)
    if within and _broken_slice(moved) is not None:
        moved = _in_whole_slices(moved)
    placed = place_group(tree, [moved], assumed, gates, uid, within=within)
    if placed is None or not placed[moved.pod_set.name].domains:
        return None
    added = placed[moved.pod_set.name]
    return PodSetPlaces(added.levels, _merged(tree, added.domains, kept)), added


def _slices(request: PlacementRequest) -> tuple[SliceConstraint, ...]:
    asked = request.pod_set.topology_request
    return asked.slices if asked is not None else ()


def _broken_slice(request: PlacementRequest) -> SliceConstraint | None:
    """The innermost slice that the failed pods are a part of only; None if the widest is whole."""
    slices = _slices(request)
    if not slices or request.count % slices[0].size == 0:
        return None
    return next(one for one in reversed(slices) if request.count % one.size)


def _in_whole_slices(request: PlacementRequest) -> PlacementRequest:
    """The request with the innermost slice that divides the number of pods; else without one."""
    fitting = (one for one in reversed(_slices(request)) if request.count % one.size == 0)
    inner = next(fitting, None)
    asked = request.pod_set.topology_request or PodSetTopologyRequest()
    asked = msgspec.structs.replace(
        asked,
        podset_slice_required_topology_constraints=(),
        pod_set_slice_required_topology=None if inner is None else inner.topology,
        pod_set_slice_size=None if inner is None else inner.size,
    )
    return replace(
        request, pod_set=msgspec.structs.replace(request.pod_set, topology_request=asked)
    )


def _required_domain(
    tree: TopologyPlaces, request: PlacementRequest, kept: DomainCounts
) -> DomainValues:
    """The domain that new places have to be in; () for any."""
    asked = request.pod_set.topology_request
    name = tree.level_of(asked) or (tree.levels[-1] if request.is_implied else None)
    if name not in tree.levels or not kept:
        return ()
    broken = _broken_slice(request)
    if broken is not None:
        return _incomplete_domain(tree, kept, request.count, broken)
    if asked is None or asked.required is None:
        return ()
    return _ancestor(tree, kept[0][0], tree.levels.index(name))


def _incomplete_domain(
    tree: TopologyPlaces, kept: DomainCounts, missing: int, broken: SliceConstraint
) -> DomainValues:
    """The first domain of a slice's level that the missing pods would make whole."""
    if broken.topology not in tree.levels:
        return ()
    level = tree.levels.index(broken.topology)
    counts: dict[DomainValues, int] = {}
    for values, n in kept:
        domain = _ancestor(tree, values, level)
        counts[domain] = counts.get(domain, 0) + n
    return next((one for one, n in counts.items() if (n + missing) % broken.size == 0), ())


def _ancestor(tree: TopologyPlaces, leaf: DomainValues, level: int) -> DomainValues:
    """The domain of a level that holds a leaf. At the lowest level it is the leaf's id, as in the
    original: a host name alone, which is the path of no domain where there are other levels."""
    bottom = len(tree.levels) - 1
    return leaf if level == bottom else tree.leaves[leaf].values[: level + 1]


def _merged(
    tree: TopologyPlaces, added: DomainCounts, kept: DomainCounts
) -> tuple[tuple[DomainValues, int], ...]:
    """Both, by domain, in the order of paths."""
    counts: dict[DomainValues, int] = {}
    for values, n in (*added, *kept):
        counts[values] = counts.get(values, 0) + n
    return tuple(sorted(counts.items(), key=lambda one: tree.leaves[one[0]].values))
