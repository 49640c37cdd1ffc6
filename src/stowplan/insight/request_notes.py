"""Notes on requests of pending pods that are easily misread."""

from __future__ import annotations

from stowplan.assembly.deciders import Deciders
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.gang_notes import gang_notes
from stowplan.plugins.gpu_share.conventions.counted_gpus import counted_gpu_notes


def request_notes(cluster: Cluster, deciders: Deciders) -> list[str]:
    """Notes on pods of gangs that are scheduled one by one, and on GPUs that are counts."""
    pending = cluster.pending()
    return [*gang_notes(pending, deciders), *counted_gpu_notes(pending, cluster.nodes)]
