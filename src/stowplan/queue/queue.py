"""SchedulingQueue: which pending pod is tried next, and when a pod that failed is tried again.

A pod that is wanted scheduled is always in exactly one place:

    active      ready; `pop` takes the first by priority, then by time of arrival
    in flight   popped and being attempted, until `done` or `put_back`
    backoff     failed a moment ago; waits 1 s, 2 s, 4 s ... 10 s, so that nobody is tried in a loop
    parked      refused, and nothing has happened yet that could help it; or gated, which means
                that a PreEnqueue plugin does not let it in at all

Whatever changes in the cluster comes in through `move`. The plugins that refused a parked pod say
whether this change may help it (`hints`); if so it goes to backoff, or to active when it has
waited enough. What changes while a pod is in flight is kept and judged when the pod comes back.
A pod that nothing helps is tried again after five minutes anyway (`flush_leftover`).

Before hints existed two numbers did this work: `cycle` counts pops, and `move_cycle` is the cycle
in which the last change arrived. A pod that fails although something has changed since it was
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

from stowplan.columns.podterms import terms_of
from stowplan.framework.clusterevents import (
    ASSIGNED_POD_ADD,
    FORCE_ACTIVATE,
    POD,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    matches,
    pod_changes,
)
from stowplan.framework.runtime import Framework
from stowplan.framework.world import World
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace
from stowplan.queue.backoff import Backoff
from stowplan.queue.entry import NOBODY, QueueEntry
from stowplan.queue.gates import Gates
from stowplan.queue.heap import KeyedHeap, Rank
from stowplan.queue.hints import Hints, Worth
from stowplan.queue.inflight import InFlight
from stowplan.queue.nominator import Listed, Nominator
from stowplan.queue.options import QueueOptions, in_ns
from stowplan.queue.order import by_arrival, rank_of
from stowplan.queue.parked import Parked
from stowplan.queue.standing import Standing

CROSS_NODE_PLUGIN = "PodTopologySpread"
"""A refusal of this plugin may be turned by any bound pod of the namespace."""

Cause = ClusterEvent | str
"""What brings a pod to a place: an event, or one of these."""
ATTEMPT_FAILED, BACKOFF_OVER = "ScheduleAttemptFailure", "BackoffComplete"
POPPED_EARLY = "PopFromBackoffQ"

_SCALE_DOWN = ClusterEvent(POD, Action.UPDATE_POD_SCALE_DOWN)


class Place(Enum):
    """Where a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    PARKED = "parked"
    GATED = "gated"


_COUNTED = (Place.ACTIVE, Place.BACKOFF, Place.PARKED)
_TO_ACTIVE, _TO_BACKOFF, _TO_PARKED = range(3)


