"""What is particular to queues of KAI-Scheduler: their units, weights and minimum run times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stowplan.batch.queue_models.kai.kai_objects import queue_terms
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.model.kai_reasons import RESOURCE_NAMES, plain_amount
from stowplan.batch.queue_models.kai.state.kai_queue import KaiQueueTerms
from stowplan.forecast.queue_reports.audited_queue import (
    INFO,
    WARNING,
    Amounts,
    AuditedTree,
    AuditFinding,
)
from stowplan.objects.kai.kai_kinds import KaiQueueObject, KaiQueueResources

SMALL = 100
"""Amounts of cpu and memory below this are likely meant in cores and in gigabytes."""
_UNITS = {
    "cpu": (1000, "cores", "thousandths of a core"),
    "memory": (1, "MB", "millions of bytes"),
}


def amounts_of(bounds: Sequence[float]) -> dict[str, float]:
    """Resource -> cores, bytes or cards, infinity where there is no bound."""
    pairs = zip(RESOURCE_NAMES, bounds, strict=True)
    return {
        name: float("inf") if amount < 0 else plain_amount(i, amount)
        for i, (name, amount) in enumerate(pairs)
    }


def kai_findings(
    tree: AuditedTree, queues: Sequence[KaiQueueObject], options: KaiOptions
) -> Iterator[AuditFinding]:
    """All of these. queues: the objects. options: of the sessions."""
    terms = {queue.name: queue_terms(queue) for queue in queues}
    for queue in queues:
        yield from _without_quota(tree, terms[queue.name])
        yield from _small_amounts(queue)
    yield from _unread_runtimes(tree, terms, options)


def _without_quota(tree: AuditedTree, terms: KaiQueueTerms) -> Iterator[AuditFinding]:
    if terms.name not in tree.queues or tree.queues[terms.name].children:
        return
    there = [i for i, name in enumerate(RESOURCE_NAMES) if tree.total.get(name, 0.0) > 0]
    bare = [i for i in there if terms.quota[i] == 0]
    shareless = ", ".join(RESOURCE_NAMES[i] for i in bare if terms.weight[i] == 0)
    weighted = ", ".join(RESOURCE_NAMES[i] for i in bare if terms.weight[i] != 0)
    if shareless:
        text = (
            f"no quota and no over-quota weight of {shareless}: its fair share is 0, it reclaims "
            "nothing, and all that it has can be reclaimed"
        )
        yield AuditFinding(WARNING, "queue", terms.name, "NoShare", text)
    if weighted:
        text = f"no quota of {weighted}: what it has can be reclaimed whenever others deserve it"
        yield AuditFinding(INFO, "queue", terms.name, "NoQuota", text)


def _small_amounts(queue: KaiQueueObject) -> Iterator[AuditFinding]:
    resources = queue.spec.resources or KaiQueueResources()
    for name, one in (("cpu", resources.cpu), ("memory", resources.memory)):
        for what, amount in (("quota", one.quota), ("limit", one.limit)):
            if 0 < amount < SMALL:
                parts, unit, counted = _UNITS[name]
                text = f"{name} {what} {amount:g} is {amount / parts:g} {unit}: it counts {counted}"
                yield AuditFinding(WARNING, "queue", queue.name, "SmallAmount", text, name)


# Minimum run times that no session reads.


def _unread_runtimes(
    tree: AuditedTree, terms: Mapping[str, KaiQueueTerms], options: KaiOptions
) -> Iterator[AuditFinding]:
    leaves = [
        [one.name for one in (*[*tree.above(name)][::-1], queue)]
        for name, queue in tree.queues.items()
        if not queue.children and name in terms
    ]
    reclaims = {name: one.reclaim_min_runtime for name, one in terms.items()}
    preempts = {name: one.preempt_min_runtime for name, one in terms.items()}
    read = _read_by_reclaim(leaves, reclaims, by_leaf=options.reclaim_by_leaf)
    yield from _unread("reclaim", reclaims, read, options)
    read = {name for path in leaves if (name := _next_set(path, preempts))}
    yield from _unread("preempt", preempts, read, options)


def _unread(
    action: str, runtimes: Mapping[str, float | None], read: set[str], options: KaiOptions
) -> Iterator[AuditFinding]:
    others = "queues that could reclaim from it ask queues below it first, or there are none"
    why = others if action == "reclaim" else "all queues below it set their own"
    if "minruntime" not in options.plugins:
        read, why = set(), "the plugin minruntime is off"
    elif action not in options.actions:
        read, why = set(), f"the action {action} is off"
    for name, runtime in runtimes.items():
        if runtime is not None and name not in read:
            text = f"{action}MinRuntime {runtime:g}s has no effect: {why}"
            yield AuditFinding(WARNING, "queue", name, "UnreadMinRuntime", text)


def _read_by_reclaim(
    leaves: Sequence[Sequence[str]], runtimes: Mapping[str, float | None], *, by_leaf: bool
) -> set[str]:
    """Queues whose runtime holds for some victim and some other queue that reclaims.

    It is looked for upwards from the victim's queue just below the lowest one that both have in
    common, or with `by_leaf` from its own. leaves: the path to each leaf queue, from the top.
    """
    n_below: dict[str, int] = {}
    for path in leaves:
        for name in path:
            n_below[name] = n_below.get(name, 0) + 1
    found = set()
    for path in leaves:
        for depth in range(len(path)):
            n_around = n_below[path[depth - 1]] if depth else len(leaves)
            if by_leaf and depth < len(path) - 1:
                continue
            # Another leaf is below the same parent, and not below this queue.
            has_reclaimer = n_around > n_below[path[depth]] or (by_leaf and len(leaves) > 1)
            name = _next_set(path[: depth + 1], runtimes) if has_reclaimer else ""
            if name:
                found.add(name)
    return found


def _next_set(path: Sequence[str], runtimes: Mapping[str, float | None]) -> str:
    """The last queue of a path that sets a runtime, "" for none."""
    return next((name for name in reversed(path) if runtimes.get(name) is not None), "")


def limits_of(bounds: Sequence[float]) -> Amounts:
    """The same of limits, without resources that have none."""
    return {name: n for name, n in amounts_of(bounds).items() if n != float("inf")}
