"""BatchDecider: runs sessions on an inventory of the cluster.

It receives every cluster change and keeps an inventory, so that a session costs as much as has
changed. Decisions are applied to the inventory at once, until the watch confirms them or an outcome
reports their failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from stowplan.batch.bind_failure_policy import RELEASE, BindFailurePolicy
from stowplan.batch.hook_contracts import OWN_PACKAGE
from stowplan.batch.missing_objects import report_missing
from stowplan.batch.session import Session, SessionOptions
from stowplan.batch.session_close import (
    PENDING,
    UNKNOWN,
    PodFitError,
    PodGroupStatusUpdate,
    with_condition,
)
from stowplan.batch.state.inventory import Inventory
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import ConfigError, ContractError, Framework
from stowplan.framework.deciders.attached_decider import AttachedDecider, with_phase
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.session_decider import (
    BindFailureResult,
    NodeAssignment,
    PodGroupReport,
    PodReport,
    SessionResult,
    SessionVictim,
)
from stowplan.framework.deciders.session_metrics import SessionFigures, record_session
from stowplan.framework.deciders.tasks import TERMINATED, TaskStatus
from stowplan.framework.metrics import Metrics
from stowplan.framework.object_store import key_of
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroup, PodGroupCondition, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

BIND_FAILED = "BindFailed"


class BatchPlan(msgspec.Struct, frozen=True):
    """Settings from a configuration. See BatchConfiguration for fields not described here.

    options: options of every session. upkeep: handling of failed binds.
    """

    scheduler_names: tuple[str, ...]
    default_queue: str
    period_s: float
    uses_priority_classes: bool
    options: SessionOptions
    upkeep: BindFailurePolicy = BindFailurePolicy()


Reread = Callable[[str, str], BatchPlan]
"""Parses another text of the configuration: (text, source) -> plan; raises ConfigError."""


class BatchDecider(AttachedDecider[BatchPlan]):
    """Inventory, configuration and sessions of the scheduler names that sessions decide.

    rng: breaks ties between nodes; None takes the first. reread: for `reload`. session: the last
    session. on_run: called when a session's actions have run. on_closed: called when a session is
    closed, while its nominations are still in its jobs.
    """

    def __init__(
        self,
        plan: BatchPlan,
        framework: Framework,
        reread: Reread | None = None,
        rng: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(plan, framework, metrics)
        self.session: Session | None = None
        self.on_run: Callable[[Session], None] = _ignore_session
        self.on_closed: Callable[[Session, SessionResult], None] = _ignore_result
        self._reread = reread
        self._rng = rng
        self._objects: dict[tuple[type, str], Object] = {}
        self.inventory = self._empty()

    def _empty(self) -> Inventory:
        plan = self.plan
        return Inventory(plan.scheduler_names, plan.default_queue, lambda: self._snapshot().nodes)

    # Watch events.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated; includes finished pods."""
        if pod.node_name:
            self._failures.pop(pod.uid, None)
        self.inventory.pod_updated(with_phase(pod))

    def pod_deleted(self, uid: str) -> None:
        """A pod was deleted."""
        self._failures.pop(uid, None)
        self.inventory.pod_deleted(uid)

    def object_updated(self, value: Object) -> None:
        """Another object was added or updated."""
        self._show(self.inventory, value)
        if isinstance(value, PodGroup | Queue | PriorityClass | PodDisruptionBudget):
            self._objects[type(value), key_of(value)] = value

    def _show(self, inventory: Inventory, value: Object) -> None:
        match value:
            case PodGroup():
                inventory.group_updated(value)
            case Queue():
                inventory.queue_updated(value)
            case PriorityClass() if self.plan.uses_priority_classes:
                inventory.priority_class_updated(value)
            case PodDisruptionBudget():
                inventory.budget_updated(value)

    def object_deleted(self, value: Object) -> None:
        """Another object was deleted."""
        inventory = self.inventory
        self._objects.pop((type(value), key_of(value)), None)
        match value:
            case PodGroup():
                inventory.group_deleted(value.key)
            case Queue():
                inventory.queue_deleted(value.name)
            case PriorityClass() if self.plan.uses_priority_classes:
                inventory.priority_class_deleted(value)
            case PodDisruptionBudget():
                inventory.budget_deleted(value)

    # Sessions.

    def run_session(
        self, name: str, nominated: Sequence[NodeAssignment], now: int = 0
    ) -> SessionResult:
        """Run a session. name: unique name of the session. nominated: nominated pods of other
        schedulers, with their nodes. now: Unix time in nanoseconds."""
        inventory = self.inventory
        inventory.now = now
        inventory.bound.clear()
        inventory.evicted.clear()
        inventory.sweep()
        opened = inventory.open((place.pod, place.node) for place in nominated)
        session: Session | None = None
        began = self.metrics.stopwatch()
        try:
            session = Session(
                opened, self.plan.options, inventory, name, rng=self._rng, metrics=self.metrics
            )
            self.session = session
            session.run()
            self.on_run(session)
            writes, notes = session.close()
        except Exception as fault:
            inventory.close_nodes()
            text = custom_plugin_fault(fault, self.plan.options)
            if not text:
                raise
            # A custom plugin or action failed: discard the session's incomplete changes.
            self._rebuild()
            return SessionResult(fault=text)
        result = self._result(session, writes, notes)
        record_session(self.metrics, _figures(session), (self.metrics.stopwatch() - began) * 1e3)
        self.on_closed(session, result)
        inventory.settle()
        self._remember(result)
        return result

    def _result(
        self, session: Session, writes: Iterable[PodGroupStatusUpdate], notes: Iterable[PodFitError]
    ) -> SessionResult:
        inventory = self.inventory
        pods = inventory.pod
        reports = [*self._evicted_from(), *(_group_report(write) for write in writes)]
        fit_errors = [*notes]
        more_reports, more_notes = report_missing(inventory, session.uid)
        reports += more_reports
        fit_errors += more_notes
        nominations = list(_nominations(session))
        self._states.clear()
        return SessionResult(
            tuple(self._places(session)),
            tuple(
                self._victim(session, task, why)
                for task, why in inventory.evicted
                if pods(task.uid) is not None
            ),
            nominations,
            reports,
            tuple(
                PodReport(pod, note.message)
                for note in fit_errors
                if (pod := pods(note.uid)) is not None
            ),
        )

    def _places(self, session: Session) -> Iterator[NodeAssignment]:
        """Pods to bind. If the job was not running yet, its pods depend on each other."""
        to_bind = [task for task in self.inventory.bound if self._is_new(task)]
        counts = Counter(task.job for task in to_bind)
        for task in to_bind:
            job = session.jobs.get(task.job)
            needs = job is not None and job.ready_count - counts[task.job] < job.min_available
            yield NodeAssignment(task.pod, task.node, task.job if needs else "")

    def _is_new(self, task: TaskInfo) -> bool:
        pod = self.inventory.pod(task.uid)
        return pod is not None and not pod.node_name

    def _victim(self, session: Session, task: TaskInfo, why: str) -> SessionVictim:
        preemptor = session.state.preemptors.get(task.uid)
        if preemptor is None:
            return SessionVictim(task.pod, why)
        return SessionVictim(
            task.pod, why, preemptor.pod, describe_job(session.jobs.get(preemptor.job))
        )

    def _evicted_from(self) -> Iterator[PodGroupReport]:
        """Groups that lose members are notified."""
        inventory = self.inventory
        for task, why in inventory.evicted:
            job = inventory.jobs.get(task.job)
            group = job.group if job is not None else None
            if group is not None and not group.is_solo:
                yield PodGroupReport(
                    group.uid,
                    group.namespace,
                    group.name,
                    group.api_version,
                    notes=(("Normal", "Evict", why),),
                )

    def _remember(self, result: SessionResult) -> None:
        """Count the decisions as applied until the watch or an outcome says otherwise."""
        inventory = self.inventory
        inventory.first.clear()
        inventory.nominations = {place.pod.uid: place.node for place in result.nominations}
        for place in result.binds:
            inventory.binding(place.pod.uid, place.node)
        for victim in result.victims:
            inventory.evicting(victim.pod.uid)

    # Outcomes.

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod, of any scheduler, is assumed on a node; the watch has not confirmed it yet."""
        self.inventory.assume(pod, node)

    def forgotten(self, uid: str) -> None:
        """The pod is no longer assumed."""
        self.inventory.not_bound(uid)

    def bind_failed(self, pod: Pod, reason: str, *, counts: bool) -> BindFailureResult:
        """A bind failed: the pod is pending again. counts: False if it was not refused."""
        inventory, uid = self.inventory, pod.uid
        job = inventory.job_of(uid)
        inventory.not_bound(uid)
        if not counts or job is None:
            return BindFailureResult()
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        upkeep = self.plan.upkeep
        reports = tuple(self._bind_failed_condition(job, pod, reason))
        if failures < upkeep.failures_max:
            inventory.first[job.uid] = inventory.first.get(job.uid, 0) + 1
            return BindFailureResult(reports)
        inventory.first.pop(job.uid, None)
        held = [*job.of(TaskStatus.RUNNING).values(), *job.of(TaskStatus.BOUND).values()]
        if upkeep.then != RELEASE or len(held) + len(job.of(TaskStatus.SUCCEEDED)) >= (
            job.min_available
        ):
            return BindFailureResult(reports)
        self._failures.pop(uid)
        victims = tuple(SessionVictim(task.pod, "release") for task in held)
        for victim in victims:
            inventory.evicting(victim.pod.uid)
            inventory.refresh(victim.pod.uid)
        return BindFailureResult(reports, victims)

    def _bind_failed_condition(
        self, job: JobInfo, pod: Pod, reason: str
    ) -> Iterator[PodGroupReport]:
        """Condition of a group with a member whose bind failed."""
        group = job.group
        if group is None or group.is_solo:
            return
        name = self.session.uid if self.session is not None else ""
        message = f"{pod.key} could not be bound: {reason}"
        condition = PodGroupCondition(UNSCHEDULABLE, "True", name, None, BIND_FAILED, message)
        group.status = with_condition(group.status, condition)
        if not job.is_ready:
            phase = UNKNOWN if job.of(TaskStatus.RUNNING) else PENDING
            group.status = msgspec.structs.replace(group.status, phase=phase)
        note = ("Warning", UNSCHEDULABLE, message)
        yield PodGroupReport(
            group.uid, group.namespace, group.name, group.api_version, group.status, (note,)
        )

    def status_not_written(self, namespace: str, name: str) -> None:
        """A group's status was not written; it is as the watch has last shown it."""
        seen = self._objects.get((PodGroup, f"{namespace}/{name}"))
        if isinstance(seen, PodGroup):
            self.inventory.group_updated(seen)

    def pod_not_evicted(self, uid: str) -> None:
        """A pod was not evicted and is not terminating."""
        self.inventory.pod_not_evicted(uid)

    def reload(self, text: str, source: str) -> str:
        """Load another configuration; returns "" or why it is invalid."""
        if self._reread is None:
            return f"{source}: cannot reload: the decider has no parser for configurations"
        try:
            plan = self._reread(text, source)
        except (ConfigError, ContractError) as refused:
            return str(refused)
        if plan.scheduler_names != self.plan.scheduler_names:
            got, expected = (", ".join(p.scheduler_names) for p in (plan, self.plan))
            return (
                f"{source}: batch.schedulerName: Invalid value: {got!r}: cannot change before a "
                f"restart: expected {expected!r}"
            )
        had = self.plan
        self.plan = plan
        if (had.default_queue, had.uses_priority_classes) != (
            plan.default_queue,
            plan.uses_priority_classes,
        ):
            self._rebuild()
        return ""

    # Inspection and rebuild.

    @property
    def n_waiting(self) -> int:
        """Number of its pods that wait for a node."""
        return sum(len(job.of(TaskStatus.PENDING)) for job in self.inventory.jobs.values())

    def waiting(self) -> Iterator[str]:
        """Uids of its pods that wait for a node."""
        for job in self.inventory.jobs.values():
            yield from job.of(TaskStatus.PENDING)

    def known(self) -> Iterator[str]:
        """Uids of all known pods."""
        return (pod.uid for pod in self.inventory.pods)

    def _rebuilt(self) -> Inventory:
        """A new inventory built from all known objects."""
        fresh, had = self._empty(), self.inventory
        for value in self._objects.values():
            if not isinstance(value, PodDisruptionBudget):
                self._show(fresh, value)
        fresh.take_over(had)
        for pod in had.pods:
            fresh.pod_updated(pod)
        for value in self._objects.values():
            if isinstance(value, PodDisruptionBudget):
                self._show(fresh, value)
        return fresh

    def _rebuild(self) -> None:
        self.inventory = self._rebuilt()

    def validate(self) -> None:
        """Compare the inventory with a rebuilt one and the node table; raises InvariantBroken."""
        ours, fresh = summary(self.inventory), summary(self._rebuilt())
        if ours != fresh:
            problem = [key for key in ours.keys() | fresh.keys() if ours.get(key) != fresh.get(key)]
            texts = [f"{key}: {ours.get(key)}, rebuilt {fresh.get(key)}" for key in problem[:3]]
            raise InvariantBroken(f"sessions: {'; '.join(texts)}")
        texts = list(self.inventory.contradictions())
        if texts:
            raise InvariantBroken(f"sessions: {'; '.join(texts[:3])}")


