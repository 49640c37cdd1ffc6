"""Machine: events in, effects out. The only thing that changes state.

    handle(events, now) -> effects

takes what happened into cache and queue, serves whatever is due, decides the pods at the head of
the queue, and answers with what is to be done. It reads no clock, waits for nothing and calls
nobody; whoever drives it performs the effects and sends what became of them as events.

One call is bounded: it decides at most `heads_max` pods and asks with Wake to be called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from stowplan.cache import Cache
from stowplan.framework import Framework
from stowplan.framework.decider import Decider, Decision
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect, Wake
from stowplan.messages.events import Event
from stowplan.queue import QueueEntry, QueueOptions
from stowplan.queue.entry import SECOND
from stowplan.queue.options import FLUSH_BACKOFF_S, FLUSH_LEFTOVER_S
from stowplan.scheduler.binding import NEVER, Bindings
from stowplan.scheduler.context import Context
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.failures import SCHEDULER_ERROR, UNSCHEDULABLE, Failures
from stowplan.scheduler.watching import Watching

HEADS_MAX = 1000

_BACKOFF = FLUSH_BACKOFF_S * SECOND
_LEFTOVER = FLUSH_LEFTOVER_S * SECOND


class MachineOptions(msgspec.Struct, frozen=True):
    """queue: durations and rules of the queue. assume_limit_s: None, as in 1.36, for ever.

    leads: whether it decides from the start; else LeaderElected makes it.
    """

    queue: QueueOptions = QueueOptions()
    assume_limit_s: float | None = None
    leads: bool = True


class Machine:
    """A scheduler without a clock, a socket or a thread."""

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        decider: Decider,
        options: MachineOptions | None = None,
        dice: np.random.Generator | None = None,
    ) -> None:
        """frameworks: by scheduler name; they must share one `Shared`. decider:
        chooses nodes. dice: breaks ties."""
        self.options = options or MachineOptions()
        self.cache = Cache(self.options.assume_limit_s)
        self._context = Context(frameworks, self.cache, self.options.queue)
        self.queue = self._context.queue
        self._failures = Failures(self._context)
        self.bindings = Bindings(self._context, self._failures)
        self.evictions = Evictions(self._context, self.bindings, self._failures)
        self._watching = Watching(self._context, self.bindings, self.evictions)
        self._dice = dice
        self._decider = decider
        self._leads = self.options.leads
        self._more_heads = False
        self._flushed = -1
        self._swept = -1
        self._alarm: float = NEVER
        self._takers = self._table()

    def handle(self, events: Iterable[Event], now: int, heads_max: int = HEADS_MAX) -> list[Effect]:
        """Take in what happened and answer with what is to be done.

        now: whole nanoseconds from a beginning that is a whole second, never less than before.
        """
        context = self._context
        context.now = now
        for event in events:
            context.note(event)
            self._takers[type(event)](event)
        self._serve_due()
        self._decide(heads_max)
        self._set_alarm()
        effects, context.outbox = context.outbox, []
        return effects

    def _table(self) -> dict[type[Any], Callable[[Any], None]]:
        watching, bindings = self._watching, self.bindings
        return {
            happened.PodAdded: lambda e: watching.pod_seen(e.pod),
            happened.PodUpdated: lambda e: watching.pod_seen(e.pod),
            happened.PodDeleted: lambda e: watching.pod_gone(e.pod),
            happened.NodeAdded: lambda e: watching.node_seen(e.node),
            happened.NodeUpdated: lambda e: watching.node_seen(e.node),
            happened.NodeDeleted: lambda e: watching.node_gone(e.node),
            happened.ObjectAdded: lambda e: watching.object_seen(e.value),
            happened.ObjectUpdated: lambda e: watching.object_seen(e.value),
            happened.ObjectDeleted: lambda e: watching.object_gone(e.value),
            happened.BindDone: bindings.bind_done,
            happened.BindFailed: bindings.bind_failed,
            happened.PodRead: bindings.pod_read,
            # A status patch is a message to others; what it says is said again when it changes.
            happened.PatchFailed: lambda e: None,
            happened.EvictDone: self.evictions.done,
            happened.EvictFailed: self.evictions.failed,
            happened.PrepareDone: bindings.prepare_done,
            happened.PrepareFailed: bindings.prepare_failed,
            happened.Allowed: self._allowed,
            happened.Rejected: self._rejected,
            happened.LeaderElected: self._elected,
            happened.Tick: lambda e: None,
        }

    def _allowed(self, event: happened.Allowed) -> None:
        waiting = self._context.shared.waiting.get(event.uid)
        if waiting is not None:
            waiting.allow(event.plugin)

    def _rejected(self, event: happened.Rejected) -> None:
        waiting = self._context.shared.waiting.get(event.uid)
        if waiting is not None:
            waiting.reject(event.plugin, event.reason)

    def _elected(self, event: happened.LeaderElected) -> None:
        self._context.term = event.term
        self._leads = True

    # Time.

    def _serve_due(self) -> None:
        """What time brings: the queue's flushes, ends of waits, assumptions that expire."""
        now = self._context.now
        if now // _BACKOFF > self._flushed:
            self._flushed = now // _BACKOFF
            self.queue.flush_backoff(now)
        if now // _LEFTOVER > self._swept:
            self._swept = now // _LEFTOVER
            self.queue.flush_leftover(now)
        self.bindings.settle()
        for info in self.cache.expire(now):
            self.bindings.expired(info.uid)

    def _set_alarm(self) -> None:
        """Ask to be called at the next time at which something is due."""
        context = self._context
        due = [self.bindings.next_deadline(), self.cache.next_expiry()]
        if self._more_heads:
            due.append(context.now)
        over = self.queue.backoff.next_over()
        if over is not None:
            due.append(max(over, (self._flushed + 1) * _BACKOFF))
        if len(self.queue.parked):
            due.append((self._swept + 1) * _LEFTOVER)
        earliest = min(due)
        if earliest != NEVER and (earliest != self._alarm or self._alarm <= context.now):
            self._alarm = earliest
            context.emit(Wake(int(earliest)))

    # Decisions.

    def _decide(self, heads_max: int) -> None:
        self._more_heads = False
        for _ in range(heads_max if self._leads else 0):
            entry = self.queue.pop()
            if entry is None:
                return
            self._attempt(entry)
            self.bindings.settle()
            self._activate()
        self._more_heads = self._leads

    def _attempt(self, entry: QueueEntry) -> None:
        context, pod = self._context, entry.pod
        framework = context.frameworks[pod.spec.scheduler_name]
        if pod.metadata.deletion_timestamp is not None:
            note = f"skip schedule deleting pod: {pod.key}"
            self._failures.tell(pod, "Warning", "FailedScheduling", "Scheduling", note)
            self.queue.done(pod.uid)
            return
        if self.cache.nodes.knows_pod(pod.uid):
            self.queue.done(pod.uid)
            return
        decision = self._decider.decide(pod, self.cache.snapshot(), framework, self._dice)
        if decision.node_name:
            self.bindings.begin(entry, decision, framework)
        else:
            self._refused(entry, decision)

    def _refused(self, entry: QueueEntry, decision: Decision) -> None:
        pod, node = entry.pod, decision.nominated_node
        if node and decision.victims:
            self.evictions.start(pod, node, decision.victims)
        assert decision.refusal is not None
        self._failures.attempt_failed(
            entry,
            decision.message,
            reason=UNSCHEDULABLE if decision.refusal.is_rejected else SCHEDULER_ERROR,
            refused_by=decision.plugins,
            pending_on=decision.pending,
            nominated_node=node,
        )

    def _activate(self) -> None:
        """Pods that a plugin wants tried at once."""
        wanted = self._context.shared.to_activate
        if wanted:
            pods = list(wanted.values())
            wanted.clear()
            self.queue.activate(pods, self._context.now)

    def validate(self) -> None:
        """Check what must hold between calls; raises InvariantBroken with the pod's story."""
        self.cache.validate()
        for key, pod in self._context.known.items():
            places = [
                self.queue.place_of(key) is not None,
                pod.uid in self.queue.in_flight,
                self.cache.nodes.knows_pod(pod.uid),
            ]
            waiting = self.bindings.stage_of(pod.uid) is not None and places[2]
            ours = self._context.is_ours(pod) or pod.node_name
            if ours and not waiting and sum(places) != 1:
                raise self._context.broken(f"pod {key} is in {sum(places)} places", pod.uid)
