"""Balanced placement (gate `TASBalancedPlacement`): the fewest domains, filled equally.

Source: Kueue, pkg/cache/scheduler/tas_balanced_placement.go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stowplan.batch.queue_models.kueue.topology.placement_search import (
    Domains,
    PlacementTask,
    count_up,
    in_leader_order,
    in_order,
)
from stowplan.batch.queue_models.kueue.topology.topology_places import (
    TopologyDomain,
    TopologyPlaces,
)

Greedy = tuple[int, TopologyDomain | None, TopologyDomain | None]
"""Number of domains, the last one with a leader, the last one without."""


def balanced_domains(places: TopologyPlaces, task: PlacementTask) -> tuple[int, Domains] | None:
    """Level and domains with their pods; None if there is no balanced placement."""
    most = replace(task, is_best_fit=True)
    domains, threshold = _best_siblings(places, most)
    if threshold <= 0:
        return None
    level = task.level
    if level < task.slice_level:
        chosen = _fewest(domains, most, by_entropy=True)
        if chosen is None:
            return None
        domains = [child for one in chosen for child in one.children]
        level += 1
    placed = _placed(domains, most, threshold)
    return None if placed is None else (level, placed)


def _best_siblings(places: TopologyPlaces, task: PlacementTask) -> tuple[Domains, int]:
    """Copies of the siblings that can be filled with the highest minimum, and that minimum."""
    best: Domains = []
    best_threshold = best_count = 0
    for siblings in _siblings(places, task):
        found = _threshold_of(siblings, task, best_threshold)
        if found is None:
            continue
        domains, threshold, count = found
        if threshold > best_threshold or (threshold == best_threshold and count < best_count):
            best, best_threshold, best_count = domains, threshold, count
    return best, best_threshold


def _siblings(places: TopologyPlaces, task: PlacementTask) -> list[Domains]:
    if task.level == 0:
        return [list(places.per_level[0].values())]
    above = places.per_level[task.level - 1]
    return [above[values].children for values in sorted(above)]


def _threshold_of(
    siblings: Sequence[TopologyDomain], task: PlacementTask, best: int
) -> tuple[Domains, int, int] | None:
    """Copies of domains, less those below the threshold, the threshold, and how many are needed."""
    domains = [_copied(one) for one in siblings]
    lower = (
        [child for one in domains for child in one.children]
        if task.level < task.slice_level
        else domains
    )
    greedy = _greedy(lower, task)
    if greedy is None:
        return None
    number, last_led, last = greedy
    threshold = task.slices // number
    if last_led is not None:
        threshold = min(threshold, last_led.slices_led)
    if last is not None:
        threshold = min(threshold, last.slices)
    reserved = threshold
    if task.leaders and last is not None:
        reserved = min(threshold, last.slices_led)
    if threshold < best:
        return None
    _prune(domains, threshold, task)
    after = _greedy(domains, task)
    if after is None and reserved < threshold:
        if reserved <= 0 or reserved < best:
            return None
        threshold = reserved
        domains = [_copied(one) for one in siblings]
        _prune(domains, threshold, task)
        after = _greedy(domains, task)
    return None if after is None else (domains, threshold, after[0])


def _copied(domain: TopologyDomain) -> TopologyDomain:
    found = domain.copied()
    for child in domain.children:
        inner = _copied(child)
        inner.parent = found
        found.children.append(inner)
    return found


def _greedy(domains: Domains, task: PlacementTask) -> Greedy | None:
    """How many domains are needed if the largest are filled first; None if all do not suffice."""
    number, slices, leaders = 0, task.slices, task.leaders
    last_led: TopologyDomain | None = None
    last: TopologyDomain | None = None
    rest = domains
    if leaders > 0:
        ordered = in_leader_order(domains, task)
        i = 0
        while leaders > 0 and i < len(ordered) and ordered[i].leaders > 0:
            last_led = ordered[i]
            number += 1
            leaders -= last_led.leaders
            slices -= last_led.slices_led
            i += 1
        rest = ordered[i:]
    if leaders > 0:
        return None
    for one in in_order(rest, task):
        if slices <= 0 or one.slices <= 0:
            break
        last = one
        number += 1
        slices -= one.slices
    return None if slices > 0 or number == 0 else (number, last_led, last)


def _prune(domains: Domains, threshold: int, task: PlacementTask) -> None:
    """Leave out what is below the threshold."""
    for one in domains:
        for child in one.children:
            _prune_one(child, threshold, task)
    for one in domains:
        count_up(one, replace(task, inner_sizes={}), task.level)
        _prune_one(one, threshold, task)


def _prune_one(domain: TopologyDomain, threshold: int, task: PlacementTask) -> None:
    if domain.slices < threshold:
        _clear(domain, only_leader=False)
    elif task.leaders and domain.leaders > 0 and domain.slices_led < threshold:
        _clear(domain, only_leader=True)


def _clear(domain: TopologyDomain, *, only_leader: bool) -> None:
    if only_leader:
        domain.pods_led = domain.slices_led = domain.leaders = 0
    else:
        domain.clear()
    for child in domain.children:
        _clear(child, only_leader=only_leader)


def _fewest(domains: Domains, task: PlacementTask, *, by_entropy: bool) -> Domains | None:
    """The fewest domains that suffice, with the least room left over.

    Kept per (domains, leaders left): pods left -> the first combination that leads there.
    """
    greedy = _greedy(domains, task)
    if greedy is None:
        return None
    number = greedy[0]
    reached: list[dict[int, dict[int, Domains]]] = [{} for _ in range(number + 1)]
    reached[0][task.leaders] = {task.slices * task.slice_size: []}
    ordered = sorted(domains, key=_entropy_key if by_entropy else lambda one: one.values)
    for one in ordered:
        for i in range(number, 0, -1):
            for leaders in sorted(reached[i - 1]):
                for pods in sorted(reached[i - 1][leaders]):
                    if leaders <= 0 and pods <= 0:
                        continue
                    chosen = [*reached[i - 1][leaders][pods], one]
                    if leaders > 0 and one.leaders > 0:
                        to = reached[i].setdefault(leaders - one.leaders, {})
                        to.setdefault(pods - one.pods_led, chosen)
                    if one.slices > 0:
                        reached[i].setdefault(leaders, {}).setdefault(pods - one.pods, chosen)
    enough = {pods: chosen for pods, chosen in reached[number].get(0, {}).items() if pods <= 0}
    return enough[max(enough)] if enough else None


def _entropy_key(domain: TopologyDomain) -> tuple[int, int, float, tuple[str, ...]]:
    return -domain.leaders, -domain.slices_led, -_entropy(domain.children), domain.values


def _entropy(domains: Domains) -> float:
    total = sum(one.pods for one in domains)
    found = 0.0
    for one in domains:
        if one.pods > 0:
            share = one.pods / total
            found += -share * math.log2(share)
    return found


def _placed(domains: Domains, task: PlacementTask, threshold: int) -> Domains | None:
    """Give each domain the threshold, and what is left to the first ones."""
    chosen = _fewest(domains, task, by_entropy=False)
    if chosen is None or task.slices < len(chosen) * threshold:
        return None
    extra, leaders = task.slices - len(chosen) * threshold, task.leaders
    chosen = in_leader_order(chosen, task)
    for one in chosen:
        more = 0
        if leaders > 0:
            more = min(one.slices_led - threshold, extra)
            one.leaders = 1
            leaders -= 1
        else:
            one.leaders = 0
            if extra > 0:
                more = min(one.slices - threshold, extra)
        one.slices = one.slices_led = threshold + more
        one.pods = one.slices * task.slice_size
        one.pods_led = one.pods - one.leaders
        extra -= more
    return None if extra > 0 or leaders > 0 else chosen