def _figures(session: Session) -> SessionFigures:
    state = session.state
    preempted = [task.uid for task, why in state.evicted if why == "preempt"]
    preemptors = {state.preemptors[u].uid for u in preempted if u in state.preemptors}
    return SessionFigures(
        len(state.bound),
        len(preempted),
        len(preemptors),
        [
            (job.group.name, job.min_available - job.ready_count)
            for job in session.jobs.values()
            if job.group is not None and not job.is_solo and not job.is_ready
        ],
    )


def _ignore_session(session: Session) -> None:
    """Default of `on_run`."""


def _ignore_result(session: Session, result: SessionResult) -> None:
    """Default of `on_closed`."""


def custom_plugin_fault(fault: Exception, options: SessionOptions) -> str:
    """Failure of a custom plugin or action, "" if the fault is elsewhere."""
    if isinstance(fault, ContractError):
        return str(fault)
    place = place_outside(fault, custom_modules(options))
    return place and f"{place} raised {type(fault).__name__}: {fault}"


def custom_modules(options: SessionOptions) -> frozenset[str]:
    """Modules or packages of custom session plugins and actions."""
    made = (*options.plugins.values(), *(type(action) for action in options.actions))
    roots = {str(getattr(one, "__module__", "")).partition(".")[0] for one in made}
    return frozenset(roots - {OWN_PACKAGE})


