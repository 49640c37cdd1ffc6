"""The search for domains: as few as possible, of one level, filled from the top down.

A request names a level (`required`: one domain of it; `preferred`: one of it, or of a higher level,
or several of the highest; unconstrained: the least free that suffices). Slices are groups of pods
that share a domain of their level; without slices each pod is one. Of two pod sets in a group, the
smaller one is the leader, one pod, placed with the workers.

Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go; KEP-2724.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stowplan.batch.queue_models.kueue.admission_workload import (
    DomainValues,
    PodSetPlaces,
    Requests,
)
from stowplan.batch.queue_models.kueue.kueue_objects import PodSet, PodSetTopologyRequest
from stowplan.batch.queue_models.kueue.topology.topology_places import (
    CountOf,
    TopologyDomain,
    TopologyPlaces,
    count_in,
)
from stowplan.objects.node import Node
from stowplan.objects.selectors import node_selector_matches, term_matches
from stowplan.objects.taints import HARD_EFFECTS, is_untolerated

Domains = list[TopologyDomain]


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A pod set to place. per_pod: requests of a pod; is_implied: the pod set does not ask for a
    topology, its flavor does; group: pod sets with the same are placed together. has_conflict: what
    admission checks set contradicts the pod set, so it has no place."""

    pod_set: PodSet
    per_pod: Mapping[str, int]
    count: int
    is_implied: bool
    group: str | None
    has_conflict: bool = False


@dataclass(slots=True)
class PlacementTask:
    """One search: a pod set, or workers and their leader.

    level, slice_level: indexes. inner_sizes: level -> size of inner slices there.
    """

    count: int
    leaders: int
    level: int
    slice_level: int
    slice_size: int
    is_required: bool
    is_unconstrained: bool
    by_affinity: bool
    inner_sizes: dict[int, int] = field(default_factory=dict)
    is_best_fit: bool = True

    @property
    def slices(self) -> int:
        """Number of slices."""
        return self.count // self.slice_size


def task_of(
    places: TopologyPlaces,
    workers: PlacementRequest,
    leader: PlacementRequest | None,
    gates: frozenset[str],
) -> PlacementTask | None:
    """The search for a request; None if levels or sizes make no sense."""
    request = workers.pod_set.topology_request
    slices = request.slices if request is not None else ()
    size = slices[0].size if slices else 1
    name = places.level_of(request) or (places.levels[-1] if workers.is_implied else None)
    slice_name = slices[0].topology if slices else places.levels[-1]
    if size <= 0 or name not in places.levels or slice_name not in places.levels:
        return None
    level, slice_level = places.levels.index(name), places.levels.index(slice_name)
    inner = _inner_sizes(places, request, size, slice_level)
    if level > slice_level or inner is None:
        return None
    is_unconstrained = _is_unconstrained(request, workers)
    return PlacementTask(
        count=workers.count,
        leaders=1 if leader is not None else 0,
        level=level,
        slice_level=slice_level,
        slice_size=size,
        is_required=request is not None and request.required is not None,
        is_unconstrained=is_unconstrained,
        by_affinity="TASRespectNodeAffinityPreferred" in gates,
        inner_sizes=inner,
        is_best_fit=not (is_unconstrained and "TASProfileMixed" in gates),
    )


def _is_unconstrained(request: PodSetTopologyRequest | None, workers: PlacementRequest) -> bool:
    if workers.is_implied:
        return True
    if request is None:
        return False
    only_slices = request.required is None and request.preferred is None and bool(request.slices)
    return bool(request.unconstrained) or only_slices


def _inner_sizes(
    places: TopologyPlaces, request: PodSetTopologyRequest | None, size: int, level: int
) -> dict[int, int] | None:
    """Sizes of inner slices by level; None if one is not below the other, or does not divide it."""
    found: dict[int, int] = {}
    for one in request.slices[1:] if request is not None else ():
        inner = places.levels.index(one.topology) if one.topology in places.levels else -1
        if inner <= level or one.size <= 0 or size % one.size:
            return None
        found |= dict.fromkeys(range(level + 1, inner + 1), one.size)
        size, level = one.size, inner
    return found


