"""explain_job(): what a session decides for a pod and its gang, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.batch import Session
from stowplan.batch.amounts import amount_text
from stowplan.batch.jobs import Task, TaskStatus
from stowplan.batch.unfit import UNREADY
from stowplan.cycle.attempt import filter_pod
from stowplan.objects.pod import Pod
from stowplan.sim.cluster import Cluster, read_cluster
from stowplan.sim.deciders import ConfigSource, read_deciders
from stowplan.sim.explain import found_pod
from stowplan.sim.plugins import PluginSource
from stowplan.sim.rounds import JobReport, Rounds

SCHEMA = "stowplan.dev/job-explanation/v1"
PREDICATES = "node(s) didn't pass the predicates"
FULL = "Too many pods"


class NodeReasons(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node and why it does not take the pod at the end of the session; no reasons: it would."""

    name: str
    reasons: tuple[str, ...] = ()


class JobExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one session does for a pod.

    state: placed, pending, or unseen where sessions do not look at it. node: where the session
    places it. promised: where room is kept or being freed for it. evicted: pod -> why. gates: until
    these are taken away it is not placed.
    """

    api_version: str
    pod: str
    scheduler_name: str
    state: str
    current_node: str = ""
    node: str = ""
    promised: str = ""
    evicted: dict[str, str] = {}
    gates: tuple[str, ...] = ()
    job: JobReport | None = None
    nodes: tuple[NodeReasons, ...] = ()


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
    world = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod(pod, world)
    rounds = Rounds(world, deciders)
    nodes: tuple[NodeReasons, ...] = ()
    uid, gates = "", tuple(gate.name for gate in found.spec.scheduling_gates)

    def look(session: Session) -> None:
        nonlocal nodes, uid
        task = _task(session, found)
        uid = task.job if task is not None else _job_of(rounds, found)
        if task is not None and task.status is TaskStatus.PENDING:
            nodes = tuple(_nodes(rounds, session, task))

    rounds.on_run = look
    held = rounds.hold()
    job = next((job for job in held.jobs if job.uid == uid), None)
    placed = held.bound.get(found.key, "")
    waiting = "pending" if job is not None else "unseen"
    return JobExplanation(
        SCHEMA,
        found.key,
        rounds.batch.scheduler_name,
        "placed" if found.node_name else waiting,
        current_node=found.node_name,
        node=placed,
        promised=job.promised.get(found.key, "") if job is not None else "",
        evicted=held.evicted,
        gates=() if found.node_name or rounds.compat.rules_of_1_13 else gates,
        job=job,
        nodes=nodes,
    )


def _job_of(rounds: Rounds, pod: Pod) -> str:
    """The job of a pod that no session takes up, "" for none."""
    jobs = rounds.inventory.jobs.values()
    return next((job.uid for job in jobs if pod.uid in job.tasks), "")


def _task(session: Session, pod: Pod) -> Task | None:
    for job in (*session.jobs.values(), *session.invalid.values()):
        if pod.uid in job.tasks:
            return job.tasks[pod.uid]
    return None


def _nodes(rounds: Rounds, session: Session, task: Task) -> Iterator[NodeReasons]:
    """Every node with what speaks against it, resources first."""
    ledger = session.working.nodes
    refused = _refused(rounds, session, task)
    limits, counts = ledger.pod_limit, ledger.pod_count
    asks_rules = bool(session.hooks.walk("predicate"))
    for row in sorted(range(ledger.n_nodes), key=lambda row: ledger.names[row]):
        if ledger.nodes[row] is None:
            continue
        reasons = list(_short(session, task, row))
        if not ledger.is_there(row):
            reasons.insert(0, UNREADY)
        if asks_rules and counts[row] >= limits[row]:
            reasons.append(FULL)
        if asks_rules:
            reasons += refused.get(ledger.names[row], ())
        yield NodeReasons(ledger.names[row], tuple(reasons))


def _short(session: Session, task: Task, row: int) -> Iterator[str]:
    ledger = session.working.nodes
    for name, wanted in task.ask.wants:
        idle = float(ledger.idle.get(name, ledger.n_nodes)[row])
        later = float(ledger.releasing.get(name, ledger.n_nodes)[row])
        if idle + later <= wanted - session.arithmetic.milli_epsilon:
            need, have = amount_text(name, wanted), amount_text(name, max(idle + later, 0.0))
            yield f"Insufficient {name} (needs {need}, {have} left)"


def _refused(rounds: Rounds, session: Session, task: Task) -> dict[str, tuple[str, ...]]:
    """Node -> the reasons of the first rule that refuses it."""
    names = session.working.nodes.names
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
