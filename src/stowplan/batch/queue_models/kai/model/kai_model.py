"""KaiModel: KAI-Scheduler's sessions as a queue model of the scheduler.

Every session reads the whole cluster.

Differs: KAI writes the times of groups, the cards of shares and conditions to PodGroups and pods;
here they are remembered (`kai_memory`), and only conditions of pods are written. KAI's priority
classes exist also where they are not installed. NodeResourceTopology objects are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from stowplan.batch.queue_models.kai.actions.kai_actions import ACTIONS
from stowplan.batch.queue_models.kai.kai_objects import (
    KaiObjects,
    session_of,
)
from stowplan.batch.queue_models.kai.kai_session import KaiOptions, KaiRules, KaiSession
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory
from stowplan.batch.queue_models.kai.model.kai_reasons import KaiReasons
from stowplan.batch.queue_models.kai.model.kai_report import OpenKaiSession, report_of
from stowplan.batch.queue_models.kai.model.pod_grouper import grouped, grouped_name
from stowplan.batch.queue_models.kai.session_claims import Allocate
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask
from stowplan.batch.queue_models.queue_model import (
    ModelCluster,
    ModelDecisions,
    ModelReport,
    ModelVictim,
)
from stowplan.framework import ContractError
from stowplan.framework.deciders.session_decider import PodReport
from stowplan.framework.deciders.session_metrics import ACTION_LATENCY
from stowplan.framework.metrics import Metrics
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KaiPodGroupObject,
    KaiQueueObject,
    KaiTopologyObject,
)
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PriorityClass

PRIORITY_CLASSES: Mapping[str, int] = {
    "train": 50,
    "build-preemptible": 75,
    "build": 100,
    "inference": 125,
}
"""KAI's own priority classes."""

LOOKED_AT_MAX = 100
"""Waiting jobs whose reason is looked at in a session."""

T = TypeVar("T", bound=Object)


class KaiParts(msgspec.Struct, frozen=True):
    """What the assembly provides. devices: (slices, classes) -> chooses devices for claims."""

    rules: KaiRules
    devices: Callable[[Iterable[ResourceSlice], Iterable[DeviceClass]], Allocate]