def fill_counts(
    places: TopologyPlaces,
    task: PlacementTask,
    workers: PlacementRequest,
    leader: PlacementRequest | None,
    assumed: Mapping[DomainValues, Requests],
    uid: str,
    *,
    is_empty: bool,
    within: DomainValues = (),
) -> None:
    """Count in every domain what fits. assumed: what earlier pod sets of the workload took. within:
    a domain outside of which nothing counts."""
    seen = (uid, workers.pod_set.name)
    # As in the original, whose cache of matching nodes has no preferences: only the first search
    # for a pod set in a cycle knows them.
    has_preferences = task.by_affinity and not (uid and seen in places.matched)
    places.matched.add(seen)
    requests = _with_pod(workers.per_pod)
    leader_requests = None if leader is None else _with_pod(leader.per_pod)
    for key, leaf in places.leaves.items():
        leaf.clear()
        leaf.affinity = 0
        if leaf.values[: len(within)] != within:
            continue
        if leaf.node is not None:
            if not _takes(places, leaf.node, workers.pod_set):
                continue
            leaf.affinity = _preference(leaf.node, workers.pod_set) if has_preferences else 0
        rest = places.remaining(key, is_empty=is_empty)
        for name, n in assumed.get(key, {}).items():
            rest[name] = rest.get(name, 0) - n
        leaf.pods = count_in(requests, rest)
        if leader_requests is not None and count_in(leader_requests, rest) > 0:
            leaf.leaders = 1
            for name, n in leader_requests.items():
                rest[name] = rest.get(name, 0) - n
        leaf.pods_led = count_in(requests, rest)
    for root in places.per_level[0].values():
        count_up(root, task, 0)


def _with_pod(per_pod: Mapping[str, int]) -> Requests:
    return {**per_pod, "pods": per_pod.get("pods", 0) + 1}


