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

import numpy as np

from stowplan.cache import Cache
from stowplan.columns.engine.lots import Dice
from stowplan.framework import ContractError, Framework
from stowplan.framework.decider import Consultation, Decider, Decision
from stowplan.framework.sessions import SessionDecider
from stowplan.framework.status import error
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.extender import Extender
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry
from stowplan.queue.options import in_ns
from stowplan.scheduler import audit
from stowplan.scheduler.binding import Bindings
from stowplan.scheduler.calls import Calls
from stowplan.scheduler.context import Context
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.extending import Extending
from stowplan.scheduler.failures import SCHEDULER_ERROR, UNSCHEDULABLE, Failures
from stowplan.scheduler.options import MachineOptions
from stowplan.scheduler.runs import Runs, draw_of
from stowplan.scheduler.sessions import Sessions
from stowplan.scheduler.standing import Standing
from stowplan.scheduler.watching import Watching
from stowplan.scheduler.works import Work, Works

HEADS_MAX = MachineOptions().heads_max
IDLE_S = 600.0
"""What no pod has asked for in this time is forgotten; longer than a pod waits that nothing
helps."""


class Machine:
    """A scheduler without a clock, a socket or a thread."""

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        decider: Decider,
        options: MachineOptions | None = None,
        dice: np.random.Generator | None = None,
        extenders: Iterable[Extender] = (),
        sessions: SessionDecider | None = None,
    ) -> None:
        """frameworks: by scheduler name; they must share one `Shared`. decider: chooses nodes.
        dice: breaks ties. extenders: in the configuration's order. sessions: decides pods of
        another scheduler name, many at once."""
        self.options = options or MachineOptions()
        self.cache = Cache(self.options.assume_limit_s)
        self._context = Context(frameworks, self.cache, self.options, extenders, sessions)
        self.queue = self._context.queue
        self._failures = Failures(self._context)
        self._works = Works(self._context)
        self._calls = Calls(self._context)
        self.extending = Extending(self._context, self._calls, self._failures)
        self.bindings = Bindings(self._context, self._failures, self._works, self._calls)
        self.evictions = Evictions(self._context, self.bindings)
        self.sessions: Sessions | None = None
        if sessions is not None:
            self.sessions = Sessions(self._context, self.bindings, sessions)
            self.bindings.companion = self.sessions
            self._failures.to_sessions = self.sessions.bind_failed
        self._watching = Watching(
            self._context, self.bindings, self.evictions, self.extending, self.sessions
        )
        self._runs = Runs(
            self._context, self.bindings, self._attempt_and_react, self._refused_again
        )
        # Called with every pod that an attempt refuses, before anything follows from it.
        self.on_refused: Callable[[Pod, Decision], None] = _nothing
        self._dice = dice
        self._decider = decider
        self.standing: Standing | None = None
        if self.options.counts_repeats and self.queue.options.pops_early:
            self.standing = Standing(
                self._context, decider, self._attempt_and_react, lambda e: draw_of(e, dice)
            )
        self._more_heads = False
        self._backoff_period = in_ns(self.options.queue.flush_backoff_s)
        self._leftover_period = in_ns(self.options.queue.flush_leftover_s)
        self._flushed = -1
        self._swept = -1
        self._tidied = 0
        self._tidied_cycle = -1
        self._idle_period = in_ns(IDLE_S)
        self._alarm: int | None = None
        self._takers = self._table()

    def handle(
        self, events: Iterable[Event], now: int, heads_max: int | None = None
    ) -> list[Effect]:
        """Take in what happened and answer with what is to be done.

        heads_max: how many pods of profiles it decides at most; a session is held whole.
        now: whole nanoseconds from a beginning that is a whole second, never less than before. A
        plugin that breaks its contract fails the attempt of the pod that it was asked about, or at
        PreEnqueue keeps it out of the queue; a hint that does has the pod tried again. At QueueSort
        ContractError is raised; the machine must not be used any more.
        """
        context = self._context
        if now < context.now:
            raise ValueError(f"handle: got the time {now}, wanted at least {context.now}")
        context.now = now
        happenings = list(events)
        context.note(now, happenings)
        takers, shared = self._takers, context.shared
        for event in happenings:
            takers[type(event)](event)
            if shared.is_stirred:
                self._react()
        self.bindings.preparing.look()
        self._serve_due()
        if shared.is_stirred:
            self._react()
        self._decide(self.options.heads_max if heads_max is None else heads_max)
        if self.sessions is not None:
            self.sessions.serve_due()
            if shared.is_stirred:
                self._react()
        for pod, fault in self.queue.take_faults():
            context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", fault)
        self._set_alarm()
        effects = context.outbox.take()
        context.note(now, effects)
        return effects

    @property
    def n_waiting(self) -> int:
        """Pods that wait for a node, in the queue and for sessions."""
        waiting = 0 if self.sessions is None else self.sessions.decider.n_waiting
        return len(self.queue) + waiting

    @property
    def has_extenders(self) -> bool:
        """True when the configuration names extenders."""
        return len(self._context.extenders) > 0

    def work(self, effect: int) -> Work | None:
        """What the plugin of a Prepare is to be told; None when nobody waits for it any more."""
        return self._works.get(effect)

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
            happened.PodRead: self._pod_read,
            happened.PatchFailed: self._patch_failed,
            happened.EvictDone: self._evict_done,
            happened.EvictFailed: self._evict_failed,
            happened.PrepareDone: bindings.prepare_done,
            happened.PrepareFailed: bindings.prepare_failed,
            happened.WriteDone: bindings.preparing.write_done,
            happened.WriteFailed: bindings.preparing.write_failed,
            happened.ExtenderReplied: self._calls.replied,
            happened.ExtenderFailed: self._calls.failed,
            happened.Allowed: self._allowed,
            happened.Rejected: self._rejected,
            happened.LeaderElected: self._elected,
            happened.LeaderLost: lambda e: self._step_down(),
            happened.Synced: self._synced,
            happened.ConfigurationChanged: self._configuration_changed,
            happened.SessionEnded: self._session_ended,
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

    # What became of effects of either kind of decider.

    def _pod_read(self, event: happened.PodRead) -> None:
        self.bindings.pod_read(event)
        if self.sessions is not None:
            self.sessions.pod_read(event)

    def _patch_failed(self, event: happened.PatchFailed) -> None:
        # What a pod's status says is a message to others; it is said again with the next failure.
        self._context.outbox.unsaid(event.uid)
        if self.sessions is not None:
            self.sessions.patch_failed(event)

    def _evict_done(self, event: happened.EvictDone) -> None:
        self.evictions.done(event)
        if self.sessions is not None:
            self.sessions.evict_done(event)

    def _evict_failed(self, event: happened.EvictFailed) -> None:
        self.evictions.failed(event)
        if self.sessions is not None:
            self.sessions.evict_failed(event)

    def _synced(self, event: happened.Synced) -> None:
        if self.sessions is not None:
            self.sessions.synced()

    def _configuration_changed(self, event: happened.ConfigurationChanged) -> None:
        if self.sessions is not None:
            self.sessions.changed(event)

    def _session_ended(self, event: happened.SessionEnded) -> None:
        if self.sessions is not None:
            self.sessions.ended()

    # Leadership.

    def _elected(self, event: happened.LeaderElected) -> None:
        outbox = self._context.outbox
        if event.term > outbox.term:
            # The loss of the term before may not have been noticed.
            self._step_down()
            outbox.term = event.term
        outbox.leads = True
        if self.sessions is not None:
            self.sessions.elected()

    def _step_down(self) -> None:
        outbox = self._context.outbox
        if outbox.leads:
            outbox.leads = False
            self.extending.step_down()
            self.bindings.step_down()
            self.evictions.step_down()
            if self.sessions is not None:
                self.sessions.step_down()

    # Time.

    def _serve_due(self) -> None:
        """What time brings: the queue's flushes, ends of waits, assumptions that expire."""
        now = self._context.now
        if now // self._backoff_period > self._flushed:
            self._flushed = now // self._backoff_period
            self.queue.flush_backoff(now)
        if now // self._leftover_period > self._swept:
            self._swept = now // self._leftover_period
            self.queue.flush_leftover(now, self._swept * self._leftover_period)
        if now // self._idle_period > self._tidied:
            self._tidied = now // self._idle_period
            self._tidy()
        self.bindings.serve_due()
        self._calls.serve_due()

    def _tidy(self) -> None:
        """Have what nobody asks for forgotten."""
        if self.standing is not None:
            if self._tidied_cycle == self.queue.cycle:
                # Nothing has been attempted since the last time.
                return
            self._tidied_cycle = self.queue.cycle
            self.standing.keep()
        self._decider.forget_idle()

    def _set_alarm(self) -> None:
        """Ask to be called at the next time at which something is due."""
        context = self._context
        due: list[int] = []
        if self._more_heads:
            due.append(context.now)
        deadlines = [self.bindings.next_deadline(), self._calls.next_deadline()]
        if self.sessions is not None:
            deadlines.append(self.sessions.next_deadline())
        due.extend(deadline for deadline in deadlines if deadline is not None)
        over = self.queue.backoff.next_over()
        if over is not None:
            due.append(max(over, (self._flushed + 1) * self._backoff_period))
        left = self.queue.next_leftover()
        if left is not None:
            due.append(max(self._swept, left // self._leftover_period) * self._leftover_period)
            due[-1] += self._leftover_period
        earliest = min(due, default=None)
        asked = self._alarm
        if earliest is not None and (asked is None or earliest != asked or asked <= context.now):
            context.outbox.wake(earliest)
        self._alarm = earliest

    # Decisions.

    def _decide(self, heads_max: int) -> None:
        self._more_heads = False
        if not self._context.outbox.leads:
            return
        for waiting in self.extending.take_ready():
            self._go_on(waiting.entry, waiting.consultation)
            if self._context.shared.is_stirred:
                self._react()
        if self.standing is not None:
            self.standing.run(self.cache.snapshot)
        queue, left = self.queue, heads_max
        while left > 0:
            if self.extending.is_full:
                return
            engine = self._decider.engine()
            if engine is None:
                odd, left = queue.pop(), left - 1
            else:
                entries, classes, odd = self._runs.take(engine, left)
                if entries:
                    snapshot = self.cache.snapshot
                    left -= self._runs.place(engine, entries, classes, snapshot, self._dice)
                elif odd is None:
                    return
                left -= odd is not None
            if odd is not None:
                self._attempt_and_react(odd, draw_of(odd, self._dice))
            elif engine is None:
                return
        early = queue.options.pops_early and len(queue.backoff.refused) > 0
        ready = early or len(queue.active) > 0
        self._more_heads = ready and not self.extending.is_full

    def _attempt_and_react(self, entry: QueueEntry, dice: Dice) -> None:
        self._attempt(entry, dice)
        if self._context.shared.is_stirred:
            self._react()

    def _attempt(self, entry: QueueEntry, dice: Dice) -> None:
        context, pod = self._context, entry.pod
        framework = context.frameworks[pod.spec.scheduler_name]
        if pod.metadata.deletion_timestamp is not None:
            context.skip_leaving(pod)
            self.queue.done(pod.uid)
            return
        extenders = context.extenders.asked_about(pod) if len(context.extenders) else ()
        if extenders:
            consultation = self._decider.consult(pod, framework, dice, extenders)
            self._go_on(entry, consultation)
            return
        try:
            decision = self._decider.decide(pod, self.cache.snapshot(), framework, dice)
        except ContractError as fault:
            decision = _broken(fault)
        self._decided(entry, decision)

    def _go_on(self, entry: QueueEntry, consultation: Consultation) -> None:
        """Decide a pod by what extenders have said, or let it wait for more."""
        try:
            decision = consultation.go_on(self.cache.snapshot())
        except ContractError as fault:
            decision = _broken(fault)
        if decision is None:
            self.extending.wait(entry, consultation)
        else:
            self._decided(entry, decision)

    def _decided(self, entry: QueueEntry, decision: Decision) -> None:
        if decision.node_name:
            framework = self._context.frameworks[entry.pod.spec.scheduler_name]
            self.bindings.begin(entry, decision, framework)
        else:
            self._refused(entry, decision)

    def _refused(self, entry: QueueEntry, decision: Decision) -> None:
        pod, node = entry.pod, decision.nominated_node
        self.on_refused(pod, decision)
        if node and decision.victims:
            self.evictions.start(pod, node, decision.victims, decision.preempted_by)
        assert decision.refusal is not None
        self._failures.attempt_failed(
            entry,
            decision.message,
            reason=UNSCHEDULABLE if decision.refusal.is_rejected else SCHEDULER_ERROR,
            refused_by=decision.plugins,
            pending_on=decision.pending,
            nominated_node=node,
        )

    def _refused_again(self, entry: QueueEntry, decision: Decision) -> None:
        self._refused(entry, decision)
        if self._context.shared.is_stirred:
            self._react()

    def _react(self) -> None:
        """What plugins may have asked for: pods to be let go, pods to be tried at once."""
        self.bindings.settle()
        wanted = self._context.shared.to_activate
        if wanted:
            pods = list(wanted.values())
            wanted.clear()
            self.queue.activate(pods, self._context.now)

    def validate(self) -> None:
        """Check what must hold between calls; raises InvariantBroken with the pod's story."""
        self.cache.validate()
        audit.check_pods(self._context, self.bindings, self.extending)
        audit.check_waiting(self._context, self.bindings, self.extending)
        if self.sessions is not None:
            audit.check_sessions(self._context, self.bindings, self.sessions)


def _nothing(pod: Pod, decision: Decision) -> None:
    """A refusal concerns nobody but the machine."""


def _broken(fault: ContractError) -> Decision:
    """The decision where a plugin breaks its contract."""
    return Decision(refusal=error(str(fault)), message=str(fault), nominated_node="")
