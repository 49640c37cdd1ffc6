"""SchedulingQueue: which pending pod is tried next, and when a pod that failed is tried again.

A pod that is wanted scheduled is always in exactly one place:

    active      ready; `pop` takes the first by priority, then by time of arrival
    in flight   popped and being attempted, until `done` or `add_unschedulable_if_not_present`
    backoff     failed a moment ago; waits 1 s, 2 s, 4 s ... 10 s, so that nobody is tried in a loop
    parked      refused, and nothing has happened yet that could help it; or gated, which means
                that a PreEnqueue plugin does not let it in at all

Whatever changes in the cluster comes in through `move`. The plugins that refused a parked pod say
whether this change may help it (`hints`); if so it goes to backoff, or to active when it has
waited enough. What changes while a pod is in flight is kept and judged when the pod comes back.
A pod that nothing helps is tried again after five minutes anyway (`flush_unschedulable`).

Before hints existed two numbers did this work: `cycle` counts pops, and `move_request_cycle` is the
cycle in which the last change arrived. A pod that fails although something has changed since it was
popped (move_cycle >= its cycle) goes to backoff, every other pod is parked. Both numbers are kept
in either mode; `QueueOptions(hints=False)` decides by them.

Nothing here waits, locks or reads a clock: every `now` is an argument in whole nanoseconds, from
any beginning that is a whole second, and the flushes are calls. `driver.blocking_queue` is the
same queue for threads.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go; without hints: v1.22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from stowplan.columns.pods.podterms import terms_of
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
from stowplan.objects.workload import Namespace
from stowplan.queue.backoff_queue import BackoffQueue
from stowplan.queue.entry import NO_PLUGINS, QueueEntry
from stowplan.queue.heap import KeyedHeap, SortKey
from stowplan.queue.in_flight_pods import InFlightPods
from stowplan.queue.nominator import Nominator, PodLister
from stowplan.queue.options import QueueOptions, seconds_to_ns
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.queue.queue_sort import by_arrival, queue_sort_key
from stowplan.queue.queueing_hints import QueueingHintMap, QueueingStrategy
from stowplan.queue.unschedulable_index import UnschedulableIndex
from stowplan.queue.unschedulable_pods import UnschedulablePods

ArrivalCause = ClusterEvent | str
"""What brings a pod to a place: an event, or one of these."""
SCHEDULE_ATTEMPT_FAILURE, BACKOFF_COMPLETE = "ScheduleAttemptFailure", "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"

_SCALE_DOWN = ClusterEvent(POD, Action.UPDATE_POD_SCALE_DOWN)


class SubQueue(Enum):
    """Where a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "parked"
    GATED = "gated"


_COUNTED = (SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE)
_TO_ACTIVE, _TO_BACKOFF, _TO_UNSCHEDULABLE = range(3)