def _takes(places: TopologyPlaces, node: Node, pod_set: PodSet) -> bool:
    spec = pod_set.template.spec
    tolerations = (*spec.tolerations, *places.flavor.spec.tolerations)
    if any(is_untolerated(taint, tolerations, HARD_EFFECTS, True) for taint in node.taints):
        return False
    if any(node.labels.get(k) != v for k, v in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return node_selector_matches(affinity.required, node.labels, node.name)


def _preference(node: Node, pod_set: PodSet) -> int:
    affinity = pod_set.template.spec.affinity
    held = affinity.node_affinity if affinity is not None else None
    return sum(
        term.weight
        for term in (held.preferred if held is not None else ())
        if term_matches(term.preference, node.labels, node.name)
    )


def count_up(domain: TopologyDomain, task: PlacementTask, level: int) -> None:
    """Sum counts of the domains below, and count slices from their level upwards."""
    if not domain.children:
        if level == task.slice_level:
            domain.slices = domain.pods // task.slice_size
            domain.slices_led = domain.pods_led // task.slice_size
        return
    inner = task.inner_sizes.get(level + 1, 1)
    pods = slices = leaders = affinity = 0
    pod_losses, slice_losses = [], []
    for child in domain.children:
        count_up(child, task, level + 1)
        held = child.pods // inner * inner
        pods += held
        slices += child.slices
        if not task.leaders or child.leaders:
            pod_losses.append(held - child.pods_led // inner * inner)
            slice_losses.append(child.slices - child.slices_led)
        leaders = max(leaders, child.leaders)
        affinity += child.affinity
    domain.pods, domain.slices = pods, slices
    domain.pods_led = pods - min(pod_losses) if pod_losses else 0
    domain.slices_led = slices - min(slice_losses) if slice_losses else 0
    domain.leaders, domain.affinity = leaders, affinity
    if level == task.slice_level:
        domain.slices = domain.pods // task.slice_size
        domain.slices_led = domain.pods_led // task.slice_size


def in_leader_order(domains: Sequence[TopologyDomain], task: PlacementTask) -> Domains:
    """Domains with a leader first, then the most slices, or the least if unconstrained."""
    sign = -1 if task.is_best_fit else 1
    return sorted(
        domains,
        key=lambda d: (
            -d.leaders,
            -d.affinity if task.by_affinity else 0,
            sign * d.slices_led,
            d.pods_led,
            d.values,
        ),
    )


def in_order(domains: Sequence[TopologyDomain], task: PlacementTask) -> Domains:
    """The most slices first, or the least if unconstrained."""
    sign = -1 if task.is_best_fit else 1
    return sorted(
        domains,
        key=lambda d: (
            -d.affinity if task.by_affinity else 0,
            sign * d.slices,
            d.pods,
            d.values,
        ),
    )


def _slices(domain: TopologyDomain) -> int:
    return domain.slices


def _slices_led(domain: TopologyDomain) -> int:
    return domain.slices_led


def _pods(domain: TopologyDomain) -> int:
    return domain.pods


def _pods_led(domain: TopologyDomain) -> int:
    return domain.pods_led


def _smallest(
    domains: Sequence[TopologyDomain], need: int, leaders: int, held: CountOf, task: PlacementTask
) -> TopologyDomain:
    """The domain with the smallest sufficient count; the first if none suffices."""
    if task.by_affinity:
        domains = [one for one in domains if one.affinity == domains[0].affinity]
    enough = [one for one in domains if one.leaders >= leaders and held(one) >= need]
    return min(enough, key=held) if enough else domains[0]


def domains_of_level(
    places: TopologyPlaces, task: PlacementTask, level: int
) -> tuple[int, Domains] | None:
    """Level and domains that suffice together; None if none do."""
    ordered = in_leader_order(list(places.per_level[level].values()), task)
    if not ordered:
        return None
    need, leaders = task.slices, task.leaders
    top = ordered[0]
    if task.is_best_fit:
        if top.slices_led >= need and top.leaders >= leaders:
            top = _smallest(ordered, need, leaders, _slices_led if leaders else _slices, task)
    else:
        for one in ordered:
            held = one.slices_led if leaders else one.slices
            if one.leaders >= leaders and held >= need:
                return level, [one]
        if task.is_required:
            return None
    if top.slices_led >= need and top.leaders >= leaders:
        return level, [top]
    if task.is_required:
        return _beyond_preferred(ordered, task, level)
    if level > 0 and not task.is_unconstrained:
        return domains_of_level(places, task, level - 1)
    several = _several(ordered, task)
    return None if several is None else (level, several)


def _beyond_preferred(
    ordered: Domains, task: PlacementTask, level: int
) -> tuple[int, Domains] | None:
    """A domain that suffices although others are preferred."""
    if task.by_affinity:
        for i, one in enumerate(ordered[1:], 1):
            if one.slices_led >= task.slices and one.leaders >= task.leaders:
                held = _slices_led if task.leaders else _slices
                return level, [_smallest(ordered[i:], task.slices, task.leaders, held, task)]
    return None


def _several(ordered: Domains, task: PlacementTask) -> Domains | None:
    """Domains that suffice together: with the leader first, then without."""
    found: Domains = []
    slices, leaders = task.slices, task.leaders
    ordered = _leader_to_front(ordered, task.count, leaders, task.slice_size, by_slices=True)
    i = 0
    while leaders > 0 and i < len(ordered) and ordered[i].leaders > 0:
        one = ordered[i]
        if task.is_best_fit and one.slices_led >= slices:
            one = _smallest(ordered[i:], slices, leaders, _slices_led, task)
        found.append(one)
        leaders -= one.leaders
        slices -= one.slices_led
        i += 1
    if leaders > 0:
        return None
    rest = in_order(ordered[i:], task)
    for i, one in enumerate(rest):
        if slices <= 0:
            break
        chosen = one
        if task.is_best_fit and one.slices >= slices:
            chosen = _smallest(rest[i:], slices, 0, _slices, task)
        found.append(chosen)
        slices -= chosen.slices
    return None if slices > 0 else found


def _leader_to_front(
    domains: Domains, count: int, leaders: int, slice_size: int, *, by_slices: bool
) -> Domains:
    """The first domain whose loss by the leader the others can bear comes first."""
    if leaders == 0 or len(domains) < 2:
        return domains
    need = count // slice_size if by_slices else count
    held = sum(one.slices if by_slices else one.pods for one in domains)
    for i, one in enumerate(domains):
        loss = one.slices - one.slices_led if by_slices else one.pods - one.pods_led
        if one.leaders >= leaders and held - loss >= need:
            return [one, *domains[:i], *domains[i + 1 :]]
    return domains


def share_out(
    domains: Domains,
    count: int,
    leaders: int,
    slice_size: int,
    task: PlacementTask,
    *,
    by_slices: bool,
) -> Domains:
    """Give pods to domains in order; sets `pods` and `leaders` of those that get some.

    As soon as one could take all that is left, the smallest that can does (unless unconstrained).
    """
    domains = _leader_to_front(domains, count, leaders, slice_size, by_slices=by_slices)
    found: Domains = []
    left = count // slice_size if by_slices else count
    factor = slice_size if by_slices else 1
    for i, one in enumerate(domains):
        if leaders > 0:
            held_led = _slices_led if by_slices else _pods_led
            chosen = one
            if task.is_best_fit and held_led(one) >= left and one.leaders >= leaders:
                chosen = _smallest(domains[i:], left, leaders, held_led, task)
            found.append(chosen)
            is_last = held_led(chosen) >= left and chosen.leaders >= leaders
            taken = min(held_led(chosen), left)
            if is_last:
                chosen.leaders = leaders
            chosen.leaders = min(chosen.leaders, leaders)
            _take(chosen, taken, factor, by_slices=by_slices)
            if is_last:
                return found
            leaders -= chosen.leaders
            left -= taken
            continue
        held = _slices if by_slices else _pods
        chosen = one
        if task.is_best_fit and held(one) >= left:
            chosen = _smallest(domains[i:], left, 0, held, task)
        chosen.leaders = 0
        is_last = held(chosen) >= left
        taken = min(held(chosen), left)
        _take(chosen, taken, factor, by_slices=by_slices)
        found.append(chosen)
        if is_last:
            return found
        left -= taken
    return []


def _take(domain: TopologyDomain, taken: int, factor: int, *, by_slices: bool) -> None:
    domain.pods = taken * factor
    if by_slices:
        domain.slices = taken


def descend(
    places: TopologyPlaces,
    task: PlacementTask,
    level: int,
    domains: Domains,
    *,
    is_balanced: bool,
) -> Domains:
    """Hand pods down to the lowest level. Above the slices' level all domains form one list; from
    there on each domain hands its own pods to its own."""
    domains = share_out(domains, task.count, task.leaders, task.slice_size, task, by_slices=True)
    bottom = len(places.levels) - 1
    while level < min(bottom, task.slice_level) and not is_balanced:
        below = in_order([child for one in domains for child in one.children], task)
        domains = share_out(below, task.count, task.leaders, task.slice_size, task, by_slices=True)
        level += 1
    for at in range(level, bottom):
        size = task.slice_size
        if at >= task.slice_level:
            size = task.inner_sizes.get(at + 1, 1)
        found: Domains = []
        for one in domains:
            below = in_order(one.children, task)
            if size > 1:
                for child in below:
                    child.slices = child.pods // size
                    child.slices_led = child.pods_led // size
            found += share_out(below, one.pods, one.leaders, size, task, by_slices=size > 1)
        domains = found
    return domains


def assignment_of(places: TopologyPlaces, domains: Domains, *, of_leader: bool) -> PodSetPlaces:
    """Domains with their pods, or leaders, in the order of their values."""
    first = len(places.levels) - 1 if places.ends_at_nodes else 0
    held = [
        (one.values[first:], one.leaders if of_leader else one.pods)
        for one in sorted(domains, key=lambda one: one.values)
    ]
    return PodSetPlaces(places.levels[first:], tuple(one for one in held if one[1] > 0))
