"""Times that objects show: of creation, start and end of pods, and of annotations."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence

from stowplan.objects.meta import Object
from stowplan.objects.pod import ContainerStatus, Pod

NO_CLOCK = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
"""Stands for now where objects show no time: durations count from it, and it is no time of day."""
_ANNOTATIONS = ("-timestamp", "stowplan.dev/usage-time")
"""Ends of the keys of annotations with a past time, as `kai.scheduler/last-start-timestamp`."""


def latest_time(pods: Iterable[Pod], objects: Iterable[Object] = ()) -> datetime.datetime | None:
    """The latest time that pods show (of creation, start or end), or that annotations of them or
    of other objects have; None if there is none."""
    times: list[datetime.datetime | None] = []
    for pod in pods:
        times += (pod.metadata.creation_timestamp, pod.status.start_time, ended_at(pod))
        times += _annotated(pod)
    for one in objects:
        times += _annotated(one)
    return max((at for at in times if at is not None), default=None)


def _annotated(one: Object) -> Iterator[datetime.datetime]:
    """The times in annotations; texts that are no times with a zone count as absent."""
    for key, text in one.metadata.annotations.items():
        if not key.endswith(_ANNOTATIONS):
            continue
        try:
            found = datetime.datetime.fromisoformat(text)
        except ValueError:
            continue
        if found.tzinfo is not None:
            yield found


def timestamp(at: datetime.datetime) -> str:
    """RFC 3339, in UTC and whole seconds."""
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_text(now: datetime.datetime, after_s: float = 0.0) -> str:
    """So many seconds after now, as `timestamp`; "" without a clock."""
    return "" if now == NO_CLOCK else timestamp(now + datetime.timedelta(seconds=after_s))


def finished_at(pod: Pod) -> datetime.datetime | None:
    """When the last container of a finished pod ended; None for others, or if it is unknown."""
    return ended_at(pod) if pod.is_finished else None


def ended_at(pod: Pod) -> datetime.datetime | None:
    """When the last container that has ended did; None if none has."""
    statuses: Sequence[ContainerStatus] = pod.status.container_statuses
    ends = [s.state.terminated.finished_at for s in statuses if s.state and s.state.terminated]
    return max((at for at in ends if at is not None), default=None)
