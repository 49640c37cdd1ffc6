"""Times that pods show: of creation, start and end."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from stowplan.objects.pod import ContainerStatus, Pod


def latest_time(pods: Iterable[Pod]) -> datetime.datetime | None:
    """The latest time that pods show: of creation, start or end; None if they show none."""
    times: list[datetime.datetime | None] = []
    for pod in pods:
        times += (pod.metadata.creation_timestamp, pod.status.start_time, ended_at(pod))
    return max((at for at in times if at is not None), default=None)


def finished_at(pod: Pod) -> datetime.datetime | None:
    """When the last container of a finished pod ended; None for others, or if it is unknown."""
    return ended_at(pod) if pod.is_finished else None


def ended_at(pod: Pod) -> datetime.datetime | None:
    """When the last container that has ended did; None if none has."""
    statuses: Sequence[ContainerStatus] = pod.status.container_statuses
    ends = [s.state.terminated.finished_at for s in statuses if s.state and s.state.terminated]
    return max((at for at in ends if at is not None), default=None)
