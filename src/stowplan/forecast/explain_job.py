"""explain_job(): the decision of a session for a pod and its gang, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.batch import Session
from stowplan.batch.feasibility import eviction_notes, unstartable_reasons
from stowplan.batch.fit_errors import NODES_NOT_READY
from stowplan.batch.state.jobs import TaskInfo, TaskStatus
from stowplan.batch.state.resource_vector import format_resource
from stowplan.cycle.attempt import filter_pod
from stowplan.forecast.explain import found_pod
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.simulation.scheduler_configuration import ConfigSource, read_deciders
from stowplan.simulation.session_runner import JobReport, SessionRunner

SCHEMA = "stowplan.dev/job-explanation/v1"
PREDICATES = "node(s) didn't pass the predicates"
FULL = "Too many pods"


class NodeReasons(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a node does not fit the pod at the end of the session; no reasons: it fits."""

    name: str
    reasons: tuple[str, ...] = ()


class JobExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of one session for a pod or a PodGroup.

    pod: "" for a PodGroup. state: placed, pending, or unseen when sessions do not schedule it.
    node: node on which the session places it. promised: node of an allocated or pipelined pod.
    evicted: pod -> reason, of victims for its job. evicted_for_others: number of other victims.
    gates: its scheduling gates. never: why the job cannot start on these nodes. evictions: what
    reclaim and preempt would do for it. nodes: reasons per node, for the pod or for one pending pod
    of the group, `nodes_of`. message: why no session schedules the group.
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
) -> JobExplanation:
    """Run one session and explain a pod, by `NAMESPACE/NAME`, and its gang.

    Raises InputError, ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod(pod, cluster)
    inspection = _SessionInspection(SessionRunner(cluster, deciders), pod=found)
    run = inspection.runner.run_session()
    job = next((job for job in run.jobs if job.uid == inspection.job), None)
    waiting = "pending" if job is not None else "unseen"
    gates = tuple(gate.name for gate in found.spec.scheduling_gates)
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
        gates=() if found.node_name or inspection.runner.compat.rules_of_1_13 else gates,
        job=job,
        never=inspection.never,
        evictions=inspection.evictions,
        nodes=inspection.nodes,
    )


def explain_pod_group(
    group: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
) -> JobExplanation:
    """Run one session and explain a PodGroup by `NAMESPACE/NAME`.

    Raises InputError (also for an unknown PodGroup), ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod_group(group, cluster)
    inspection = _SessionInspection(SessionRunner(cluster, deciders), group=found.key)
    run = inspection.runner.run_session()
    job = next((job for job in run.jobs if job.uid == found.key), None)
    message = ""
    if job is None:
        names = " or ".join(inspection.runner.batch.scheduler_names)
        needs = found.spec.min_member
        message = f"no pod with schedulerName {names} belongs to it, minMember is {needs}"
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
    )


def found_pod_group(key: str, cluster: Cluster) -> PodGroup:
    """The PodGroup of a cluster by key; raises InputError."""
    groups = {value.key: value for value in cluster.objects if isinstance(value, PodGroup)}
    if key not in groups:
        namespace, _, name = key.partition("/")
        hint = did_you_mean(key, groups)
        wanted = f"one of the cluster's {len(groups)} PodGroups"
        got = f'podgroups "{name}" not found in namespace "{namespace}"'
        raise InputError(f"podgroup {key}", "", got, f"{wanted}; {hint}" if hint else wanted)
    return groups[key]


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
        runner.on_run = self._inspect

    def _inspect(self, session: Session) -> None:
        task = None
        if self._pod is not None:
            task = _task(session, self._pod)
            self.job = task.job if task is not None else _job_of(self.runner, self._pod)
        job = session.jobs.get(self.job) or session.invalid.get(self.job)
        if job is None:
            return
        if self._pod is None:
            self.scheduler_name = _ours(self.runner, (one.pod for one in job.tasks.values()))
        if task is None:
            pending = job.of(TaskStatus.PENDING).values()
            task = min(pending, key=lambda one: one.key, default=None)
        if task is not None and task.status is TaskStatus.PENDING:
            self.nodes = tuple(_nodes(self.runner, session, task))
            self.nodes_of = task.key
        preemptors = session.state.preemptors
        for victim, why in session.state.evicted:
            taker = preemptors.get(victim.uid)
            # kube-batch's reclaim does not record the preemptor of a victim.
            is_unknown = taker is None and session.compat.reclaims_at_once
            if is_unknown or (taker is not None and taker.job == job.uid):
                self.evicted[victim.key] = why
        if not session.hooks.job_ready(job):
            self.never = unstartable_reasons(session, job)
        if not self.never and job.uid in session.jobs and job.of(TaskStatus.PENDING):
            self.evictions = eviction_notes(session, job)


