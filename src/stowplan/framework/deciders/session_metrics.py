"""Metrics of sessions, under the names of kube-batch.

Source: kube-batch v0.5, pkg/scheduler/metrics.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stowplan.framework.metrics import Labels, Metrics

E2E_LATENCY = "volcano_e2e_scheduling_latency_milliseconds"
ACTION_LATENCY = "volcano_action_scheduling_latency_microseconds"
PLUGIN_LATENCY = "volcano_plugin_scheduling_latency_microseconds"
ATTEMPTS = "volcano_schedule_attempts_total"
PREEMPTIONS = "volcano_total_preemption_attempts"
VICTIMS = "volcano_pod_preemption_victims"
UNREADY_TASKS = "volcano_unschedule_task_count"
UNREADY_JOBS = "volcano_unschedule_job_count"
RETRIES = "volcano_job_retry_counts"


class SessionFigures(msgspec.Struct, frozen=True):
    """Counts of a session. n_bound, n_preempted, n_preemptors: tasks. unready: (name, number of
    missing tasks) of each group that is not ready."""

    n_bound: int
    n_preempted: int
    n_preemptors: int
    unready: Sequence[tuple[str, int]]


def record_session(metrics: Metrics, figures: SessionFigures, took_ms: float) -> None:
    """Record a session's metrics. took_ms: its duration in milliseconds."""
    metrics.observe(E2E_LATENCY, took_ms)
    metrics.count(ATTEMPTS, (("result", "scheduled"),), figures.n_bound)
    metrics.count(PREEMPTIONS, by=figures.n_preemptors)
    metrics.set_gauge(VICTIMS, figures.n_preempted)
    metrics.set_gauge(UNREADY_JOBS, len(figures.unready))
    named: list[tuple[Labels, int]] = [
        ((("job_id", name),), n_missing) for name, n_missing in figures.unready
    ]
    metrics.keep(UNREADY_TASKS, [labels for labels, _ in named])
    metrics.keep(RETRIES, [labels for labels, _ in named])
    for labels, n_missing in named:
        metrics.set_gauge(UNREADY_TASKS, n_missing, labels)
        metrics.count(RETRIES, labels)
