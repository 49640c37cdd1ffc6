"""Pending pods by cause: evaluated on the cluster, or as its scheduler has recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle.attempt import filter_pod
from stowplan.cycle.change import Change
from stowplan.framework import Framework, Snapshot
from stowplan.framework.diagnosis import NO_NODES
from stowplan.inputs.counts import count_of
from stowplan.insight.pod_owners import owner_text
from stowplan.insight.pod_placement import condition_message, strip_node_counts
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table
from stowplan.objects.pod import Pod

SCHEMA = "stowplan.dev/pending-causes/v1"
NOT_RECORDED = "nothing recorded"
CAN_RUN = "a node fits; not scheduled yet"
FAILED = "FailedScheduling"


class PendingCause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods that are pending for the same reason.

    pods: their keys, in order of arrival. owners: the top-level owners of them, in that order.
    changes: those of the first pod, cheapest first.
    """

    cause: str
    count: int
    pods: tuple[str, ...]
    owners: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


class PendingCauses(msgspec.Struct, frozen=True, rename="camel"):
    """All pending pods by cause, the largest group first."""

    api_version: str
    pending: int
    causes: tuple[PendingCause, ...]

    def __repr__(self) -> str:
        causes = count_of(len(self.causes), "cause")
        return f"PendingCauses({count_of(self.pending, 'pending pod')}, {causes})"

    def _repr_html_(self) -> str:
        """For notebooks: a row per cause, with the cheapest change for its first pod."""
        rows = (
            (one.count, one.cause, one.pods[0], one.changes[0].text if one.changes else "")
            for one in self.causes
        )
        columns = ("Pods", "Cause", "First pod", "Change that helps it")
        return html_summary(repr(self), html_table(columns, rows))

    def to_frame(self, library: str = "") -> Any:
        """The pending pods as a DataFrame, one row each with its cause."""
        rows = [(one, pod) for one in self.causes for pod in one.pods]
        columns = {"pod": [pod for _, pod in rows], "cause": [one.cause for one, _ in rows]}
        return to_dataframe(columns, library)


def group_by_cause(
    pods: Iterable[Pod],
    cause_of: Callable[[Pod], str],
    changes_of: Callable[[Pod], tuple[Change, ...]] | None = None,
) -> PendingCauses:
    """Group pods by the text of their cause; equally large groups by text.

    changes_of: called for the first pod of each group.
    """
    groups: dict[str, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(cause_of(pod), []).append(pod)
    causes = [
        PendingCause(
            cause,
            len(group),
            tuple(pod.key for pod in group),
            tuple(dict.fromkeys(owner_text(pod) for pod in group if pod.controller is not None)),
            () if changes_of is None else changes_of(group[0]),
        )
        for cause, group in groups.items()
    ]
    causes.sort(key=lambda one: (-one.count, one.cause))
    return PendingCauses(SCHEMA, sum(one.count for one in causes), tuple(causes))


class EvaluatedCauses:
    """Causes by an attempt per kind of pod, on the cluster as given."""

    def __init__(
        self,
        snapshot: Snapshot,
        frameworks: Mapping[str, Framework],
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        """reasons: of pods that sessions schedule, by key."""
        self.snapshot = snapshot
        self.reasons = reasons or {}
        self.frameworks = frameworks
        # Pods of one template share their spec. The spec is kept, so that its id stays its own.
        self._known: dict[object, tuple[object, str]] = {}

    def cause_of(self, pod: Pod) -> str:
        """Why a pending pod has no node, without numbers of nodes."""
        if pod.key in self.reasons:
            return self.reasons[pod.key]
        status = pod.status
        key = (
            id(pod.spec), pod.namespace, tuple(sorted(pod.labels.items())),
            status.nominated_node_name, pod.uid if status.nominated_node_name else "",
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = pod.spec, self._evaluated(pod)
        return self._known[key][1]

    def _evaluated(self, pod: Pod) -> str:
        framework = self.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return no_profile(pod.spec.scheduler_name)
        gate = framework.run_pre_enqueue(pod)
        if not gate.is_success:
            return gate.message
        attempt = filter_pod(pod, self.snapshot, framework)
        if attempt.no_nodes:
            return NO_NODES
        if attempt.failure is not None:
            return attempt.failure.message
        if attempt.passed.shape[0]:
            return CAN_RUN
        return "; ".join(sorted(attempt.diagnosis.reasons()))


def recorded_cause(pod: Pod, events: Mapping[str, str]) -> str:
    """The latest FailedScheduling event of a pod, else its PodScheduled condition, without numbers
    of nodes. events: see `failed_scheduling_events`."""
    text = events.get(pod.key) or condition_message(pod)
    return strip_node_counts(text) if text else NOT_RECORDED


def failed_scheduling_events(manifests: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Pod key -> message of its latest FailedScheduling event, of v1 or events.k8s.io/v1."""
    latest: dict[str, tuple[str, str]] = {}
    for tree in manifests:
        if tree.get("kind") != "Event" or tree.get("reason") != FAILED:
            continue
        about = tree.get("involvedObject") or tree.get("regarding") or {}
        if about.get("kind") != "Pod":
            continue
        series = tree.get("series") or {}
        times = (
            series.get("lastObservedTime"), tree.get("lastTimestamp"), tree.get("eventTime"),
            tree.get("deprecatedLastTimestamp"), tree.get("metadata", {}).get("creationTimestamp"),
        )  # fmt: skip
        when = next((str(time) for time in times if time), "")
        key = f"{about.get('namespace') or 'default'}/{about.get('name')}"
        message = str(tree.get("message") or tree.get("note") or "")
        if key not in latest or latest[key][0] <= when:
            latest[key] = when, message
    return {key: message for key, (_, message) in latest.items()}
