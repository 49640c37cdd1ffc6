"""explain_job(): the decision of a session for a pod and its gang, and why."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.batch import Session
from stowplan.batch.feasibility import eviction_notes
from stowplan.batch.fit_errors import NODES_NOT_READY
from stowplan.batch.job_report import JobReport
from stowplan.batch.queue_models.queue_model import ModelReport
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.task_requests import EPSILON, format_resource
from stowplan.cycle.attempt import filter_pod
from stowplan.cycle.change import Change
from stowplan.forecast.explain import found_pod
from stowplan.forecast.queue_reports.job_waits import JobWait, job_wait
from stowplan.forecast.session_changes.job_changes import find_job_changes
from stowplan.forecast.session_changes.session_trials import JobChanges
from stowplan.forecast.unstartable_jobs import unstartable_reasons, unstartable_reasons_of_report
from stowplan.framework.deciders.session_decider import SessionResult
from stowplan.framework.deciders.tasks import TaskStatus, group_of
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.pod_placement import unseen_reason
from stowplan.kube_batch_v05.amounts import MEMORY_MIN, MILLI_MIN
from stowplan.kube_batch_v05.jobs import KubeBatchTask
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION, KaiPodGroupObject
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.simulation.scheduler_configuration import ConfigSource, read_deciders
from stowplan.simulation.session_runner import (
    AnyJob,
    AnySession,
    SessionRun,
    SessionRunner,
    tasks,
)

SCHEMA = "stowplan.dev/job-explanation/v1"
PREDICATES = "node(s) didn't pass the predicates"
FULL = "Too many pods"
POD_SCHEDULED, NOT_BOUND = "PodScheduled", "NotBound"
NOTHING_FOUND = JobChanges((), ())


class NodeReasons(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Reasons of a node against the pod at the end of the session; none if it fits."""

    name: str
    reasons: tuple[str, ...] = ()


class JobExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of one session for a pod or a PodGroup.

    pod: "" for a PodGroup. state: placed, pending, or unseen when sessions do not schedule it.
    node: node on which the session places it. promised: node of an allocated or pipelined pod.
    evicted: pod -> reason, of victims for its job. evicted_for_others: number of other victims.
    gates: its scheduling gates. never: why the job cannot start on these nodes. evictions: what
    reclaim and preempt would do for it. nodes: reasons per node, for the pod or for one pending pod
    of the group, `nodes_of`. message: why no session schedules the pod or group. changes: of the
    PodGroup and the Queue, see docs/changes.md. not_searched: what the search for them left out.
    wait: of a job of KAI-Scheduler's queues that waits.
    """

    api_version: str
    pod: str
    scheduler_name: str
    state: str
    pod_group: str = ""
    current_node: str = ""
    node: str = ""
    promised: str = ""
    evicted: dict[str, str] = {}
    evicted_for_others: int = 0
    gates: tuple[str, ...] = ()
    job: JobReport | None = None
    never: tuple[str, ...] = ()
    evictions: tuple[str, ...] = ()
    nodes: tuple[NodeReasons, ...] = ()
    nodes_of: str = ""
    message: str = ""
    changes: tuple[Change, ...] = ()
    not_searched: tuple[str, ...] = ()
    wait: JobWait | None = None

    def __repr__(self) -> str:
        where = f", node {self.node!r}" if self.node else ""
        return f"JobExplanation({self.pod or self.pod_group!r}, {self.state}{where})"

    def to_frame(self, library: str = "") -> Any:
        """The nodes as a DataFrame, one row each, with the reasons of those that do not fit."""
        columns: dict[str, list[Any]] = {
            "node": [one.name for one in self.nodes],
            "fits": [not one.reasons for one in self.nodes],
            "reasons": ["; ".join(one.reasons) for one in self.nodes],
        }
        return to_dataframe(columns, library)

    def _repr_html_(self) -> str:
        """For notebooks: state, reasons per node, and the changes that help."""
        reasons = ((one.name, "; ".join(one.reasons)) for one in self.nodes)
        return html_summary(
            f"{self.pod or self.pod_group}: {self.state}",
            *map(html_text, (self.message, *self.never, *self.evictions)),
            html_table(("Node", "Reasons"), reasons),
            html_table(("Change that helps",), ((one.text,) for one in self.changes)),
        )

    @property
    def is_placed(self) -> bool:
        """True when the pod, or minMember pods of the group, have a node or get one."""
        if self.pod:
            return bool(self.node or self.current_node)
        return self.job is not None and self.job.is_ready


def explain_job(
    pod: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
    changes: bool = True,
    now: datetime.datetime | None = None,
) -> JobExplanation:
    """Run one session and explain a pod, by `NAMESPACE/NAME`, and its gang.

    now: time of the session; None for the latest that pods of the cluster show. Raises InputError,
    ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster_of(cluster)
    found = found_pod(pod, cluster)
    inspection = _SessionInspection(SessionRunner(cluster, deciders, now=now), pod=found)
    run = inspection.runner.run_session()
    has_node = bool(found.node_name) or found.key in run.bound
    is_ours = found.spec.scheduler_name in inspection.runner.batch.scheduler_names
    message = unseen_reason(found) if is_ours and not has_node else ""
    job = None if message else _reported_job(run, inspection.job, inspection.runner)
    waiting = "pending" if job is not None else "unseen"
    gates = tuple(gate.name for gate in found.spec.scheduling_gates)
    searched = NOTHING_FOUND
    if changes and job is not None and not has_node:
        searched = find_job_changes(cluster, deciders, job, lambda run: found.key in run.bound)
    return JobExplanation(
        SCHEMA,
        found.key,
        inspection.scheduler_name,
        "placed" if found.node_name else waiting,
        current_node=found.node_name,
        node=run.bound.get(found.key, ""),
        promised=job.promised.get(found.key, "") if job is not None else "",
        evicted=inspection.evicted,
        evicted_for_others=len(run.evicted) - len(inspection.evicted),
        gates=() if found.node_name or inspection.runner.compat else gates,
        job=job,
        never=inspection.never,
        evictions=inspection.evictions,
        nodes=inspection.nodes,
        message=message,
        changes=searched.changes,
        not_searched=searched.not_searched,
        wait=inspection.wait(job, cluster, deciders) if changes else None,
    )


