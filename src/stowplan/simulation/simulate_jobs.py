"""simulate_jobs(): run sessions on a cluster until one changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan import config as configuration_files
from stowplan.assembly.deciders import Deciders
from stowplan.batch.job_report import JobReport
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.counts import count_of
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.pod_placement import (
    ONLY_PENDING,
    Placement,
    frame_of,
    has_started_without_node,
    unplaced,
    unseen_reason,
)
from stowplan.objects.encoding.html_summary import html_bars, html_summary, html_table
from stowplan.objects.pod import Pod
from stowplan.recording.recording_header import (
    SIMULATION,
    SchedulerRecorder,
    SchedulerSetup,
    plugin_records,
)
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.results.summary import run_summary
from stowplan.simulation.scheduler_configuration import ConfigSource, read_deciders
from stowplan.simulation.session_runner import SessionRun, SessionRunner
from stowplan.simulation.simulate import PLACEMENTS, SUMMARY, as_json

JOBS = "jobs.jsonl"
SESSIONS_NOTE = "sessions follow each other at once; evicted pods go at once and do not come back"
STARTED_LISTED = 5
NO_REASON = "its job needs no more pods, or no node fits more of them"


class JobSimulation(msgspec.Struct):
    """Result of sessions.

    placements: pods that sessions schedule. jobs: as after the last session, with `placed` of all
    sessions. evicted: pod -> reason. summary: as `Simulation.summary`, with sessions, evicted, jobs
    and jobs_ready.
    """

    placements: list[Placement]
    jobs: list[JobReport]
    evicted: dict[str, str]
    summary: dict[str, Any]

    def __repr__(self) -> str:
        figures = self.summary
        jobs = f"{figures['jobs_ready']:,} of {figures['jobs']:,} jobs ready"
        pods = f"{figures['placed']:,} of {figures['pods']:,} pods placed"
        return f"JobSimulation({pods}, {jobs})"

    def _repr_html_(self) -> str:
        """For notebooks: utilization at the end, and the jobs."""
        use: dict[str, dict[str, float]] = self.summary["utilisation"]
        rows = ((job.uid, len(job.placed), job.is_ready, job.reason) for job in self.jobs)
        return html_summary(
            repr(self),
            html_bars((name, one["share"]) for name, one in use.items() if one["allocatable"]),
            html_table(("Job", "Placed", "Ready", "Reason"), rows),
        )

    def to_frame(self, library: str = "") -> Any:
        """The placements as a DataFrame; see `Simulation.to_frame`."""
        return frame_of(self.placements, library)

    def files(self) -> dict[str, bytes]:
        """The result files by name."""
        return {
            PLACEMENTS: _lines(self.placements),
            JOBS: _lines(self.jobs),
            SUMMARY: as_json(self.summary),
        }


def is_for_sessions(deciders: Deciders, cluster: Cluster | None) -> bool:
    """True if sessions schedule every pod, or some pending pod; where none is pending, if they
    have scheduled some, or a queue model decides: it may evict pods."""
    batch = deciders.batch
    if batch is None or not deciders.configuration.profiles:
        return batch is not None
    if cluster is None:
        return False
    pending = cluster.pending()
    if not pending and batch.queue_model is not None:
        return True
    names = batch.scheduler_names
    return any(pod.spec.scheduler_name in names for pod in pending or cluster.pods)


def simulate_jobs(
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
    seed: int = 0,
    runner: SessionRunner | None = None,
    recorder: SchedulerRecorder | None = None,
) -> JobSimulation:
    """Run sessions on a cluster until one changes nothing.

    seed: of ties between nodes. runner: of this cluster, before its first session. recorder:
    records the scheduler of a runner that is made here. Raises InputError, ConfigError and
    ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster_of(cluster)
    files = plugin_records(plugins if isinstance(plugins, list | tuple) else ())

    def record(deciding: Deciders, scheduler: Scheduler) -> None:
        if recorder is not None:
            setup = SchedulerSetup("simulate", seed, SIMULATION, plugins=files, virtual=True)
            recorder.attach(deciding, scheduler, setup)

    if runner is None:
        runner = SessionRunner(cluster, deciders, np.random.default_rng(seed), record)
    mine = {
        pod.key: pod
        for pod in cluster.pending()
        if pod.spec.scheduler_name in runner.batch.scheduler_names
    }
    runs = list(runner.until_idle())
    jobs = _over_all(runs)
    bound = {pod: node for run in runs for pod, node in run.bound.items()}
    evicted = {pod: why for run in runs for pod, why in run.evicted.items()}
    reasons = {pod: job for job in jobs for pod in (*job.waiting, *job.promised)}
    placements = [_placement(pod, bound, reasons) for pod in mine.values()]
    summary = run_summary(cluster, placements, runner.table)
    others = len(cluster.pending()) - len(mine)
    if others:
        names = " or ".join(map(repr, runner.batch.scheduler_names))
        profiles = deciders.configuration.profiles
        has_both = any(pod.spec.scheduler_name in profiles for pod in cluster.pending())
        both = " (simulate --replay and what-if --for schedule those of profiles, too)"
        summary["notes"].append(
            f"{others} pending pods have another schedulerName than {names}: not scheduled"
            + (both if has_both else "")
        )
    summary["notes"] += _started_note(pod for key, pod in mine.items() if key not in bound)
    summary["notes"].append(SESSIONS_NOTE)
    summary |= {
        "seed": seed,
        "configuration": configuration_files.digest(deciders.configuration),
        "sessions": len(runs),
        "evicted": evicted,
        "jobs": len(jobs),
        "jobs_ready": sum(job.is_ready for job in jobs),
    }
    return JobSimulation(placements, jobs, evicted, summary)


def _over_all(runs: list[SessionRun]) -> list[JobReport]:
    """The jobs after the last session, with the pods placed by any session."""
    placed: dict[str, dict[str, str]] = {}
    for one in runs:
        for job in one.jobs:
            placed.setdefault(job.uid, {}).update(job.placed)
    return [msgspec.structs.replace(job, placed=placed[job.uid]) for job in runs[-1].jobs]


def _started_note(pods: Iterable[Pod]) -> list[str]:
    """One note about the pods whose status says that they run while they have no node."""
    found = [pod.key for pod in pods if has_started_without_node(pod)]
    if not found:
        return []
    more = len(found) - STARTED_LISTED
    listed = ", ".join(found[:STARTED_LISTED]) + (f" and {more:,} more" if more > 0 else "")
    which = count_of(
        len(found), "pod runs by its status, but has", "pods run by their status, but have"
    )
    return [f"{which} no spec.nodeName: not placed, {ONLY_PENDING}: {listed}"]


def _placement(pod: Pod, bound: dict[str, str], reasons: dict[str, JobReport]) -> Placement:
    key = pod.key
    if key in bound:
        return Placement(key, bound[key])
    job = reasons.get(key)
    if job is not None and job.reason:
        return Placement(key, "", job.reason, job.message)
    return unplaced(pod, unseen_reason(pod) or NO_REASON)


def _lines(values: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)
