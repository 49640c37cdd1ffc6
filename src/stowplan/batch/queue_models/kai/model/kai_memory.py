"""What KAI-Scheduler writes to pods and pod groups, as sessions remember it.

Times are whole seconds, as in KAI, which reads them from the annotations for each session.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from stowplan.batch.queue_models.kai.kai_session import OPENED, KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask, card_groups
from stowplan.objects.kai.annotation_numbers import DEVICES_MAX, unsigned_number
from stowplan.objects.kai.bind_request import CARD_LABEL
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    SUB_GROUP_LABEL,
    KaiPodGroupObject,
)
from stowplan.objects.kai.zone_placement import PREDICTED_ANNOTATION, zones_text
from stowplan.objects.pod import Pod

LAST_START = "kai.scheduler/last-start-timestamp"
STALE_SINCE = "kai.scheduler/stale-podgroup-timestamp"
LAST_EVICTION = "kai.scheduler/last-eviction-timestamp"


class KaiMemory:
    """Shared cards and NUMA zones by pod, and the times of groups. Cards are read from the labels
    of pods where KAI's binder has bound them. Without a label they are lost when the process ends:
    afterwards a pod with a share counts as alone on its card. Zones are remembered until the pod
    or its request has them. Times are read from the annotations of groups, also when another
    process changes them."""

    def __init__(self) -> None:
        self._cards: dict[str, tuple[str, ...]] = {}
        # By uid: node, and zones as an annotation has them.
        self._zones: dict[str, tuple[str, str]] = {}
        self._started: dict[str, float] = {}
        self._stale: dict[str, float] = {}
        self._evicted: dict[str, float] = {}
        # By key of a group: its annotations as they were last read.
        self._read: dict[str, tuple[str, ...]] = {}
        self._n_sessions = 0

    @property
    def started(self) -> Mapping[str, float]:
        """By key of a group: when it started, in seconds."""
        return self._started

    @property
    def stale(self) -> Mapping[str, float]:
        """By key of a group: since when it has fewer pods than it needs."""
        return self._stale

    @property
    def last_evictions(self) -> Mapping[str, float]:
        """Key of a group -> when a pod of it was last evicted, in seconds."""
        return self._evicted

    @property
    def times(self) -> Mapping[str, dict[str, float]]:
        """Annotation -> key of a group -> time in seconds."""
        return {
            LAST_START: self._started,
            STALE_SINCE: self._stale,
            LAST_EVICTION: self._evicted,
        }

    def pod(self, pod: Pod, group: str, sub_group: str = "") -> Pod:
        """A pod as KAI would have written it. group: key of its pod group. sub_group: "" for what
        its label says."""
        meta = pod.metadata
        notes = {**meta.annotations, KAI_GROUP_ANNOTATION: group, **self._zones_of(pod)}
        labels = {**meta.labels, SUB_GROUP_LABEL: sub_group} if sub_group else meta.labels
        if pod.node_name and ("gpu-fraction" in notes or "gpu-memory" in notes):
            cards = card_groups(labels) or self._cards.get(pod.uid) or _alone(pod)
            labels = {**labels, **{f"{CARD_LABEL}/{card}": card for card in cards}}
        meta = replace(meta, uid=pod.uid, namespace=pod.namespace, annotations=notes, labels=labels)
        return replace(pod, metadata=meta)

    def _zones_of(self, pod: Pod) -> Mapping[str, str]:
        """The annotation for the zones that were decided for a pod, until it has it."""
        known = self._zones.get(pod.uid)
        if known is None:
            return {}
        node, text = known
        if pod.node_name == node and pod.metadata.annotations.get(PREDICTED_ANNOTATION) != text:
            return {PREDICTED_ANNOTATION: text}
        del self._zones[pod.uid]
        return {}

    def group(self, group: KaiPodGroupObject) -> KaiPodGroupObject:
        """A group as KAI would have written it, by its key, which is unique."""
        meta, key = group.metadata, group.key
        self._read_times(key, meta.annotations)
        notes = dict(meta.annotations)
        for name, times in self.times.items():
            notes.pop(name, None)
            if key in times:
                notes[name] = time_text(times[key])
        return replace(group, metadata=replace(meta, name=key, annotations=notes))

    def _read_times(self, key: str, notes: Mapping[str, str]) -> None:
        """Take over what the annotations say that have changed since they were last read."""
        kept = self.times
        texts = tuple(notes.get(name, "") for name in kept)
        before = self._read.get(key, ("",) * len(texts))
        for times, text, known in zip(kept.values(), texts, before, strict=True):
            if text != known:
                _set(times, key, moment_of(text))
        if any(texts) or any(before):
            self._read[key] = texts

    def note(self, session: KaiSession, jobs: Iterable[KaiJob]) -> list[str]:
        """Remember what a session has decided; keys of groups of which other times are remembered
        now. jobs: those that may have changed."""
        self._n_sessions += 1
        changed = []
        for job in jobs:
            for task in job.tasks():
                self._cards.pop(task.uid, None)
                if task.is_shared and task.node and task.status != KaiStatus.PIPELINED:
                    cards = tuple(self._name(card, session.now) for card in task.groups)
                    self._cards[task.uid] = cards
                if task.status == KaiStatus.BINDING and not task.pod.node_name:
                    self._note_zones(session, task)
            started = job.last_start if job.used else None
            since = self._stale.get(job.uid, session.now) if job.is_stale else None
            moments = started, since, job.last_eviction
            kept = zip(self.times.values(), moments, strict=True)
            if sum(_set(times, job.uid, moment) for times, moment in kept):
                changed.append(job.uid)
        held: tuple[dict[str, Any], ...] = (*self.times.values(), self._read)
        for one in held:
            if not one.keys() <= session.jobs.keys():
                for key in one.keys() - session.jobs.keys():
                    del one[key]
        return changed

    def _note_zones(self, session: KaiSession, task: KaiTask) -> None:
        zones = session.zone_record(task)
        if zones:
            self._zones[task.uid] = task.node, zones_text(zones)

    def cards(self, uid: str) -> tuple[str, ...]:
        """Shared cards of a pod, as they were last decided."""
        return self._cards.get(uid, ())

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._cards.pop(uid, None)
        self._zones.pop(uid, None)

    def _name(self, card: str, now: float) -> str:
        """A name that no other session gives, not of another process either: by it KAI's binder
        knows the card."""
        if not card.startswith(OPENED):
            return card
        text = f"{card} {self._n_sessions} {now!r}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _set(times: dict[str, float], key: str, moment: float | None) -> bool:
    """Set a time, or remove it; whether that makes a difference."""
    if moment is not None:
        moment = float(math.floor(moment))
    if times.get(key) == moment:
        return False
    if moment is None:
        times.pop(key, None)
    else:
        times[key] = moment
    return True


def time_text(moment: float) -> str:
    """A time in seconds as KAI writes it."""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: str) -> float | None:
    """The time in seconds of an annotation; None for none that can be read."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    # KAI reads no time without a zone.
    return None if found.tzinfo is None else found.timestamp()


def _alone(pod: Pod) -> Iterable[str]:
    stated = unsigned_number(pod.metadata.annotations.get("gpu-fraction-num-devices"))
    number = 1 if stated is None else min(stated, DEVICES_MAX)
    return tuple(f"{pod.uid.replace('/', '.')}-{i}" for i in range(number))
