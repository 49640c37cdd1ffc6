"""Results of what-if and of preemption previews, as people and programs read them.

The JSON form is described in docs/what-if.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stowplan.inputs.counts import count_of
from stowplan.insight.pod_placement import Placement
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text

SCHEMA = "stowplan.dev/whatif/v1"
PREVIEW_SCHEMA = "stowplan.dev/preemptionpreview/v1"

PLACED, MOVED, ELSEWHERE, UNPLACED = "placed", "moved", "elsewhere", "unplaced"
EVICTED, LOST, BLOCKED, DELETED = "evicted", "lost", "blocked", "deleted"
EFFECTS = (LOST, BLOCKED, UNPLACED, EVICTED, MOVED, PLACED, ELSEWHERE, DELETED)
"""What happens to a pod, in the order in which it is listed."""


class ChangeEffect(msgspec.Struct, frozen=True, rename="camel"):
    """A change as asked for, and what it did, in words."""

    kind: str
    text: str
    effect: str


class PodDifference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod for which the changes make a difference.

    effect: placed (it has a node that it would not have), moved (a running pod, to another node),
    elsewhere (a pending pod gets another node), unplaced (it would have a node, or is new, and has
    none), evicted (by preemption, and created again or not), lost (no owner creates it again),
    blocked (a disruption budget keeps it on a drained node), deleted.
    source, target: nodes, "" for none; in JSON `from` and `to`. reason: why it has no node. by: the
    pod that preempts it, or the budget that blocks it. budgets: disruption budgets that its
    eviction takes below zero. ran_s: how long an evicted pod has run, None where that is not known.
    wait_s: with a duration, from its arrival to its node.
    """

    pod: str
    owner: str
    effect: str
    source: str = msgspec.field(default="", name="from")
    target: str = msgspec.field(default="", name="to")
    reason: str = ""
    message: str = ""
    by: str = ""
    budgets: tuple[str, ...] = ()
    ran_s: float | None = None
    wait_s: float | None = None


class BudgetUse(msgspec.Struct, frozen=True, rename="camel"):
    """A disruption budget during drains. evicted: number of its pods; unplaced: those of them that
    have no node; blocked: pods that stay."""

    budget: str
    allowed: int
    evicted: int
    unplaced: int
    blocked: int


class ResourceAmounts(msgspec.Struct, frozen=True):
    """A resource before or after: base units (milli-CPU, bytes, counts), and their ratio."""

    requested: int
    allocatable: int
    share: float


class ResourceDifference(msgspec.Struct, frozen=True):
    """A resource on all nodes that are not cordoned."""

    before: ResourceAmounts
    after: ResourceAmounts


class QueueState(msgspec.Struct, frozen=True):
    """A queue before or after. requested: resource -> amount that its placed pods request."""

    pods: int
    pending: int
    requested: dict[str, int]


class QueueDifference(msgspec.Struct, frozen=True):
    """A queue before and after."""

    before: QueueState
    after: QueueState


