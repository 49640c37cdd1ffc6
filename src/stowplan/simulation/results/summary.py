"""Summary of a simulation: its figures."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from stowplan._version import __version__
from stowplan.columns import NodeTable
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_placement import Placement
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenders
from stowplan.simulation.event_queue import in_seconds
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.simulation.results.time_series import TimeSeries, resource_use

ORDER_NOTE = "pods are tried once, in arrival order, without priority and preemption"
TIMES_NOTE = "pods have arrival and run times, which only --replay uses"
VOLUMES_NOTE = "claims are bound and volumes provisioned at once: driver latency is not simulated"
PERCENTILES = (50, 90, 95, 99)


def run_summary(
    cluster: Cluster,
    placements: list[Placement],
    table: NodeTable,
) -> dict[str, Any]:
    """Figures of any simulation.

    failed: reason -> number of pods, most frequent first. bound: pods bound before the run.
    utilisation: resource -> requested and allocatable after the run (milli-CPU, bytes, counts), and
    their ratio. ignored: kind -> number of ignored objects. orphans: pod -> its missing
    node. not_created: pod -> why the API server would reject it. inputs: file -> SHA-256.
    """
    failed = Counter(p.reason for p in placements if not p.node)
    return {
        "seed": 0,
        "versions": {
            "stowplan": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "configuration": "",
        "inputs": cluster.inputs,
        "plugins": {},
        "nodes": table.n_nodes,
        "bound": len(cluster.bound()),
        "pods": len(placements),
        "placed": sum(1 for p in placements if p.node),
        "failed": dict(sorted(failed.items(), key=lambda item: (-item[1], item[0]))),
        "utilisation": _utilisation(table),
        "ignored": cluster.ignored,
        "orphans": cluster.orphans,
        "not_created": cluster.not_created,
        "notes": list(cluster.notes),
    }


def extender_summary(extenders: SimulatedExtenders) -> dict[str, Any]:
    """Figures of the extenders; empty without extenders.

    calls: by verb. failed: calls without a reply in time.
    """
    return {"extenders": extenders.figures()} if extenders.stand_ins else {}


def replay_summary(run: Replay, series: TimeSeries, options: ReplayOptions) -> dict[str, Any]:
    """Further figures of a replay.

    waits_s: time from arrival to binding of bound pods. makespan_s: from the first arrival to the
    last end. refusals: failed attempts. deleted: pods deleted before they were bound. preemption:
    number of victims, also by the action that evicted them, and of preemptors. restarts: pods
    created again after an eviction or the loss of their node. over_time: resource -> mean while
    pods arrived, and peak. autoscaler: see
    `NodeAutoscaler.summary`. workloads: those of Kueue, if it admits jobs.
    """
    pod_histories = run.pod_histories.values()
    came = [pod_history.arrived for pod_history in pod_histories if not pod_history.bound_at_start]
    ends = [pod_history.ended for pod_history in pod_histories if pod_history.ended is not None]
    last_s = in_seconds(max(came, default=0))
    node_churn = 0 if run.node_churn is None else run.node_churn.count
    described = msgspec.to_builtins(options)
    if run.autoscaler is None:
        del described["autoscale"]
    workloads = run.workloads
    queued = {} if workloads is None else {"workloads": msgspec.to_builtins(workloads)}
    return (
        queued
        | {
            "replay": described,
            "waits_s": percentiles(
                [
                    pod_history.waited
                    for pod_history in pod_histories
                    if pod_history.waited is not None
                ]
            ),
            "makespan_s": in_seconds(max(ends) - min(came)) if ends and came else 0.0,
            "ended_at_s": in_seconds(run.event_queue.now),
            "bindings": run.binds,
            "refusals": run.refusals,
            "preemption": {"victims": run.evicted, "preemptors": len(run.preemptors)}
            | ({"causes": dict(sorted(run.evicted_by.items()))} if run.evicted_by else {}),
            "deleted": sum(1 for one in pod_histories if one.is_deleted_unbound),
            "nodes_left": node_churn,
            "restarts": sum(pod_history.restarts for pod_history in pod_histories),
            "over_time": {
                "utilisation": series.means("utilisation", last_s),
                "fragmentation": series.means("fragmentation", last_s),
            }
            | ({"gpu_cards": cards} if (cards := series.means("gpu_cards", last_s)) else {}),
        }
        | ({} if run.autoscaler is None else {"autoscaler": run.autoscaler.summary()})
    )


def percentiles(times: list[int]) -> dict[str, float]:
    """Mean, percentiles and maximum, in seconds, of times in nanoseconds; empty for no times."""
    if not times:
        return {}
    values = np.array(sorted(times), dtype=np.int64)
    # Nearest-rank percentiles: always a time that occurred.
    found = {f"p{p}": int(values[-(-p * len(values) // 100) - 1]) for p in PERCENTILES}
    mean = in_seconds(int(values.mean()))
    return {"mean": mean, **{k: in_seconds(v) for k, v in found.items()}} | {
        "max": in_seconds(int(values[-1]))
    }


def sha256(data: bytes) -> str:
    """SHA-256 of a file's content, as hex."""
    return hashlib.sha256(data).hexdigest()


def _utilisation(table: NodeTable) -> dict[str, dict[str, float]]:
    """Requested and allocatable amounts and their ratio, by resource."""
    found = {}
    for name, (requested, allocatable) in resource_use(table).items():
        share = round(requested / allocatable, 6) if allocatable else 0.0
        found[name] = {"requested": requested, "allocatable": allocatable, "share": share}
    return found
