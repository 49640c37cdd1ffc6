"""Hooks: what plugins are asked in a session, and the switch that enables each.

A plugin takes part in a hook by a method of its name. `HOOKS` is the whole list; the session
combines the answers of plugins tier by tier.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/session_plugins.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import RowScores
from stowplan.batch.queue_models.volcano.volcano_defects import (
    ALL_DEFECTS,
    EMPTY_INTERSECTION,
    PERMISSIVE_TIER,
)
from stowplan.batch.queue_models.volcano.volcano_options import Arguments, VolcanoPluginOption
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Bools, Ints

REJECT, ABSTAIN, PERMIT = -1, 0, 1
"""Votes."""

ALWAYS: tuple[str, ...] = ()

HOOKS: Mapping[str, tuple[str, ...]] = {
    "job_order": ("enableJobOrder",),
    "queue_order": ("enableQueueOrder",),
    "victim_queue_order": ALWAYS,
    "task_order": ("enableTaskOrder",),
    "sub_job_order": ("enabledSubJobOrder",),
    "pre_predicate": ("enablePredicate",),
    "predicate": ("enablePredicate",),
    "node_order": ("enableNodeOrder",),
    "batch_node_order": ("enableNodeOrder",),
    "hyper_node_order": ("enabledHyperNodeOrder",),
    "job_gradients": ("enabledHyperNodeGradient",),
    "sub_job_gradients": ("enabledHyperNodeGradient",),
    "preemptable": ("enablePreemptable",),
    "reclaimable": ("enableReclaimable",),
    "evictable": ALWAYS,
    "overused": ("enabledOverused",),
    "preemptive": ("enablePreemptive",),
    "allocatable": ("enabledAllocatable",),
    "job_ready": ("enableJobReady",),
    "job_pipelined": ("enableJobPipelined",),
    "job_starving": ("enableJobStarving",),
    "job_valid": ALWAYS,
    "job_enqueueable": ("enableJobEnqueued",),
    "job_enqueued": ("enableJobEnqueued",),
    "sub_job_ready": ("enabledSubJobReady",),
    "sub_job_pipelined": ("enabledSubJobPipelined",),
    "victim_tasks": ("enabledVictim",),
    "simulate_room": ("enabledAllocatable",),
    "simulate_predicate": ("enablePredicate",),
}
"""Hook -> switches, all of which must be on."""


class VolcanoPlugin:
    """Base of the plugins. silent: hooks in which it takes no part in this session.

    knows_queues: it knows what queues deserve. scores_by_node: what `node_order` finds for a node
    depends on the request and that node's amounts alone.
    """

    name: ClassVar[str]
    knows_queues: ClassVar[bool] = False
    scores_by_node: ClassVar[bool] = False

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.silent: set[str] = set()

    def open(self, session: Any) -> None:
        """Compute what hooks read; before any hook is called. session: a VolcanoSession."""

    # For pods that are alike; see KindColumns.

    @property
    def version(self) -> int:
        """Changes when what the next two methods found may be no longer valid."""
        return 0

    def constant_codes(self, task: VolcanoTask) -> Ints | None:
        """int64 (n_nodes,): what `predicate` finds for a node apart from `takes_more`, if nothing
        changes it; None otherwise."""
        return None

    def score_column(self, task: VolcanoTask) -> RowScores | None:
        """What `batch_node_order` finds, if it depends on each node alone; None otherwise."""
        return None

    def takes_more(self, rows: Ints, places: Ints | slice) -> Bools:
        """bool (n_rows,): nodes that may have one more pod. places: theirs in the session."""
        return np.ones(rows.shape[0], dtype=np.bool_)

    def allocated(self, task: VolcanoTask) -> bool:
        """A task was placed, pipelined, or its eviction was undone. False refuses that."""
        return True

    def released(self, task: VolcanoTask) -> None:
        """A task was evicted, or its placement was undone."""


class HookTable:
    """Methods by hook, tier by tier. agreed_in: tier and plugins that last agreed on victims."""

    def __init__(
        self,
        tiers: Iterable[Iterable[VolcanoPluginOption]],
        plugins: Mapping[str, VolcanoPlugin],
        mends: Collection[str] = ALL_DEFECTS,
    ) -> None:
        self._mends = mends
        self.agreed_in = ""
        self._calls: dict[str, list[list[Callable[..., Any]]]] = {}
        self._all: dict[str, tuple[Callable[..., Any], ...]] = {}
        entries = [[one for one in tier if one.name in plugins] for tier in tiers]
        for hook, switches in HOOKS.items():
            found = [
                [
                    getattr(plugins[option.name], hook)
                    for option in tier
                    if _takes_part(plugins[option.name], hook, option, switches)
                ]
                for tier in entries
            ]
            self._calls[hook] = [tier for tier in found if tier]
            self._all[hook] = tuple(call for tier in found for call in tier)

    def tiers(self, hook: str) -> list[list[Callable[..., Any]]]:
        """Methods per tier; tiers without one are left out."""
        return self._calls[hook]

    def all(self, hook: str) -> tuple[Callable[..., Any], ...]:
        """Methods of all tiers, in order."""
        return self._all[hook]

    def keys(self, hook: str, method: str) -> tuple[Callable[[Any], Any], ...] | None:
        """Keys by which the plugins of a comparison compare; None if one has none."""
        owners = [call.__self__ for call in self._all[hook]]  # type: ignore[attr-defined]
        if not all(hasattr(owner, method) for owner in owners):
            return None
        return tuple(getattr(owner, method) for owner in owners)

    # How answers are combined. These are called for every comparison of a heap and for every pod.

    def first_difference(self, hook: str, *given: Any) -> int:
        """The first comparison that is not 0."""
        for call in self._all[hook]:
            found: int = call(*given)
            if found:
                return found
        return 0

    def everyone(self, hook: str, *given: Any) -> bool:
        """True if no plugin says no."""
        for call in self._all[hook]:  # noqa: SIM110, no generator: it is asked for every pod
            if not call(*given):
                return False
        return True

    def anyone(self, hook: str, *given: Any) -> bool:
        """True if some plugin says yes."""
        for call in self._all[hook]:  # noqa: SIM110
            if call(*given):
                return True
        return False

    def vote(self, hook: str, *given: Any) -> bool:
        """False if a plugin rejects before a tier has permitted."""
        for tier in self._calls[hook]:
            votes = []
            for call in tier:
                votes.append(call(*given))
                if votes[-1] < 0:
                    return False
            if any(vote > 0 for vote in votes):
                return True
        return True

    def first_tier(self, hook: str, *given: Any) -> bool:
        """True if all plugins of the first tier that has one say yes; False if none has."""
        tiers = self._calls[hook]
        return bool(tiers) and all(call(*given) for call in tiers[0])

    def victims(self, hook: str, *given: Any) -> list[VolcanoTask]:
        """Victims that the plugins of a tier agree on.

        A plugin returns None to abstain. A tier in which one finds none is undecided; the first
        tier that is decided counts.
        """
        for number, tier in enumerate(self._calls[hook], 1):
            chosen = self._agreed(tier, given)
            if chosen:
                names = [call.__self__.name for call in tier]  # type: ignore[attr-defined]
                self.agreed_in = f"tier {number}: {', '.join(names)}"
                return self._agreed_by_queues(hook, chosen, given, names)
        return []

    def _agreed(
        self, calls: Iterable[Callable[..., Any]], given: tuple[Any, ...]
    ) -> list[VolcanoTask]:
        """Victims that plugins agree on."""
        chosen: list[VolcanoTask] | None = None
        for call in calls:
            found = call(*given)
            if found is None:
                continue
            if not found:
                return []
            uids = {task.uid for task in found}
            if chosen or (chosen is not None and EMPTY_INTERSECTION in self._mends):
                chosen = [task for task in chosen if task.uid in uids]
            else:
                chosen = found
        return chosen or []

    def _agreed_by_queues(
        self, hook: str, chosen: list[VolcanoTask], given: tuple[Any, ...], asked: Sequence[str]
    ) -> list[VolcanoTask]:
        """Of the victims that a tier chose those that suit the plugins of queues in all tiers.
        asked: the plugins of that tier."""
        if hook != "reclaimable" or PERMISSIVE_TIER not in self._mends:
            return chosen
        preemptor, _ = given
        for call in self.all(hook):
            if call.__self__.knows_queues:  # type: ignore[attr-defined]
                uids = {task.uid for task in call(preemptor, chosen)}
                chosen = [task for task in chosen if task.uid in uids]
                if call.__self__.name not in asked:  # type: ignore[attr-defined]
                    self.agreed_in += f"; {call.__self__.name}"  # type: ignore[attr-defined]
        return chosen


def _takes_part(
    plugin: VolcanoPlugin, hook: str, option: VolcanoPluginOption, switches: tuple[str, ...]
) -> bool:
    is_on = all(switch in option.enabled for switch in switches)
    return is_on and hook not in plugin.silent and hasattr(plugin, hook)
