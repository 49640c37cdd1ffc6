"""What KAI-Scheduler writes to pods and pod groups, and sessions here remember instead."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, card_groups
from stowplan.objects.kai.bind_request import CARD_LABEL
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    SUB_GROUP_LABEL,
    KaiPodGroupObject,
)
from stowplan.objects.pod import Pod

LAST_START = "kai.scheduler/last-start-timestamp"
STALE_SINCE = "kai.scheduler/stale-podgroup-timestamp"


class KaiMemory:
    """Shared cards by pod, and the times of groups. It is lost when the process ends: afterwards
    each pod with a share and without the label of a card counts as alone on its card, and groups
    have no start."""

    def __init__(self) -> None:
        self._cards: dict[str, tuple[str, ...]] = {}
        self._started: dict[str, float] = {}
        self._stale: dict[str, float] = {}
        self._n_sessions = 0

    @property
    def started(self) -> Mapping[str, float]:
        """By key of a group: when it started, in seconds."""
        return self._started

    @property
    def stale(self) -> Mapping[str, float]:
        """By key of a group: since when it has fewer pods than it needs."""
        return self._stale

    def pod(self, pod: Pod, group: str, sub_group: str = "") -> Pod:
        """A pod as KAI would have written it. group: key of its pod group. sub_group: "" for what
        its label says."""
        meta = pod.metadata
        notes = {**meta.annotations, KAI_GROUP_ANNOTATION: group}
        labels = {**meta.labels, SUB_GROUP_LABEL: sub_group} if sub_group else meta.labels
        if pod.node_name and ("gpu-fraction" in notes or "gpu-memory" in notes):
            cards = card_groups(labels) or self._cards.get(pod.uid) or _alone(pod)
            labels = {**labels, **{f"{CARD_LABEL}/{card}": card for card in cards}}
        meta = replace(meta, uid=pod.uid, namespace=pod.namespace, annotations=notes, labels=labels)
        return replace(pod, metadata=meta)

    def group(self, group: KaiPodGroupObject) -> KaiPodGroupObject:
        """A group as KAI would have written it, by its key, which is unique."""
        meta, key = group.metadata, group.key
        notes = dict(meta.annotations)
        for name, times in ((LAST_START, self._started), (STALE_SINCE, self._stale)):
            if key in times:
                notes[name] = datetime.datetime.fromtimestamp(times[key], datetime.UTC).isoformat()
        return replace(group, metadata=replace(meta, name=key, annotations=notes))

    def note(self, session: KaiSession, jobs: Iterable[KaiJob]) -> list[str]:
        """Remember what a session has decided; keys of groups of which other times are remembered
        now. jobs: those that may have changed."""
        self._n_sessions += 1
        known = {card for cards in self._cards.values() for card in cards}
        changed = []
        for job in jobs:
            for task in job.tasks():
                self._cards.pop(task.uid, None)
                if task.is_shared and task.node and task.status != KaiStatus.PIPELINED:
                    cards = tuple(self._name(card, known) for card in task.groups)
                    self._cards[task.uid] = cards
            started = job.last_start if job.used else None
            since = self._stale.get(job.uid, session.now) if job.is_stale else None
            if _set(self._started, job.uid, started) | _set(self._stale, job.uid, since):
                changed.append(job.uid)
        for key in [*self._started.keys() | self._stale.keys()] if self._has_gone(session) else ():
            if key not in session.jobs:
                self._started.pop(key, None)
                self._stale.pop(key, None)
        return changed

    def _has_gone(self, session: KaiSession) -> bool:
        return not (self._started.keys() | self._stale.keys()) <= session.jobs.keys()

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._cards.pop(uid, None)

    def _name(self, card: str, known: Collection[str]) -> str:
        """A name that no later session gives."""
        is_new = card.startswith("card-") and card not in known
        return f"{card}-{self._n_sessions}" if is_new else card


def _set(times: dict[str, float], key: str, moment: float | None) -> bool:
    """Set a time, or remove it; whether that makes a difference."""
    if moment is not None:
        # As an annotation has it.
        moment = datetime.datetime.fromtimestamp(moment, datetime.UTC).timestamp()
    if times.get(key) == moment:
        return False
    if moment is None:
        del times[key]
    else:
        times[key] = moment
    return True


def _alone(pod: Pod) -> Iterable[str]:
    count = pod.metadata.annotations.get("gpu-fraction-num-devices", "")
    number = int(count) if count.isdigit() else 1
    return tuple(f"{pod.uid.replace('/', '.')}-{i}" for i in range(number))
