"""Generators of scenarios for the search for victims: those on the nodes of the latest victim
alone, and sets of nodes that together have the cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from stowplan.batch.queue_models.kai.actions.scenario_filters import (
    DomainCardsFilter,
    FreeCardsFilter,
    NodeRulesFilter,
)
from stowplan.batch.queue_models.kai.actions.victim_reach import VictimReach
from stowplan.batch.queue_models.kai.actions.victim_scenario import VictimScenario
from stowplan.batch.queue_models.kai.job_queue import JobQueue
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask


def accumulated(
    scenario: VictimScenario, victims: JobQueue, nodes: Mapping[str, KaiNode]
) -> Iterator[VictimScenario]:
    """The scenario with ever more victims, each time that it passes the filters."""
    recorded = {task.uid for task in scenario.recorded_tasks}
    filters = (
        NodeRulesFilter(scenario, nodes),
        DomainCardsFilter(scenario),
        FreeCardsFilter(scenario),
    )
    while True:
        if all(one.passes(scenario) for one in filters):
            yield scenario
        while victims and not _add_next(scenario, victims, recorded):
            pass
        if not scenario.has_grown:
            return
        scenario.has_grown = False


def _add_next(scenario: VictimScenario, victims: JobQueue, recorded: set[str]) -> bool:
    """Add the next victims; False if they are recorded ones, and the rest of their job comes
    back."""
    job = victims.pop()
    tasks, has_more = job.next_victims()
    if any(task.uid in recorded for task in tasks):
        rest = [task for task in job.tasks() if task.uid not in recorded]
        if rest:
            victims.push(job.with_tasks(rest))
        return False
    if has_more:
        chosen = {task.uid for task in tasks}
        victims.push(job.with_tasks(t for t in job.tasks() if t.uid not in chosen))
    scenario.add(tasks)
    scenario.has_grown = True
    return True


PATIENCE = 16
"""After so many victims for which no node was of use it is asked whether any can be."""


def on_one_node(
    scenario: VictimScenario,
    victims: JobQueue,
    nodes: Mapping[str, KaiNode],
    reach: VictimReach,
) -> Iterator[VictimScenario]:
    """Victims on one node at a time, on those of the latest victim's job."""
    n_useless = 0
    for base in accumulated(scenario, victims, nodes):
        if not base.tried:
            if base.recorded_tasks:
                yield base
            continue
        n_useless += 1
        for fork in _by_node(base):
            n_useless = 0
            yield fork
        if n_useless == PATIENCE and not reach.may_work(base):
            return


def _by_node(base: VictimScenario) -> Iterator[VictimScenario]:
    job = base.session.jobs[base.tried[-1].job]
    seen: set[tuple[str, ...]] = set()
    for node in sorted({task.node for task in job.tasks() if task.node}):
        # Those that cannot work are not made.
        if not base.may_work(base.batches_on(node)):
            continue
        tasks = base.tried_on(node)
        key = tuple(sorted(task.uid for task in tasks))
        if not tasks or key in seen:
            continue
        seen.add(key)
        fork = base.fork()
        by_job: dict[str, list[KaiTask]] = {}
        for task in tasks:
            by_job.setdefault(task.job, []).append(task)
        for own in by_job.values():
            fork.add(own)
        yield fork


def on_several_nodes(
    scenario: VictimScenario, victims: JobQueue, nodes: Mapping[str, KaiNode], _: VictimReach
) -> Iterator[VictimScenario]:
    """Victims of ever more nodes, from the fewest that have the cards that are asked for."""
    for base in accumulated(scenario, victims, nodes):
        if base.tried:
            yield from _by_nodes(base, nodes)
        else:
            yield base


def _by_nodes(base: VictimScenario, nodes: Mapping[str, KaiNode]) -> Iterator[VictimScenario]:
    batches, places = _batches(base)
    freed: dict[str, float] = {}
    for task in base.recorded_tasks:
        if task.node:
            freed[task.node] = freed.get(task.node, 0.0) + task.accepted_cards.quota
    capacity = {
        name: freed.get(name, 0.0)
        + base.session.nodes[name].free_cards()
        + sum(t.accepted_cards.quota for i in own for t in batches[i] if t.node == name)
        for name, own in places.items()
    }
    asked = [task.cards.quota for task in base.pending]
    least = min(asked)
    first = {name: i for i, name in reversed([*enumerate(t.node for t in base.tried)])}
    chosen = sorted(
        (name for name in places if least <= 0 or capacity[name] >= least),
        key=lambda name: (capacity[name], first[name]),
    )
    wanted = sum(asked) - sum(
        node.free_cards() + freed.get(name, 0.0)
        for name, node in nodes.items()
        if name not in places
    )
    count, step = _fewest([capacity[name] for name in chosen], wanted), 1
    while count <= len(chosen):
        fork = base.fork()
        for i in sorted({i for name in chosen[:count] for i in places[name]}):
            fork.add(batches[i])
        yield fork
        if count == len(chosen):
            return
        count, step = min(count + step, len(chosen)), step * 2


def _batches(base: VictimScenario) -> tuple[list[list[KaiTask]], dict[str, list[int]]]:
    """Victims as they came together, and which of those have a pod on a node."""
    batches: list[list[KaiTask]] = []
    known: dict[int, int] = {}
    places: dict[str, dict[int, None]] = {}
    for task in base.tried:
        batch = base.batch_of(task)
        if batch is None:
            continue
        place = known.setdefault(id(batch), len(batches))
        if place == len(batches):
            batches.append([])
        batches[place].append(task)
        if task.node:
            places.setdefault(task.node, {})[place] = None
    return batches, {name: [*own] for name, own in places.items()}


def _fewest(capacities: list[float], wanted: float) -> int:
    """How many from the front have what is wanted; one more than there are if none do."""
    if wanted <= 0:
        return 0
    total = 0.0
    for i, capacity in enumerate(capacities):
        total += capacity
        if total >= wanted:
            return i + 1
    return len(capacities) + 1


GENERATORS: Mapping[
    str,
    Callable[
        [VictimScenario, JobQueue, Mapping[str, KaiNode], VictimReach], Iterator[VictimScenario]
    ],
] = {"sg-nodelocalgreedy": on_one_node, "sg-multinodegang": on_several_nodes}
"""Generators by the plugin that turns them on, in the order in which they are used."""
