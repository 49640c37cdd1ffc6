"""A cluster as a dump would have shown it at a moment before, from what its pods show of it."""

from __future__ import annotations

import datetime

import numpy as np
from msgspec.structs import replace

from stowplan.forecast.start_times.run_times import is_service
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.pod import Pod, PodStatus
from stowplan.objects.timing.pod_times import finished_at

FORMER_PODS_MIN = 20
"""Pods that have been created before now, with fewer there is no moment to look back to."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def past_cluster(cluster: Cluster, at: datetime.datetime) -> Cluster:
    """The cluster with its pods as they were: pods that were created later are not there, those
    that started later wait, and those that ended later run. Nodes and other objects are those of
    today."""
    pods = [past for pod in cluster.pods if (past := _past_pod(pod, at)) is not None]
    return replace(cluster, pods=pods)


def past_moments(
    cluster: Cluster, now: datetime.datetime, n_moments: int
) -> list[datetime.datetime]:
    """Moments before now with as many arrivals between each other, oldest first; none where too few
    pods show when they were created. Pods of services do not count."""
    created = [pod.metadata.creation_timestamp for pod in cluster.pods if not is_service(pod)]
    times = sorted(at for at in created if at is not None and _EPOCH <= at < now)
    if len(times) < FORMER_PODS_MIN:
        return []
    places = np.linspace(0, len(times), n_moments + 2)[1:-1].astype(int)
    return sorted({times[place] for place in places.tolist()})


def _past_pod(pod: Pod, at: datetime.datetime) -> Pod | None:
    meta, status = pod.metadata, pod.status
    if meta.creation_timestamp is not None and meta.creation_timestamp > at:
        return None
    if meta.deletion_timestamp is not None:
        pod = replace(pod, metadata=replace(meta, deletion_timestamp=None))
    started = status.start_time
    if started is None or not pod.node_name:
        return pod
    if started > at:
        return replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus(phase="Pending"))
    ended = finished_at(pod)
    if ended is not None and ended > at:
        return replace(pod, status=PodStatus(phase="Running", start_time=started))
    return pod
