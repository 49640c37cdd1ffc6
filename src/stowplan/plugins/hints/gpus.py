"""Hints of Yoda: reports of GPUs that come or change, nodes that come, pods that leave cards."""

from __future__ import annotations

from collections.abc import Callable

from stowplan.framework.clusterevents import (
    NODE,
    POD,
    SCV,
    Action,
    EventWithHint,
    QueueingHint,
    on,
)
from stowplan.framework.shared import Shared
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.scv import Scv
from stowplan.plugins.hints.pods import has_a_node, queue_if
from stowplan.plugins.yoda_demand import Demand

MayDo = Callable[[Demand, Scv], bool]
"""Whether the cards of a report would do for a demand if no pod held any."""


def yoda_events(may_do: MayDo, shared: Shared) -> tuple[EventWithHint, ...]:
    """What Yoda registers.

    A report that would do before and after is heard too: it may show what was held until now.
    """

    def after_report(pod: Pod, old: Scv | None, new: Scv) -> QueueingHint:
        return queue_if(may_do(Demand.of(pod.labels), new))

    def after_node(pod: Pod, old: None, new: Node) -> QueueingHint:
        scv = shared.world.find(Scv, new.name)
        return queue_if(scv is not None and may_do(Demand.of(pod.labels), scv))

    def after_departure(pod: Pod, old: Pod, new: None) -> QueueingHint:
        return queue_if(has_a_node(old) and not Demand.of(old.labels).is_none)

    def after_labels(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queue_if(new.uid == pod.uid and Demand.of(old.labels) != Demand.of(new.labels))

    return (
        on(SCV, Action.ADD | Action.UPDATE, after_report),
        on(NODE, Action.ADD, after_node),
        on(POD, Action.DELETE, after_departure),
        on(POD, Action.UPDATE_POD_LABEL, after_labels),
    )
