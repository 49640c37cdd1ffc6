"""When Kueue is expected to admit jobs: a replay of the input with its controllers, to the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from typing import Any

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.reports.workload_reports import WorkloadReport
from stowplan.forecast.start_times.declared_run_times import with_run_times
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import job_titles
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.simulate import Simulation, simulate

SCHEMA = "stowplan.dev/kueue-eta/v1"
NO_ARRIVALS = "no more jobs arrive"
DECLARED = "pods run for as long as stowplan.dev/run-seconds says, those without it one second"
OBSERVED = (
    "pods run for as long as stowplan.dev/run-seconds says, else as finished pods of the same owner"
    " did (the median), else until activeDeadlineSeconds, else as all finished pods did; those of"
    " which nothing is known one second"
)


class WorkloadStart(msgspec.Struct, frozen=True, rename="camel"):
    """A workload's times in seconds after the first object of the input; None: not.

    started_s: when its last pod started, 0 where that was before. status: at the end. reason,
    message: why it is not admitted then. now: of one that waits at the start of the forecast, its
    position and the quota that it lacks.
    """

    namespace: str
    job: str
    cluster_queue: str
    status: str
    created_s: float
    admitted_s: float | None
    started_s: float | None
    finished_s: float | None
    reason: str = ""
    message: str = ""
    now: WorkloadReport | None = None

    @property
    def wait_s(self) -> float | None:
        """From its creation until it was admitted last."""
        return None if self.admitted_s is None else self.admitted_s - self.created_s


class KueueStarts(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast. assumptions: that it makes."""

    schema: str = SCHEMA
    workloads: list[WorkloadStart]
    assumptions: tuple[str, ...] = ()


def kueue_starts(
    cluster: Cluster,
    deciders: Deciders,
    seed: int = 0,
    horizon_s: float | None = None,
    now_s: float | None = None,
) -> KueueStarts:
    """When each workload is admitted, starts and ends.

    cluster: with its manifests. horizon_s: where the simulation ends; None: when nothing happens
    any more. now_s: Unix seconds from which times count; None: as the objects show.

    Raises InputError, ConfigError and ContractError.
    """
    cluster, n_observed = with_run_times(cluster)
    options = ReplayOptions(until_s=horizon_s, start_s=now_s)
    found = simulate(cluster, config=deciders, seed=seed, replay=options)
    starts = _starts(found, {pod.key for pod in cluster.pods if pod.node_name})
    waiting = {} if deciders.kueue is None else _waiting(cluster, deciders.kueue)
    return KueueStarts(
        workloads=[_start(one, starts, waiting) for one in found.summary["workloads"]],
        assumptions=(NO_ARRIVALS, OBSERVED if n_observed else DECLARED),
    )


def _starts(found: Simulation, running: Set[str]) -> dict[tuple[str, str], list[float | None]]:
    """Namespace and job -> when its pods started. running: pods that had started before."""
    timed = (one for one in found.placements if isinstance(one, TimedPlacement))
    started = dict.fromkeys(running, 0.0)
    started |= {one.pod: one.started_s for one in timed if one.started_s is not None}
    known: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    for pod in () if found.objects is None else (*found.objects.bound, *found.objects.pods):
        for title in job_titles(pod):
            known[pod.namespace, title].append(started.get(pod.key))
    return known


def _waiting(cluster: Cluster, options: KueueOptions) -> dict[tuple[str, str], WorkloadReport]:
    """Namespace and job -> why it waits when all that is there has been decided."""
    report = admit_jobs(cluster, options).report
    pending = () if report is None else report.pending()
    return {(one.namespace, one.job): one for one in pending}


def _start(
    one: dict[str, Any],
    starts: dict[tuple[str, str], list[float | None]],
    waiting: dict[tuple[str, str], WorkloadReport],
) -> WorkloadStart:
    kind, _, name = one["job"].partition("/")
    group = one["namespace"], f"podgroup/{name}"
    times = starts.get((one["namespace"], f"{kind}/{name}")) or starts.get(group, [])
    reached = [at for at in times if at is not None]
    return WorkloadStart(
        one["namespace"],
        one["job"],
        one["cluster_queue"],
        one["status"],
        one["created_s"],
        one["admitted_s"],
        max(reached) if reached and len(reached) == len(times) else None,
        one["finished_s"],
        one["reason"],
        one["message"],
        None if one["created_s"] > 0 else waiting.get((one["namespace"], one["job"])),
    )
