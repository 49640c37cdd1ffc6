"""VolcanoTask: a pod in a session, with its status and node.

Source: volcano master of 2026-08-20, pkg/scheduler/api/job_info.go, pod_info.go, helpers.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.columns.pods.podinfo import reports_resources
from stowplan.framework.deciders.tasks import TaskStatus, group_of
from stowplan.objects.meta import ObjectMeta, Time
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import template_of

PREEMPTABLE = "volcano.sh/preemptable"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
ADMISSION_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""Scheduling gate that Volcano itself removes."""

_EVICTION_KEYS = frozenset({PREEMPTABLE, REVOCABLE_ZONE})
NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
_KEPT = "what a task of Volcano takes from it"
NOT_PARSED = -(2**63)
"""Index of a task whose name was not looked at yet."""

ZERO_TIME = -62135596800.0
"""The time of an object without one, in seconds since 1970: the start of year 1."""

ALLOCATED_STATUSES = frozenset(
    {TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING, TaskStatus.ALLOCATED}
)
READY_STATUSES = ALLOCATED_STATUSES | {TaskStatus.SUCCEEDED}
WAITING_STATUSES = READY_STATUSES | {TaskStatus.PIPELINED}
VALID_STATUSES = WAITING_STATUSES | {TaskStatus.PENDING}
SCHEDULED_STATUSES = frozenset(
    {TaskStatus.RUNNING, TaskStatus.BOUND, TaskStatus.FAILED, TaskStatus.SUCCEEDED}
)
COMPLETED_STATUSES = frozenset({TaskStatus.FAILED, TaskStatus.SUCCEEDED})
EVICTABLE_STATUSES = frozenset({TaskStatus.BOUND, TaskStatus.RUNNING})

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def seconds(time: Time | None) -> float:
    """A time in seconds since 1970."""
    return ZERO_TIME if time is None else time.timestamp()


def parse_bool(text: str) -> bool | None:
    """A boolean as Go reads it; None for another text."""
    return True if text in _TRUE else False if text in _FALSE else None


def stated_preemptable(meta: ObjectMeta, *, default: bool) -> bool:
    """The annotation, or else the label, that says whether pods may be evicted for others."""
    for values in (meta.annotations, meta.labels):
        if PREEMPTABLE in values:
            return parse_bool(values[PREEMPTABLE]) is True
    return default


def accepted_zone(annotations: Mapping[str, str]) -> str:
    """`*` if revocable zones are accepted, otherwise ""."""
    if REVOCABLE_ZONE in annotations:
        return "*" if annotations[REVOCABLE_ZONE] == "*" else ""
    return "*" if parse_bool(annotations.get(PREEMPTABLE, "")) else ""


class _TemplateFacts(NamedTuple):
    """What pods of a template have in common."""

    request: VolcanoAmount
    is_best_effort: bool
    is_gated: bool
    priority: int

    @classmethod
    def of(cls, pod: Pod) -> _TemplateFacts:
        """Those of one pod."""
        spec, request = pod.spec, VolcanoAmount.requested_by(pod)
        priority = 1 if spec.priority is None else spec.priority
        return cls(request, request.is_empty, bool(spec.scheduling_gates), priority)


def status_of_pod(pod: Pod) -> TaskStatus:
    """Status by the pod's phase, node and deletion; a gated pod is pending."""
    phase = pod.status.phase
    if phase in ("Running", "Pending"):
        if pod.metadata.deletion_timestamp is not None:
            return TaskStatus.RELEASING
        if phase == "Running":
            return TaskStatus.RUNNING
        return TaskStatus.BOUND if pod.node_name else TaskStatus.PENDING
    if phase == "Succeeded":
        return TaskStatus.SUCCEEDED
    return TaskStatus.FAILED if phase == "Failed" else TaskStatus.UNKNOWN


