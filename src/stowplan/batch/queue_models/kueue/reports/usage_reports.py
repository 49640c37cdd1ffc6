"""What LocalQueues have used, for statuses and for people.

Source: sigs.k8s.io/kueue of 2026-08-22, apis/kueue/v1beta2/localqueue_types.go.
"""

from __future__ import annotations

import math

import msgspec

from stowplan.apis.machinery.timestamps import format_time
from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission
from stowplan.batch.queue_models.kueue.quota.local_queue_usage import LocalQueueUsage
from stowplan.objects.encoding.tree import Tree

_SUFFIXES = {18: "E", 15: "P", 12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "u", -9: "n"}


class LocalQueueUse(msgspec.Struct, frozen=True):
    """What a LocalQueue has used. usage: weighted, per weight; -1: infinite, since its weight is 0.
    consumed: decayed, by resource. penalty: of workloads that are not admitted yet."""

    namespace: str
    name: str
    usage: float
    weight: float
    consumed: dict[str, str] = {}
    penalty: dict[str, str] = {}

    @property
    def text(self) -> str:
        """For people."""
        used = "inf" if self.usage < 0 else f"{self.usage:.6g}"
        return f"LocalQueue {self.name} in {self.namespace} {used} (weight {self.weight:g})"


def billionths_text(n: int) -> str:
    """Billionths of a unit as a decimal quantity."""
    fits = (power for power in _SUFFIXES if n % 10 ** (power + 9) == 0)
    power = next(fits) if n else 0
    return f"{n // 10 ** (power + 9)}{_SUFFIXES[power]}"


def usage_status(usage: LocalQueueUsage, key: str) -> Tree:
    """`status.fairSharing` of a LocalQueue. key: its namespace and name.

    Differs: the original writes it when it takes a sample only, so that an admission shows later.
    """
    entry = usage.entries[key]
    consumed = {name: billionths_text(n) for name, n in entry.consumed.items()}
    updated = format_time(entry.updated)
    held: Tree = {"consumedResources": consumed, "lastUpdate": updated}
    return {"weightedShare": 0, "admissionFairSharingStatus": held}


def uses_ahead(workload: AdmissionWorkload, admission: KueueAdmission) -> list[LocalQueueUse]:
    """The LocalQueue of a waiting workload and others that wait in its ClusterQueue, in order;
    empty where usage does not order them."""
    pending = admission.pending.get(workload.cluster_queue)
    if pending is None or pending.usage_of is None or workload.holds_quota:
        return []
    known = pending.usage_by_queue(pending.all())
    if workload.queue_name not in known or len(set(known.values())) < 2:
        return []
    usage = admission.usage
    assert usage is not None, "usage orders the queue"
    return [_use(usage, key, known[key]) for key in sorted(known, key=lambda one: known[one])]


def _use(usage: LocalQueueUsage, key: str, used: float) -> LocalQueueUse:
    entry, (namespace, _, name) = usage.entries[key], key.partition("/")
    amounts = [
        {resource: billionths_text(n) for resource, n in held.items()}
        for held in (entry.consumed, entry.pending_penalty)
    ]
    return LocalQueueUse(
        namespace, name, -1.0 if math.isinf(used) else used, entry.weight, *amounts
    )


def order_text(uses: list[LocalQueueUse], namespace: str, name: str) -> str:
    """Where usage puts a LocalQueue among those that wait; "" where it does not decide."""
    if not uses:
        return ""
    place = next(i for i, one in enumerate(uses) if (one.namespace, one.name) == (namespace, name))
    parts = [uses[place].text]
    for word, others in (("after", uses[:place]), ("before", uses[place + 1 :])):
        if others:
            parts.append(f"{word} {', '.join(one.text for one in others)}")
    return "; ".join(parts)