def explain_pod_group(
    group: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
    changes: bool = True,
    now: datetime.datetime | None = None,
) -> JobExplanation:
    """Run one session and explain a PodGroup by `NAMESPACE/NAME`.

    now: as for `explain_job`. Raises InputError (also for an unknown PodGroup), ConfigError and
    ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster_of(cluster)
    found = found_pod_group(group, cluster)
    inspection = _SessionInspection(SessionRunner(cluster, deciders, now=now), group=found.key)
    run = inspection.runner.run_session()
    job = _reported_job(run, found.key, inspection.runner)
    message = ""
    if job is None:
        names = " or ".join(inspection.runner.batch.scheduler_names)
        needs = found.spec.min_member
        message = f"no pod with schedulerName {names} belongs to it, minMember is {needs}"
    searched = NOTHING_FOUND
    if changes and job is not None and not job.is_ready:

        def is_ready(run: SessionRun) -> bool:
            return any(one.is_ready for one in run.jobs if one.uid == found.key)

        searched = find_job_changes(cluster, deciders, job, is_ready)
    return JobExplanation(
        SCHEMA,
        "",
        inspection.scheduler_name,
        "placed" if job is not None and job.is_ready else "pending",
        pod_group=found.key,
        evicted=inspection.evicted,
        evicted_for_others=len(run.evicted) - len(inspection.evicted),
        job=job,
        never=inspection.never,
        evictions=inspection.evictions,
        nodes=inspection.nodes,
        nodes_of=inspection.nodes_of,
        message=message,
        changes=searched.changes,
        not_searched=searched.not_searched,
        wait=inspection.wait(job, cluster, deciders) if changes else None,
    )


def found_pod_group(key: str, cluster: Cluster) -> PodGroup | KaiPodGroupObject:
    """The PodGroup of a cluster by key; raises InputError."""
    kinds = PodGroup | KaiPodGroupObject
    groups = {value.key: value for value in cluster.objects if isinstance(value, kinds)}
    if key not in groups:
        namespace, _, name = key.partition("/")
        hint = did_you_mean(key, groups)
        wanted = f"one of the cluster's {len(groups)} PodGroups"
        got = f'podgroups "{name}" not found in namespace "{namespace}"'
        raise InputError(f"podgroup {key}", "", got, f"{wanted}; {hint}" if hint else wanted)
    return groups[key]


def _reported_job(run: SessionRun, uid: str, runner: SessionRunner) -> JobReport | None:
    """The report of a job; pods that the session chose nodes for and that are not bound wait."""
    job = next((job for job in run.jobs if job.uid == uid), None)
    if job is None:
        return None
    unbound = {key: node for key, node in job.placed.items() if run.bound.get(key) != node}
    if not unbound:
        return job
    key, node = next(iter(unbound.items()))
    pod = runner.cluster.pods.get(key)
    conditions = () if pod is None else pod.status.conditions
    texts = (one.message for one in conditions if one.type == POD_SCHEDULED and one.message)
    why = next(texts, "its volumes are not ready, or the binding failed")
    return replace(
        job,
        ready=job.ready - len(unbound),
        placed={key: node for key, node in job.placed.items() if key not in unbound},
        waiting=(*job.waiting, *unbound),
        reason=job.reason or NOT_BOUND,
        message=job.message or f"a session chooses {node} for pod {key}, which is not bound: {why}",
    )


class _SessionInspection:
    """Observes a job in a session after its actions.

    job: its uid, "" for none. scheduler_name: schedulerName of its pods, the default one of
    sessions if sessions schedule none of theirs. evicted: pod -> reason, of victims for it.
    """

    def __init__(self, runner: SessionRunner, pod: Pod | None = None, group: str = "") -> None:
        """pod or group: owner of the job; a group by `NAMESPACE/NAME`."""
        self.runner = runner
        self.job = group
        self.scheduler_name = _ours(runner, () if pod is None else (pod,))
        self.nodes: tuple[NodeReasons, ...] = ()
        self.nodes_of = ""
        self.evicted: dict[str, str] = {}
        self.never: tuple[str, ...] = ()
        self.evictions: tuple[str, ...] = ()
        self._pod = pod
        self._report: ModelReport | None = None
        if runner.is_queue_model:
            asked = pod or _pending_member(runner, group)
            if asked is not None:
                runner.ask_about(asked)
            runner.on_report = lambda result, report: self._read(result, report, asked)
        else:
            runner.on_run = self._inspect

    def _read(self, result: SessionResult, report: ModelReport, asked: Pod | None) -> None:
        """The same from what a queue model reports of a session. asked: the pod that it was asked
        about."""
        self._report = report
        if self._pod is not None:
            key = self._pod.key
            self.job = next((job.uid for job in report.jobs if _has(job, key)), self.job)
        elif asked is not None:
            self.scheduler_name = _ours(self.runner, [asked])
        self.nodes = tuple(NodeReasons(*one) for one in sorted(report.nodes.items()))
        self.nodes_of = "" if asked is None or not self.nodes else asked.key
        mine = {job.uid: {*job.promised, *job.placed, *job.waiting} for job in report.jobs}
        for victim in result.victims:
            of_pod = victim.preemptor.key if victim.preemptor is not None else ""
            # KAI evicts for a job, not for one of its pods.
            if of_pod in mine.get(self.job, ()) or (
                self.job and not of_pod and victim.group == self.job
            ):
                self.evicted[victim.pod.key] = victim.why
        job = next((one for one in report.jobs if one.uid == self.job), None)
        if job is not None and not job.is_ready:
            cluster = self.runner.cluster
            self.never = unstartable_reasons_of_report(job, cluster.pods, cluster.nodes.values())
        self.evictions = report.evictions if not self.never else ()

    def wait(self, job: JobReport | None, cluster: Cluster, deciders: Deciders) -> JobWait | None:
        """What a job of a queue model waits for, where the model says what it asks for. cluster: as
        it was given."""
        if job is None or self._report is None or not (job.wanted and job.waiting):
            return None
        now = datetime.datetime.fromtimestamp(self.runner.began / 1e9, datetime.UTC)
        forecasts = not (self.never or job.is_ready)
        return job_wait(job, self._report, cluster, deciders, now, forecasts=forecasts)

    def _inspect(self, session: AnySession) -> None:
        task = None
        if self._pod is not None:
            task = _task(session, self._pod)
            self.job = task.job if task is not None else _job_of(self.runner, self._pod)
        job = _job(session, self.job)
        if job is None:
            return
        if self._pod is None:
            self.scheduler_name = _ours(self.runner, [one.pod for one in tasks(job, *TaskStatus)])
        if task is None:
            pending = tasks(job, TaskStatus.PENDING)
            task = min(pending, key=lambda one: one.key, default=None)
        if task is not None and task.status is TaskStatus.PENDING:
            self.nodes = tuple(_nodes(self.runner, session, task))
            self.nodes_of = task.key
        self.evicted = _evicted_for(session, job.uid)
        if not session.is_ready(job.uid):
            self.never = unstartable_reasons(session, job)
        known = session.jobs.get(job.uid)
        if isinstance(session, Session) and isinstance(known, JobInfo) and not self.never:
            self.evictions = eviction_notes(session, known)


def _has(job: JobReport, key: str) -> bool:
    return key in job.placed or key in job.promised or key in job.waiting


def _pending_member(runner: SessionRunner, group: str) -> Pod | None:
    """The first pod of a group without a node."""
    pods = runner.cluster.pods.values()
    members = (pod for pod in pods if group in (group_of(pod), _kai_group_of(pod)))
    members = (pod for pod in members if not pod.node_name)
    return min(members, key=lambda pod: pod.key, default=None)


def _kai_group_of(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, '')}"


def _ours(runner: SessionRunner, pods: Iterable[Pod]) -> str:
    """The first schedulerName of pods that sessions schedule, else the default one."""
    names = (pod.spec.scheduler_name for pod in pods)
    batch = runner.batch
    return next((name for name in names if name in batch.scheduler_names), batch.scheduler_name)


def _job_of(runner: SessionRunner, pod: Pod) -> str:
    """The job of a pod that is in no session, "" for none."""
    return next((job.uid for job in runner.known_jobs if pod.uid in job.tasks), "")


def _job(session: AnySession, uid: str) -> AnyJob | None:
    """A job of the session, also one that it found invalid."""
    if isinstance(session, KubeBatchSession):
        return session.jobs.get(uid)
    return session.jobs.get(uid) or session.invalid.get(uid)


def _evicted_for(session: AnySession, job: str) -> dict[str, str]:
    """Pod -> reason, of the victims of a job."""
    state = session.state if isinstance(session, Session) else session
    found = {}
    for victim, why in state.evicted:
        taker = state.preemptors.get(victim.uid)
        # The reclaim of kube-batch v0.5 does not record for which task a victim is evicted.
        is_unknown = taker is None and isinstance(session, KubeBatchSession)
        if is_unknown or (taker is not None and taker.job == job):
            found[victim.key] = why
    return found


def _task(session: AnySession, pod: Pod) -> TaskInfo | KubeBatchTask | None:
    jobs: list[AnyJob] = [*session.jobs.values()]
    if isinstance(session, Session):
        jobs += session.invalid.values()
    return next((job.tasks[pod.uid] for job in jobs if pod.uid in job.tasks), None)


def _nodes(
    runner: SessionRunner, session: AnySession, task: TaskInfo | KubeBatchTask
) -> Iterator[NodeReasons]:
    """Every node with its reasons, resources first."""
    if isinstance(session, Session):
        assert isinstance(task, TaskInfo)
        return _nodes_of(runner, session, task)
    assert isinstance(task, KubeBatchTask)
    return _nodes_v0_5(session, task)


def _nodes_v0_5(session: KubeBatchSession, task: KubeBatchTask) -> Iterator[NodeReasons]:
    for name, node in sorted(session.nodes.items()):
        reasons = []
        for resource, wanted in task.ask.launching.pairs():
            left = node.idle.get(resource) + node.releasing.get(resource)
            if wanted > 0 and left <= wanted - (MEMORY_MIN if resource == "memory" else MILLI_MIN):
                reasons.append(_insufficient(resource, wanted, left))
        if len(node.tasks) >= node.allocatable.pods:
            reasons.append(FULL)
        if not session.passing(task, [node]):
            reasons.append(PREDICATES)
        yield NodeReasons(name, tuple(reasons))


def _nodes_of(runner: SessionRunner, session: Session, task: TaskInfo) -> Iterator[NodeReasons]:
    ledger = session.state.nodes
    asks_rules = bool(session.hooks.walk("predicate"))
    refused = _refused(runner, session, task) if asks_rules else {}
    limits, counts = ledger.pod_limit, ledger.pod_count
    for row in sorted(range(ledger.n_nodes), key=lambda row: ledger.names[row]):
        if ledger.nodes[row] is None:
            continue
        reasons = list(_short(session, task, row))
        if not ledger.has_ready_node(row):
            reasons.insert(0, NODES_NOT_READY)
        if asks_rules and counts[row] >= limits[row]:
            reasons.append(FULL)
        reasons += refused.get(ledger.names[row], ())
        yield NodeReasons(ledger.names[row], tuple(reasons))


def _short(session: Session, task: TaskInfo, row: int) -> Iterator[str]:
    ledger = session.state.nodes
    for name, wanted in task.ask.wants:
        idle = float(ledger.idle.get(name, ledger.n_nodes)[row])
        later = float(ledger.releasing.get(name, ledger.n_nodes)[row])
        if idle + later <= wanted - EPSILON:
            yield _insufficient(name, wanted, idle + later)


def _insufficient(name: str, wanted: float, left: float) -> str:
    need, have = format_resource(name, wanted), format_resource(name, max(left, 0.0))
    return f"Insufficient {name} (needs {need}, {have} left)"


def _refused(runner: SessionRunner, session: Session, task: TaskInfo) -> dict[str, tuple[str, ...]]:
    """Node -> reasons of the first plugin that rejects it."""
    attempt = filter_pod(task.pod, runner.snapshot(), runner.deciders.framework())
    nodes, verdicts = attempt.snapshot.nodes, attempt.verdicts
    absent = attempt.diagnosis.absent
    found = dict.fromkeys(nodes.names, absent.reasons)
    if verdicts is not None:
        for place, row in enumerate(verdicts.rows.tolist()):
            found[nodes.names[row]] = verdicts.at(place).reasons
    return found
