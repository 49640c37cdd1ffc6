"""Times of PodGroups as KAI-Scheduler writes them in annotations: when a group started, since when
it has fewer pods than it needs, and when pods of it were evicted.

Differs: that a group started stays, as in KAI, but is not counted while no pod of it has a node.

Source: KAI-Scheduler, pkg/scheduler/cache/status_updater/default_status_updater.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stowplan.batch.queue_models.kai.model.kai_memory import (
    STALE_SINCE,
    KaiMemory,
    moment_of,
    time_text,
)
from stowplan.framework.deciders.session_decider import PodGroupReport
from stowplan.objects.kai.kai_kinds import KAI_GROUP_API_VERSION, KaiPodGroupObject
from stowplan.objects.meta import Object

Texts = dict[str, str | None]


class GroupTimes:
    """What was asked to be written, by key of the group, until the watch shows the group again."""

    def __init__(self) -> None:
        self._asked: dict[str, Texts] = {}

    def reports(
        self,
        memory: KaiMemory,
        groups: Mapping[str, Object],
        keys: Iterable[str],
        changed: Iterable[tuple[type[Object], str]],
    ) -> Iterator[PodGroupReport]:
        """Times to write. groups: those that exist, by key. keys: of groups of which other times
        are remembered. changed: objects that the watch has shown since the last session."""
        observed = [key for kind, key in changed if kind is KaiPodGroupObject]
        for key in observed:
            self._asked.pop(key, None)
        for key in dict.fromkeys((*keys, *observed)):
            group = groups.get(key)
            if not isinstance(group, KaiPodGroupObject):
                continue
            texts = _texts_to_write(memory, key, group.metadata.annotations)
            if texts and self._asked.get(key) != texts:
                self._asked[key] = texts
                yield PodGroupReport(
                    group.metadata.uid,
                    group.namespace,
                    group.name,
                    KAI_GROUP_API_VERSION,
                    annotations=texts,
                )


def _texts_to_write(memory: KaiMemory, key: str, notes: Mapping[str, str]) -> Texts:
    found: Texts = {}
    for name, times in memory.times.items():
        moment = times.get(key)
        if moment is not None and moment_of(notes.get(name, "")) != moment:
            found[name] = time_text(moment)
    if STALE_SINCE in notes and key not in memory.stale:
        found[STALE_SINCE] = None
    return found
