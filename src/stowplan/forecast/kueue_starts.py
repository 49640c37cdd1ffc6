"""When Kueue is expected to admit jobs: a replay of the input with its controllers, to the end."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import owners_of
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.simulate import Simulation, simulate

SCHEMA = "stowplan.dev/kueue-eta/v1"
ASSUMED = (
    "no more jobs arrive",
    "pods run for as long as stowplan.dev/run-seconds says, those of jobs without it one second",
)


class WorkloadStart(msgspec.Struct, frozen=True, rename="camel"):
    """A workload's times in seconds after the first object of the input; None: not.

    started_s: when its last pod started. status: at the end. reason, message: why it is not
    admitted then.
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

    @property
    def wait_s(self) -> float | None:
        """From its creation until it was admitted last."""
        return None if self.admitted_s is None else self.admitted_s - self.created_s


class KueueStarts(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast. assumptions: that it makes."""

    schema: str = SCHEMA
    workloads: list[WorkloadStart]
    assumptions: tuple[str, ...] = ASSUMED


def kueue_starts(
    cluster: Cluster, deciders: Deciders, seed: int = 0, horizon_s: float | None = None
) -> KueueStarts:
    """When each workload is admitted, starts and ends.

    cluster: with its manifests. horizon_s: where
    the simulation ends; None: when nothing happens any more.

    Raises InputError, ConfigError and ContractError.
    """
    options = ReplayOptions(until_s=horizon_s)
    found = simulate(cluster, config=deciders, seed=seed, replay=options)
    starts = _starts(found)
    return KueueStarts(
        workloads=[_start(one, starts) for one in found.summary["workloads"]],
    )


def _starts(found: Simulation) -> dict[tuple[str, str], list[float | None]]:
    """Namespace and job -> when its pods started."""
    timed = (one for one in found.placements if isinstance(one, TimedPlacement))
    started = {one.pod: one.started_s for one in timed}
    known: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    for pod in () if found.objects is None else found.objects.pods:
        for kind, name in owners_of(pod):
            known[pod.namespace, f"{kind.lower()}/{name}"].append(started.get(pod.key))
    return known


def _start(one: dict[str, Any], starts: dict[tuple[str, str], list[float | None]]) -> WorkloadStart:
    times = starts.get((one["namespace"], one["job"]), [])
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
    )
