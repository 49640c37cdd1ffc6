"""Events and scheduling conditions of PodGroups, as KAI-Scheduler writes them.

Differs: they are written when what they say changes but for numbers, and the text of a group that
cannot be scheduled is ours. Times are in `group_times`.

Source: KAI-Scheduler, pkg/scheduler/cache/status_updater/default_status_updater.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.model.kai_reasons import gist_of
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import DEFAULT_SUB_GROUP, KaiStatus, KaiTask
from stowplan.framework.deciders.session_decider import PodGroupReport
from stowplan.objects.kai.annotation_numbers import unsigned_number
from stowplan.objects.kai.kai_kinds import KAI_GROUP_API_VERSION, KaiPodGroupObject
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroupCondition, PodGroupStatus

UNSCHEDULABLE_ON_POOL = "UnschedulableOnNodePool"
NOT_READY, STALE, UNSCHEDULABLE = "NotReady", "StaleJob", "Unschedulable"
EVICT = "Evict"
_NORMAL = "Normal"
_IN_FLIGHT = KaiStatus.ALLOCATED | KaiStatus.PIPELINED | KaiStatus.BINDING


class GroupStatuses:
    """What was written about groups, by their keys."""

    def __init__(self) -> None:
        # What is said of groups, without numbers, and the last text of that.
        self._noted: dict[str, str] = {}
        self._texts: dict[str, tuple[bool, str]] = {}
        self._stale: set[str] = set()
        # Groups with a condition, as the watch shows them or as it was decided since.
        self._conditioned: dict[str, None] = {}

    def follow(
        self, groups: Mapping[str, Object], changed: Iterable[tuple[type[Object], str]]
    ) -> None:
        """Groups have changed. groups: all, by key."""
        for kind, key in changed:
            if kind is KaiPodGroupObject:
                self._conditioned.pop(key, None)
                group = groups.get(key)
                if isinstance(group, KaiPodGroupObject) and group.status.scheduling_conditions:
                    self._conditioned[key] = None
                elif group is None:
                    self._noted.pop(key, None)
                    self._texts.pop(key, None)

    def reports(
        self,
        session: KaiSession,
        groups: Mapping[str, Object],
        reasons: Mapping[str, tuple[str, str]],
        stale: Mapping[str, float],
    ) -> Iterator[PodGroupReport]:
        """What has changed. groups: those that exist, by key. reasons: of the jobs that wait, in
        one word and in a sentence. stale: keys of stale groups."""
        waiting = set()
        for job in session.waiting:
            group = groups.get(job.uid)
            if isinstance(group, KaiPodGroupObject) and job.n_pending:
                waiting.add(job.uid)
                yield from self._waits(job, group, reasons.get(job.uid, ("", "")))
        for key in [key for key in self._noted if key not in waiting]:
            del self._noted[key]
            self._texts.pop(key, None)
        for key in [*self._conditioned]:
            group, found = groups.get(key), session.jobs.get(key)
            if isinstance(group, KaiPodGroupObject) and found is not None and _is_placed(found):
                del self._conditioned[key]
                yield _report(group, PodGroupStatus())
        yield from self._staleness(session, groups, stale)

    def _waits(
        self, job: KaiJob, group: KaiPodGroupObject, reason: tuple[str, str]
    ) -> Iterator[PodGroupReport]:
        is_ready = job.is_ready
        text = reason[1] if is_ready else _not_ready(job)
        if not text or self._texts.get(job.uid) == (is_ready, text):
            return
        self._texts[job.uid] = is_ready, text
        gist = f"{is_ready}: {gist_of(text)}"
        if self._noted.get(job.uid) == gist:
            return
        self._noted[job.uid] = gist
        note = (_NORMAL, UNSCHEDULABLE if is_ready else NOT_READY, text)
        # A group with pods on nodes has no condition.
        if not is_ready or job.used:
            yield _report(group, None, note)
            return
        self._conditioned[job.uid] = None
        condition = PodGroupCondition(
            UNSCHEDULABLE_ON_POOL, "True", _next_id(group), None, reason[0], text
        )
        yield _report(group, PodGroupStatus(conditions=(condition,)), note)

    def _staleness(
        self, session: KaiSession, groups: Mapping[str, Object], stale: Mapping[str, float]
    ) -> Iterator[PodGroupReport]:
        for key in stale.keys() - self._stale:
            group, job = groups.get(key), session.jobs.get(key)
            if isinstance(group, KaiPodGroupObject) and job is not None:
                yield _report(group, None, (_NORMAL, STALE, _stale_text(job)))
        self._stale = set(stale)


def eviction_reports(
    session: KaiSession, victims: Iterable[KaiTask], groups: Mapping[str, Object]
) -> Iterator[PodGroupReport]:
    """An event about the group of each pod that is evicted. groups: those that exist, by key."""
    for task in victims:
        group, note = groups.get(task.job), session.eviction_notes.get(task.key)
        if not isinstance(group, KaiPodGroupObject) or note is None:
            continue
        about = [("num-evicted-pods", str(note.size)), ("evictor-action-type", note.action)]
        if note.job:
            namespace, _, name = note.job.partition("/")
            about += [("evictor-pod-group-name", name), ("evictor-pod-group-namespace", namespace)]
        report = _report(group, None, (_NORMAL, EVICT, note.text))
        yield replace(report, note_annotations=tuple(about))


def _is_placed(job: KaiJob) -> bool:
    """Nothing of a job waits, or is being bound."""
    if job.n_pending:
        return False
    waits = _IN_FLIGHT | KaiStatus.PENDING | KaiStatus.GATED
    return not any(task.status & waits for task in job.tasks())


def _report(
    group: KaiPodGroupObject, status: PodGroupStatus | None, *notes: tuple[str, str, str]
) -> PodGroupReport:
    meta = group.metadata
    return PodGroupReport(
        meta.uid, group.namespace, group.name, KAI_GROUP_API_VERSION, status, notes
    )


def _next_id(group: KaiPodGroupObject) -> str:
    conditions = group.status.scheduling_conditions
    last = conditions[-1].transition_id if conditions else ""
    return str((unsigned_number(last) or 0) + 1)


def _not_ready(job: KaiJob) -> str:
    text = "Job is not ready for scheduling."
    for name, pods in job.sets.items():
        gated = sum(task.status == KaiStatus.GATED for task in pods.tasks.values())
        if pods.alive >= pods.minimum:
            continue
        counts = f"currently {pods.alive} exist, {gated} are gated"
        if name == DEFAULT_SUB_GROUP:
            text += f" Waiting for {pods.minimum} pods, {counts}"
        else:
            text += f" Waiting for {pods.minimum} pods for SubGroup {name}, {counts}."
    return text


def _stale_text(job: KaiJob) -> str:
    sets = job.sets.values()
    active, needed = sum(one.used for one in sets), sum(one.minimum for one in sets)
    text = f"Job is stale. {active} pods are active, minMember is {needed}"
    for name, pods in job.sets.items():
        if name != DEFAULT_SUB_GROUP and not pods.is_gang_satisfied:
            text += f", subGroup {name} minMember is {pods.minimum} and {pods.used} pods are active"
    return text
