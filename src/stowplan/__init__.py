"""Stowplan: a Kubernetes scheduler in Python.

    read_cluster(paths)            read a cluster from manifests, dumps or traces
    simulate(cluster)              schedule its pending pods, one by one or in virtual time
    explain(pod, cluster)          why a pod is on its node, or pending
    what_if(cluster, changes)      what changes would do
    preempt_preview(cluster, pod)  who would have to go for a pod
    Cluster.from_files(...)        the same as methods, loaded once
    eta(cluster)                   when pending pods are expected to start
    capacity(workload, cluster), fit_nodes(cluster), compact(cluster)
                                   how many more pods fit, the fewest nodes, nodes to empty
    experiment(plan, out=DIR)      run workloads x policies x seeds, and compare the policies
    defragment(cluster)            pods to move so that GPU cards are less fragmented
    evaluate(lines)                answer scheduling cases in bulk
    simulate_jobs(cluster), explain_job(pod, cluster), explain_pod_group(group, cluster)
                                   the same for gangs, which sessions schedule

Results have a one-line `repr`; `.to_frame()` makes a DataFrame if pandas or polars is installed.
The public API is these functions with their argument types and exceptions, `stowplan.framework` for
plugins and `stowplan.testing` for their tests; everything else may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stowplan._version import __version__

if TYPE_CHECKING:
    from stowplan.conformance.evaluate import evaluate
    from stowplan.experiments.experiment_run import experiment
    from stowplan.forecast.capacity import capacity, compact, fit_nodes
    from stowplan.forecast.cluster import Cluster, read_cluster
    from stowplan.forecast.defragment import defragment
    from stowplan.forecast.eta import eta
    from stowplan.forecast.explain import explain
    from stowplan.forecast.explain_job import explain_job, explain_pod_group
    from stowplan.forecast.what_if.over_time import Timing
    from stowplan.forecast.what_if.preempt_preview import preempt_preview
    from stowplan.forecast.what_if.questions import WhatIfOptions, what_if
    from stowplan.framework.problems import ConfigError, ContractError
    from stowplan.inputs.input_error import InputError
    from stowplan.simulation.cluster.cluster_api import Pace
    from stowplan.simulation.cluster.node_churn import Churn
    from stowplan.simulation.replay import ReplayOptions
    from stowplan.simulation.simulate import simulate
    from stowplan.simulation.simulate_jobs import simulate_jobs

__all__ = [
    "Churn",
    "Cluster",
    "ConfigError",
    "ContractError",
    "InputError",
    "Pace",
    "ReplayOptions",
    "Timing",
    "WhatIfOptions",
    "__version__",
    "capacity",
    "compact",
    "defragment",
    "eta",
    "evaluate",
    "experiment",
    "explain",
    "explain_job",
    "explain_pod_group",
    "fit_nodes",
    "preempt_preview",
    "read_cluster",
    "simulate",
    "simulate_jobs",
    "what_if",
]

# Imported on first access, so that `import stowplan` and `stowplan --help` are fast.
_MODULES = {
    "Churn": "stowplan.simulation.cluster.node_churn",
    "Cluster": "stowplan.forecast.cluster",
    "ConfigError": "stowplan.framework.problems",
    "ContractError": "stowplan.framework.problems",
    "InputError": "stowplan.inputs.input_error",
    "Pace": "stowplan.simulation.cluster.simulated_cluster",
    "ReplayOptions": "stowplan.simulation.replay",
    "Timing": "stowplan.forecast.what_if.over_time",
    "WhatIfOptions": "stowplan.forecast.what_if.questions",
    "eta": "stowplan.forecast.eta",
    "capacity": "stowplan.forecast.capacity",
    "compact": "stowplan.forecast.capacity",
    "defragment": "stowplan.forecast.defragment",
    "evaluate": "stowplan.conformance.evaluate",
    "experiment": "stowplan.experiments.experiment_run",
    "explain": "stowplan.forecast.explain",
    "explain_job": "stowplan.forecast.explain_job",
    "explain_pod_group": "stowplan.forecast.explain_job",
    "fit_nodes": "stowplan.forecast.capacity",
    "preempt_preview": "stowplan.forecast.what_if.preempt_preview",
    "read_cluster": "stowplan.forecast.cluster",
    "simulate": "stowplan.simulation.simulate",
    "simulate_jobs": "stowplan.simulation.simulate_jobs",
    "what_if": "stowplan.forecast.what_if.questions",
}


_IMPORTS = {"Any", "TYPE_CHECKING", "annotations"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - _IMPORTS)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'stowplan' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
