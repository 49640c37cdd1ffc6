"""The session of KAI-Scheduler that objects give."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec
from msgspec import field

from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.kai_session import KaiRules, KaiSession
from stowplan.batch.queue_models.kai.kai_topology import KaiTopologyLevels, TopologyPlacement
from stowplan.batch.queue_models.kai.session_claims import Allocate, SessionClaims, claimed_gpus
from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARD_RESOURCES,
    CARDS,
    MIG_PREFIX,
    PODS,
    Amount,
    KaiCards,
    ResourceIndex,
    fraction_request,
    is_mig,
    plus,
)
from stowplan.batch.queue_models.kai.state.kai_job import KaiGroupTerms, KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_queue import KaiQueueTerms, QueueTree, Shares
from stowplan.batch.queue_models.kai.state.kai_task import (
    MEMORY_SHARE,
    MIG,
    SHARE,
    USED_STATUSES,
    WHOLE,
    KaiStatus,
    KaiTask,
    is_gpu_class,
)
from stowplan.batch.queue_models.kai.state.numa_zones import NumaTopology
from stowplan.batch.queue_models.kai.state.pod_sets import sub_group_tree
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding import duration
from stowplan.objects.kai.annotation_numbers import decimal, unsigned_number
from stowplan.objects.kai.bind_request import reserves_card
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KaiPodGroupObject,
    KaiQueueObject,
    KaiQueueResource,
    KaiQueueResources,
    KaiSubGroup,
    KaiTopologyConstraint,
    KaiTopologyObject,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import value
from stowplan.objects.workload import PriorityClass

DEFAULT_PRIORITY = 50
DEFAULT_QUEUE_PRIORITY = 100
PREEMPTIBLE_BELOW = 100
MEMORY_UNIT = 10**6
STUCK_AFTER = 120.0
ASKS_MAX = 10_000
"""Kinds of containers of which it is kept what they ask for."""
ZonesOf = Callable[[str, ResourceIndex], NumaTopology | None]


class KaiPodState(msgspec.Struct, frozen=True):
    """Where a pod is, instead of what its object says."""

    status: KaiStatus
    node: str = ""
    groups: tuple[str, ...] | None = None
    is_old_mig: bool = False


class KaiObjects(msgspec.Struct, frozen=True):
    """Objects of a cluster. now: seconds. states: by pod key. numa: (node, resources) -> the zones
    of a node, None where none count. allocate: chooses devices of a node, see `session_claims`.
    scheduler_names: queues do not divide what pods of other schedulers have on nodes; without names
    it counts as theirs. usage: of queues over time."""

    now: float
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    groups: Sequence[KaiPodGroupObject] = ()
    queues: Sequence[KaiQueueObject] = ()
    priority_classes: Sequence[PriorityClass] = ()
    topologies: Sequence[KaiTopologyObject] = ()
    states: Mapping[str, KaiPodState] = field(default_factory=dict)
    numa: ZonesOf = lambda *_: None
    claims: Sequence[ResourceClaim] = ()
    slices: Sequence[ResourceSlice] = ()
    device_classes: Sequence[DeviceClass] = ()
    allocate: Allocate = lambda *_: None
    scheduler_names: tuple[str, ...] = ()
    usage: Mapping[str, Shares] = field(default_factory=dict)


def session_of(
    objects: KaiObjects,
    options: KaiOptions,
    rules: KaiRules,
) -> KaiSession:
    """The session that objects give."""
    index = resource_index(objects.nodes, objects.pods)
    nodes = [
        KaiNode(node, index, objects.numa(node.name, index))
        for node in sorted(objects.nodes, key=lambda one: one.name)
    ]
    classes = [one.name for one in objects.device_classes]
    claims = SessionClaims(objects.claims, classes, objects.allocate)
    tasks = [task_of(pod, objects.now, index, claims) for pod in objects.pods]
    for task in tasks:
        _set_state(task, objects.states.get(task.key))
    by_name = {node.name: node for node in nodes}
    for one in objects.slices:
        node = by_name.get(one.spec.node_name or "")
        if node is not None and one.spec.devices and is_gpu_class(one.spec.driver):
            node.add_claimed_cards(len(one.spec.devices))
    for task in tasks:
        if task.node in by_name and task.status & USED_STATUSES:
            by_name[task.node].add(task)
    context = JobContext(objects.queues, objects.priority_classes, objects.topologies, index)
    jobs = [job_of(group, context) for group in objects.groups]
    by_uid = {job.uid: job for job in jobs}
    for task in tasks:
        if task.job in by_uid:
            by_uid[task.job].add(task)
    total = [0.0, 0.0, 0.0]
    for node in nodes:
        if node.is_ready:
            shares = index.shares(node.allocatable)
            total = [a + b for a, b in zip(total, shares, strict=True)]
    for task in _of_others(tasks, objects.scheduler_names):
        if task.node in by_name and by_name[task.node].is_ready:
            shares = index.shares(task.request)
            total = [a - b for a, b in zip(total, shares, strict=True)]
    queues = QueueTree([queue_terms(queue) for queue in objects.queues], total)
    topology = topologies_of(objects.topologies, nodes)
    return KaiSession(
        options, nodes, jobs, queues, topology, objects.now, rules, claims, usage=objects.usage
    )


def topologies_of(
    objects: Iterable[KaiTopologyObject], nodes: Sequence[KaiNode]
) -> TopologyPlacement:
    """The topologies of a session."""
    levels = [
        KaiTopologyLevels(one.name, tuple(level.node_label for level in one.spec.levels))
        for one in objects
    ]
    return TopologyPlacement(levels, nodes)


def _of_others(tasks: Iterable[KaiTask], names: Collection[str]) -> Iterable[KaiTask]:
    """Pods of other schedulers on nodes."""
    return (
        task
        for task in tasks
        if names
        and task.status & USED_STATUSES
        and task.pod.spec.scheduler_name not in names
        and not reserves_card(task.pod.labels)
    )


def resource_names(pod: Pod) -> set[str]:
    """The resources that a pod names."""
    names = {name for name in pod.metadata.annotations if is_mig(name)} | {*pod.spec.overhead}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        names |= container.resources.requests.keys()
    return names


def resource_index(nodes: Iterable[Node], pods: Iterable[Pod]) -> ResourceIndex:
    """The resources that nodes and pods name."""
    names = {name for node in nodes for name in node.status.allocatable}
    for pod in pods:
        names |= resource_names(pod)
    return ResourceIndex(names)


# Pods.


def task_of(pod: Pod, now: float, index: ResourceIndex, claims: SessionClaims) -> KaiTask:
    """The pod of a session that a pod is."""
    annotations = pod.metadata.annotations
    if reserves_card(pod.labels):
        return _reservation_of(pod, now, index)
    if not pod.spec.resource_claims and not any(map(_is_of_cards, annotations)):
        return _plain_task_of(pod, now, index)
    request, cards = _requests(pod, index)
    kind, is_old_mig = WHOLE, False
    memory = unsigned_number(annotations.get("gpu-memory")) or 0
    portion = decimal(annotations.get("gpu-fraction"))
    if memory > 0:
        kind, cards = MEMORY_SHARE, fraction_request(0, memory)
    if 0 < portion <= 1:
        kind, cards = SHARE, fraction_request(portion, 0)
    devices = unsigned_number(annotations.get("gpu-fraction-num-devices"))
    if kind != WHOLE and devices is not None:
        cards = KaiCards(devices, portion, memory)
    if pod.spec.resource_claims:
        cards.claimed = claimed_gpus(claims.of(pod))
    for name, text in annotations.items():
        if is_mig(name) and (count := unsigned_number(text)) is not None:
            cards, is_old_mig = KaiCards(mig={name: count}), True
    if cards.mig:
        kind = MIG
    request[CARDS] = cards.cards + cards.claimed_cards
    for name, instances in cards.mig.items():
        request[index.place[name]] = float(instances)
    job = annotations.get(KAI_GROUP_ANNOTATION, "")
    task = KaiTask(pod, job, request, cards, kind, _status(pod, now))
    task.is_old_mig = is_old_mig
    if pod.spec.resource_claims:
        claims.read_devices(task)
    return task


def _reservation_of(pod: Pod, now: float, index: ResourceIndex) -> KaiTask:
    """The same of a pod that holds a card: its users count for that."""
    request = [*_asks(pod, index)[0]]
    request[CARDS] = 0.0
    return KaiTask(pod, "", request, KaiCards(), WHOLE, _status(pod, now))


def _is_of_cards(annotation: str) -> bool:
    return annotation.startswith(("gpu-", MIG_PREFIX))


def _plain_task_of(pod: Pod, now: float, index: ResourceIndex) -> KaiTask:
    """The same of a pod that asks by its containers alone; pods that ask for the same share it."""
    spec = pod.spec
    if len(spec.containers) == 1 and not spec.init_containers and not spec.overhead:
        key = tuple(spec.containers[0].resources.requests.items())
        known = index.asks.get(key)
        if known is None:
            if len(index.asks) >= ASKS_MAX:
                index.asks.clear()
            known = index.asks[key] = _asks(pod, index)
    else:
        known = _asks(pod, index)
    request, cards = known
    job = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, "")
    return KaiTask(pod, job, request, cards, MIG if cards.mig else WHOLE, _status(pod, now))


def _asks(pod: Pod, index: ResourceIndex) -> tuple[Amount, KaiCards]:
    request, cards = _requests(pod, index)
    request[CARDS] = cards.cards
    for name, instances in cards.mig.items():
        request[index.place[name]] = float(instances)
    return request, cards


def _set_state(task: KaiTask, state: KaiPodState | None) -> None:
    if state is None:
        return
    task.status, task.node = int(state.status), state.node
    task.is_old_mig |= state.is_old_mig
    if state.groups is not None:
        task.groups = state.groups


def _requests(pod: Pod, index: ResourceIndex) -> tuple[Amount, KaiCards]:
    """What containers ask for: their sum with sidecars, or what starting needs if that is more."""
    total, cards = index.empty(), KaiCards()
    for container in pod.spec.containers:
        total = [
            a + b for a, b in zip(total, index.read(container.resources.requests), strict=True)
        ]
        _add_cards(cards, container.resources.requests)
    sidecars, peak = index.empty(), index.empty()
    for container in pod.spec.init_containers:
        asked = index.read(container.resources.requests)
        if container.is_sidecar:
            sidecars = plus(sidecars, asked)
            _add_cards(cards, container.resources.requests)
        else:
            peak = [max(a, b + c) for a, b, c in zip(peak, asked, sidecars, strict=True)]
    total = [max(a + b, c) for a, b, c in zip(total, sidecars, peak, strict=True)]
    if peak[CARDS] > cards.count:
        cards.count, cards.portion = int(peak[CARDS]), 1.0
    if pod.spec.overhead:
        total = plus(total, index.read(pod.spec.overhead))
    total[PODS] = 1.0
    return total, cards


def _add_cards(cards: KaiCards, requests: Mapping[str, str | int | float]) -> None:
    for name, quantity in requests.items():
        if name in CARD_RESOURCES:
            count = value(quantity)
            if count >= 1:
                cards.count += count
                cards.portion = 1.0
        elif is_mig(name):
            cards.mig[name] = cards.mig.get(name, 0) + value(quantity)


def _status(pod: Pod, now: float) -> int:
    deleted = pod.metadata.deletion_timestamp
    phase = pod.status.phase
    if phase == "Running":
        if deleted is None:
            return KaiStatus.RUNNING
        is_stuck = now - deleted.timestamp() > STUCK_AFTER
        return KaiStatus.STUCK if is_stuck else KaiStatus.RELEASING
    if phase == "Pending":
        if deleted is not None:
            return KaiStatus.RELEASING
        if pod.spec.node_name:
            return KaiStatus.BOUND
        return KaiStatus.GATED if pod.spec.scheduling_gates else KaiStatus.PENDING
    if phase in ("Succeeded", "Failed"):
        return KaiStatus[phase.upper()]
    return KaiStatus.UNKNOWN


# Groups and queues.


class JobContext:
    """What the jobs of groups depend on beside them."""

    def __init__(
        self,
        queues: Iterable[KaiQueueObject],
        classes: Sequence[PriorityClass],
        topologies: Sequence[KaiTopologyObject],
        index: ResourceIndex,
    ) -> None:
        self.queues = frozenset(queue.name for queue in queues)
        self.classes = {one.name: one.value for one in classes}
        defaults = (one.value for one in classes if one.global_default)
        self.default_priority = next(defaults, DEFAULT_PRIORITY)
        self.aliases = {
            (one.name, level.alias): level.node_label
            for one in topologies
            for level in one.spec.levels
            if level.alias
        }
        self.index = index


def job_of(group: KaiPodGroupObject, context: JobContext) -> KaiJob:
    """The job of a group, without pods."""
    spec, meta = group.spec, group.metadata
    classes, default = context.classes, context.default_priority
    has_queue = spec.queue in context.queues
    priority = classes.get(spec.priority_class_name, default) if has_queue else 0
    is_preemptible = (
        spec.preemptibility == "preemptible"
        if spec.preemptibility
        else (priority < PREEMPTIBLE_BELOW)
    )
    constraint = spec.topology_constraint
    notes = meta.annotations
    terms = KaiGroupTerms(
        uid=meta.name,
        name=meta.name,
        queue=spec.queue,
        priority=priority,
        is_preemptible=is_preemptible and has_queue,
        created=_seconds(meta.creation_timestamp),
        last_start=_stamp(notes.get("kai.scheduler/last-start-timestamp")),
        last_eviction=_stamp(notes.get("kai.scheduler/last-eviction-timestamp")),
        stale_since=_stamp(notes.get("kai.scheduler/stale-podgroup-timestamp")),
        preemption_delay=_duration(spec.preemption_delay),
        grace=_duration(spec.staleness_grace_period),
    )
    aliases = context.aliases
    root = sub_group_tree(
        [_resolved_group(one, aliases) for one in spec.sub_groups],
        spec.min_member,
        spec.min_sub_group,
        _resolved(constraint, aliases) if constraint.topology else None,
    )
    return KaiJob(terms, root, context.index)


def _resolved_group(group: KaiSubGroup, aliases: Mapping[tuple[str, str], str]) -> KaiSubGroup:
    if group.topology_constraint is None:
        return group
    return msgspec.structs.replace(
        group, topology_constraint=_resolved(group.topology_constraint, aliases)
    )


def _resolved(
    constraint: KaiTopologyConstraint, aliases: Mapping[tuple[str, str], str]
) -> KaiTopologyConstraint:
    def label(level: str) -> str:
        return aliases.get((constraint.topology, level), level)

    return KaiTopologyConstraint(
        constraint.topology,
        label(constraint.required_topology_level),
        label(constraint.preferred_topology_level),
    )


def _seconds(moment: datetime.datetime | None) -> float:
    return moment.timestamp() if moment else float("-inf")


def _stamp(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _duration(text: str | None) -> float | None:
    """Seconds; None where nothing is stated that can be read: an object must not end a session."""
    try:
        return None if text is None else duration.parse(text) / timedelta(seconds=1)
    except ValueError:
        return None


def queue_terms(queue: KaiQueueObject) -> KaiQueueTerms:
    """What a queue's object says."""
    spec = queue.spec
    resources = spec.resources or KaiQueueResources()
    return KaiQueueTerms(
        name=queue.name,
        parent=spec.parent_queue,
        priority=DEFAULT_QUEUE_PRIORITY if spec.priority is None else spec.priority,
        created=_seconds(queue.metadata.creation_timestamp),
        quota=_bounds(one.quota for one in _each(resources)),
        limit=_bounds(one.limit for one in _each(resources)),
        weight=_weights(one.over_quota_weight for one in _each(resources)),
        reclaim_min_runtime=_duration(spec.reclaim_min_runtime),
        preempt_min_runtime=_duration(spec.preempt_min_runtime),
    )


def _each(resources: KaiQueueResources) -> tuple[KaiQueueResource, ...]:
    return resources.cpu, resources.memory, resources.gpu


def _weights(values: Iterable[float]) -> Shares:
    # What JSON does not have gets nothing: an object must not end a session.
    cpu, memory, cards = (one if math.isfinite(one) else 0.0 for one in values)
    return cpu, memory, cards


def _bounds(values: Iterable[float]) -> Shares:
    cpu, memory, cards = values
    return cpu, max(UNLIMITED, memory * MEMORY_UNIT), cards
