"""KubeBatchDecider: runs kube-batch v0.5 where the scheduler runs sessions.

It is a SessionDecider, so that the session lane treats it as any other. What the original does by
itself after a failed call, to read the pod again, the lane does.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from stowplan.framework import ConfigError, ContractError, Framework
from stowplan.framework.deciders.attached_decider import AttachedDecider, with_phase
from stowplan.framework.deciders.session_decider import (
    BindFailureResult,
    NodeAssignment,
    PodGroupReport,
    PodReport,
    SessionResult,
    SessionVictim,
)
from stowplan.framework.deciders.session_metrics import (
    ACTION_LATENCY,
    PLUGIN_LATENCY,
    SessionFigures,
    record_session,
)
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.framework.metrics import Metrics
from stowplan.kube_batch_v05.actions import ACTIONS
from stowplan.kube_batch_v05.close import KubeBatchClose, close
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.plugins import PLUGINS
from stowplan.kube_batch_v05.session import KubeBatchOptions, KubeBatchSession
from stowplan.kube_batch_v05.session_cache import KubeBatchCache
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass


def open_session(
    cache: KubeBatchCache,
    options: KubeBatchOptions,
    uid: str,
    now: datetime.datetime | None = None,
    rng: np.random.Generator | None = None,
    metrics: Metrics | None = None,
) -> KubeBatchSession:
    """Open a session on a copy of the cache; raises KubeBatchPanic."""
    metrics = metrics or Metrics()
    session = KubeBatchSession(cache.open(), options.tiers, cache, uid, now, rng)
    for tier in options.tiers:
        for use in tier:
            if use.name in PLUGINS:
                session.plugins[use.name] = PLUGINS[use.name](use.arguments)
    for name, plugin in session.plugins.items():
        began = metrics.stopwatch()
        plugin.on_open(session)
        labels = (("plugin", name), ("OnSession", "OnSessionOpen"))
        metrics.observe(PLUGIN_LATENCY, (metrics.stopwatch() - began) * 1e6, labels)
    return session


def run_actions(
    session: KubeBatchSession, options: KubeBatchOptions, metrics: Metrics | None = None
) -> None:
    """Run the configured actions in order; raises KubeBatchPanic."""
    metrics = metrics or Metrics()
    for name in options.actions:
        began = metrics.stopwatch()
        ACTIONS[name](session)
        took = (metrics.stopwatch() - began) * 1e6
        metrics.observe(ACTION_LATENCY, took, (("action", name),))


class KubeBatchPlan(msgspec.Struct, frozen=True):
    """Settings from a configuration: the flags of kube-batch, and the options of every session."""

    scheduler_names: tuple[str, ...]
    default_queue: str
    period_s: float
    uses_priority_classes: bool
    options: KubeBatchOptions


class KubeBatchDecider(AttachedDecider[KubeBatchPlan]):
    """Cache, configuration and sessions of kube-batch v0.5.

    reread: parses another text of the configuration, for `reload`. rng: breaks ties between nodes;
    None takes the first. on_run: called when a session's actions have run. on_closed: called when
    a session is closed.
    """

    def __init__(
        self,
        plan: KubeBatchPlan,
        framework: Framework,
        reread: Callable[[str, str], KubeBatchPlan],
        rng: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(plan, framework, metrics)
        self.cache = KubeBatchCache(plan.scheduler_names, plan.default_queue)
        self.on_run: Callable[[KubeBatchSession], None] = lambda session: None
        self.on_closed: Callable[[KubeBatchSession, SessionResult], None] = lambda *_: None
        self._reread = reread
        self._rng = rng
        self._groups: dict[str, PodGroup] = {}

    # Watch events.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated; includes finished pods."""
        if pod.node_name:
            self._failures.pop(pod.uid, None)
        self.cache.pod_updated(with_phase(pod))

    def pod_deleted(self, uid: str) -> None:
        """A pod was deleted."""
        self._failures.pop(uid, None)
        self.cache.pod_deleted(uid)

    def node_updated(self, node: Node) -> None:
        """A node was added or updated."""
        self.cache.node_updated(node)

    def node_deleted(self, name: str) -> None:
        """A node was deleted; its pods may remain."""
        self.cache.node_deleted(name)

    def object_updated(self, value: Object) -> None:
        """Another object was added or updated."""
        match value:
            case PodGroup():
                self._groups[value.key] = value
                self.cache.group_updated(value)
            case Queue():
                self.cache.queue_updated(value)
            case PriorityClass() if self.plan.uses_priority_classes:
                self.cache.priority_class_updated(value)
            case PodDisruptionBudget():
                self.cache.budget_updated(value)

    def object_deleted(self, value: Object) -> None:
        """Another object was deleted."""
        match value:
            case PodGroup():
                self._groups.pop(value.key, None)
                self.cache.group_deleted(value.key)
            case Queue():
                self.cache.queue_deleted(value.name)
            case PriorityClass() if self.plan.uses_priority_classes:
                self.cache.priority_class_deleted(value)
            case PodDisruptionBudget():
                self.cache.budget_deleted(value)

    # Sessions.

    def run_session(
        self, name: str, nominated: Sequence[NodeAssignment], now: int = 0
    ) -> SessionResult:
        """Run a session. name: unique name of the session. nominated, now: ignored, as the original
        knows neither nominated pods nor run limits.

        Raises KubeBatchPanic where the original would have crashed.
        """
        cache, options, metrics = self.cache, self.plan.options, self.metrics
        cache.bound.clear()
        cache.evicted.clear()
        cache.sweep()
        self._states.clear()
        began = metrics.stopwatch()
        session = open_session(cache, options, name, rng=self._rng, metrics=metrics)
        run_actions(session, options, metrics)
        self.on_run(session)
        closed = close(session)
        record_session(metrics, _figures(session), (metrics.stopwatch() - began) * 1e3)
        result = self._result(session, closed)
        self.on_closed(session, result)
        for place in result.binds:
            cache.binding(place.pod.uid, place.node)
        for victim in result.victims:
            cache.evicting(victim.pod.uid)
        return result

    def _result(self, session: KubeBatchSession, closed: KubeBatchClose) -> SessionResult:
        pods = self.cache.pods
        placed = [task for task in self.cache.bound if self._is_unbound(task)]
        n_placed = Counter(task.job for task in placed)
        groups = [*self._evicted_from(session)]
        for write in closed.groups:
            group = write.group
            groups.append(
                PodGroupReport(
                    group.uid,
                    group.namespace,
                    group.name,
                    group.api_version,
                    group.status,
                    write.notes,
                )
            )
        return SessionResult(
            binds=[
                NodeAssignment(
                    task.pod, task.node, _gang_of(session.jobs[task.job], n_placed[task.job])
                )
                for task in placed
            ],
            victims=[
                _victim(session, task, why) for task, why in self.cache.evicted if task.uid in pods
            ],
            groups=groups,
            pods=[
                PodReport(pods[task.uid], message)
                for task, message in closed.unplaced
                if task.uid in pods
            ],
        )

    def _is_unbound(self, task: KubeBatchTask) -> bool:
        """True if the pod has no node; pods without a group are bound again and again, even after
        they were deleted."""
        pod = self.cache.pods.get(task.uid)
        return pod is not None and not pod.node_name

    def _evicted_from(self, session: KubeBatchSession) -> Iterator[PodGroupReport]:
        """Groups that lose members are notified."""
        for task, why in self.cache.evicted:
            job = session.jobs.get(task.job)
            group = job.group if job is not None else None
            if group is not None and not group.is_solo:
                note = ("Normal", "Evict", why)
                yield PodGroupReport(
                    group.uid, group.namespace, group.name, group.api_version, notes=(note,)
                )

    # Outcomes.

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod, of any scheduler, is assumed on a node; the watch has not confirmed it yet."""
        self.cache.assume(pod, node)

    def forgotten(self, uid: str) -> None:
        """The pod is no longer assumed."""
        self.cache.not_bound(uid)

    def bind_failed(self, pod: Pod, reason: str, *, counts: bool) -> BindFailureResult:
        """A bind failed: the pod is pending again. counts: False if it was not refused."""
        self.cache.not_bound(pod.uid)
        if counts:
            self._failures[pod.uid] = self._failures.get(pod.uid, 0) + 1
        return BindFailureResult()

    def status_not_written(self, namespace: str, name: str) -> None:
        """A group's status was not written; it is as the watch has last shown it."""
        seen = self._groups.get(f"{namespace}/{name}")
        if seen is not None:
            self.cache.group_updated(seen)

    def pod_not_evicted(self, uid: str) -> None:
        """A pod was not evicted and is not terminating."""
        self.cache.pod_not_evicted(uid)

    def reload(self, text: str, source: str) -> str:
        """Load another configuration; returns "" or why it is invalid."""
        try:
            plan = self._reread(text, source)
        except (ConfigError, ContractError) as refused:
            return str(refused)
        if msgspec.structs.replace(plan, options=self.plan.options, period_s=self.period_s) != (
            self.plan
        ):
            return f"{source}: batch: only actions, tiers and schedulePeriod can change"
        self.plan = plan
        return ""

    # Reads.

    @property
    def n_waiting(self) -> int:
        """Number of its pods that wait for a node."""
        return sum(len(job.of(TaskStatus.PENDING)) for job in self.cache.jobs.values())

    def waiting(self) -> Iterator[str]:
        """Uids of its pods that wait for a node."""
        for job in self.cache.jobs.values():
            yield from job.of(TaskStatus.PENDING)

    def known(self) -> Iterator[str]:
        """Uids of all known pods."""
        return iter(self.cache.pods)

    def validate(self) -> None:
        """Nothing to compare: what the cache has lost is part of the original."""


def _gang_of(job: KubeBatchJob, n_placed: int) -> str:
    """The job's id if it was not running before its `n_placed` pods, so that they depend on each
    other."""
    return job.uid if job.ready_count - n_placed < job.min_available else ""


def _victim(session: KubeBatchSession, task: KubeBatchTask, why: str) -> SessionVictim:
    preemptor = session.preemptors.get(task.uid)
    if preemptor is None:
        return SessionVictim(task.pod, why)
    group = session.jobs[preemptor.job].group
    described = "" if group is None or group.is_solo else group.key
    return SessionVictim(task.pod, why, preemptor.pod, described)


def _figures(session: KubeBatchSession) -> SessionFigures:
    preempted = [task.uid for task, why in session.evicted if why == "preempt"]
    preemptors = {session.preemptors[u].uid for u in preempted if u in session.preemptors}
    return SessionFigures(
        len(session.bound),
        len(preempted),
        len(preemptors),
        [
            (job.group.name, job.min_available - job.ready_count)
            for job in session.jobs.values()
            if job.group is not None and not job.is_solo and not job.is_ready
        ],
    )
