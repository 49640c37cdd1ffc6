"""What LocalQueues have used: decayed, weighted, with penalties for what was just admitted.

Workloads of a ClusterQueue whose admission scope is UsageBasedAdmissionFairSharing are ordered by
it: the LocalQueue that used less comes first.

Source: Kueue of 2026-08-22, KEP-4136, pkg/util/admissionfairsharing, pkg/cache/queue/afs,
pkg/controller/core/localqueue_controller.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stowplan.batch.queue_models.kueue.kueue_objects import LocalQueue
from stowplan.batch.queue_models.kueue.kueue_options import UsageOptions
from stowplan.batch.queue_models.kueue.quota.quota_tree import weight_of
from stowplan.objects.quantity import NANOS_PER_MILLI, NANOS_PER_UNIT, nanos

Amounts = dict[str, int]
"""Resource -> billionths of a unit."""


def in_billionths(requests: Mapping[str, int]) -> Amounts:
    """Requests in base units as billionths of a unit."""
    return {
        name: n * (NANOS_PER_MILLI if name == "cpu" else NANOS_PER_UNIT)
        for name, n in requests.items()
    }


def decay_of(elapsed_s: float, half_life_s: float) -> float:
    """Which part of what was used is forgotten after some time; nothing without a half-life."""
    return 0.0 if half_life_s == 0 else 1.0 - math.pow(0.5, elapsed_s / half_life_s)


def scaled(amounts: Mapping[str, int], factor: float) -> Amounts:
    """Amounts times a factor, cut to billionths."""
    exactly = Fraction(repr(factor))
    return {
        name: n * exactly.numerator // exactly.denominator for name, n in sorted(amounts.items())
    }


def total(first: Mapping[str, int], second: Mapping[str, int]) -> Amounts:
    """The sum of amounts."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in sorted({*first, *second})}


def decayed(
    consumed: Mapping[str, int], used: Mapping[str, int], elapsed_s: float, half_life_s: float
) -> Amounts:
    """What counts as consumed after some time. used: meanwhile, in billionths."""
    forgotten = decay_of(elapsed_s, half_life_s)
    return total(scaled(consumed, 1.0 - forgotten), scaled(used, forgotten))


@dataclass(slots=True)
class UsageEntry:
    """Of one LocalQueue. updated: when `consumed` was computed, in seconds. penalties: of
    workloads with quota that are not admitted yet, by key."""

    weight: float
    updated: float
    consumed: Amounts = field(default_factory=dict)
    penalties: dict[str, Amounts] = field(default_factory=dict)

    @property
    def pending_penalty(self) -> Amounts:
        """The sum of the penalties."""
        found: Amounts = {}
        for one in self.penalties.values():
            found = total(found, one)
        return found


class LocalQueueUsage:
    """Usage of all LocalQueues, by `namespace/name`.

    sampled: those whose usage is followed: their ClusterQueue and they themselves are active.
    """

    def __init__(self, options: UsageOptions, queues: Iterable[LocalQueue], now: float) -> None:
        """What statuses name as consumed counts on. now: seconds."""
        self.options = options
        self.entries = {
            f"{one.metadata.namespace}/{one.name}": UsageEntry(
                weight_of(one.spec.fair_sharing), now, _consumed_in(one)
            )
            for one in queues
        }
        self.sampled: set[str] = set()

    def take_over(self, before: LocalQueueUsage) -> None:
        """Go on with what was known; weights are new."""
        for key, one in self.entries.items():
            if key in before.entries:
                known = before.entries[key]
                one.updated, one.consumed = known.updated, known.consumed
                one.penalties = known.penalties

    def of(self, key: str) -> float:
        """What a LocalQueue has used per weight, by which queues are ordered; infinite where the
        weight is 0."""
        entry = self.entries.get(key)
        return 0.0 if entry is None else self._weighted(entry, entry.consumed)

    def tends_to(self, key: str, used: Mapping[str, int]) -> float:
        """What `of` comes near to if usage stays as it is. used: in base units."""
        entry = self.entries.get(key)
        return 0.0 if entry is None else self._weighted(entry, in_billionths(used))

    def _weighted(self, entry: UsageEntry, consumed: Mapping[str, int]) -> float:
        if entry.weight <= 0:
            return math.inf
        weights = self.options.weights
        amounts = total(consumed, entry.pending_penalty)
        used = sum(weights.get(name, 1.0) * (n / NANOS_PER_UNIT) for name, n in amounts.items())
        return used / entry.weight

    def penalize(self, key: str, workload: str, requests: Mapping[str, int]) -> None:
        """A workload has got quota: part of what it asks for counts at once."""
        if key in self.entries:
            factor = decay_of(self.options.interval_s, self.options.half_life_s)
            self.entries[key].penalties[workload] = scaled(in_billionths(requests), factor)

    def forget(self, key: str, workload: str) -> None:
        """A workload will not be admitted with the quota that it had."""
        if key in self.entries:
            self.entries[key].penalties.pop(workload, None)

    def settle(self, key: str, workload: str, used: Mapping[str, int], now: float) -> None:
        """A workload is admitted: its penalty counts as consumed. used: by all admitted ones,
        itself included, in base units."""
        entry = self.entries.get(key)
        if entry is None:
            return
        elapsed_s = max(0.0, now - entry.updated)
        half_life_s = self.options.half_life_s
        consumed = decayed(entry.consumed, in_billionths(used), elapsed_s, half_life_s)
        entry.consumed = total(consumed, entry.penalties.pop(workload, {}))
        entry.updated = max(now, entry.updated)

    def next_at(self) -> float | None:
        """When the next sample is due, in seconds; None where no LocalQueue is followed."""
        times = (self.entries[key].updated for key in self.sampled)
        first = min(times, default=None)
        return None if first is None else first + self.options.interval_s

    def is_due(self, now: float) -> bool:
        """Whether a sample is due."""
        at = self.next_at()
        return at is not None and at <= now

    def sample(self, used: Mapping[str, Mapping[str, int]], now: float) -> None:
        """Take all samples that are due. used: since then, by LocalQueue, in base units.

        Differs: samples that are due together are one, which is the same but for billionths; and
        none is taken because a penalty is pending.
        """
        interval_s = self.options.interval_s
        for key in self.sampled:
            entry = self.entries[key]
            if entry.updated + interval_s > now:
                continue
            elapsed_s = max(1, math.floor((now - entry.updated) / interval_s)) * interval_s
            entry.updated += elapsed_s
            if self.options.half_life_s == 0:
                entry.consumed = {}
                continue
            amounts = in_billionths(used.get(key, {}))
            entry.consumed = decayed(entry.consumed, amounts, elapsed_s, self.options.half_life_s)


def _consumed_in(queue: LocalQueue) -> Amounts:
    status = queue.status.fair_sharing.admission_fair_sharing_status
    return {name: nanos(q) for name, q in sorted(status.consumed_resources.items())}
