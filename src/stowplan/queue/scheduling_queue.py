"""SchedulingQueue: pop order of pending pods, backoff, and requeueing by events.

A pending pod is in exactly one sub-queue:

    active         ready; `pop` takes the first by QueueSort: priority, then time of arrival
    in flight      popped, until `done` or `add_unschedulable_if_not_present`
    backoff        failed recently; waits 1 s, 2 s, 4 s ... 10 s
    unschedulable  rejected, and no event since may make it schedulable; or gated: a PreEnqueue
                   plugin keeps it out

Events reach the queue through `move`. The queueing hints of the plugins that rejected a pod decide
whether an event may make it schedulable; if so the pod goes to backoff, or to active when its
backoff is over. Events that arrive while a pod is in flight are evaluated when it is requeued. A
pod that no event requeues is retried after five minutes (`flush_unschedulable`).

`QueueOptions(hints=False)` decides as releases before hints did: `cycle` counts pops, and
`move_request_cycle`, kept in either mode, is the cycle of the last event. A pod that fails goes to
backoff when move_request_cycle >= its cycle, otherwise to the unschedulable pods.

Every `now` is an argument, in whole nanoseconds from any epoch that is a whole second, and flushes
are calls. `driver.blocking_queue` is the same queue for threads.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go; without hints: v1.22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from stowplan.framework.clusterevents import (
    ASSIGNED_POD_ADD,
    FORCE_ACTIVATE,
    POD,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    event_matches,
    pod_update_events,
)
from stowplan.framework.object_store import ObjectStore
from stowplan.framework.runtime.framework import Framework
from stowplan.objects.pod import Pod
from stowplan.queue.backoff_queue import BackoffQueue
from stowplan.queue.heap import KeyedHeap, SortKey
from stowplan.queue.in_flight_pods import InFlightPods
from stowplan.queue.nominator import Nominator, PodLister
from stowplan.queue.options import QueueOptions, seconds_to_ns
from stowplan.queue.pod_record import NO_PLUGINS, PodRecord, PodState, SubQueue
from stowplan.queue.pod_updates import helped_across_nodes, is_updated
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.queue.queue_sort import by_arrival, queue_sort_key
from stowplan.queue.queueing_hints import (
    QueueingHintMap,
    QueueingStrategy,
    common_strategy,
    strategy_after_flight,
)
from stowplan.queue.unschedulable_pods import UnschedulableIndex, UnschedulablePods

ArrivalCause = ClusterEvent | str
"""What puts a pod into a sub-queue: a cluster event, or one of the strings below."""
SCHEDULE_ATTEMPT_FAILURE, BACKOFF_COMPLETE = "ScheduleAttemptFailure", "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"

_SCALE_DOWN = ClusterEvent(POD, Action.UPDATE_POD_SCALE_DOWN)

_COUNTED = (SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE)
_TO_ACTIVE, _TO_BACKOFF, _TO_UNSCHEDULABLE = range(3)
# Members of an enum are found slowly, and these are set for every pod.
_ACTIVE, _BACKOFF, _IN_FLIGHT = PodState.ACTIVE, PodState.BACKOFF, PodState.IN_FLIGHT
_GATED, _UNSCHEDULABLE = PodState.GATED, PodState.UNSCHEDULABLE


class SchedulingQueue:
    """Pending pods in their sub-queues.

    active, backoff, unschedulable_pods, in_flight, nominator: the parts, read-only for callers.
    hints, gates, options: of the profiles; see `profile_change`.
    cycle: number of pops. move_request_cycle: value of `cycle` at the last event that matched a
    registration; -1 at first. discarded: entries that the last `pop` dropped because a pod of that
    uid was already in flight.
    """

    def __init__(
        self,
        rank: SortKey,
        gates: PreEnqueueGates,
        hints: QueueingHintMap,
        listed: PodLister,
        object_store: ObjectStore | None = None,
        options: QueueOptions | None = None,
    ) -> None:
        """rank: sort key of the active queue. listed: latest known version of a pod by key.
        object_store: provides the namespaces whose labels pod affinity reads."""
        self.options = options or QueueOptions()
        self.active = KeyedHeap(rank)
        self.backoff = BackoffQueue(self.options, rank)
        self.unschedulable_pods = UnschedulablePods()
        self.in_flight = InFlightPods()
        self.nominator = Nominator(listed)
        self.hints = hints if self.options.hints else hints.always()
        self.gates = gates
        gates.preempting.on_discard = self.unschedulable_pods.victims_gone
        self._uses_hints = self.options.hints
        self.cycle, self.move_request_cycle = 0, -1
        self.discarded: list[PodRecord] = []
        self.unschedulable_index: UnschedulableIndex | None = None
        self._cause: ArrivalCause = ""
        self._arrivals: dict[ArrivalCause, list[int]] = {}
        self._counts = [0] * len(_COUNTED)
        self._object_store = ObjectStore() if object_store is None else object_store
        self._max_unschedulable = seconds_to_ns(self.options.unschedulable_limit_s)

    @classmethod
    def of(
        cls,
        frameworks: Mapping[str, Framework],
        listed: PodLister,
        object_store: ObjectStore | None = None,
        options: QueueOptions | None = None,
        others: Iterable[str] = (),
    ) -> SchedulingQueue:
        """The queue of the given profiles, which share one QueueSort.

        object_store: the live one; from now on the profiles' gates and hints read it. others: names
        of rejecters that are not plugins (extenders).
        """
        for framework in frameworks.values():
            framework.shared.object_store = (
                framework.shared.object_store if object_store is None else object_store
            )
        arrives = options is not None and options.by_arrival
        rank = by_arrival if arrives else queue_sort_key(next(iter(frameworks.values())))
        hints = QueueingHintMap.of(frameworks, others)
        return cls(rank, PreEnqueueGates.of(frameworks), hints, listed, object_store, options)

    def take_faults(self) -> list[tuple[Pod, str]]:
        """Return and clear the contract violations of PreEnqueue plugins and hints: (pod, message).

        A pod whose PreEnqueue plugin fails is kept out of the queue.
        """
        faults = [*self.gates.faults, *self.hints.faults]
        self.gates.faults.clear()
        self.hints.faults.clear()
        return faults

    # Reads.

    def __len__(self) -> int:
        """Number of pods in the queue, without those in flight."""
        return len(self.active) + len(self.backoff) + len(self.unschedulable_pods)

    def __iter__(self) -> Iterator[PodRecord]:
        """All entries in the queue."""
        return chain(self.active, self.backoff, self.unschedulable_pods)

    def get(self, key: str) -> PodRecord | None:
        """The entry of a pod in the queue, by `NAMESPACE/NAME`."""
        return self.active.get(key) or self.backoff.get(key) or self.unschedulable_pods.get(key)

    def place_of(self, key: str) -> SubQueue | None:
        """The sub-queue of a pod, None when it is not in the queue."""
        if key in self.active or key in self.backoff:
            return SubQueue.ACTIVE if key in self.active else SubQueue.BACKOFF
        if (entry := self.unschedulable_pods.get(key)) is None:
            return None
        return SubQueue.GATED if entry.gated_by else SubQueue.UNSCHEDULABLE

    # Pod events.

    def add(self, pod: Pod, now: int) -> bool:
        """Add a pending pod; True when it went to the active queue.

        Replaces an entry of the same key, except that a gated pod does not replace an entry in the
        active or backoff queue.
        """
        return self.enter(PodRecord.of(pod, now), now)

    def enter(self, entry: PodRecord, now: int) -> bool:
        """Same as `add`, for callers that keep the record."""
        pod = entry.pod
        if self._cause is not UNSCHEDULABLE_POD_ADD:
            self._set_arrival_cause(UNSCHEDULABLE_POD_ADD)
        ready = self._activate(entry, now)
        if ready and (pod.status.nominated_node_name or len(self.nominator)):
            self.nominator.nominate(pod)
        return ready

    def enter_all(self, entries: Sequence[PodRecord], now: int) -> None:
        """Add new pods that no gate concerns and that have no nomination."""
        for entry in entries:
            entry.initial_attempt, entry.state = now, _ACTIVE
        self.active.put_all(entries)
        self.count_new(SubQueue.ACTIVE, len(entries))

    def update(
        self, old: Pod, new: Pod, now: int, record: PodRecord | None = None
    ) -> tuple[ClusterEvent, ...]:
        """Update a pending pod and return the events that the update consists of.

        For a pod in flight the events are only recorded. An unschedulable pod may be requeued;
        elsewhere the new version replaces the old one. A pod that is in no sub-queue is added.
        record: that of such a pod; None makes one.
        """
        events, key = pod_update_events(old, new), old.key
        self._set_arrival_cause(UNSCHEDULABLE_POD_UPDATE)
        if self._uses_hints and new.uid in self.in_flight:
            for event in events:
                self.in_flight.note(event, old, new)
            return events
        holder = self.active if key in self.active else self.backoff
        entry = holder.get(key)
        if entry is not None:
            entry.pod = new
            holder.refresh(key)
            self.nominator.follow(old, new)
            return events
        entry = self.unschedulable_pods.get(new.key)
        if entry is not None:
            if self.unschedulable_index is not None:
                self.unschedulable_index.release(entry)
            self.unschedulable_pods.pod_changed(entry, new)
            self.nominator.follow(old, new)
            self._update_unschedulable(entry, old, events, now)
        elif self._activate(PodRecord.of(new, now) if record is None else record, now):
            self.nominator.nominate(new)
        return events

    def delete(self, pod: Pod) -> None:
        """Remove a deleted or bound pod. A pod in flight stays in flight until its attempt ends."""
        self.nominator.drop(pod.uid)
        key = pod.key
        _ = self.active.take(key) or self.backoff.take(key) or self.unschedulable_pods.take(key)

    # Scheduling attempts.

    def pop(self) -> PodRecord | None:
        """Pop the next pod and mark it in flight; None when no pod is ready.

        When the active queue is empty, pops the pod of the backoff queue whose backoff expires
        first, if it was rejected (not failed by an error).
        """
        if self.discarded:
            self.discarded = []
        while (entry := self.active.pop() or self._pop_from_backoff()) is not None:
            entry.attempts += 1
            if self._uses_hints and not self.in_flight.start(entry.pod.metadata.uid or entry.key):
                self.discarded.append(entry)
                continue
            self.cycle += 1
            entry.cycle = self.cycle
            entry.state = _IN_FLIGHT
            return entry
        return None

    def pop_unschedulable(self, entry: PodRecord) -> None:
        """Pop an unschedulable pod directly, with the same bookkeeping as `pop`."""
        self.unschedulable_pods.take(entry.key)
        entry.attempts += 1
        if self._uses_hints:
            self.in_flight.start(entry.pod.metadata.uid or entry.key)
        self.cycle += 1
        entry.cycle = self.cycle
        entry.state = _IN_FLIGHT

    def start_attempts(self, entries: Sequence[PodRecord]) -> int:
        """Mark entries that were taken from the active queue as popped, up to the first that is in
        flight already, which is discarded; returns how many."""
        n_popped = len(entries)
        if self._uses_hints:
            n_popped = self.in_flight.start_some(e.pod.metadata.uid or e.key for e in entries)
        for entry in entries[: n_popped + 1]:
            entry.attempts += 1
        for cycle, entry in enumerate(entries[:n_popped], self.cycle + 1):
            entry.cycle, entry.state = cycle, _IN_FLIGHT
        self.cycle += n_popped
        self.discarded = [*entries[n_popped : n_popped + 1]]
        return n_popped

    def try_again(self, entry: PodRecord, now: int) -> None:
        """Requeue an unschedulable pod, as an event that matches it would."""
        self.unschedulable_pods.take(entry.key)
        self._requeue(entry, QueueingStrategy.AFTER_BACKOFF, now)

    def _pop_from_backoff(self) -> PodRecord | None:
        if (entry := self.backoff.pop_before_expiry()) is not None:
            self._set_arrival_cause(POP_FROM_BACKOFF)
            self._counts[_TO_ACTIVE] += 1
        return entry

    def gate(self, entry: PodRecord) -> None:
        """Ask the gates about a pod of the active or backoff queue again."""
        if not self.gates.admits(entry):
            _ = self.active.take(entry.key) or self.backoff.take(entry.key)
            self._add_unschedulable(entry)

    def undo_pops(self, entries: Sequence[PodRecord]) -> None:
        """Undo the latest pops of active pods that were not attempted; entries are in pop order."""
        for entry in reversed(entries):
            entry.attempts -= 1
            self.cycle -= 1
            if self._uses_hints:
                self.in_flight.done(entry.uid)
            entry.state = _ACTIVE
            self.active.put_first(entry)
        self.move_request_cycle = min(self.move_request_cycle, self.cycle)

    @property
    def revision(self) -> tuple[int, int, int]:
        """Token that changes whenever pop order or the outcome of a pod in flight may."""
        return self.active.arrivals, self.in_flight.moment, self.move_request_cycle

    def done(self, uid: str) -> None:
        """End the attempt of a pod that will not be requeued."""
        self.in_flight.done(uid)

    def add_unschedulable_if_not_present(
        self,
        entry: PodRecord,
        now: int,
        *,
        refused_by: Iterable[str] = NO_PLUGINS,
        pending_on: Iterable[str] = NO_PLUGINS,
        pod: Pod | None = None,
        cycle: int | None = None,
    ) -> str:
        """Requeue a pod after a failed attempt; "" or the error text when it is in the queue
        already.

        refused_by, pending_on: plugins that rejected the pod; pending_on those that returned
        Pending. Both empty: the attempt ended with an error. pod: version to requeue. cycle: cycle
        in which the pod was popped, used without hints; default: that of the entry.
        """
        uid = entry.pod.uid
        self._set_arrival_cause(SCHEDULE_ATTEMPT_FAILURE)
        try:
            entry.refused_by = frozenset(refused_by)
            entry.pending_on = frozenset(pending_on)
            entry.pod = entry.pod if pod is None else pod
            place = self._present(entry.key)
            if place:
                return f"Pod {entry.key} is already present in {place}"
            # Without hints, errors and rejections are not distinguished.
            entry.count_failure(now, is_error=self._uses_hints and not entry.refusers)
            if self._uses_hints:
                missed = self.in_flight.since(uid) if uid in self.in_flight else None
                self._requeue(entry, strategy_after_flight(entry, self.hints, missed), now)
            elif self.move_request_cycle >= (entry.cycle if cycle is None else cycle):
                self._back_off(entry)
            else:
                self._add_unschedulable(entry)
            return ""
        finally:
            self.in_flight.done(uid)

    # Events of other objects.

    def move(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        now: int,
        only: Callable[[Pod], bool] | None = None,
    ) -> None:
        """Requeue the unschedulable pods that an event may make schedulable, and record it for pods
        in flight.

        old, new: object before and after the event, None where it did not or does not exist. only:
        restricts the unschedulable pods to look at; pods in flight are not restricted.
        """
        if self._uses_hints and not (self.hints.listeners(event) or event.is_wildcard):
            return
        if self.unschedulable_index is not None:
            if only is not None:
                self.unschedulable_index.settle()
            elif self.unschedulable_index.move(event, old, new, now):
                self.move_request_cycle = self.cycle
                return
        entries = self._candidates(event, old, new)
        if only is not None:
            entries = [entry for entry in entries if only(entry.pod)]
        self._move(entries, event, old, new, now)

    def assigned_pod_added(self, pod: Pod, now: int) -> None:
        """A bound pod was added: look only at pods that it may help on any node.

        Entry point of releases without hints; `move` with ASSIGNED_POD_ADD covers more.
        """
        if not self._uses_hints or self.hints.concern(ASSIGNED_POD_ADD):
            self._move(self._helped_by(pod), ASSIGNED_POD_ADD, None, pod, now)

    def assigned_pod_updated(self, old: Pod, new: Pod, event: ClusterEvent, now: int) -> None:
        """A bound pod was updated; as above, but a scale-down is moved for every pod."""
        if event_matches(_SCALE_DOWN, event):
            self.move(event, old, new, now)
        elif not self._uses_hints or self.hints.concern(event):
            self._move(self._helped_by(new), event, old, new, now)

    def activate(self, pods: Iterable[Pod], now: int) -> None:
        """Move pods to the active queue without backoff, on request of a plugin.

        PreEnqueue gates still apply. A pod in flight is retried when its attempt fails.
        """
        self._set_arrival_cause(FORCE_ACTIVATE)
        for pod in pods:
            entry = self.unschedulable_pods.take(pod.key)
            ask = entry is not None or not self.options.pops_from_backoff
            entry = entry or self.backoff.take(pod.key)
            if entry is not None and self._activate(entry, now, ask_gates=ask):
                continue
            if pod.uid in self.in_flight:
                self.in_flight.note(FORCE_ACTIVATE, None, pod)
            self.move_request_cycle = self.cycle

    # Timers.

    def flush_backoff(self, now: int) -> None:
        """Move pods whose backoff is over to the active queue; see `flush_backoff_s`."""
        self._set_arrival_cause(BACKOFF_COMPLETE)
        for entry in self.backoff.pop_over(now):
            self._activate(entry, now, ask_gates=not self.options.pops_from_backoff)

    def flush_unschedulable(self, now: int, at: int | None = None) -> None:
        """Requeue pods that were unschedulable for too long; see `flush_unschedulable_s`.

        at: when the flush was due; default: now.
        """
        moment = (now if at is None else at) - self._max_unschedulable
        since = self.unschedulable_pods.since
        if since is None or since >= moment:
            return
        if self.unschedulable_index is not None and self.unschedulable_index.flush(moment):
            return
        entries = self.unschedulable_pods.older_than(moment)
        for entry in entries:
            entry.flushed = True
        if entries:
            self._move(entries, UNSCHEDULABLE_TIMEOUT, None, None, now)

    def next_unschedulable_flush(self) -> int | None:
        """Earliest time at which `flush_unschedulable` can find a pod; None without unschedulable
        pods."""
        if not len(self.unschedulable_pods) or self.unschedulable_pods.since is None:
            return None
        return self.unschedulable_pods.since + self._max_unschedulable

    @property
    def incoming(self) -> dict[tuple[SubQueue, ArrivalCause], int]:
        """(sub-queue, cause) -> number of pods that entered it."""
        return {
            (place, cause): count
            for cause, counts in self._arrivals.items()
            for place, count in zip(_COUNTED, counts, strict=True)
            if count
        }

    # Internals.

    def _set_arrival_cause(self, cause: ArrivalCause) -> None:
        """Set the cause under which the next arrivals are counted."""
        if cause is not self._cause:
            self._cause = cause
            self._counts = self._arrivals.setdefault(cause, [0] * len(_COUNTED))

    def _present(self, key: str) -> str:
        """The sub-queue of a key as the "already present" error names it, "" when it is in none."""
        if key in self.unschedulable_pods.entries:
            return "unschedulable queue"
        if key in self.active.live:
            return "the active queue"
        return "the backoff queue" if key in self.backoff else ""

    def _candidates(self, event: ClusterEvent, old: Any, new: Any) -> list[PodRecord]:
        """Unschedulable entries that an event may move, in a fixed order."""
        if event.is_wildcard or not self._uses_hints:
            return list(self.unschedulable_pods)
        listeners, keys = self.hints.listeners(event), self.hints.keys(event)
        return self.unschedulable_pods.concerned(listeners, keys, old, new)

    def _move(
        self, entries: Sequence[PodRecord], event: ClusterEvent, old: Any, new: Any, now: int
    ) -> None:
        self._set_arrival_cause(event)
        opened = set(self.hints.listeners(event)) if entries else ()
        if self.gates.of_groups and len(entries) > 1:
            common = common_strategy(entries, self.hints, self.gates, event, (old, new))
            if common:
                self._open(entries, now)
            entries = entries if common is None else ()
        for entry in entries:
            gate = entry.gated_by
            if gate and (gate not in opened or self.gates.holds(entry)):
                continue
            queueing_strategy = self.hints.queueing_strategy(entry, event, old, new)
            if queueing_strategy is not QueueingStrategy.SKIP:
                self.unschedulable_pods.take(entry.key)
                self._requeue(entry, queueing_strategy, now, is_open=gate != "")
        self.move_request_cycle = self.cycle
        if self._uses_hints:
            self.in_flight.note(event, old, new)

    def _open(self, entries: Sequence[PodRecord], now: int) -> None:
        """Move gated entries, which have not failed, to the active queue."""
        self.unschedulable_pods.take_all(entries)
        for entry in entries:
            entry.gated_by, entry.state = "", _ACTIVE
            if entry.initial_attempt is None:
                entry.initial_attempt = now
        self.active.put_all(entries)
        self._counts[_TO_ACTIVE] += len(entries)

    def count_new(self, place: SubQueue, n_pods: int) -> None:
        """Count new pods that a caller has put into a sub-queue."""
        self._set_arrival_cause(UNSCHEDULABLE_POD_ADD)
        self._counts[_COUNTED.index(place)] += n_pods

    def _update_unschedulable(
        self, entry: PodRecord, old: Pod, events: Iterable[ClusterEvent], now: int
    ) -> None:
        """Apply the events in order until one of them requeues the pod.

        Differs: without pop from backoff the original continues when the pod is in backoff, and may
        then hold it twice.
        """
        if not self._uses_hints:
            if is_updated(old, entry.pod):
                self.unschedulable_pods.take(entry.key)
                if self._requeue(entry, QueueingStrategy.AFTER_BACKOFF, now) is SubQueue.ACTIVE:
                    self.nominator.nominate(entry.pod)
            return
        for event in events:
            queueing_strategy = self.hints.queueing_strategy(entry, event, old, entry.pod)
            if queueing_strategy is QueueingStrategy.SKIP:
                continue
            self.unschedulable_pods.take(entry.key)
            self._set_arrival_cause(event)
            place = self._requeue(entry, queueing_strategy, now)
            if place is SubQueue.ACTIVE and event == UNSCHEDULABLE_POD_UPDATE:
                self.nominator.nominate(entry.pod)
            if place is not SubQueue.GATED:
                return

    def _requeue(
        self, entry: PodRecord, strategy: QueueingStrategy, now: int, *, is_open: bool = False
    ) -> SubQueue:
        """Put an entry that is in no sub-queue into the one that the strategy calls for. is_open:
        the gate that kept it out was just found open."""
        if strategy is QueueingStrategy.SKIP:
            self._add_unschedulable(entry)
            return SubQueue.UNSCHEDULABLE
        if strategy is QueueingStrategy.AFTER_BACKOFF and self.backoff.is_waiting(entry, now):
            return self._back_off(entry, is_open=is_open)
        is_active = self._activate(entry, now, is_open=is_open)
        return SubQueue.ACTIVE if is_active else SubQueue.GATED

    def _back_off(self, entry: PodRecord, *, is_open: bool = False) -> SubQueue:
        """Move to the backoff queue. A pod can be popped from there, so its gates are checked
        now."""
        if self.options.pops_from_backoff and not self.gates.admits(entry, is_open=is_open):
            self._add_unschedulable(entry)
            return SubQueue.GATED
        entry.state = _BACKOFF
        self.backoff.put(entry)
        self._counts[_TO_BACKOFF] += 1
        return SubQueue.BACKOFF

    def _add_unschedulable(self, entry: PodRecord) -> None:
        entry.state = _GATED if entry.gated_by else _UNSCHEDULABLE
        waits = bool(self.gates.preempting) and self.gates.waits_for_victims(entry)
        self.unschedulable_pods.put(entry, waits_for_victims=waits)
        self._counts[_TO_UNSCHEDULABLE] += 1

    def _activate(
        self, entry: PodRecord, now: int, *, ask_gates: bool = True, is_open: bool = False
    ) -> bool:
        """Move to the active queue; False when a gate keeps the pod out. Replaces an entry of the
        same key. is_open: see `PreEnqueueGates.admits`."""
        if ask_gates and not self.gates.admits(entry, is_open=is_open):
            if (key := entry.key) not in self.active.live and key not in self.backoff:
                self._add_unschedulable(entry)
            return False
        if entry.initial_attempt is None:
            entry.initial_attempt = now
        if (key := entry.key) in self.unschedulable_pods.entries:
            self.unschedulable_pods.take(key)
        elif key in self.backoff:
            self.backoff.take(key)
        entry.state = _ACTIVE
        self.active.put(entry)
        self._counts[_TO_ACTIVE] += 1
        return True

    def _helped_by(self, pod: Pod) -> list[PodRecord]:
        plugins = self.hints.cross_node_plugins
        return helped_across_nodes(self.unschedulable_pods, pod, self._object_store, plugins)
