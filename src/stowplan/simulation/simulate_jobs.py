"""simulate_jobs(): what sessions make of the waiting jobs of a cluster, until nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan import config as configuration_files
from stowplan.assembly.deciders import Deciders
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.pod_placement import Placement, frame_of
from stowplan.simulation.results.summary import run_summary
from stowplan.simulation.scheduler_configuration import ConfigSource, read_deciders
from stowplan.simulation.session_runner import JobReport, SessionRun, SessionRunner
from stowplan.simulation.simulate import PLACEMENTS, SUMMARY, as_json

JOBS = "jobs.jsonl"
SESSIONS_NOTE = "sessions follow each other at once; evicted pods go at once and do not come back"
NO_REASON = "its job needs no more, or has no room for more"


class JobSimulation(msgspec.Struct):
    """What became of the pods that sessions decide, of their jobs, and of those evicted.

    jobs: as the last session left them, `placed` of all sessions. evicted: pod -> why. summary: as
    of other simulations, with sessions, evicted, jobs and jobs_ready.
    """

    placements: list[Placement]
    jobs: list[JobReport]
    evicted: dict[str, str]
    summary: dict[str, Any]

    def __repr__(self) -> str:
        told = self.summary
        jobs = f"{told['jobs_ready']:,} of {told['jobs']:,} jobs ready"
        return f"JobSimulation({told['placed']:,} of {told['pods']:,} pods placed, {jobs})"

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


def simulate_jobs(
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
    seed: int = 0,
) -> JobSimulation:
    """Hold sessions on a cluster until one changes nothing.

    seed: of ties between nodes. Raises InputError, ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins, compat)
    cluster = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    rounds = SessionRunner(cluster, deciders, np.random.default_rng(seed))
    mine = {
        pod.key: pod
        for pod in cluster.pending()
        if pod.spec.scheduler_name in rounds.batch.scheduler_names
    }
    held = list(rounds.until_idle())
    jobs = _over_all(held)
    bound = {pod: node for one in held for pod, node in one.bound.items()}
    evicted = {pod: why for one in held for pod, why in one.evicted.items()}
    reasons = {pod: job for job in jobs for pod in (*job.waiting, *job.promised)}
    placements = [_placement(key, bound, reasons) for key in mine]
    summary = run_summary(cluster, placements, rounds.table)
    others = len(cluster.pending()) - len(mine)
    if others:
        names = " or ".join(map(repr, rounds.batch.scheduler_names))
        summary["notes"].append(f"{others} pending pods are not of {names}: they were left alone")
    summary["notes"].append(SESSIONS_NOTE)
    summary |= {
        "seed": seed,
        "configuration": configuration_files.digest(deciders.configuration),
        "sessions": len(held),
        "evicted": evicted,
        "jobs": len(jobs),
        "jobs_ready": sum(job.is_ready for job in jobs),
    }
    return JobSimulation(placements, jobs, evicted, summary)


def _over_all(held: list[SessionRun]) -> list[JobReport]:
    """The jobs as they were left, with the pods that any of the sessions placed."""
    placed: dict[str, dict[str, str]] = {}
    for one in held:
        for job in one.jobs:
            placed.setdefault(job.uid, {}).update(job.placed)
    return [msgspec.structs.replace(job, placed=placed[job.uid]) for job in held[-1].jobs]


def _placement(pod: str, bound: dict[str, str], reasons: dict[str, JobReport]) -> Placement:
    if pod in bound:
        return Placement(pod, bound[pod])
    job = reasons.get(pod)
    if job is None or not job.reason:
        return Placement(pod, "", NO_REASON, NO_REASON)
    return Placement(pod, "", job.reason, job.message)


def _lines(values: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)