def place_outside(fault: Exception, modules: Container[str]) -> str:
    """Source line within these modules at which a failure occurred, "" if none."""
    step, place = fault.__traceback__, ""
    while step is not None:
        code = step.tb_frame.f_code
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in modules:
            place = f"{code.co_filename}:{step.tb_lineno}: {code.co_name}()"
        step = step.tb_next
    return place


def _nominations(session: Session) -> Iterator[NodeAssignment]:
    """Placements kept until the job can start: pipelined tasks, and allocated tasks of the same
    job, which cannot start without them."""
    for job in session.jobs.values():
        if TaskStatus.PIPELINED in job.by_status:
            for status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED):
                yield from (NodeAssignment(task.pod, task.node) for task in job.of(status).values())


def _group_report(write: PodGroupStatusUpdate) -> PodGroupReport:
    group = write.group
    return PodGroupReport(
        group.uid, group.namespace, group.name, group.api_version, write.status, write.notes
    )


def describe_job(job: JobInfo | None) -> str:
    """Description of a job."""
    if job is None or job.group is None or job.group.is_solo:
        return ""
    return job.group.key


def summary(inventory: Inventory) -> dict[str, object]:
    """Contents of an inventory by object, for comparison."""
    found: dict[str, object] = {}
    for job in inventory.jobs.values():
        if job.is_solo and job.count(TERMINATED) == len(job.tasks):
            # Finished pods may have been forgotten.
            continue
        for task in job.tasks.values():
            found[f"pod {task.uid}"] = (job.uid, task.status, task.node)
        if job.tasks:
            held = (job.min_available, job.queue, _rounded(job.allocated), _rounded(job.wanted))
            found[f"job {job.uid}"] = held
    return found


def _rounded(amount: ResourceVector) -> tuple[tuple[str, float], ...]:
    return tuple((name, round(value, 3)) for name, value in amount.pairs() if round(value, 3))
