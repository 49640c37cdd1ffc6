"""Faults: what may go wrong between a scheduler and a cluster, within what Kubernetes allows.

A fault has a time and a kind; a plan is a list of them, drawn from a seed. Those of watches and
schedulers strike when their time comes, those of requests at the next request of their kind.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.cluster.simulated_dispatcher import InjectedFault
from stowplan.testing.auditor import is_write
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

# Of watches: a stream is cut and goes on; is cut and must list anew (410); shows nothing for a
# while; shows again what it has shown.
WATCHES = ("watch cut", "watch expired", "watch lags", "watch repeats")
# Of requests: refused, not carried out and unanswered, carried out and unanswered, carried out
# after its caller has given up.
REQUESTS = (
    "bind refused",
    "bind unanswered",
    "bind reply lost",
    "bind late",
    "patch refused",
    "evict refused",
    "evict reply lost",
    "read unanswered",
    "prepare refused",
    "prepare unanswered",
)
# Of calls of extenders, where there are any: the same, and an answer that is none.
CALLS = ("call refused", "call unanswered", "call reply lost", "call late", "call garbled")
# Of the cluster: done by others.
OTHERS = ("node vanishes", "node flaps", "node changes", "pod deleted", "stranger binds")
# Of schedulers.
RESTARTS = ("restart",)
LEADERS = ("lead released", "lead lost", "frozen")

LASTING = (
    "bind late",
    "call late",
    "watch cut",
    "watch expired",
    "watch lags",
    *RESTARTS,
    *LEADERS,
)
BIND_CODES = (409, 404, 429, 500)
# That a pod is not found is never said of one that is there; whoever evicts may rely on that.
EVICT_CODES = (409, 429, 500)
UNANSWERED = (0, 504)
INVALID_BODIES = (b"", b"[]", b'{"NodeNames":["n', b'{"Error":"no power"}', b'{"NodeNames":7}')
INVALID_BIND_BODIES = INVALID_BODIES[:4]
"""Of these no extender that binds may say another when it has not: any answer without an error says
that it has, and nobody looks after it."""


class ScheduledFault(msgspec.Struct, frozen=True):
    """at: virtual nanoseconds. choice: a number that says which of those there are it concerns.
    span: how long it lasts, in nanoseconds. code: an HTTP status.
    """

    at: int
    kind: str
    choice: int = 0
    span: int = 0
    code: int = 0

    def __str__(self) -> str:
        parts = [f"{self.at / SECOND:.3f}s {self.kind}"]
        if self.kind not in REQUESTS + CALLS:
            parts.append(f"(choice {self.choice})")
        if self.span:
            parts.append(f"for {self.span / SECOND:.3f}s")
        if self.code:
            parts.append(f"code {self.code}")
        return " ".join(parts)


def fault_schedule(
    rng: RandomSource, until: int, *, two_schedulers: bool, has_extenders: bool = False
) -> list[ScheduledFault]:
    """Faults up to a time, in its order: usually a handful, sometimes none or a swarm."""
    kinds: tuple[str, ...] = WATCHES + REQUESTS + OTHERS + RESTARTS
    if has_extenders:
        kinds += 2 * CALLS
    if two_schedulers:
        kinds += 2 * LEADERS
    most = 40 if chance(rng, 8) else 12
    if chance(rng, 4):
        # Much of the same: two of the same kind close together find what one does not.
        kinds = tuple(pick(rng, kinds) for _ in range(2))
    found = [fault(rng, pick(rng, kinds), until) for _ in range(random_int(rng, 0, most))]
    return sorted(found, key=lambda one: one.at)


def fault(rng: RandomSource, kind: str, until: int) -> ScheduledFault:
    """A fault of a kind."""
    at = random_int(rng, 0, until // 1000) * 1000
    choice = random_int(rng, 0, 999)
    span = code = 0
    if kind == "bind refused":
        code = pick(rng, BIND_CODES)
    elif kind == "evict refused":
        code = pick(rng, EVICT_CODES)
    elif kind == "prepare refused":
        code = 500
    elif kind == "patch refused":
        code = pick(rng, (409, 404, 500, 0))
    elif kind in ("bind unanswered", "bind reply lost", "evict reply lost", "bind late"):
        code = pick(rng, UNANSWERED)
    elif kind in ("call refused", "call reply lost", "call late"):
        code = pick(rng, (500, 0))
    if kind in LASTING:
        span = pick(rng, (1, 200, 2000, 15_000)) * random_int(rng, 1, 2000) * 1000
    elif kind in OTHERS:
        span = random_int(rng, 0, 20_000) * SECOND // 1000
    return ScheduledFault(at, kind, choice, span, code)


class PendingFaults:
    """Faults of requests whose time has come, each for the next request of its kind. struck: told
    of each that has found one."""

    def __init__(self, struck: Callable[[ScheduledFault], None]) -> None:
        self._struck = struck
        self._waiting: dict[str, list[ScheduledFault]] = {}

    def arm(self, fault: ScheduledFault) -> None:
        """Let a fault strike at the next request of its kind."""
        self._waiting.setdefault(fault.kind.partition(" ")[0], []).append(fault)

    def disarm(self) -> None:
        """Nothing strikes any more."""
        self._waiting.clear()

    def inject(self, effect: Effect) -> InjectedFault | None:
        """What goes wrong with a request, None for nothing."""
        waiting = self._waiting.get(_NAMES.get(type(effect), ""))
        if not waiting:
            return None
        fault = waiting.pop(0)
        self._struck(fault)
        return _injected_fault(fault, effect)


_NAMES = {
    to_do.Bind: "bind",
    to_do.PatchStatus: "patch",
    to_do.Evict: "evict",
    to_do.ReadPod: "read",
    to_do.Prepare: "prepare",
    to_do.CallExtender: "call",
}


def _injected_fault(fault: ScheduledFault, effect: Effect) -> InjectedFault:
    match fault.kind:
        case "bind reply lost" | "evict reply lost" | "call reply lost":
            return InjectedFault(fault.code, done=True)
        case "bind late" | "call late":
            return InjectedFault(fault.code, late=max(fault.span, 1))
        case "read unanswered" | "prepare unanswered" | "call unanswered":
            return InjectedFault(None)
        case "call garbled":
            bodies = INVALID_BIND_BODIES if is_write(effect) else INVALID_BODIES
            return InjectedFault(200, body=bodies[fault.choice % len(bodies)])
        case _:
            return InjectedFault(fault.code)


def shrink_schedule(
    plan: list[ScheduledFault], fails: Callable[[list[ScheduledFault]], bool]
) -> list[ScheduledFault]:
    """The plan without what the failure does not need: halves first, then one by one, until none
    of those that are left can be spared."""
    size = len(plan)
    while size > 0:
        before = len(plan)
        place = 0
        while place < len(plan):
            shorter = plan[:place] + plan[place + size :]
            if fails(shorter):
                plan = shorter
            else:
                place += size
        if size > 1 or len(plan) == before:
            size //= 2
    return plan
