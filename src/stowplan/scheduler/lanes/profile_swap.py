"""Profile swap: other profiles for the pod lane of a running scheduler.

They are built beside those in use and swapped between two decisions. What has begun ends with the
profiles that it began with: binding cycles, and attempts that wait for extenders. Everything else
about pods is kept: their order in the queue, failures and backoff, nominations, waits at Permit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from stowplan.framework import Framework
from stowplan.framework.deciders.decider import Decider
from stowplan.queue import PodRecord, QueueOptions
from stowplan.queue.profile_change import retry_all, use_profiles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.pods.transitions import PodEvent


class PodLaneProfiles(msgspec.Struct, frozen=True):
    """What a configuration says about the pod lane.

    frameworks: by scheduler name; that of an unchanged profile is the one in use. decider: chooses
    nodes. queue: options of the queue, of which only durations may change.
    """

    frameworks: Mapping[str, Framework]
    decider: Decider
    queue: QueueOptions


RereadProfiles = Callable[[str, str, Mapping[str, Framework]], PodLaneProfiles]
"""(text, source, frameworks in use) -> the profiles of a changed configuration file; raises
ConfigError and ContractError."""


class SwapCounts(msgspec.Struct, frozen=True):
    """left, adopted: number of pods by scheduler name, for names that were removed and added."""

    left: dict[str, int]
    adopted: dict[str, int]

    @property
    def text(self) -> str:
        """For a log line; "" where no name was removed or added."""
        texts = [
            f"schedulerName {name!r} {what} ({n_pods} pending pods)"
            for names, what in (
                (self.left, "is left to others"),
                (self.adopted, "is scheduled from now on"),
            )
            for name, n_pods in names.items()
        ]
        return "".join(f"; {text}" for text in texts)


def swap_profiles(
    context: SchedulerContext, evictions: Evictions, profiles: PodLaneProfiles
) -> SwapCounts:
    """Use these profiles from now on."""
    frameworks = context.frameworks
    before = dict(frameworks)
    # The dictionary is shared, the frameworks in it are not changed.
    frameworks.clear()
    frameworks.update(profiles.frameworks)
    context.lanes.find_names()
    removed = {name: 0 for name in before if name not in frameworks}
    for record in list(context.table.records.values()):
        name, uid = record.pod.spec.scheduler_name, record.uid
        if name in removed:
            context.table.transition(record, PodEvent.NAME_REMOVED)
            # A pod in a binding cycle keeps its record.
            removed[name] += uid not in context.table.records
            evictions.preemptor_gone(uid)
    use_profiles(context.queue, frameworks, profiles.queue, context.rejecters)
    changed = {name for name, one in frameworks.items() if one is not before.get(name)}
    retry_all(context.queue, changed, context.now)
    added = {name: 0 for name in frameworks if name not in before}
    _adopt(context, added)
    return SwapCounts(removed, added)


def _adopt(context: SchedulerContext, added: dict[str, int]) -> None:
    """Queue the pending pods of new scheduler names, in the order in which they arrived."""
    records, now = context.table.records, context.now
    for key, pod in context.pods.items():
        name = pod.spec.scheduler_name
        if name in added and not pod.node_name and pod.uid not in records:
            added[name] += 1
            records[pod.uid] = record = PodRecord(pod, now, key)
            context.queue.enter(record, now)
