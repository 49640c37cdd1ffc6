"""VolcanoModel: Volcano's sessions as a queue model of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from stowplan.batch.queue_models.queue_model import (
    ModelCluster,
    ModelDecisions,
    ModelReport,
    ModelVictim,
)
from stowplan.batch.queue_models.volcano.model.queue_statuses import QueueStatuses
from stowplan.batch.queue_models.volcano.model.volcano_close import VolcanoClose
from stowplan.batch.queue_models.volcano.model.volcano_state import VolcanoState, time_of_day
from stowplan.batch.queue_models.volcano.pod_rules import PodRules
from stowplan.batch.queue_models.volcano.reports.volcano_report import report_of
from stowplan.batch.queue_models.volcano.volcano_options import VolcanoOptions
from stowplan.batch.queue_models.volcano.volcano_session import PluginBuilder, VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework import ContractError
from stowplan.framework.deciders.session_metrics import ACTION_LATENCY
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.framework.metrics import Metrics
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.volcano.hyper_node import VolcanoHyperNode
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

VolcanoActions = Mapping[str, Callable[[VolcanoSession], None]]


class VolcanoParts(msgspec.Struct, frozen=True):
    """What the assembly provides. rules: filters and scores of a snapshot. actions, plugins: by
    name."""

    rules: Callable[[Snapshot], PodRules]
    actions: VolcanoActions
    plugins: Mapping[str, PluginBuilder]


class VolcanoModel:
    """Sessions of Volcano on the cluster that the scheduler follows."""

    name = "volcano"
    reads: tuple[type[Object], ...] = (
        PodGroup,
        Queue,
        PriorityClass,
        PodDisruptionBudget,
        VolcanoHyperNode,
    )

    def __init__(
        self,
        options: VolcanoOptions,
        parts: VolcanoParts,
        scheduler_names: tuple[str, ...],
        default_queue: str,
    ) -> None:
        self._options = options
        self._parts = parts
        self._state = VolcanoState(scheduler_names, default_queue)
        self._close = VolcanoClose(self._state)
        self._queues = QueueStatuses()
        self._last = ModelReport()
        self._keeps_reports = False
        self._asked = ""

    def configure(self, settings: object) -> None:
        """Use other actions and tiers. settings: VolcanoOptions."""
        if not isinstance(settings, VolcanoOptions):
            raise ContractError("settings of the queue model volcano must be VolcanoOptions")
        self._options = settings

    def decide(self, cluster: ModelCluster, metrics: Metrics) -> ModelDecisions:
        """Run a session."""
        rules, session = self._open(cluster)
        try:
            for name in self._options.actions:
                began, session.action = metrics.stopwatch(), name
                self._parts.actions[name](session)
                took = (metrics.stopwatch() - began) * 1e6
                metrics.observe(ACTION_LATENCY, took, (("action", name),))
            decisions = self._decisions(session, cluster)
            if self._keeps_reports:
                self._last = report_of(session, self._state, self._asked)
        finally:
            rules.close()
            self._state.settle(session.jobs.values())
        return decisions

    def look(self, cluster: ModelCluster) -> ModelReport:
        """Jobs and queues as a session finds them."""
        rules, session = self._open(cluster)
        try:
            return report_of(session, self._state, self._asked)
        finally:
            rules.close()
            self._state.settle(session.jobs.values())

    def inspect(self, pod: str = "") -> None:
        """Keep a report of each session from now on. pod: uid of one that is asked about."""
        self._keeps_reports, self._asked = True, pod

    def report(self) -> ModelReport:
        """Jobs and queues as the last session left them."""
        return self._last

    def _open(self, cluster: ModelCluster) -> tuple[PodRules, VolcanoSession]:
        self._state.follow(cluster)
        rules = self._parts.rules(cluster.snapshot)
        opened = self._state.opened(cluster, time_of_day(cluster.now))
        return rules, VolcanoSession(opened, self._options, rules, self._parts.plugins)

    def _decisions(self, session: VolcanoSession, cluster: ModelCluster) -> ModelDecisions:
        bound = [
            task
            for job in session.jobs.values()
            for task in job.of(TaskStatus.BINDING)
            if session.binds.get(task.key) == task.node and not cluster.pods[task.uid].node_name
        ]
        n_bound: dict[str, int] = {}
        for task in bound:
            n_bound[task.job] = n_bound.get(task.job, 0) + 1
        gangs = {}
        for task in bound:
            job = session.jobs[task.job]
            if job.n_ready - n_bound[task.job] < job.min_available:
                gangs[task.uid] = job.uid
        closed = self._close.close(session, cluster.session)
        return ModelDecisions(
            {task.uid: task.node for task in bound},
            tuple(_victims(session)),
            dict(self._nominations(session)),
            gangs,
            closed.groups,
            closed.pods,
            closed.unready,
            closed.changes_phases,
            self._queues.changed(session),
        )

    def _nominations(self, session: VolcanoSession) -> Iterator[tuple[str, str]]:
        """Nodes where pods wait for what was evicted for them, by this or an earlier session."""
        for job in session.jobs.values():
            for status in (TaskStatus.PENDING, TaskStatus.PIPELINED):
                for task in job.of(status):
                    node = session.nominations.get(task.key) or _kept_nomination(task)
                    if node in session.nodes:
                        yield task.uid, node


def _kept_nomination(task: VolcanoTask) -> str:
    """The nomination that a pod has already, unless it waits for another node now."""
    node = task.pod.status.nominated_node_name
    return node if task.status is TaskStatus.PENDING or task.node == node else ""


def _victims(session: VolcanoSession) -> Iterator[ModelVictim]:
    for task in session.evicted:
        cause = session.eviction_causes.get(task.uid)
        if cause is None:
            yield ModelVictim(task.uid, "evict")
        else:
            yield ModelVictim(task.uid, cause.action, cause.preemptor, cause.decided_by)
