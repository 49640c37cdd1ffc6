"""Direct placement, pod by pod on a node table: the expected result of simulate()."""

from __future__ import annotations

import numpy as np

from stowplan.assembly import configuration_of
from stowplan.assembly.build import frameworks_for
from stowplan.cycle import SamplingState, decide
from stowplan.framework import Nominations, Snapshot
from stowplan.inputs.cluster_reader import Cluster
from stowplan.simulation.simulate import without_post_filter


def direct(cluster: Cluster, seed: int = 0) -> list[str]:
    """Node of every pending pod, "" for none."""
    configuration, registry = configuration_of(None, "direct")
    frameworks = frameworks_for(without_post_filter(configuration), registry)
    table, turn, rng = cluster.table(), SamplingState(), np.random.default_rng(seed)
    snapshot = Snapshot(table, cluster.object_store(), Nominations())
    nodes = []
    for pod in cluster.pending():
        framework = frameworks[pod.spec.scheduler_name]
        table.refresh()
        node = ""
        if framework.run_pre_enqueue(pod).is_success:
            node = decide(pod, snapshot, framework, rng, turn).node_name
        if node:
            table.add_pod(pod, node)
        nodes.append(node)
    return nodes
