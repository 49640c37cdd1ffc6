"""Findings of the fairness watch, and the limits from which something is one."""

from __future__ import annotations

from enum import Enum

import msgspec

from stowplan.objects.encoding.duration import SECOND


class FindingKind(Enum):
    """Kind of a finding, in the order in which findings are shown."""

    PREEMPTS_EACH_OTHER = "preempts-each-other"
    PREEMPTED_REPEATEDLY = "preempted-repeatedly"
    QUEUE_STARVES = "queue-starves"
    PENDING_LONG = "pending-long"


class FairnessLimits(msgspec.Struct, frozen=True):
    """From when on something is a finding.

    window_s: how far back preemptions count. preemptions_min: of pods of one owner. starves_s: a
    queue with pending pods has been below its deserved share. pending_s: a pod has been pending.
    """

    window_s: float = 3600
    preemptions_min: int = 3
    starves_s: float = 600
    pending_s: float = 600


class Finding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One finding.

    subject: an owner of pods as NAMESPACE/KIND/NAME, or queue/NAME. others: the preemptors, by
    owner. count: of preemptions or pods. seconds: how long. explanation: what happened, why, and
    what changes it. pods: the first of the pods concerned, by key.
    """

    kind: str
    subject: str
    count: int
    seconds: float
    explanation: str
    others: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


PODS_LISTED = 10


def duration_text(seconds: float) -> str:
    """A duration as kubectl writes ages: 45s, 12m, 3h20m, 2d4h."""
    left = int(seconds)
    if left < 120:
        return f"{left}s"
    minutes, hours, days = left // 60, left // 3600, left // 86_400
    if minutes < 120:
        return f"{minutes}m"
    if hours < 48:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"


def in_seconds(nanoseconds: int) -> float:
    """Nanoseconds as seconds, to the millisecond."""
    return round(nanoseconds / SECOND, 3)