def _ours(runner: SessionRunner, pods: Iterable[Pod]) -> str:
    """The first schedulerName of pods that sessions schedule, else the default one."""
    names = (pod.spec.scheduler_name for pod in pods)
    batch = runner.batch
    return next((name for name in names if name in batch.scheduler_names), batch.scheduler_name)


def _job_of(runner: SessionRunner, pod: Pod) -> str:
    """The job of a pod that is in no session, "" for none."""
    jobs = runner.inventory.jobs.values()
    return next((job.uid for job in jobs if pod.uid in job.tasks), "")


def _task(session: Session, pod: Pod) -> TaskInfo | None:
    for job in (*session.jobs.values(), *session.invalid.values()):
        if pod.uid in job.tasks:
            return job.tasks[pod.uid]
    return None


def _nodes(runner: SessionRunner, session: Session, task: TaskInfo) -> Iterator[NodeReasons]:
    """Every node with its reasons, resources first."""
    ledger = session.state.nodes
    refused = _refused(runner, session, task)
    limits, counts = ledger.pod_limit, ledger.pod_count
    asks_rules = bool(session.hooks.walk("predicate"))
    for row in sorted(range(ledger.n_nodes), key=lambda row: ledger.names[row]):
        if ledger.nodes[row] is None:
            continue
        reasons = list(_short(session, task, row))
        if not ledger.has_ready_node(row):
            reasons.insert(0, NODES_NOT_READY)
        if asks_rules and counts[row] >= limits[row]:
            reasons.append(FULL)
        if asks_rules:
            reasons += refused.get(ledger.names[row], ())
        yield NodeReasons(ledger.names[row], tuple(reasons))


def _short(session: Session, task: TaskInfo, row: int) -> Iterator[str]:
    ledger = session.state.nodes
    for name, wanted in task.ask.wants:
        idle = float(ledger.idle.get(name, ledger.n_nodes)[row])
        later = float(ledger.releasing.get(name, ledger.n_nodes)[row])
        if idle + later <= wanted - session.arithmetic.milli_epsilon:
            need, have = (
                format_resource(name, wanted),
                format_resource(name, max(idle + later, 0.0)),
            )
            yield f"Insufficient {name} (needs {need}, {have} left)"


def _refused(runner: SessionRunner, session: Session, task: TaskInfo) -> dict[str, tuple[str, ...]]:
    """Node -> reasons of the first plugin that rejects it."""
    names = session.state.nodes.names
    if runner.compat.rules_of_1_13:
        passing = session.passing(task)
        return {names[row]: (PREDICATES,) for row in np.flatnonzero(~passing).tolist()}
    attempt = filter_pod(task.pod, runner.snapshot(), runner.deciders.framework())
    nodes, verdicts = attempt.snapshot.nodes, attempt.verdicts
    absent = attempt.diagnosis.absent
    found = dict.fromkeys(nodes.names, absent.reasons)
    if verdicts is not None:
        for place, row in enumerate(verdicts.rows.tolist()):
            found[nodes.names[row]] = verdicts.at(place).reasons
    return found