class VolcanoTask(msgspec.Struct, gc=False, eq=False):
    """A pod. node: name, "" for none; request: what it counts with.

    accepts_eviction: it may be evicted for others. near: HyperNode that its gang uses so far.
    annotations: what placing it adds to the pod. Nothing refers back to a task that it refers to,
    so the garbage collector need not look at it.
    """

    pod: Pod
    uid: str
    key: str
    job: str
    request: VolcanoAmount
    is_best_effort: bool
    is_gated: bool
    priority: int
    node: str
    status: TaskStatus
    role: str
    accepts_eviction: bool = True
    revocable_zone: str = ""
    near: str = ""
    annotations: Mapping[str, str] = NO_ANNOTATIONS
    kept_created: float | None = None
    kept_index: int | None = NOT_PARSED
    kept_kind: Hashable = None

    @classmethod
    def of(cls, pod: Pod) -> VolcanoTask:
        """The task of a pod, as its status says."""
        meta, spec = pod.metadata, pod.spec
        annotations, labels = meta.annotations, meta.labels
        facts = _facts_of(pod)
        priority = facts.priority
        if TASK_PRIORITY in annotations:
            priority = _priority(annotations[TASK_PRIORITY], priority)
        role = annotations.get(TASK_SPEC) or (labels.get(TASK_SPEC, "") if labels else "")
        key = pod.key
        made = cls(
            pod,
            meta.uid or key,
            key,
            group_of(pod),
            facts.request,
            facts.is_best_effort,
            facts.is_gated,
            priority,
            spec.node_name,
            status_of_pod(pod),
            role,
        )
        if not _EVICTION_KEYS.isdisjoint(annotations) or PREEMPTABLE in labels:
            made.accepts_eviction = stated_preemptable(meta, default=True)
            made.revocable_zone = accepted_zone(annotations)
        return made

    @property
    def created(self) -> float:
        """When the pod was created, in seconds since 1970. Of most tasks it is never read."""
        if self.kept_created is None:
            self.kept_created = seconds(self.pod.metadata.creation_timestamp)
        return self.kept_created

    def __repr__(self) -> str:
        return f"VolcanoTask({self.key}, {self.status.title}, {self.node!r})"

    @property
    def index(self) -> int | None:
        """Index of a pod of a Volcano job, by its name JOB-TASK-INDEX."""
        if self.kept_index == NOT_PARSED:
            self.kept_index = _index(self.pod.name)
        return self.kept_index

    @property
    def kind(self) -> Hashable:
        """Equal for pods that rules cannot tell apart: their spec, namespace and labels."""
        if self.kept_kind is None:
            pod = self.pod
            self.kept_kind = id(pod.spec), pod.namespace, tuple(pod.labels.items())
        return self.kept_kind

    @property
    def is_gated_by_others(self) -> bool:
        """True if it has a scheduling gate that is not Volcano's own, or several."""
        gates = self.pod.spec.scheduling_gates
        return bool(gates) and not (len(gates) == 1 and gates[0].name == ADMISSION_GATE)

    @property
    def never_preempts(self) -> bool:
        """True by its preemption policy."""
        return self.pod.spec.preemption_policy == "Never"

    def comes_before(self, other: VolcanoTask) -> bool:
        """Order where no plugin states one: index in the name, creation time, uid."""
        mine, its = self.index, other.index
        if mine is not None and its is not None and mine != its:
            return mine < its
        if self.created != other.created:
            return self.created < other.created
        return self.uid < other.uid


def sum_of_requests(tasks: Iterable[VolcanoTask]) -> VolcanoAmount:
    """What tasks request together; those of a template share their request.

    Requests are whole numbers of their units, so a multiple is the same as a sum.
    """
    requests = [task.request for task in tasks]
    alike = Counter(map(id, requests))
    different = {id(request): request for request in requests}
    total = VolcanoAmount()
    for key, number in alike.items():
        request = different[key]
        total.add(request if number == 1 else request.copy().multiply(number))
    return total


def _facts_of(pod: Pod) -> _TemplateFacts:
    """What a task takes from the template of its pod."""
    if reports_resources(pod):
        return _TemplateFacts.of(pod)
    shared = template_of(pod.spec).__dict__
    kept: _TemplateFacts | None = shared.get(_KEPT)
    if kept is None:
        kept = shared[_KEPT] = _TemplateFacts.of(pod)
    return kept


def _priority(stated: str, default: int) -> int:
    number = _integer(stated)
    return number if number is not None and -(2**31) <= number < 2**31 else default


def _index(name: str) -> int | None:
    """Index of a pod of a Volcano job, by its name JOB-TASK-INDEX."""
    parts = name.split("-")
    return _integer(parts[-1]) if len(parts) >= 3 else None


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() else None