class SchedulingQueue:
    """The pods that wait for a node.

    active, backoff, parked, in_flight, nominator: the places, to read. cycle: pops so far.
    move_cycle: the cycle at the time of the last change that concerned anybody, at first -1.
    discarded: what the last `pop` threw away, because a pod of that uid was in flight already.
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
        """rank: the order of active. listed: the newest known version of a pod by key. world: has
        the namespaces whose labels pod affinity reads."""
        self.options = options or QueueOptions()
        self.active = KeyedHeap(rank)
        self.backoff = BackoffQueue(self.options, rank)
        self.unschedulable_pods = UnschedulablePods()
        self.in_flight = InFlightPods()
        self.nominator = Nominator(listed)
        self.hints = hints if self.options.hints else hints.always()
        self._uses_hints = self.options.hints
        self.cycle = 0
        self.move_request_cycle = -1
        self.discarded: list[QueueEntry] = []
        self.unschedulable_index: UnschedulableIndex | None = None
        self._cause: ArrivalCause = ""
        self._arrivals: dict[ArrivalCause, list[int]] = {}
        self._counts = [0] * len(_COUNTED)
        self._gates = gates
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
        """The queue of the given profiles, which all sort alike.

        world: the live one; the gates and hints of their plugins read it from now on. others: who
        refuses pods beside plugins.
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
        """Pods about which a PreEnqueue plugin, which then keeps them out, or a hint broke its
        contract since the last time, and how."""
        faults = [*self._gates.faults, *self.hints.faults]
        self._gates.faults.clear()
        self.hints.faults.clear()
        return faults

    # Looking.

    def __len__(self) -> int:
        """How many pods are in the queue; those in flight are not."""
        return len(self.active) + len(self.backoff) + len(self.unschedulable_pods)

    def __iter__(self) -> Iterator[QueueEntry]:
        """Every entry in the queue."""
        yield from self.active
        yield from self.backoff
        yield from self.unschedulable_pods

    def get(self, key: str) -> QueueEntry | None:
        """The entry of a pod in the queue, by `NAMESPACE/NAME`."""
        return self.active.get(key) or self.backoff.get(key) or self.unschedulable_pods.get(key)

    def place_of(self, key: str) -> SubQueue | None:
        """Where in the queue a pod is, None when it is not."""
        if key in self.active:
            return SubQueue.ACTIVE
        if key in self.backoff:
            return SubQueue.BACKOFF
        entry = self.unschedulable_pods.get(key)
        if entry is None:
            return None
        return SubQueue.GATED if entry.gated_by else SubQueue.UNSCHEDULABLE

    # Pods come, change and go.

    def add(self, pod: Pod, now: int) -> bool:
        """A pending pod is there; True when it is ready to be popped.

        An entry of the same key is replaced. But where the new one is gated and the old one is
        not parked, the old one stays as it is.
        """
        return self.enter(pod, pod.key, now)

    def enter(self, pod: Pod, key: str, now: int) -> bool:
        """As `add`, by somebody who has the pod's key at hand."""
        self._set_arrival_cause(UNSCHEDULABLE_POD_ADD)
        ready = self._activate(QueueEntry(pod, now, key), now)
        if ready and (pod.status.nominated_node_name or len(self.nominator)):
            self.nominator.nominate(pod)
        return ready

    def update(self, old: Pod, new: Pod, now: int) -> tuple[ClusterEvent, ...]:
        """A pending pod has changed; returns what that amounts to.

        In flight it is only noted. A parked pod may leave by it; elsewhere the new version takes
        the place of the old. A pod that is not known is added.
        """
        events = pod_update_events(old, new)
        self._set_arrival_cause(UNSCHEDULABLE_POD_UPDATE)
        if self._uses_hints and new.uid in self.in_flight:
            for event in events:
                self.in_flight.note(event, old, new)
            return events
        key = old.key
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
            entry.pod = new
            self.nominator.follow(old, new)
            self._update_unschedulable(entry, old, events, now)
        elif self._activate(QueueEntry(new, now, new.key), now):
            self.nominator.nominate(new)
        return events

    def delete(self, pod: Pod) -> None:
        """A pod is gone, or bound. In flight it stays until its attempt has ended."""
        self.nominator.drop(pod.uid)
        key = pod.key
        _ = self.active.take(key) or self.backoff.take(key) or self.unschedulable_pods.take(key)

    # Attempts.

    def pop(self) -> QueueEntry | None:
        """The pod to be tried next, in flight from now on; None when none is ready.

        When nothing is active, a refused pod in backoff is tried before its time, the one whose
        wait ends first.
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
            return entry
        return None

    def pop_unschedulable(self, entry: QueueEntry) -> None:
        """Pop an unschedulable pod whose turn it is: as by way of the active ones."""
        self.unschedulable_pods.take(entry.key)
        entry.attempts += 1
        if self._uses_hints:
            self.in_flight.start(entry.pod.metadata.uid or entry.key)
        self.cycle += 1
        entry.cycle = self.cycle

    def try_again(self, entry: QueueEntry, now: int) -> None:
        """Let an unschedulable pod go where one goes that an event may help."""
        self.unschedulable_pods.take(entry.key)
        self._requeue(entry, QueueingStrategy.AFTER_BACKOFF, now)

    def _pop_from_backoff(self) -> QueueEntry | None:
        entry = self.backoff.pop_before_expiry()
        if entry is not None:
            self._set_arrival_cause(POP_FROM_BACKOFF)
            self._counts[_TO_ACTIVE] += 1
        return entry

    def undo_pops(self, entries: Sequence[QueueEntry]) -> None:
        """Pods that were popped last from the active ones, in this order, and have not been tried:
        as if they had not been popped."""
        for entry in reversed(entries):
            entry.attempts -= 1
            self.cycle -= 1
            if self._uses_hints:
                self.in_flight.done(entry.uid)
            self.active.put_first(entry)
        self.move_request_cycle = min(self.move_request_cycle, self.cycle)

    @property
    def revision(self) -> tuple[int, int, int]:
        """Another one, while no pod is popped, after whatever may change which pod comes next, or
        what becomes of one in flight."""
        return self.active.arrivals, self.in_flight.moment, self.move_request_cycle

    def done(self, uid: str) -> None:
        """The attempt needs the queue no more: the pod will not come back as refused."""
        self.in_flight.done(uid)

    def add_unschedulable_if_not_present(
        self,
        entry: QueueEntry,
        now: int,
        *,
        refused_by: Iterable[str] = NO_PLUGINS,
        pending_on: Iterable[str] = NO_PLUGINS,
        pod: Pod | None = None,
        cycle: int | None = None,
    ) -> str:
        """An attempt has failed; "" or why the pod is not taken back (it is in the queue already).

        refused_by, pending_on: the plugins that refused the pod, pending_on those that answered
        Pending; none of either means an error. pod: the version to go on with. cycle: in which
        the pod was popped, for the mode without hints; its own if not given.
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
            self._count_failure(entry, now)
            if self._uses_hints:
                self._requeue(entry, self._strategy_after_flight(entry, uid), now)
            elif self.move_request_cycle >= (entry.cycle if cycle is None else cycle):
                self._back_off(entry)
            else:
                self._add_unschedulable(entry)
            return ""
        finally:
            self.in_flight.done(uid)

    # What happens elsewhere.

    def move(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        now: int,
        only: Callable[[Pod], bool] | None = None,
    ) -> None:
        """Something has changed: parked pods that it may help leave, pods in flight remember it.

        old, new: the object before and after, None where there was or is none. only: which parked
        pods to look at; it does not hold for those in flight.
        """
        if self._uses_hints and not self.hints.concern(event):
            return
        if self.unschedulable_index is not None:
            if only is not None:
                self.unschedulable_index.settle()
            elif self.unschedulable_index.move(event, old, new, now):
                self.move_request_cycle = self.cycle
                return
        entries = self._candidates(event)
        if only is not None:
            entries = [entry for entry in entries if only(entry.pod)]
        self._move(entries, event, old, new, now)

    def assigned_pod_added(self, pod: Pod, now: int) -> None:
        """A bound pod is there: only pods are looked at that it may help across nodes.

        The older entry point; since hints decide, `move` with ASSIGNED_POD_ADD does more.
        """
        if not self._uses_hints or self.hints.concern(ASSIGNED_POD_ADD):
            self._move(self._across_nodes(pod), ASSIGNED_POD_ADD, None, pod, now)

    def assigned_pod_updated(self, old: Pod, new: Pod, event: ClusterEvent, now: int) -> None:
        """A bound pod has changed; as above, but smaller requests may help every pod."""
        if event_matches(_SCALE_DOWN, event):
            self.move(event, old, new, now)
        elif not self._uses_hints or self.hints.concern(event):
            self._move(self._across_nodes(new), event, old, new, now)

    def activate(self, pods: Iterable[Pod], now: int) -> None:
        """A plugin wants these pods tried at once, without backoff.

        Gates are asked all the same. A pod in flight is tried again when it comes back.
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

    # What time brings.

    def flush_backoff(self, now: int) -> None:
        """Pods that have waited out their backoff become active; see `flush_backoff_s`."""
        self._set_arrival_cause(BACKOFF_COMPLETE)
        for entry in self.backoff.pop_over(now):
            self._activate(entry, now, ask_gates=not self.options.pops_from_backoff)

    def flush_unschedulable(self, now: int, at: int | None = None) -> None:
        """Pods parked for too long are tried again; see `flush_unschedulable_s`. at: when that was
        asked for, now by default."""
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
        """Before this moment no pod has been parked for too long; None while none is parked."""
        if not len(self.unschedulable_pods) or self.unschedulable_pods.since is None:
            return None
        return self.unschedulable_pods.since + self._max_unschedulable

    @property
    def incoming(self) -> dict[tuple[SubQueue, ArrivalCause], int]:
        """(place, cause) -> how many pods have come there by it."""
        return {
            (place, cause): count
            for cause, counts in self._arrivals.items()
            for place, count in zip(_COUNTED, counts, strict=True)
            if count
        }

    # Inside.

    def _set_arrival_cause(self, cause: ArrivalCause) -> None:
        """What comes next is counted under this cause."""
        if cause is not self._cause:
            self._cause = cause
            self._counts = self._arrivals.setdefault(cause, [0] * len(_COUNTED))

    def _present(self, key: str) -> str:
        """Where a key is, in the words of the error that says so; "" where it is not."""
        if key in self.unschedulable_pods.entries:
            return "unschedulable queue"
        if key in self.active.live:
            return "the active queue"
        return "the backoff queue" if key in self.backoff else ""

    def _count_failure(self, entry: QueueEntry, now: int) -> None:
        # Before hints the queue did not tell errors from refusals.
        if entry.refusers or not self._uses_hints:
            entry.refusals += 1
            entry.errors = 0
        else:
            entry.errors += 1
        entry.added_at = now
        entry.flushed = False

    def _strategy_after_flight(self, entry: QueueEntry, uid: str) -> QueueingStrategy:
        """What all that has happened while the pod was in flight means for it."""
        if not entry.refusers or uid not in self.in_flight:
            return QueueingStrategy.AFTER_BACKOFF
        enough = (
            QueueingStrategy.IMMEDIATELY if entry.pending_on else QueueingStrategy.AFTER_BACKOFF
        )
        queueing_strategy = QueueingStrategy.SKIP
        for in_flight_event in self.in_flight.since(uid):
            found = self.hints.queueing_strategy(
                entry, in_flight_event.event, in_flight_event.old, in_flight_event.new
            )
            queueing_strategy = max(queueing_strategy, found)
            if queueing_strategy >= enough:
                break
        return queueing_strategy

    def _candidates(self, event: ClusterEvent) -> list[QueueEntry]:
        """The parked entries that an event may move, in a fixed order."""
        if event.is_wildcard or not self._uses_hints:
            return list(self.unschedulable_pods)
        return self.unschedulable_pods.refused_by(self.hints.listeners(event))

    def _move(
        self, entries: Iterable[QueueEntry], event: ClusterEvent, old: Any, new: Any, now: int
    ) -> None:
        opened = set(self.hints.listeners(event))
        self._set_arrival_cause(event)
        for entry in entries:
            gate = entry.gated_by
            if gate and (gate not in opened or self._gates.holds(entry)):
                continue
            queueing_strategy = self.hints.queueing_strategy(entry, event, old, new)
            if queueing_strategy is not QueueingStrategy.SKIP:
                self.unschedulable_pods.take(entry.key)
                self._requeue(entry, queueing_strategy, now)
        self.move_request_cycle = self.cycle
        if self._uses_hints:
            self.in_flight.note(event, old, new)

    def _update_unschedulable(
        self, entry: QueueEntry, old: Pod, events: Iterable[ClusterEvent], now: int
    ) -> None:
        """Let each event decide in turn until the pod has left.

        Differs: without pop from backoff the original goes on when the pod is in backoff, and may
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
        self, entry: QueueEntry, queueing_strategy: QueueingStrategy, now: int
    ) -> SubQueue:
        """Put an entry that is nowhere where it belongs."""
        if queueing_strategy is QueueingStrategy.SKIP:
            self._add_unschedulable(entry)
            return SubQueue.UNSCHEDULABLE
        if queueing_strategy is QueueingStrategy.AFTER_BACKOFF and self.backoff.is_waiting(
            entry, now
        ):
            return self._back_off(entry)
        return SubQueue.ACTIVE if self._activate(entry, now) else SubQueue.GATED

    def _back_off(self, entry: QueueEntry) -> SubQueue:
        """Into backoff. A pod may be popped from there, so its gates are asked now."""
        if self.options.pops_from_backoff and not self._gates.admits(entry):
            self._add_unschedulable(entry)
            return SubQueue.GATED
        self.backoff.put(entry)
        self._counts[_TO_BACKOFF] += 1
        return SubQueue.BACKOFF

    def _add_unschedulable(self, entry: QueueEntry) -> None:
        self.unschedulable_pods.put(entry)
        self._counts[_TO_UNSCHEDULABLE] += 1

    def _activate(self, entry: QueueEntry, now: int, *, ask_gates: bool = True) -> bool:
        """Into active, or among the gated; False for those. Replaces an entry of the same key."""
        key = entry.key
        if ask_gates and not self._gates.admits(entry):
            if key not in self.active and key not in self.backoff:
                self._add_unschedulable(entry)
            return False
        if entry.initial_attempt is None:
            entry.initial_attempt = now
        if key in self.unschedulable_pods.entries:
            self.unschedulable_pods.take(key)
        elif key in self.backoff:
            self.backoff.take(key)
        self.active.put(entry)
        self._counts[_TO_ACTIVE] += 1
        return True

    def _across_nodes(self, pod: Pod) -> list[QueueEntry]:
        """The parked entries that a bound pod may help wherever it is."""
        namespace = self._object_store.find(Namespace, pod.namespace)
        labels = {} if namespace is None else namespace.labels
        plugins = self.hints.cross_node_plugins
        return [one for one in self.unschedulable_pods if _is_cross_node(one, pod, labels, plugins)]


def _is_cross_node(
    entry: QueueEntry, pod: Pod, namespace_labels: Mapping[str, str], plugins: frozenset[str]
) -> bool:
    """True when a plugin that declares `cross_node` refused the entry, or the entry has required
    affinity to pods like `pod`. plugins: those that declare it."""
    if not plugins.isdisjoint(entry.refused_by) and pod.namespace == entry.pod.namespace:
        return True
    wanted = terms_of(entry.pod).required_affinity
    return any(weighted.term.matches(pod, namespace_labels) for weighted in wanted)


def is_updated(old: Pod, new: Pod) -> bool:
    """True when anything changed that could make a difference without hints: all but the status
    and the version; of the status the names of generated claims."""
    return (
        old.spec != new.spec
        or _without_version(old) != _without_version(new)
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
    )


def _without_version(pod: Pod) -> tuple[object, ...]:
    meta = pod.metadata
    return (
        meta.name,
        meta.namespace,
        meta.uid,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp,
    )
