"""Session runner: runs sessions on a cluster from files and reports every job.

The scheduler runs them. Binds and evictions succeed at once: between two sessions a bound pod runs,
and an evicted pod is deleted and not created again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.batch import Session
from stowplan.batch.decider import BatchDecider
from stowplan.batch.job_report import JobReport
from stowplan.batch.missing_objects import missing
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.batch.queue_models.queue_model import ModelReport
from stowplan.batch.state.capability import REACHED
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.columns import NodeTable
from stowplan.framework import ContractError, Snapshot
from stowplan.framework.deciders.session_decider import SessionResult
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.kube_batch_v05.amounts import KubeBatchPanic
from stowplan.kube_batch_v05.decider import KubeBatchDecider
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroup
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import NO_LATENCY
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.cluster.watch_stream import WatchStream, any_kind
from stowplan.simulation.event_queue import EventQueue
from stowplan.simulation.placement_run import load_cluster

AnySession = Session | KubeBatchSession
AnyJob = JobInfo | KubeBatchJob
AnyDecider = BatchDecider | KubeBatchDecider | ModelDecider

OVERUSED = "QueueOverused"
AT_CAPABILITY = "QueueCapabilityReached"
ROOM_BEING_FREED = "RoomBeingFreed"


class SessionRun(msgspec.Struct, frozen=True):
    """Result of one session. bound: pod -> node. evicted: pod -> reason. continues: another session
    may decide more."""

    bound: dict[str, str]
    evicted: dict[str, str]
    jobs: list[JobReport]
    continues: bool = False


class SessionRunner:
    """Runs sessions on a simulated cluster. rng: tie-break between nodes; None takes the first.
    on_run: called with every session after its actions. on_report: the same for a queue model.
    began: Unix time in nanoseconds at which the first session runs.

    Raises InputError when no sessions are configured.
    """

    def __init__(
        self,
        cluster: Cluster,
        deciders: Deciders,
        rng: np.random.Generator | None = None,
        recorder: Callable[[Deciders, Scheduler], None] | None = None,
        now: datetime | None = None,
    ) -> None:
        """recorder: called with the new scheduler before its first call. now: None for the latest
        time that the cluster shows."""
        if deciders.batch is None:
            wanted = "a file with actions and tiers, or a block `batch`"
            raise InputError("config", "", "no sessions", wanted)
        self.batch = deciders.batch
        self.compat = deciders.compat
        self.deciders = deciders
        self.n_sessions = 0
        self.on_run: Callable[[AnySession], None] = lambda session: None
        self.on_report: Callable[[SessionResult, ModelReport], None] = lambda *_: None
        # Pods of profiles are not scheduled.
        alone = replace(deciders.configuration, profiles={})
        deciding = replace(deciders, configuration=alone)
        # Sessions compare their time with those of pods and groups.
        begins = now or cluster.latest_time()
        self.began = 0 if begins is None else round(begins.timestamp() * 1e9)
        options = SchedulerOptions(unix_offset_ns=self.began)
        self.scheduler = deciding.scheduler(rng=rng, options=options)
        if recorder is not None:
            recorder(deciding, self.scheduler)
        self.decider = self._attached()
        self.cluster = SimulatedCluster(EventQueue(), NO_LATENCY)
        self.cluster.run_of = lambda pod: None
        self._volumes = VolumeController(self.cluster)
        self._held: SessionRun | None = None
        self._fault = ""
        self._instance = SchedulerInstance(
            "sessions",
            self.cluster,
            self.scheduler,
            [WatchStream(self.cluster, any_kind)],
            self._observe,
        )
        groups = (value.key for value in cluster.objects if isinstance(value, PodGroup))
        self._rank = {key: place for place, key in enumerate(groups)}
        load_cluster(self.cluster, cluster)
        for pod in cluster.pending():
            self.cluster.put_pod(pod)
        self._instance.follow()

    def _attached(self) -> AnyDecider:
        (lane,) = self.scheduler.lanes.batch
        decider = lane.decider
        assert isinstance(decider, BatchDecider | KubeBatchDecider | ModelDecider)
        if isinstance(decider, ModelDecider):
            decider.model.inspect()
            decider.on_closed = self._model_closed
            return decider
        decider.on_run = lambda session: self.on_run(session)
        decider.on_closed = self._closed
        return decider

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        for effect in effects:
            if isinstance(effect, to_do.Report) and effect.is_fault:
                self._fault = effect.text

    @property
    def known_jobs(self) -> list[AnyJob]:
        """Current jobs, also those that are in no session."""
        decider = self.decider
        if isinstance(decider, ModelDecider):
            return []
        state = decider.inventory if isinstance(decider, BatchDecider) else decider.cache
        return [*state.jobs.values()]

    @property
    def is_queue_model(self) -> bool:
        """True if a queue model decides: `on_report` is called for its sessions, not `on_run`."""
        return isinstance(self.decider, ModelDecider)

    def ask_about(self, pod: Pod) -> None:
        """Have the reports of a queue model say why nodes do not fit a pod."""
        assert isinstance(self.decider, ModelDecider), "no queue model decides"
        self.decider.model.inspect(pod.uid)

    @property
    def table(self) -> NodeTable:
        """Current node table."""
        return self.scheduler.cache.nodes

    def snapshot(self) -> Snapshot:
        """Snapshot of current nodes and pods."""
        return self.scheduler.cache.snapshot()

    def disable_actions(self) -> None:
        """Run sessions without actions from now on."""
        decider = self.decider
        if isinstance(decider, ModelDecider):
            decider.decides = False
            return
        if isinstance(decider, BatchDecider):
            options = replace(decider.plan.options, actions=())
            decider.plan = replace(decider.plan, options=options)
        else:
            decider.plan = replace(decider.plan, options=replace(decider.plan.options, actions=()))

    def run_session(self) -> SessionRun:
        """Run one session and apply its effects. If no session is due, the result is empty.

        Raises ContractError for out-of-tree plugins and actions, InputError when kube-batch v0.5
        panics.
        """
        event_queue, before = self.cluster.event_queue, self._held
        self._held = None
        self.n_sessions += 1
        try:
            while not self._has_run() and event_queue.next() is not None:
                event_queue.step()
            event_queue.run(event_queue.now)
        except KubeBatchPanic as panic:
            wanted = "a cluster that kube-batch survives, or no --compat"
            raise InputError(
                f"session {self.n_sessions}", "", f"a panic ({panic})", wanted
            ) from None
        if self._fault:
            raise ContractError(self._fault)
        held = self._held
        if held is None:
            self._held = held = SessionRun({}, {}, [] if before is None else before.jobs)
        # Some binds may wait for volumes, or have failed.
        pods = self.cluster.pods
        bound = {key: node for key, node in held.bound.items() if key in pods}
        return replace(held, bound={k: n for k, n in bound.items() if pods[k].node_name == n})

    def until_idle(self) -> Iterator[SessionRun]:
        """Run sessions until one binds and evicts nothing; includes that one."""
        # Every other session binds or evicts a pod for good, so the loop ends.
        while True:
            held = self.run_session()
            yield held
            if not held.bound and not held.evicted and not held.continues:
                return

    # Inside.

    def _has_run(self) -> bool:
        return self._held is not None or bool(self._fault)

    def _closed(self, session: AnySession, result: SessionResult) -> None:
        jobs = [self._report(session, job) for job in self.known_jobs if job.tasks]
        jobs.sort(key=lambda job: self._rank.get(job.uid, len(self._rank)))
        self._held = SessionRun(
            {place.pod.key: place.node for place in result.binds},
            {victim.pod.key: victim.why for victim in result.victims},
            jobs,
        )

    def _model_closed(self, result: SessionResult, report: ModelReport) -> None:
        """The same for a queue model, which reports on its jobs itself."""
        self.on_report(result, report)
        jobs = sorted(report.jobs, key=lambda job: self._rank.get(job.uid, len(self._rank)))
        self._held = SessionRun(
            {place.pod.key: place.node for place in result.binds},
            {victim.pod.key: victim.why for victim in result.victims},
            jobs,
            result.continues,
        )

    def _report(self, session: AnySession, job: AnyJob) -> JobReport:
        # kube-batch v0.5 works on copies.
        job = session.jobs.get(job.uid) or job
        pending = tuple(task.key for task in tasks(job, TaskStatus.PENDING))
        gated = tuple(task.key for task in tasks(job, TaskStatus.GATED))
        kept = tasks(job, TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
        promised = {task.key: task.node for task in kept}
        reason, message = self._reason(session, job, len(promised), is_waiting=bool(pending))
        state = session.state if isinstance(session, Session) else session
        mine = {task.uid for task in state.bound}
        return JobReport(
            uid=job.uid,
            name=_name(job),
            kind=_kind(job),
            queue=job.queue,
            priority=job.priority,
            min_member=job.min_available,
            pods=len(job.tasks),
            ready=job.ready_count - len(job.of(TaskStatus.ALLOCATED)),
            phase=job.group.status.phase if job.group is not None else "",
            placed={t.key: t.node for t in job.tasks.values() if t.uid in mine},
            promised=promised,
            waiting=(*pending, *gated),
            reason=reason,
            message=message,
        )

    def _reason(
        self, session: AnySession, job: AnyJob, n_promised: int, *, is_waiting: bool
    ) -> tuple[str, str]:
        lacks = missing(job, session.queues, self.batch.default_queue)
        if lacks is not None:
            return lacks.reason, lacks.message
        if n_promised and session.is_pipelined(job.uid):
            return ROOM_BEING_FREED, f"{n_promised} of its pods wait for victims to terminate"
        if is_waiting and isinstance(session, Session) and job.uid in session.jobs:
            error = session.jobs[job.uid].fit_errors
            if REACHED in error:
                return AT_CAPABILITY, error
            if error and error == session.hooks.why_overused(session.queues[job.queue]):
                return OVERUSED, error
        status = job.group.status if job.group is not None else None
        for condition in status.conditions if status is not None else ():
            is_unschedulable = condition.type == UNSCHEDULABLE and condition.status == "True"
            if is_unschedulable and condition.transition_id == session.uid:
                return condition.reason, condition.message
        return "", ""


def tasks(job: AnyJob, *statuses: TaskStatus) -> Iterator[TaskInfo | KubeBatchTask]:
    """The tasks of a job in these statuses."""
    for status in statuses:
        yield from job.of(status).values()


def _kind(job: AnyJob) -> str:
    if job.has_budget:
        return "PodDisruptionBudget"
    return "Pods" if job.group is not None and job.group.is_solo else "PodGroup"


def _name(job: AnyJob) -> str:
    """The PodGroup, else the only pod, else the controller of the pods."""
    if not job.is_solo or (job.group is None and not job.has_budget):
        return job.uid
    first = next(tasks(job, *TaskStatus))
    owner = first.pod.controller
    if owner is None:
        return first.key
    return f"{first.pod.namespace}/{owner.kind}/{owner.name}"
