"""Fault schedules: faults between a scheduler and a cluster that Kubernetes allows.

A fault has a time and a kind; a schedule is a random list of them. Faults of watches and schedulers
are injected at their time, faults of requests at the next request of their kind.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect, is_write
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.cluster.effect_dispatcher import InjectedFault
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

# Watches: the stream breaks and resumes; breaks and must relist (410); delivers nothing for a
# while; delivers events again.
WATCHES = ("watch cut", "watch expired", "watch lags", "watch repeats")
# Requests: refused; not executed, no reply; executed, no reply; executed after the caller has
# given up.
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
# Extender calls: the same, and a malformed reply.
CALLS = ("call refused", "call unanswered", "call reply lost", "call late", "call garbled")
# The cluster: actions of other clients.
OTHERS = ("node vanishes", "node flaps", "node changes", "pod deleted", "stranger binds")
# Scheduler processes.
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
# No 404: the API never reports an existing pod as missing, and the scheduler relies on that.
EVICT_CODES = (409, 429, 500)
UNANSWERED = (0, 504)
INVALID_BODIES = (b"", b"[]", b'{"NodeNames":["n', b'{"Error":"no power"}', b'{"NodeNames":7}')
INVALID_BIND_BODIES = INVALID_BODIES[:4]
"""Malformed replies to Bind. A well-formed reply without an error counts as bound, so it would be a
lie that the protocol does not allow."""


class ScheduledFault(msgspec.Struct, frozen=True):
    """One fault. at: virtual nanoseconds. choice: selects the target among those that exist.
    span: duration, in nanoseconds. code: HTTP status.
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
    """Random faults up to a time, sorted by time: 0 to 12, one in eight times up to 40."""
    kinds: tuple[str, ...] = WATCHES + REQUESTS + OTHERS + RESTARTS
    if has_extenders:
        kinds += 2 * CALLS
    if two_schedulers:
        kinds += 2 * LEADERS
    most = 40 if chance(rng, 8) else 12
    if chance(rng, 4):
        # Few kinds: two faults of one kind close together find what one does not.
        kinds = tuple(pick(rng, kinds) for _ in range(2))
    found = [fault(rng, pick(rng, kinds), until) for _ in range(random_int(rng, 0, most))]
    return sorted(found, key=lambda one: one.at)


def fault(rng: RandomSource, kind: str, until: int) -> ScheduledFault:
    """A random fault of a kind, up to a time."""
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
    """Faults that are due, each for the next request of its kind. on_injected: called with each
    fault that is injected."""

    def __init__(self, on_injected: Callable[[ScheduledFault], None]) -> None:
        self._on_injected = on_injected
        self._waiting: dict[str, list[ScheduledFault]] = {}

    def arm(self, fault: ScheduledFault) -> None:
        """Inject a fault into the next request of its kind."""
        self._waiting.setdefault(fault.kind.partition(" ")[0], []).append(fault)

    def disarm(self) -> None:
        """Discard all pending faults."""
        self._waiting.clear()

    def inject(self, effect: Effect) -> InjectedFault | None:
        """The fault to inject into a request, None for none."""
        waiting = self._waiting.get(_NAMES.get(type(effect), ""))
        if not waiting:
            return None
        fault = waiting.pop(0)
        self._on_injected(fault)
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
    schedule: list[ScheduledFault], fails: Callable[[list[ScheduledFault]], bool]
) -> list[ScheduledFault]:
    """A minimal schedule that still fails: removes halves first, then single faults, until every
    remaining fault is needed."""
    size = len(schedule)
    while size > 0:
        before = len(schedule)
        place = 0
        while place < len(schedule):
            shorter = schedule[:place] + schedule[place + size :]
            if fails(shorter):
                schedule = shorter
            else:
                place += size
        if size > 1 or len(schedule) == before:
            size //= 2
    return schedule
