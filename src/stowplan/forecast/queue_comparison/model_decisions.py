"""What a queue model decides on a cluster."""

from __future__ import annotations

from stowplan.assembly.deciders import Deciders
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.forecast.queue_comparison.cluster_decisions import (
    QUOTA_RESERVED,
    WAITING_PHASES,
    ClusterDecisions,
    has_condition,
    workloads,
)
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.podgroup import PodGroup
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.simulation.session_runner import SessionRunner

SESSIONS_MAX = 20
"""Sessions that are run at most: the other scheduler has had time for some, too."""


def model_decisions(cluster: Cluster, deciders: Deciders) -> ClusterDecisions:
    """What Kueue's admission decides, if it is configured, else sessions until one evicts or
    decides nothing: what follows an eviction waits for its victims. Raises InputError."""
    if deciders.kueue is not None:
        return _admission(cluster, deciders.kueue)
    runner = SessionRunner(cluster, deciders)
    started: dict[str, str] = {}
    evicted: dict[str, str] = {}
    waited = {
        one.key
        for one in cluster.objects
        if isinstance(one, PodGroup) and one.status.phase in WAITING_PHASES
    }
    admitted: set[str] = set()
    reasons: dict[str, str] = {}
    for _ in range(SESSIONS_MAX):
        session = runner.run_session()
        started |= session.bound
        evicted |= session.evicted
        for job in session.jobs:
            if job.uid in waited and job.phase not in WAITING_PHASES:
                admitted.add(f"podgroup {job.uid}")
            message = job.message or job.reason
            reasons[f"podgroup {job.uid}"] = message
            reasons |= dict.fromkeys((*job.waiting, *job.promised), message)
        if session.evicted or not (session.bound or session.continues):
            break
    return ClusterDecisions(started, evicted, frozenset(admitted), reasons)


def _admission(cluster: Cluster, options: KueueOptions) -> ClusterDecisions:
    if not cluster.kueue_objects:
        return ClusterDecisions()
    found = admit_jobs(cluster, options)
    admitted, evicted = set(), {}
    reasons: dict[str, str] = {}
    report = found.report
    held = {key for key, tree in workloads(cluster).items() if has_condition(tree, QUOTA_RESERVED)}
    for one in report.workloads if report is not None else ():
        key, title = f"{one.namespace}/{one.name}", f"workload {one.namespace}/{one.name}"
        if one.status == "Pending":
            reasons[title] = one.message
            if key in held and one.preempted_by:
                evicted[title] = f"preempted by workload {one.preempted_by}"
        elif key not in held:
            admitted.add(title)
    return ClusterDecisions({}, evicted, frozenset(admitted), reasons)
