"""Queueing hints of Yoda: reports that are added or changed, new nodes, deleted pods."""

from __future__ import annotations

from collections.abc import Callable

from stowplan.framework.clusterevents import (
    NODE,
    POD,
    SCV,
    Action,
    ClusterEventWithHint,
    QueueingHint,
    on,
)
from stowplan.framework.handle_state import HandleState
from stowplan.objects.devices.scv import Scv
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint
from stowplan.plugins.yoda.gpu_request import GpuRequest

ReportFits = Callable[[GpuRequest, Scv], bool]
"""Whether the cards of a report would satisfy a request without any reservations."""


def yoda_events(report_fits: ReportFits, shared: HandleState) -> tuple[ClusterEventWithHint, ...]:
    """Events that Yoda registers.

    A report that would satisfy the pod before and after counts too: it may include what was
    reserved until now.
    """

    def after_report(pod: Pod, old: Scv | None, new: Scv) -> QueueingHint:
        return queueing_hint(report_fits(GpuRequest.of(pod.labels), new))

    def after_node(pod: Pod, old: None, new: Node) -> QueueingHint:
        scv = shared.object_store.find(Scv, new.name)
        return queueing_hint(scv is not None and report_fits(GpuRequest.of(pod.labels), scv))

    def after_departure(pod: Pod, old: Pod, new: None) -> QueueingHint:
        return queueing_hint(
            is_assigned_or_nominated(old) and not GpuRequest.of(old.labels).is_none
        )

    def after_labels(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(
            new.uid == pod.uid and GpuRequest.of(old.labels) != GpuRequest.of(new.labels)
        )

    return (
        on(SCV, Action.ADD | Action.UPDATE, after_report),
        on(NODE, Action.ADD, after_node),
        on(POD, Action.DELETE, after_departure),
        on(POD, Action.UPDATE_POD_LABEL, after_labels),
    )