class KaiModel:
    """Sessions of KAI-Scheduler on the cluster that the scheduler follows."""

    name = "kai"
    reads: tuple[type[Object], ...] = (
        KaiPodGroupObject,
        KaiQueueObject,
        KaiTopologyObject,
        PriorityClass,
        ResourceClaim,
        ResourceSlice,
        DeviceClass,
    )

    def __init__(
        self, options: KaiOptions, parts: KaiParts, scheduler_names: tuple[str, ...]
    ) -> None:
        self._options = options
        self._parts = parts
        self._names = scheduler_names
        self._memory = KaiMemory()
        self._reported: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._next = 0
        self._last = ModelReport()
        self._keeps_reports = False
        self._asked = ""

    def configure(self, settings: object) -> None:
        """Use other actions and plugins. settings: KaiOptions."""
        if not isinstance(settings, KaiOptions):
            raise ContractError("settings of the queue model kai must be KaiOptions")
        self._options = settings

    def decide(self, cluster: ModelCluster, metrics: Metrics) -> ModelDecisions:
        """Run a session."""
        opened = self._open(cluster)
        session = opened.session
        placed = {t.uid: t.node for job in session.jobs.values() for t in job.tasks() if t.node}
        causes: dict[str, str] = {}
        for name in self._options.actions:
            began, n_before = metrics.stopwatch(), len(session.evicts)
            ACTIONS[name](session)
            causes.update(dict.fromkeys(session.evicts[n_before:], name))
            took = (metrics.stopwatch() - began) * 1e6
            metrics.observe(ACTION_LATENCY, took, (("action", name),))
        reasons = KaiReasons(session)
        decisions = self._decisions(opened, reasons, causes, placed)
        self._memory.note(session)
        if self._keeps_reports:
            self._last = report_of(opened, reasons, self._asked)
        return decisions

    def look(self, cluster: ModelCluster) -> ModelReport:
        """Jobs and queues as a session finds them."""
        opened = self._open(cluster)
        return report_of(opened, KaiReasons(opened.session), self._asked)

    def inspect(self, pod: str = "") -> None:
        """Keep a report of each session from now on. pod: uid of one that is asked about."""
        self._keeps_reports, self._asked = True, pod

    def report(self) -> ModelReport:
        """Jobs and queues as the last session left them."""
        return self._last

    # The session.

    def _open(self, cluster: ModelCluster) -> OpenKaiSession:
        classes = _classes(_all(cluster, PriorityClass))
        names = {one.name for one in classes}
        groups = {one.key: one for one in _all(cluster, KaiPodGroupObject)}
        own: dict[str, Pod] = {}
        orphans: dict[str, list[Pod]] = {}
        pods = []
        for pod in cluster.pods.values():
            is_ours = pod.spec.scheduler_name in self._names
            if not is_ours and not pod.node_name:
                continue
            stated = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, "")
            key = f"{pod.namespace}/{stated or grouped_name(pod)}" if is_ours else ""
            if stated and is_ours and key not in groups:
                orphans.setdefault(key, []).append(pod)
            elif is_ours and key not in groups:
                groups[key] = grouped(pod, names)
            if is_ours and not stated:
                own.setdefault(key, pod)
            pods.append(self._memory.pod(pod, key))
        table = cluster.snapshot.nodes
        slices, devices = _all(cluster, ResourceSlice), _all(cluster, DeviceClass)
        objects = KaiObjects(
            cluster.now / 1e9,
            [table.nodes[row] for row in table.order.tolist()],
            pods,
            [self._memory.group(one) for one in groups.values()],
            _all(cluster, KaiQueueObject),
            classes,
            _all(cluster, KaiTopologyObject),
            claims=_all(cluster, ResourceClaim),
            slices=slices,
            device_classes=devices,
            allocate=self._parts.devices(slices, devices),
            scheduler_names=self._names,
        )
        session = session_of(objects, self._options, self._parts.rules)
        return OpenKaiSession(session, own, orphans)

    def _decisions(
        self,
        opened: OpenKaiSession,
        reasons: KaiReasons,
        causes: Mapping[str, str],
        placed: Mapping[str, str],
    ) -> ModelDecisions:
        session = opened.session
        bound: dict[str, str] = {}
        gangs: dict[str, str] = {}
        unready: list[tuple[str, int]] = []
        victims: list[ModelVictim] = []
        found: dict[str, tuple[Pod, str]] = {}
        for job in session.jobs.values():
            tasks = job.tasks()
            new = [t for t in tasks if t.status == KaiStatus.BINDING and t.uid not in placed]
            bound.update((task.uid, task.node) for task in new)
            missing = reasons.missing(job)
            if new and job.active - len(new) < reasons.minimum(job):
                gangs.update((task.uid, job.uid) for task in new)
            elif missing > 0:
                unready.append((job.uid, missing))
            victims += (
                ModelVictim(task.uid, causes[task.key])
                for task in _evicted(tasks, placed)
                if task.key in causes
            )
        for job, text in self._texts_of(session, reasons):
            found.update((t.uid, (t.pod, text)) for t in job.pending() if text)
        for key, pods in opened.orphans.items():
            text = reasons.no_group(key)
            found.update((pod.uid, (pod, text)) for pod in pods if not pod.node_name)
        reports = [
            PodReport(pod, text)
            for uid, (pod, text) in found.items()
            if self._reported.get(uid) != text
        ]
        self._reported = {uid: text for uid, (_, text) in found.items()}
        return ModelDecisions(bound, victims, {}, gangs, (), reports, unready)

    def _texts_of(self, session: KaiSession, reasons: KaiReasons) -> Iterator[tuple[KaiJob, str]]:
        """Why jobs wait. To look at all nodes for each takes long where many wait: so many of them
        are looked at, in turn, and the others have the text that they had."""
        waiting = [job for job in session.jobs.values() if job.pending()]
        first = self._next % len(waiting) if len(waiting) > LOOKED_AT_MAX else 0
        self._next = first + LOOKED_AT_MAX
        turn = {job.uid for job in (waiting[first:] + waiting[:first])[:LOOKED_AT_MAX]}
        self._texts = {
            job.uid: reasons.message(job) if job.uid in turn else self._texts.get(job.uid, "")
            for job in waiting
        }
        for job in waiting:
            yield job, self._texts[job.uid]


def _evicted(tasks: Iterable[KaiTask], placed: Mapping[str, str]) -> Iterator[KaiTask]:
    """Pods that were on a node and are not to stay there."""
    for task in tasks:
        if task.uid in placed and (
            task.status in (KaiStatus.RELEASING, KaiStatus.PIPELINED)
            and task.pod.metadata.deletion_timestamp is None
        ):
            yield task


def _all(cluster: ModelCluster, kind: type[T]) -> Sequence[T]:
    return [one for one in cluster.objects.get(kind, {}).values() if isinstance(one, kind)]


def _classes(given: Sequence[PriorityClass]) -> Sequence[PriorityClass]:
    """Priority classes with KAI's own."""
    names = {one.name for one in given}
    own = [
        PriorityClass(metadata=ObjectMeta(name=name), value=number)
        for name, number in PRIORITY_CLASSES.items()
        if name not in names
    ]
    return [*given, *own]