class SchedulingQueue:
    """The pods that wait for a node.

    active, backoff, parked, in_flight, nominator: the places, to read. cycle: pops so far.
    move_cycle: the cycle at the time of the last change that concerned anybody, at first -1.
    discarded: what the last `pop` threw away, because a pod of that uid was in flight already.
    """

    def __init__(
        self,
        rank: Rank,
        gates: Gates,
        hints: Hints,
        listed: Listed,
        world: World | None = None,
        options: QueueOptions | None = None,
    ) -> None:
        """rank: the order of active. listed: the newest known version of a pod by key. world: has
        the namespaces whose labels pod affinity reads."""
        self.options = options or QueueOptions()
        self.active = KeyedHeap(rank)
        self.backoff = Backoff(self.options, rank)
        self.parked = Parked()
        self.in_flight = InFlight()
        self.nominator = Nominator(listed)
        self.hints = hints if self.options.hints else hints.always()
        self._tracks = self.options.hints
        self.cycle = 0
        self.move_cycle = -1
        self.discarded: list[QueueEntry] = []
        self.standing: Standing | None = None
        self._cause: Cause = ""
        self._arrivals: dict[Cause, list[int]] = {}
        self._counts = [0] * len(_COUNTED)
        self._gates = gates
        self._world = World() if world is None else world
        self._max_parked = in_ns(self.options.parked_s)

    @classmethod
    def of(
        cls,
        frameworks: Mapping[str, Framework],
        listed: Listed,
        world: World | None = None,
        options: QueueOptions | None = None,
        others: Iterable[str] = (),
    ) -> SchedulingQueue:
        """The queue of the given profiles, which all sort alike.

        world: the live one; the gates and hints of their plugins read it from now on. others: who
        refuses pods beside plugins.
        """
        for framework in frameworks.values():
            framework.shared.world = framework.shared.world if world is None else world
        arrives = options is not None and options.by_arrival
        rank = by_arrival if arrives else rank_of(next(iter(frameworks.values())))
        hints = Hints.of(frameworks, others)
        return cls(rank, Gates.of(frameworks), hints, listed, world, options)

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
        return len(self.active) + len(self.backoff) + len(self.parked)

    def __iter__(self) -> Iterator[QueueEntry]:
        """Every entry in the queue."""
        yield from self.active
        yield from self.backoff
        yield from self.parked

    def get(self, key: str) -> QueueEntry | None:
        """The entry of a pod in the queue, by `NAMESPACE/NAME`."""
        return self.active.get(key) or self.backoff.get(key) or self.parked.get(key)

    def place_of(self, key: str) -> Place | None:
        """Where in the queue a pod is, None when it is not."""
        if key in self.active:
            return Place.ACTIVE
        if key in self.backoff:
            return Place.BACKOFF
        entry = self.parked.get(key)
        if entry is None:
            return None
        return Place.GATED if entry.gated_by else Place.PARKED

    # Pods come, change and go.

    def add(self, pod: Pod, now: int) -> bool:
        """A pending pod is there; True when it is ready to be popped.

        An entry of the same key is replaced. But where the new one is gated and the old one is
        not parked, the old one stays as it is.
        """
        return self.enter(pod, pod.key, now)

    def enter(self, pod: Pod, key: str, now: int) -> bool:
        """As `add`, by somebody who has the pod's key at hand."""
        self._because(UNSCHEDULABLE_POD_ADD)
        ready = self._activate(QueueEntry(pod, now, key), now)
        if ready and (pod.status.nominated_node_name or len(self.nominator)):
            self.nominator.nominate(pod)
        return ready

    def update(self, old: Pod, new: Pod, now: int) -> tuple[ClusterEvent, ...]:
        """A pending pod has changed; returns what that amounts to.

        In flight it is only noted. A parked pod may leave by it; elsewhere the new version takes
        the place of the old. A pod that is not known is added.
        """
        events = pod_changes(old, new)
        self._because(UNSCHEDULABLE_POD_UPDATE)
        if self._tracks and new.uid in self.in_flight:
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
        entry = self.parked.get(new.key)
        if entry is not None:
            if self.standing is not None:
                self.standing.release(entry)
            entry.pod = new
            self.nominator.follow(old, new)
            self._update_parked(entry, old, events, now)
        elif self._activate(QueueEntry(new, now, new.key), now):
            self.nominator.nominate(new)
        return events

    def delete(self, pod: Pod) -> None:
        """A pod is gone, or bound. In flight it stays until its attempt has ended."""
        self.nominator.drop(pod.uid)
        key = pod.key
        _ = self.active.take(key) or self.backoff.take(key) or self.parked.take(key)

    # Attempts.

    def pop(self) -> QueueEntry | None:
        """The pod to be tried next, in flight from now on; None when none is ready.

        When nothing is active, a refused pod in backoff is tried before its time, the one whose
        wait ends first.
        """
        if self.discarded:
            self.discarded = []
        while (entry := self.active.pop() or self._pop_early()) is not None:
            entry.attempts += 1
            if self._tracks and not self.in_flight.start(entry.pod.metadata.uid or entry.key):
                self.discarded.append(entry)
                continue
            self.cycle += 1
            entry.cycle = self.cycle
            return entry
        return None

    def pop_parked(self, entry: QueueEntry) -> None:
        """Pop an unschedulable pod whose turn it is: as by way of the active ones."""
        self.parked.take(entry.key)
        entry.attempts += 1
        if self._tracks:
            self.in_flight.start(entry.pod.metadata.uid or entry.key)
        self.cycle += 1
        entry.cycle = self.cycle

    def try_again(self, entry: QueueEntry, now: int) -> None:
        """Let an unschedulable pod go where one goes that an event may help."""
        self.parked.take(entry.key)
        self._requeue(entry, Worth.AFTER_BACKOFF, now)

    def _pop_early(self) -> QueueEntry | None:
        entry = self.backoff.pop_early()
        if entry is not None:
            self._because(POPPED_EARLY)
            self._counts[_TO_ACTIVE] += 1
        return entry

    def take_back(self, entries: Sequence[QueueEntry]) -> None:
        """Pods that were popped last from the active ones, in this order, and have not been tried:
        as if they had not been popped."""
        for entry in reversed(entries):
            entry.attempts -= 1
            self.cycle -= 1
            if self._tracks:
                self.in_flight.done(entry.uid)
            self.active.put_first(entry)
        self.move_cycle = min(self.move_cycle, self.cycle)

    @property
    def stirs(self) -> tuple[int, int, int]:
        """Another one, while no pod is popped, after whatever may change which pod comes next, or
        what becomes of one in flight."""
        return self.active.arrivals, self.in_flight.moment, self.move_cycle

    def done(self, uid: str) -> None:
        """The attempt needs the queue no more: the pod will not come back as refused."""
        self.in_flight.done(uid)

    def put_back(
        self,
        entry: QueueEntry,
        now: int,
        *,
        refused_by: Iterable[str] = NOBODY,
        pending_on: Iterable[str] = NOBODY,
        pod: Pod | None = None,
        cycle: int | None = None,
    ) -> str:
        """An attempt has failed; "" or why the pod is not taken back (it is in the queue already).

        refused_by, pending_on: the plugins that refused the pod, pending_on those that answered
        Pending; none of either means an error. pod: the version to go on with. cycle: in which
        the pod was popped, for the mode without hints; its own if not given.
        """
        uid = entry.pod.uid
        self._because(ATTEMPT_FAILED)
        try:
            entry.refused_by = frozenset(refused_by)
            entry.pending_on = frozenset(pending_on)
            entry.pod = entry.pod if pod is None else pod
            place = self._present(entry.key)
            if place:
                return f"Pod {entry.key} is already present in {place}"
            self._count_failure(entry, now)
            if self._tracks:
                self._requeue(entry, self._worth_of_flight(entry, uid), now)
            elif self.move_cycle >= (entry.cycle if cycle is None else cycle):
                self._back_off(entry)
            else:
                self._park(entry)
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
        if self._tracks and not self.hints.concern(event):
            return
        if self.standing is not None:
            if only is not None:
                self.standing.settle()
            elif self.standing.move(event, old, new, now):
                self.move_cycle = self.cycle
                return
        entries = self._candidates(event)
        if only is not None:
            entries = [entry for entry in entries if only(entry.pod)]
        self._move(entries, event, old, new, now)

    def assigned_pod_added(self, pod: Pod, now: int) -> None:
        """A bound pod is there: only pods are looked at that it may help across nodes.

        The older entry point; since hints decide, `move` with ASSIGNED_POD_ADD does more.
        """
        if not self._tracks or self.hints.concern(ASSIGNED_POD_ADD):
            self._move(self._across_nodes(pod), ASSIGNED_POD_ADD, None, pod, now)

    def assigned_pod_updated(self, old: Pod, new: Pod, event: ClusterEvent, now: int) -> None:
        """A bound pod has changed; as above, but smaller requests may help every pod."""
        if matches(_SCALE_DOWN, event):
            self.move(event, old, new, now)
        elif not self._tracks or self.hints.concern(event):
            self._move(self._across_nodes(new), event, old, new, now)

    def activate(self, pods: Iterable[Pod], now: int) -> None:
        """A plugin wants these pods tried at once, without backoff.

        Gates are asked all the same. A pod in flight is tried again when it comes back.
        """
        self._because(FORCE_ACTIVATE)
        for pod in pods:
            entry = self.parked.take(pod.key)
            ask = entry is not None or not self.options.pops_early
            entry = entry or self.backoff.take(pod.key)
            if entry is not None and self._activate(entry, now, ask_gates=ask):
                continue
            if pod.uid in self.in_flight:
                self.in_flight.note(FORCE_ACTIVATE, None, pod)
            self.move_cycle = self.cycle

    # What time brings.

    def flush_backoff(self, now: int) -> None:
        """Pods that have waited out their backoff become active; see `flush_backoff_s`."""
        self._because(BACKOFF_OVER)
        for entry in self.backoff.pop_over(now):
            self._activate(entry, now, ask_gates=not self.options.pops_early)

    def flush_leftover(self, now: int, at: int | None = None) -> None:
        """Pods parked for too long are tried again; see `flush_leftover_s`. at: when that was asked
        for, now by default."""
        moment = (now if at is None else at) - self._max_parked
        since = self.parked.since
        if since is None or since >= moment:
            return
        if self.standing is not None and self.standing.flush(moment):
            return
        entries = self.parked.older_than(moment)
        for entry in entries:
            entry.flushed = True
        if entries:
            self._move(entries, UNSCHEDULABLE_TIMEOUT, None, None, now)

    def next_leftover(self) -> int | None:
        """Before this moment no pod has been parked for too long; None while none is parked."""
        if not len(self.parked) or self.parked.since is None:
            return None
        return self.parked.since + self._max_parked

    @property
    def incoming(self) -> dict[tuple[Place, Cause], int]:
        """(place, cause) -> how many pods have come there by it."""
        return {
            (place, cause): count
            for cause, counts in self._arrivals.items()
            for place, count in zip(_COUNTED, counts, strict=True)
            if count
        }

    # Inside.

    def _because(self, cause: Cause) -> None:
        """What comes next is counted under this cause."""
        if cause is not self._cause:
            self._cause = cause
            self._counts = self._arrivals.setdefault(cause, [0] * len(_COUNTED))

    def _present(self, key: str) -> str:
        """Where a key is, in the words of the error that says so; "" where it is not."""
        if key in self.parked.entries:
            return "unschedulable queue"
        if key in self.active.live:
            return "the active queue"
        return "the backoff queue" if key in self.backoff else ""

    def _count_failure(self, entry: QueueEntry, now: int) -> None:
        # Before hints the queue did not tell errors from refusals.
        if entry.refusers or not self._tracks:
            entry.refusals += 1
            entry.errors = 0
        else:
            entry.errors += 1
        entry.added_at = now
        entry.flushed = False

    def _worth_of_flight(self, entry: QueueEntry, uid: str) -> Worth:
        """What all that has happened while the pod was in flight means for it."""
        if not entry.refusers or uid not in self.in_flight:
            return Worth.AFTER_BACKOFF
        enough = Worth.AT_ONCE if entry.pending_on else Worth.AFTER_BACKOFF
        worth = Worth.NOTHING
        for happening in self.in_flight.since(uid):
            found = self.hints.worth(entry, happening.event, happening.old, happening.new)
            worth = max(worth, found)
            if worth >= enough:
                break
        return worth

    def _candidates(self, event: ClusterEvent) -> list[QueueEntry]:
        """The parked entries that an event may move, in a fixed order."""
        if event.is_wildcard or not self._tracks:
            return list(self.parked)
        return self.parked.refused_by(self.hints.listeners(event))

    def _move(
        self, entries: Iterable[QueueEntry], event: ClusterEvent, old: Any, new: Any, now: int
    ) -> None:
        opened = set(self.hints.listeners(event))
        self._because(event)
        for entry in entries:
            gate = entry.gated_by
            if gate and (gate not in opened or self._gates.holds(entry)):
                continue
            worth = self.hints.worth(entry, event, old, new)
            if worth is not Worth.NOTHING:
                self.parked.take(entry.key)
                self._requeue(entry, worth, now)
        self.move_cycle = self.cycle
        if self._tracks:
            self.in_flight.note(event, old, new)

    def _update_parked(
        self, entry: QueueEntry, old: Pod, events: Iterable[ClusterEvent], now: int
    ) -> None:
        """Let each event decide in turn until the pod has left.

        Differs: without pop from backoff the original goes on when the pod is in backoff, and may
        then hold it twice.
        """
        if not self._tracks:
            if is_updated(old, entry.pod):
                self.parked.take(entry.key)
                if self._requeue(entry, Worth.AFTER_BACKOFF, now) is Place.ACTIVE:
                    self.nominator.nominate(entry.pod)
            return
        for event in events:
            worth = self.hints.worth(entry, event, old, entry.pod)
            if worth is Worth.NOTHING:
                continue
            self.parked.take(entry.key)
            self._because(event)
            place = self._requeue(entry, worth, now)
            if place is Place.ACTIVE and event == UNSCHEDULABLE_POD_UPDATE:
                self.nominator.nominate(entry.pod)
            if place is not Place.GATED:
                return

    def _requeue(self, entry: QueueEntry, worth: Worth, now: int) -> Place:
        """Put an entry that is nowhere where it belongs."""
        if worth is Worth.NOTHING:
            self._park(entry)
            return Place.PARKED
        if worth is Worth.AFTER_BACKOFF and self.backoff.is_waiting(entry, now):
            return self._back_off(entry)
        return Place.ACTIVE if self._activate(entry, now) else Place.GATED

    def _back_off(self, entry: QueueEntry) -> Place:
        """Into backoff. A pod may be popped from there, so its gates are asked now."""
        if self.options.pops_early and not self._gates.lets_in(entry):
            self._park(entry)
            return Place.GATED
        self.backoff.put(entry)
        self._counts[_TO_BACKOFF] += 1
        return Place.BACKOFF

    def _park(self, entry: QueueEntry) -> None:
        self.parked.put(entry)
        self._counts[_TO_PARKED] += 1

    def _activate(self, entry: QueueEntry, now: int, *, ask_gates: bool = True) -> bool:
        """Into active, or among the gated; False for those. Replaces an entry of the same key."""
        key = entry.key
        if ask_gates and not self._gates.lets_in(entry):
            if key not in self.active and key not in self.backoff:
                self._park(entry)
            return False
        if entry.initial_attempt is None:
            entry.initial_attempt = now
        if key in self.parked.entries:
            self.parked.take(key)
        elif key in self.backoff:
            self.backoff.take(key)
        self.active.put(entry)
        self._counts[_TO_ACTIVE] += 1
        return True

    def _across_nodes(self, pod: Pod) -> list[QueueEntry]:
        """The parked entries that a bound pod may help wherever it is."""
        namespace = self._world.find(Namespace, pod.namespace)
        labels = {} if namespace is None else namespace.labels
        return [entry for entry in self.parked if _looks_across(entry, pod, labels)]


def _looks_across(entry: QueueEntry, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
    """True when topology spreading refused the entry, or it wants to be near pods like `pod`."""
    if CROSS_NODE_PLUGIN in entry.refused_by and pod.namespace == entry.pod.namespace:
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
