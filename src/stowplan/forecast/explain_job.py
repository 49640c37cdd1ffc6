"""explain_job(): what a session decides for a pod and its gang, and why."""

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
    """A node and why it does not take the pod at the end of the session; no reasons: it would."""

    name: str
    reasons: tuple[str, ...] = ()


class JobExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one session does for a pod, or for a PodGroup.

    pod: "" where a PodGroup is explained. state: placed, pending, or unseen where sessions do not
    look at it. node: where the session places it. promised: where room is kept or being freed for
    it. evicted: pod -> why, of those that go for its job. evicted_for_others: how many go beside
    them. gates: until these are taken away it is not placed. never: why the job cannot start on
    these nodes. evictions: what reclaim and preempt would do for it. nodes: what speaks against the
    pod, or against one of the group's that waits: `nodes_of`. message: why no session looks
    at the group.
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
        """True when the pod, or as many of the group as it needs, have a node, or would have."""
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
    """Hold one session on a cluster and explain a pod, by `NAMESPACE/NAME`, and its gang.

    Raises InputError, ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod(pod, cluster)
    look = _SessionInspection(SessionRunner(cluster, deciders), pod=found)
    held = look.rounds.run_session()
    job = next((job for job in held.jobs if job.uid == look.job), None)
    waiting = "pending" if job is not None else "unseen"
    gates = tuple(gate.name for gate in found.spec.scheduling_gates)
    return JobExplanation(
        SCHEMA,
        found.key,
        look.scheduler_name,
        "placed" if found.node_name else waiting,
        current_node=found.node_name,
        node=held.bound.get(found.key, ""),
        promised=job.promised.get(found.key, "") if job is not None else "",
        evicted=look.evicted,
        evicted_for_others=len(held.evicted) - len(look.evicted),
        gates=() if found.node_name or look.rounds.compat.rules_of_1_13 else gates,
        job=job,
        never=look.never,
        evictions=look.evictions,
        nodes=look.nodes,
    )


def explain_pod_group(
    group: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
) -> JobExplanation:
    """Hold one session on a cluster and explain a PodGroup by `NAMESPACE/NAME`.

    Raises InputError, also where there is no such PodGroup, ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod_group(group, cluster)
    look = _SessionInspection(SessionRunner(cluster, deciders), group=found.key)
    held = look.rounds.run_session()
    job = next((job for job in held.jobs if job.uid == found.key), None)
    message = ""
    if job is None:
        names = " or ".join(look.rounds.batch.scheduler_names)
        needs = found.spec.min_member
        message = f"no pod with schedulerName {names} names it, {needs} are needed"
    return JobExplanation(
        SCHEMA,
        "",
        look.scheduler_name,
        "placed" if job is not None and job.is_ready else "pending",
        pod_group=found.key,
        evicted=look.evicted,
        evicted_for_others=len(held.evicted) - len(look.evicted),
        job=job,
        never=look.never,
        evictions=look.evictions,
        nodes=look.nodes,
        nodes_of=look.nodes_of,
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
    """What a session shows of a job when its actions have run.

    job: its uid, "" for none. scheduler_name: what its pods ask for, the first that sessions decide
    where they ask for none of those. evicted: pod -> why, of those that go for it.
    """

    def __init__(self, rounds: SessionRunner, pod: Pod | None = None, group: str = "") -> None:
        """pod or group: whose job it is; a group by `NAMESPACE/NAME`."""
        self.rounds = rounds
        self.job = group
        self.scheduler_name = _ours(rounds, () if pod is None else (pod,))
        self.nodes: tuple[NodeReasons, ...] = ()
        self.nodes_of = ""
        self.evicted: dict[str, str] = {}
        self.never: tuple[str, ...] = ()
        self.evictions: tuple[str, ...] = ()
        self._pod = pod
        rounds.on_run = self._look

    def _look(self, session: Session) -> None:
        task = None
        if self._pod is not None:
            task = _task(session, self._pod)
            self.job = task.job if task is not None else _job_of(self.rounds, self._pod)
        job = session.jobs.get(self.job) or session.invalid.get(self.job)
        if job is None:
            return
        if self._pod is None:
            self.scheduler_name = _ours(self.rounds, (one.pod for one in job.tasks.values()))
        if task is None:
            pending = job.of(TaskStatus.PENDING).values()
            task = min(pending, key=lambda one: one.key, default=None)
        if task is not None and task.status is TaskStatus.PENDING:
            self.nodes = tuple(_nodes(self.rounds, session, task))
            self.nodes_of = task.key
        preemptors = session.state.preemptors
        for victim, why in session.state.evicted:
            taker = preemptors.get(victim.uid)
            # With kube-batch's reclaim it is not recorded for whom a pod is evicted.
            is_unknown = taker is None and session.compat.reclaims_at_once
            if is_unknown or (taker is not None and taker.job == job.uid):
                self.evicted[victim.key] = why
        if not session.hooks.job_ready(job):
            self.never = unstartable_reasons(session, job)
        if not self.never and job.uid in session.jobs and job.of(TaskStatus.PENDING):
            self.evictions = eviction_notes(session, job)


def _ours(rounds: SessionRunner, pods: Iterable[Pod]) -> str:
    """The first scheduler name of pods that sessions decide; theirs where no pod has one."""
    names = (pod.spec.scheduler_name for pod in pods)
    batch = rounds.batch
    return next((name for name in names if name in batch.scheduler_names), batch.scheduler_name)


def _job_of(rounds: SessionRunner, pod: Pod) -> str:
    """The job of a pod that no session takes up, "" for none."""
    jobs = rounds.inventory.jobs.values()
    return next((job.uid for job in jobs if pod.uid in job.tasks), "")


def _task(session: Session, pod: Pod) -> TaskInfo | None:
    for job in (*session.jobs.values(), *session.invalid.values()):
        if pod.uid in job.tasks:
            return job.tasks[pod.uid]
    return None


def _nodes(rounds: SessionRunner, session: Session, task: TaskInfo) -> Iterator[NodeReasons]:
    """Every node with what speaks against it, resources first."""
    ledger = session.state.nodes
    refused = _refused(rounds, session, task)
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


def _refused(rounds: SessionRunner, session: Session, task: TaskInfo) -> dict[str, tuple[str, ...]]:
    """Node -> the reasons of the first rule that refuses it."""
    names = session.state.nodes.names
    if rounds.compat.rules_of_1_13:
        passing = session.passing(task)
        return {names[row]: (PREDICATES,) for row in np.flatnonzero(~passing).tolist()}
    attempt = filter_pod(task.pod, rounds.snapshot(), rounds.deciders.framework())
    nodes, verdicts = attempt.snapshot.nodes, attempt.verdicts
    absent = attempt.diagnosis.absent
    found = dict.fromkeys(nodes.names, absent.reasons)
    if verdicts is not None:
        for place, row in enumerate(verdicts.rows.tolist()):
            found[nodes.names[row]] = verdicts.at(place).reasons
    return found