class AutoscalerUse(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Changes that an autoscaler made. added, removed: nodes. by_pool: pool -> nodes added. cost:
    of all nodes in virtual time, by the prices of their pools; None without either."""

    added: int
    removed: int
    by_pool: dict[str, int] = {}
    cost: float | None = None


class AutoscalerDifference(msgspec.Struct, frozen=True):
    """Changes that an autoscaler makes before and after the requested changes."""

    before: AutoscalerUse
    after: AutoscalerUse


class Victim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that preemption evicts.

    ran_s: how long it has run, None where that is not known. again: where it goes: a node, "" for
    pending, None if no controller creates it again. is_loop: it was evicted before in this
    chain.
    """

    pod: str
    owner: str
    priority: int
    ran_s: float | None = None
    budgets: tuple[str, ...] = ()
    again: str | None = None
    is_loop: bool = False


class PreemptionStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One preemption. because: the preemptor's own eviction, by the pod that evicted it; "" for
    the pods that were asked about. depth: length of the chain up to here, 1 for the first."""

    preemptor: str
    priority: int
    node: str
    victims: tuple[Victim, ...]
    because: str = ""
    depth: int = 1


class PreemptionPreview(msgspec.Struct, frozen=True, rename="camel"):
    """Preemption for pods that do not fit without it, and what follows.

    pods: the pods asked about, with the nodes that they get. steps: preemptions, in order. pending:
    pods without a node at the end, with the reason. loops: pods that are evicted twice. untried:
    what the search left out. summary: measure -> number.
    """

    api_version: str
    pods: tuple[Placement, ...]
    steps: tuple[PreemptionStep, ...]
    pending: tuple[Placement, ...]
    loops: tuple[str, ...]
    summary: dict[str, float]
    notes: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()

    def __repr__(self) -> str:
        evicted = count_of(int(self.summary["evicted"]), "pod")
        placed = f"{int(self.summary['placed']):,} of {count_of(len(self.pods), 'pod')} placed"
        return f"PreemptionPreview({placed}, {evicted} evicted)"

    def _repr_html_(self) -> str:
        """For notebooks: the victims of each preemption, and the pods that stay pending."""
        rows = [(step, victim) for step in self.steps for victim in step.victims]
        return html_summary(
            repr(self),
            html_table(
                ("Evicted", "Priority", "Node", "For", "Comes back on"),
                ((v.pod, v.priority, s.node, s.preemptor, v.again or "") for s, v in rows),
            ),
            html_table(("Pending", "Reason"), ((one.pod, one.reason) for one in self.pending)),
            *map(html_text, (*self.loops, *self.untried, *self.notes)),
        )

    def to_frame(self, library: str = "") -> Any:
        """The victims as a DataFrame, one row each; see `Simulation.to_frame`."""
        rows = [(step, victim) for step in self.steps for victim in step.victims]
        columns: dict[str, list[Any]] = {
            "pod": [victim.pod for _, victim in rows],
            "owner": [victim.owner for _, victim in rows],
            "priority": [victim.priority for _, victim in rows],
            "node": [step.node for step, _ in rows],
            "preemptor": [step.preemptor for step, _ in rows],
            "ran_s": [victim.ran_s for _, victim in rows],
            "again": [victim.again for _, victim in rows],
            "depth": [step.depth for step, _ in rows],
        }
        return to_dataframe(columns, library)


class WhatIf(msgspec.Struct, frozen=True, rename="camel"):
    """The difference that changes make.

    summary: measure -> number, for conditions. pods: those with a difference. budgets: disruption
    budgets that drains meet. preemptions: of pods that do not fit otherwise. resources, queues: by
    name. for_s: virtual time, None where pods are decided once. notes: limits of the answer.
    autoscaler: None where none was modelled.
    """

    api_version: str
    changes: tuple[ChangeEffect, ...]
    summary: dict[str, float]
    pods: tuple[PodDifference, ...]
    budgets: tuple[BudgetUse, ...]
    preemptions: tuple[PreemptionStep, ...]
    resources: dict[str, ResourceDifference]
    queues: dict[str, QueueDifference]
    for_s: float | None
    notes: tuple[str, ...]
    autoscaler: AutoscalerDifference | None = None

    def __repr__(self) -> str:
        figures = [
            f"{int(self.summary[name]):,} {name}" for name in EFFECTS if self.summary.get(name)
        ]
        return f"WhatIf({', '.join(figures) or 'no difference'})"

    def _repr_html_(self) -> str:
        """For notebooks: pods with a difference, and how full each resource is before and after."""
        pods = ((one.effect, one.pod, one.source, one.target, one.reason) for one in self.pods)
        shares = (
            (name, f"{one.before.share:.1%}", f"{one.after.share:.1%}")
            for name, one in self.resources.items()
        )
        return html_summary(
            repr(self),
            *(html_text(f"{one.text}: {one.effect}") for one in self.changes),
            html_table(("Effect", "Pod", "From", "To", "Reason"), pods),
            html_table(("Resource", "Before", "After"), shares),
            *map(html_text, self.notes),
        )

    def to_frame(self, library: str = "") -> Any:
        """The pods as a DataFrame, one row each; see `Simulation.to_frame`."""
        names = [field.name for field in msgspec.structs.fields(PodDifference)]
        return to_dataframe({n: [getattr(p, n) for p in self.pods] for n in names}, library)


def resource_differences(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]
) -> dict[str, ResourceDifference]:
    """By resource, from (requested, allocatable) amounts."""
    names = [
        name for name in {**before, **after} if any((*before.get(name, ()), *after.get(name, ())))
    ]
    return {
        name: ResourceDifference(_amounts(before.get(name)), _amounts(after.get(name)))
        for name in sorted(names)
    }


def _amounts(pair: Sequence[int] | None) -> ResourceAmounts:
    requested, allocatable = pair or (0, 0)
    share = round(requested / allocatable, 6) if allocatable else 0.0
    return ResourceAmounts(requested, allocatable, share)
