"""explain_pending(): all pending pods of a cluster, grouped by cause."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from stowplan.assembly import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.cycle.change import Change
from stowplan.framework import Nominations, Snapshot
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.changes.search import find_changes
from stowplan.insight.group_members import know_cluster
from stowplan.insight.pending_causes import (
    CAN_RUN,
    EvaluatedCauses,
    PendingCauses,
    failed_scheduling_events,
    group_by_cause,
    recorded_cause,
)
from stowplan.insight.pod_placement import unseen_reason
from stowplan.objects.pod import Pod
from stowplan.simulation.scheduler_configuration import ConfigSource, deciders_for
from stowplan.simulation.session_runner import SessionRunner
from stowplan.simulation.simulate_jobs import NO_REASON


def explain_pending(
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
    namespace: str | None = None,
    from_events: bool = False,
    changes: bool = True,
    now: datetime | None = None,
) -> PendingCauses:
    """Group the pending pods by cause, the largest group first.

    Every pod is evaluated on the cluster as given, before other pending pods are scheduled; those
    that sessions schedule by one session. profile: used for every pod. namespace: None for all.
    now: of the session, None for the latest time that the cluster shows. from_events: take the
    causes that the cluster's scheduler has recorded: the FailedScheduling events in
    `Cluster.manifests`, else the PodScheduled conditions. changes: search those of the first pod
    of each group. Raises InputError, ConfigError and ContractError.
    """
    cluster = cluster_of(cluster, keep_manifests=from_events)
    deciders = deciders_for(cluster, config, plugins)
    frameworks = frameworks_for(deciders.configuration, deciders.registry, deciders.gates)
    if profile is not None and profile in frameworks:
        names = {pod.spec.scheduler_name for pod in cluster.pending()}
        frameworks = {**frameworks, **dict.fromkeys(names, frameworks[profile])}
    pending = cluster.pending()
    nominated = Nominations(pod for pod in pending if pod.status.nominated_node_name)
    snapshot = Snapshot(cluster.table(), cluster.object_store(), nominated)
    origins = cluster.sources()
    for framework in frameworks.values():
        know_cluster(framework, cluster.pods, snapshot.object_store)

    def changes_of(pod: Pod) -> tuple[Change, ...]:
        framework = frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return ()
        return find_changes(pod, snapshot, framework, origins).changes

    reasons = {} if from_events or profile else _session_reasons(cluster, deciders, now)
    cause_of = EvaluatedCauses(snapshot, frameworks, reasons).cause_of
    if from_events:
        events = failed_scheduling_events(cluster.manifests)

        def cause_of(pod: Pod) -> str:
            return recorded_cause(pod, events)

    own = [pod for pod in pending if namespace in (None, pod.namespace)]
    return group_by_cause(own, cause_of, changes_of if changes else None)


def _session_reasons(cluster: Cluster, deciders: Deciders, now: datetime | None) -> dict[str, str]:
    """Pending pod of a session scheduler -> why a session leaves it without a node."""
    batch = deciders.batch
    if batch is None:
        return {}
    names = batch.scheduler_names
    own = [pod for pod in cluster.pending() if pod.spec.scheduler_name in names]
    if not own:
        return {}
    run = SessionRunner(cluster, deciders, now=now).run_session()
    jobs = {pod: job for job in run.jobs for pod in (*job.waiting, *job.promised)}
    found = {}
    for pod in own:
        job = jobs.get(pod.key)
        text = f"{job.reason}: {job.message}" if job is not None and job.reason else ""
        text = text or unseen_reason(pod) or NO_REASON
        found[pod.key] = CAN_RUN if pod.key in run.bound else text
    return found
