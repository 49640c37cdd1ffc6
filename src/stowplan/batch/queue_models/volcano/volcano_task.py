"""VolcanoTask: a pod in a session, with its status and node.

Source: volcano master of 2026-08-20, pkg/scheduler/api/job_info.go, pod_info.go, helpers.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.framework.deciders.tasks import TaskStatus, group_of
from stowplan.objects.meta import ObjectMeta, Time
from stowplan.objects.pod import Pod

PREEMPTABLE = "volcano.sh/preemptable"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
ADMISSION_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""Scheduling gate that Volcano itself removes."""

_EVICTION_KEYS = frozenset({PREEMPTABLE, REVOCABLE_ZONE})
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


class VolcanoTask:
    """A pod. node: name, "" for none; request: what it counts with.

    accepts_eviction: it may be evicted for others. near: HyperNode that its gang uses so far.
    """

    __slots__ = (
        "_created", "_index", "_kind", "accepts_eviction", "annotations", "is_best_effort",
        "is_gated", "job", "key", "near", "node", "pod", "priority", "request", "revocable_zone",
        "role", "status", "uid",
    )  # fmt: skip

    def __init__(self, pod: Pod) -> None:
        meta, annotations = pod.metadata, pod.metadata.annotations
        self.pod = pod
        self.uid = pod.uid
        self.key = pod.key
        self.job = group_of(pod)
        self._created: float | None = None
        self.request = VolcanoAmount.requested_by(pod)
        self.is_best_effort = self.request.is_empty
        self.accepts_eviction, self.revocable_zone = True, ""
        if not _EVICTION_KEYS.isdisjoint(annotations) or PREEMPTABLE in meta.labels:
            self.accepts_eviction = stated_preemptable(meta, default=True)
            self.revocable_zone = accepted_zone(annotations)
        self.role = annotations.get(TASK_SPEC) or meta.labels.get(TASK_SPEC, "")
        self.is_gated = bool(pod.spec.scheduling_gates)
        self.priority = _priority(pod)
        self._index: int | None = NOT_PARSED
        self.node = pod.node_name
        self.status = status_of_pod(pod)
        self.near = ""
        self._kind: Hashable = None
        self.annotations: dict[str, str] = {}

    @property
    def created(self) -> float:
        """When the pod was created, in seconds since 1970. Of most tasks it is never read."""
        if self._created is None:
            self._created = seconds(self.pod.metadata.creation_timestamp)
        return self._created

    def __repr__(self) -> str:
        return f"VolcanoTask({self.key}, {self.status.title}, {self.node!r})"

    @property
    def index(self) -> int | None:
        """Index of a pod of a Volcano job, by its name JOB-TASK-INDEX."""
        if self._index == NOT_PARSED:
            self._index = _index(self.pod.name)
        return self._index

    @property
    def kind(self) -> Hashable:
        """Equal for pods that rules cannot tell apart: their spec, namespace and labels."""
        if self._kind is None:
            pod = self.pod
            self._kind = id(pod.spec), pod.namespace, tuple(pod.labels.items())
        return self._kind

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


def _priority(pod: Pod) -> int:
    stated = pod.metadata.annotations.get(TASK_PRIORITY)
    number = None if stated is None else _integer(stated)
    if number is not None and -(2**31) <= number < 2**31:
        return number
    return 1 if pod.spec.priority is None else pod.spec.priority


def _index(name: str) -> int | None:
    """Index of a pod of a Volcano job, by its name JOB-TASK-INDEX."""
    parts = name.split("-")
    return _integer(parts[-1]) if len(parts) >= 3 else None


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() else None
