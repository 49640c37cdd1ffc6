"""The cluster of a question, and the moment that is its present."""

from __future__ import annotations

from datetime import UTC, datetime

from stowplan.assembly.deciders import Deciders
from stowplan.cli.runs.cluster_source import (
    ClusterSource,
    read_cluster_source,
    read_recorded_cluster,
    usage_note,
)
from stowplan.inputs.cluster_reader import Cluster


def read_asked_cluster(
    source: ClusterSource,
    deciders: Deciders,
    now: datetime | None,
    *,
    keep_manifests: bool = False,
    with_finished: bool = False,
    with_workloads: bool = False,
    also: Deciders | None = None,
) -> tuple[Cluster, datetime | None]:
    """The cluster, and the time until which its running pods have run: `now` if it is given, else
    the present of a live cluster or the moment of a recording; None: what the pods show.

    The options are those of `read_cluster_source`, which may leave out kinds here. Raises as it
    does.
    """
    if source.record_file is not None:
        cluster, moment = read_recorded_cluster(source.record_file, source.at)
        cluster.notes += filter(None, (usage_note(deciders),))
        return cluster, now or moment
    cluster = read_cluster_source(
        source,
        deciders,
        partial=True,
        keep_manifests=keep_manifests,
        with_finished=with_finished,
        with_workloads=with_workloads,
        also=also,
    )
    return cluster, datetime.now(UTC) if now is None and source.is_live else now
