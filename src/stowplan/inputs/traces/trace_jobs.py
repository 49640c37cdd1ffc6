"""Jobs and machines of traces as pods, PodGroups, queues and nodes.

What all importers have in common: times are seconds since the trace's beginning; a tenant (user,
organisation, virtual cluster) is a namespace and a queue of weight 1; the pods of a job that runs
as a whole are in a PodGroup that needs all of them.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.openb import GPU, GPU_MILLI, MODEL_LABEL, PODS_PER_NODE
from stowplan.objects.devices.gpu_cards import CARD_MILLI, COUNT_KEY, MILLI_KEY, MODEL_KEY
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, Node, NodeStatus
from stowplan.objects.pod import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from stowplan.objects.podgroup import (
    GROUP_ANNOTATIONS,
    VOLCANO_API_VERSION,
    PodGroup,
    PodGroupSpec,
    Queue,
    QueueSpec,
)
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

QUEUE_ANNOTATION = "volcano.sh/queue-name"
DEFAULT_QUEUE = "default"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SECONDS_MAX = 253_402_300_799
NAME_MAX = 63
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.-]+")


class TraceJob(msgspec.Struct, frozen=True):
    """A job. submit_s: arrival. run_s: None for one that does not end. cards: GPU cards of a pod,
    each `gpu_milli` of it. models: of which one is needed; any for none. limit_s: declared time
    limit. is_gang: all pods run or none."""

    name: str
    submit_s: float
    run_s: float | None
    n_pods: int = 1
    tenant: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    cards: int = 0
    gpu_milli: int = CARD_MILLI
    models: tuple[str, ...] = ()
    priority: int | None = None
    preempts: bool = True
    limit_s: int | None = None
    is_gang: bool = False


class TraceMachine(msgspec.Struct, frozen=True):
    """A machine. cpu_milli, memory_mib: None where the trace does not say."""

    name: str
    cpu_milli: int | None = None
    memory_mib: int | None = None
    cards: int = 0
    model: str = ""


class TraceObjects:
    """Makes the objects of jobs and machines. Pods of equal requests share one PodSpec."""

    def __init__(self) -> None:
        self._specs: dict[TraceJob, PodSpec] = {}
        self._names: Counter[str] = Counter()
        self._queues: dict[str, None] = {}
        self._has_gangs = False

    def node(self, machine: TraceMachine) -> Node:
        """The node of a machine."""
        name = object_name(machine.name)
        offers: dict[str, Quantity] = {"pods": str(PODS_PER_NODE)}
        if machine.cpu_milli is not None:
            offers["cpu"] = f"{machine.cpu_milli}m"
        if machine.memory_mib is not None:
            offers["memory"] = f"{machine.memory_mib}Mi"
        labels = {HOSTNAME_LABEL: name}
        if machine.cards:
            milli = str(machine.cards * CARD_MILLI)
            offers |= {GPU: str(machine.cards), GPU_MILLI: milli, COUNT_KEY: str(machine.cards)}
            if machine.model:
                labels[MODEL_LABEL] = labels[MODEL_KEY] = label_value(machine.model)
        meta = ObjectMeta(name=name, labels=labels)
        return Node(metadata=meta, status=NodeStatus(allocatable=offers))

    def job(self, job: TraceJob) -> Iterator[Object]:
        """The pods of a job, and its PodGroup."""
        namespace = object_name(job.tenant) if job.tenant else "default"
        name = self._unique(namespace, object_name(job.name))
        annotations = {QUEUE_ANNOTATION: namespace} if job.tenant else {}
        if job.run_s is not None:
            annotations[RUN_ANNOTATION] = f"{max(job.run_s, 0.0):.3f}".rstrip("0").rstrip(".")
        if job.cards:
            annotations |= {COUNT_KEY: str(job.cards), MILLI_KEY: str(job.gpu_milli)}
            if job.models:
                annotations[MODEL_KEY] = "|".join(job.models)
        created = moment(job.submit_s)
        queue = namespace if job.tenant else DEFAULT_QUEUE
        self._queues.setdefault(queue)
        if job.is_gang and job.n_pods > 1:
            self._has_gangs = True
            annotations |= dict.fromkeys(GROUP_ANNOTATIONS, name)
            meta = ObjectMeta(name=name, namespace=namespace, creation_timestamp=created)
            spec = PodGroupSpec(min_member=job.n_pods, queue=queue)
            yield PodGroup(metadata=meta, api_version=VOLCANO_API_VERSION, spec=spec)
        for index in range(job.n_pods):
            meta = ObjectMeta(
                name=name if job.n_pods == 1 else f"{name}-{index}",
                namespace=namespace,
                creation_timestamp=created,
                annotations=annotations,
            )
            yield Pod(metadata=meta, spec=self._spec(job))

    def queues(self) -> Iterator[Queue]:
        """A queue per tenant, and the default one; none without gangs, as no session is needed."""
        if self._has_gangs:
            for name in sorted({DEFAULT_QUEUE, *self._queues}):
                meta = ObjectMeta(name=name)
                yield Queue(
                    metadata=meta, api_version=VOLCANO_API_VERSION, spec=QueueSpec(weight=1)
                )

    def _unique(self, namespace: str, name: str) -> str:
        """The name, with a number where another job has it already."""
        key = f"{namespace}/{name}"
        self._names[key] += 1
        if self._names[key] == 1:
            return name
        return f"{name[: NAME_MAX - 8]}-again-{self._names[key]}"

    def _spec(self, job: TraceJob) -> PodSpec:
        shape = msgspec.structs.replace(
            job, name="", submit_s=0.0, run_s=None, n_pods=1, tenant="", is_gang=False
        )
        found = self._specs.get(shape)
        if found is None:
            found = self._specs[shape] = _spec(job)
        return found


def moment(seconds: float) -> datetime.datetime:
    """The time of the trace as a timestamp, whole microseconds."""
    return EPOCH + datetime.timedelta(seconds=min(max(seconds, 0.0), SECONDS_MAX))


def object_name(text: str) -> str:
    """A name that the API server would take: `application_15_14199` as `application-15-14199`."""
    return _NOT_IN_NAMES.sub("-", text.lower())[:NAME_MAX].strip("-") or "unnamed"


def label_value(text: str) -> str:
    """A valid label value."""
    return _NOT_IN_LABELS.sub("-", text)[:NAME_MAX].strip("-_.")


def split_evenly(total: int, most: int) -> tuple[int, int]:
    """Parts of at most `most`, and how much each is, rounded up."""
    n_parts = max(math.ceil(total / most), 1)
    return n_parts, math.ceil(total / n_parts)


def _spec(job: TraceJob) -> PodSpec:
    asks: dict[str, Quantity] = {}
    if job.cpu_milli:
        asks["cpu"] = f"{job.cpu_milli}m"
    if job.memory_mib:
        asks["memory"] = f"{job.memory_mib}Mi"
    if job.cards:
        asks[GPU_MILLI] = str(job.cards * job.gpu_milli)
        if job.gpu_milli == CARD_MILLI:
            asks[GPU] = str(job.cards)
    container = Container(name="main", resources=ResourceRequirements(requests=asks))
    return PodSpec(
        containers=(container,),
        affinity=_requiring(job.models) if job.models else None,
        priority=job.priority,
        preemption_policy=None if job.preempts else "Never",
        active_deadline_seconds=job.limit_s,
    )


def _requiring(models: tuple[str, ...]) -> Affinity:
    requirement = NodeSelectorRequirement(key=MODEL_LABEL, operator="In", values=models)
    term = NodeSelectorTerm(match_expressions=(requirement,))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))


def counted(counts: Mapping[str, int]) -> list[str]:
    """Notes on what was left out: `12 jobs: never started`."""
    return [f"left out, {count:,} {what}" for what, count in counts.items() if count]
