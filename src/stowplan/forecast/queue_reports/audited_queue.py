"""Queues as the audit reads them, and its findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from stowplan.batch.state.task_requests import format_bytes

ERROR, WARNING, INFO = "error", "warning", "info"
"""Severities: something can never be met; something is not as it seems; a fact to know."""
AMOUNT_MIN = 0.001
"""Smaller differences (cores, bytes, units) are rounding errors."""

Amounts = Mapping[str, float]
"""Resource, which may have a flavor behind it, -> cores, bytes or units; infinity is unlimited."""


class AuditFinding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One finding. kind, name: the object, kind `cluster` has no name. reason: one word for
    programs. resource: "" where it is about none in particular. others: queues that it also
    concerns."""

    severity: str
    kind: str
    name: str
    reason: str
    message: str
    resource: str = ""
    others: tuple[str, ...] = ()


class AuditedQueue(msgspec.Struct, frozen=True):
    """A queue. kind: as its scheduler calls it. promises: what it is promised, by the word that its
    scheduler has for that, such as quota; a resource that is left out is promised nothing. main:
    the one of these beyond which a queue borrows, "" for none. limit: resources without one are
    left out. fixed: what jobs have that may not be preempted. children: names of the queues
    below."""

    name: str
    parent: str = ""
    kind: str = "queue"
    promises: Mapping[str, Amounts] = {}
    main: str = ""
    limit: Amounts = {}
    allocated: Amounts = {}
    pending: Amounts = {}
    fixed: Amounts = {}
    children: tuple[str, ...] = ()


class AuditedTree:
    """Queues by name. total: what they divide; a resource of which there is nothing is 0 or left
    out. tops: what those at the top are called together."""

    def __init__(
        self, queues: Iterable[AuditedQueue], total: Amounts, tops: str = "the top queues"
    ) -> None:
        self.queues = {one.name: one for one in queues}
        self.total = total
        self.tops = tops

    def above(self, name: str) -> Iterator[AuditedQueue]:
        """The queues above one, the next one first; each once where they are a cycle."""
        seen = {name}
        queue = self.queues.get(self.queues[name].parent) if name in self.queues else None
        while queue is not None and queue.name not in seen:
            seen.add(queue.name)
            yield queue
            queue = self.queues.get(queue.parent)

    def below(self, name: str) -> list[AuditedQueue]:
        """The queues next below one; "" for the top ones."""
        return [one for one in self.queues.values() if one.parent == name]


def promised(queue: AuditedQueue, what: str, resource: str) -> float:
    """What a queue is promised of a resource."""
    return queue.promises.get(what, {}).get(resource, 0.0)


def word_of(what: str) -> str:
    """A promise as a part of a reason: `nominal quota` is NominalQuota."""
    return what.title().replace(" ", "")


def amount_text(resource: str, amount: float) -> str:
    """An amount with its unit where it has one."""
    if math.isinf(amount):
        return "unlimited"
    if resource.partition(" ")[0] in ("memory", "ephemeral-storage"):
        return format_bytes(amount)
    return f"{amount:.3f}".rstrip("0").rstrip(".")
