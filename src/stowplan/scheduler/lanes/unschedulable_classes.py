"""Unschedulable classes: retries of pods that only lack resources, counted class by class.

In an overloaded cluster every deletion retries all unschedulable pods, mostly to refuse them again.
What is recorded per attempt (number of refusals, time of the last one, order) is kept in arrays
here. An event is decided per class: hints once for one of its pods, and the refusal if no row fits.
Only pods of a class that may fit are attempted, in queue order.

The outcome for every pod is the same as with the queue and single attempts. But repeated refusals
are counted and not reported: no event and no status patch. So this is for simulations and enabled
only there (`SchedulerOptions.counts_repeats`).

In any other situation (pods in backoff, gates, nominations, changed nodes, plugins that read more
than the row) all pods are returned to the queue, which continues as if it had kept them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import Snapshot
from stowplan.framework.clusterevents import ClusterEvent
from stowplan.framework.deciders.decider import Decider, Decision, FitCheck, KernelPlacer, PodClass
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue import PodRecord, QueueingStrategy
from stowplan.queue.options import QueueOptions, seconds_to_ns
from stowplan.scheduler.context import SchedulerContext

GROUP, ADDED, SEQ, REFUSALS, REPEATS, DUE = range(6)
"""Rows of the ledger: the pod's group; time of the last refusal; sequence number of the last
refusal; number of refusals; how many of these were only counted; place of the event that retries
it, 0 for none: LISTENERS_MAX times its number, and the place of the plugin that listens to it."""

LISTENERS_MAX = 2**16

SKIP = QueueingStrategy.SKIP
SPAN_MAX = 2**40
DOUBLINGS = 63


class UnschedulableClass:
    """Unschedulable pods of one class, refused by the same plugins. entry: one of them."""

    def __init__(self, pod_class: PodClass, entry: PodRecord) -> None:
        self.pod_class = pod_class
        self.refusers = entry.refused_by
        self.entry = entry
        self.priority = entry.pod.priority


class UnschedulableClasses:
    """Unschedulable pods of one queue, grouped by class.

    on_repeats: called with an entry and the number of its refusals that were only counted.
    """

    def __init__(
        self,
        context: SchedulerContext,
        decider: Decider,
        attempt: Callable[[PodRecord, PodClass], None],
    ) -> None:
        """attempt: of a pod of a class, which is popped."""
        self.on_repeats: Callable[[PodRecord, int], None] = _ignore_repeats
        self.n_attempts = 0
        self._context = context
        self._queue = context.queue
        self._decider = decider
        self._attempt = attempt
        self._set_durations(context.queue.options)
        self._max_unschedulable = seconds_to_ns(context.queue.options.unschedulable_limit_s)
        self._next = 0
        # Pods that the queue keeps, by key: sequence number of their refusal.
        self._unadopted: dict[str, int] = {}
        self._reset()
        self._queue.unschedulable_index = self
        self._queue.unschedulable_pods.watcher = self

    def _set_durations(self, options: QueueOptions) -> None:
        initial, most = seconds_to_ns(options.initial_s), seconds_to_ns(options.max_s)
        self._waits: Ints = np.array(
            [0] + [min(initial << n, most) for n in range(DOUBLINGS)], dtype=np.int64
        )
        self._backs_off = most > 0
        self._backoff_max = most

    def use(self, decider: Decider, options: QueueOptions) -> None:
        """Go on with another decider and other backoff durations."""
        self.settle()
        self._decider = decider
        self._set_durations(options)

    def keep_classes(self) -> None:
        """Keep the classes of these pods from being forgotten as idle."""
        engine = self._decider.engine()
        if engine is not None:
            for group in self._groups:
                engine.class_of(group.entry.pod, group.pod_class.framework)

    def _reset(self) -> None:
        self._entries: list[PodRecord | None] = []
        self._slots: dict[str, int] = {}
        self._present: Ints | None = None
        self._ledger: Ints = np.zeros((6, 64), dtype=np.int64)
        self._groups: list[UnschedulableClass] = []
        self._places: dict[tuple[frozenset[str], tuple[str, ...]], int] = {}
        self._class_number_of_key: dict[tuple[PodClass, frozenset[str]], int] = {}
        # By group: table generation at which one of its pods was refused although rows fit.
        self._refused_at: Ints = np.zeros(0, dtype=np.int64)
        self._fit_check: FitCheck | None = None
        # What was found, and at which table generation.
        self._found: tuple[Bools, Bools] | None = None
        self._found_at = -1
        self._n_events = 0

    # Callbacks of the queue.

    def entered(self, entry: PodRecord) -> None:
        """A pod was added to the unschedulable pods."""
        self._next += 1
        self._unadopted[entry.key] = self._next

    def left(self, entry: PodRecord) -> None:
        """A pod was removed from the unschedulable pods."""
        slot = self._slots.pop(entry.key, None)
        self._present = None
        if slot is None:
            self._unadopted.pop(entry.key, None)
        else:
            self._write_back(slot, entry)

    def release(self, entry: PodRecord) -> None:
        """A pod is about to be moved or updated."""
        slot = self._slots.pop(entry.key, None)
        self._present = None
        if slot is not None:
            self._unadopted[entry.key] = int(self._ledger[SEQ, slot])
            self._write_back(slot, entry)

    def move(self, event: ClusterEvent, old: object, new: object, now: int) -> bool:
        """Mark the pods that an event retries; False if the queue has to handle the event."""
        hints, unschedulable_pods = self._queue.hints, self._queue.unschedulable_pods
        listeners = hints.listeners(event)
        if not event.is_wildcard and not unschedulable_pods.has_any(listeners):
            return False
        if event.is_wildcard or not self._is_queue_idle() or not self._adopt(frozenset(listeners)):
            self.settle()
            return False
        slots_in_use = self._used_slots()
        # An event that came before has retried the others.
        waiting = slots_in_use[self._ledger[DUE, slots_in_use] == 0]
        self._n_events += 1
        if not waiting.size:
            return True
        # The queue moves the pods of one plugin after those of another, in the order of listeners.
        places = np.full(len(self._groups), -1, dtype=np.int64)
        for number in np.unique(self._ledger[GROUP, waiting]).tolist():
            place = self._place_of(self._groups[number].refusers, listeners)
            if place < 0:
                continue
            entry = self._member(number, waiting)
            if hints.queueing_strategy(entry, event, old, new) is not SKIP:
                places[number] = place
        place_of = places[self._ledger[GROUP, waiting]]
        chosen = place_of >= 0
        due = self._n_events * LISTENERS_MAX + place_of[chosen]
        self._ledger[DUE, waiting[chosen]] = due
        return True

    def _place_of(self, refusers: frozenset[str], listeners: tuple[str, ...]) -> int:
        """Place of the first of the listeners that has refused a pod; -1 for none."""
        known = refusers, listeners
        place = self._places.get(known)
        if place is None:
            place = next((i for i, name in enumerate(listeners) if name in refusers), -1)
            self._places[known] = place
        return place

    def _member(self, number: int, slots: Ints) -> PodRecord:
        """A pod of a group that has some; others have left it, refused by other plugins or
        placed."""
        group = self._groups[number]
        slot = self._slots.get(group.entry.key)
        if slot is None or self._ledger[GROUP, slot] != number:
            group.entry = self._entry(int(slots[self._ledger[GROUP, slots] == number][0]))
        return group.entry

    def flush(self, moment: int) -> bool:
        """Mark the pods that have waited since before a time; False if the queue has to handle
        them."""
        if not self._slots:
            return False
        entries = self._queue.unschedulable_pods.entries
        if (
            any(entries[key].added_at < moment for key in self._unadopted)
            or not self._is_queue_idle()
        ):
            self.settle()
            return False
        slots_in_use = self._used_slots()
        added = self._ledger[ADDED, slots_in_use]
        oldest = [int(entries[key].added_at) for key in self._unadopted]
        # As set by the queue's own scan.
        self._queue.unschedulable_pods.since = min([int(added.min()), *oldest])
        chosen = (added < moment) & (self._ledger[DUE, slots_in_use] == 0)
        self._n_events += 1
        self._ledger[DUE, slots_in_use[chosen]] = self._n_events * LISTENERS_MAX
        return True

    def repeat_flushes(self, due: int, until: int, period: int, snapshot: Snapshot) -> bool:
        """Count the refusals of all unschedulable flushes before `until`, as if `flush` and `run`
        were called for each; False, with nothing done, where they may do more.

        due: when the next flush is due at the earliest, a multiple of `period`. Until then nothing
        else happens.
        """
        queue, limit = self._queue, self._max_unschedulable
        if not self._slots or self._backoff_max + SECOND > limit or not self._is_queue_idle():
            return False
        slots = self._used_slots()
        ledger = self._ledger
        entries = queue.unschedulable_pods.entries
        oldest = [int(entries[key].added_at) for key in self._unadopted]
        if any(added + limit < until for added in oldest) or (ledger[DUE, slots] > 0).any():
            return False
        if self._fit_check is None or not self._has_valid_fit_check(snapshot):
            return False
        fits, others = self._may_fit(snapshot)
        if (fits | others)[ledger[GROUP, slots]].any():
            return False
        first = np.maximum((ledger[ADDED, slots] + limit) // period * period + period, due)
        again = limit // period * period + period
        n_flushes = np.maximum((until - 1 - first) // again + 1, 0)
        last = first + (n_flushes - 1) * again
        flushed = n_flushes > 0
        # In the order of their last flushes; those that join others come before them.
        order = np.lexsort((ledger[SEQ, slots], n_flushes, last))
        order = order[flushed[order]]
        times = n_flushes[order]
        those = slots[order]
        self._next += 1
        ledger[SEQ, those] = np.arange(self._next, self._next + those.shape[0])
        self._next += those.shape[0]
        ledger[REFUSALS, those] += times
        ledger[REPEATS, those] += times
        ledger[ADDED, those] = last[order]
        queue.unschedulable_pods.since = min([int(ledger[ADDED, slots].min()), *oldest])
        return True

    def _is_queue_idle(self) -> bool:
        queue = self._queue
        return not (len(queue.active) or len(queue.backoff) or len(queue.in_flight))

    # Adopting and returning pods.

    def _adopt(self, listeners: frozenset[str]) -> bool:
        """Adopt the pods that the queue keeps; False if one of them listens to the event and cannot
        be adopted."""
        engine = self._decider.engine()
        entries = self._queue.unschedulable_pods.entries
        for key, seq in list(self._unadopted.items()):
            entry = entries[key]
            pod_class = None if engine is None else self._class_of(entry, engine)
            if pod_class is not None:
                self._adopt_pod(entry, pod_class, seq)
                del self._unadopted[key]
            elif entry.gated_by in listeners or entry.refusers & listeners or not entry.refusers:
                return False
        return True

    def _class_of(self, entry: PodRecord, engine: KernelPlacer) -> PodClass | None:
        """The class of a pod that only lacks resources; None for any other pod."""
        if entry.gated_by or entry.pending_on or entry.errors or not entry.refused_by:
            return None
        context, pod = self._context, entry.pod
        if pod.metadata.deletion_timestamp is not None or len(context.extenders):
            return None
        framework = context.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return None
        pod_class = engine.class_of(pod, framework)
        if (
            pod_class is None
            or pod_class.lacks_resources_by(context.cache.snapshot()) != entry.refused_by
        ):
            return None
        return pod_class

    def _adopt_pod(self, entry: PodRecord, pod_class: PodClass, seq: int) -> None:
        slot = len(self._entries)
        if slot == self._ledger.shape[1]:
            self._ledger = np.concatenate([self._ledger, np.zeros_like(self._ledger)], axis=1)
        group = self._group_number(pod_class, entry)
        self._entries.append(entry)
        self._slots[entry.key] = slot
        self._present = None
        self._ledger[:, slot] = group, int(entry.added_at), seq, entry.refusals, 0, 0

    def _group_number(self, pod_class: PodClass, entry: PodRecord) -> int:
        """The group of a pod."""
        known = (pod_class, entry.refused_by)
        group = self._class_number_of_key.get(known)
        if group is None:
            group = self._class_number_of_key[known] = len(self._groups)
            self._groups.append(UnschedulableClass(pod_class, entry))
            self._refused_at = np.append(self._refused_at, -1)
            self._fit_check = self._found = None
        return group

    def _write_back(self, slot: int, entry: PodRecord) -> None:
        _, added, _, refusals, repeats, _ = self._ledger[:, slot].tolist()
        entry.added_at, entry.refusals = added, refusals
        entry.attempts += repeats
        self._entries[slot] = None
        if repeats:
            self.on_repeats(entry, repeats)

    def _used_slots(self) -> Ints:
        """int64: slots in use."""
        if len(self._entries) > 2 * len(self._slots) + 64:
            kept = [slot for slot, entry in enumerate(self._entries) if entry is not None]
            self._ledger[:, : len(kept)] = self._ledger[:, kept]
            self._entries = [self._entries[slot] for slot in kept]
            self._slots = {e.key: i for i, e in enumerate(self._entries) if e is not None}
            self._present = None
        if self._present is None:
            self._present = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        return self._present

    def settle(self) -> None:
        """Return all pods to the queue and requeue those marked for a retry."""
        if not self._slots:
            return
        due = self._due(self._used_slots())
        tried = [self._entry(slot) for slot in due[self._order(due)].tolist()]
        places = dict(self._unadopted)
        for key, slot in self._slots.items():
            places[key] = int(self._ledger[SEQ, slot])
            self._write_back(slot, self._entry(slot))
        self._reset()
        self._unadopted = dict(sorted(places.items(), key=lambda item: item[1]))
        self._queue.unschedulable_pods.reorder(self._unadopted)
        for entry in tried:
            self._queue.try_again(entry, self._context.now)

    def _entry(self, slot: int) -> PodRecord:
        entry = self._entries[slot]
        assert entry is not None, slot
        return entry

    # Retries.

    def run(self, snapshot: Callable[[], Snapshot]) -> None:
        """Retry the marked pods. snapshot: returns the state for the next attempt."""
        if not self._slots:
            return
        slots = self._due(self._used_slots())
        if not slots.size:
            return
        if not self._is_queue_idle() or not self._has_valid_fit_check(snapshot()):
            self.settle()
            return
        fits, others = self._may_fit(snapshot())
        if not (fits | others)[self._ledger[GROUP, slots]].any():
            self._refuse_in_order(slots)
        else:
            self._retry(slots[self._order(slots)], fits, others, snapshot)

    def _due(self, slots: Ints) -> Ints:
        due: Ints = slots[self._ledger[DUE, slots] > 0]
        return due

    def _retry(
        self, slots: Ints, fits: Bools, others: Bools, snapshot: Callable[[], Snapshot]
    ) -> None:
        """Retry pods in this order; pods of classes that fit nowhere are refused without an
        attempt, by other plugins than before where the rows say so."""
        start = 0
        while True:
            groups = self._ledger[GROUP, slots]
            fitting = fits[groups[start:]]
            end = start + int(np.argmax(fitting)) if fitting.any() else slots.shape[0]
            if others[groups[start:end]].any():
                end = self._regroup(slots[start:end], others) + start
            self._refuse(slots[start:end])
            if end == slots.shape[0]:
                break
            self._attempt_one(self._entry(int(slots[end])), int(groups[end]), snapshot)
            start = end + 1
            if not self._is_queue_idle() or not self._has_valid_fit_check(snapshot()):
                # Something else comes first now; the queue handles the remaining pods.
                self.settle()
                return
            fits, others = self._may_fit(snapshot())

    def _regroup(self, slots: Ints, others: Bools) -> int:
        """Pods of these groups are refused by other plugins now, and belong to other groups.
        Returns how many slots come before one that has to be attempted for that."""
        assert self._fit_check is not None
        groups = self._ledger[GROUP, slots]
        refusers = {
            number: self._fit_check.refusers_of(number)
            for number in np.unique(groups).tolist()
            if others[number]
        }
        unknown = np.isin(groups, [number for number, names in refusers.items() if names is None])
        n_known = int(np.argmax(unknown)) if unknown.any() else slots.shape[0]
        for number, names in refusers.items():
            alike = slots[:n_known][groups[:n_known] == number]
            if names is None or not alike.size:
                continue
            for slot in alike.tolist():
                self._queue.unschedulable_pods.refuse_by(self._entry(slot), names)
            first = self._entry(int(alike[0]))
            pod_class = self._groups[number].pod_class
            self._ledger[GROUP, alike] = self._group_number(pod_class, first)
        return n_known

    def _attempt_one(self, entry: PodRecord, group: int, snapshot: Callable[[], Snapshot]) -> None:
        self.n_attempts += 1
        self._queue.pop_unschedulable(entry)
        self._attempt(entry, self._groups[group].pod_class)
        if entry.key in self._unadopted:
            self._refused_at[group] = snapshot().nodes.journal.generation

    def _refuse_in_order(self, slots: Ints) -> None:
        ledger = self._ledger
        events = ledger[DUE, slots]
        if (events != events[0]).any() or self._in_backoff(slots)[0].any():
            self._refuse(slots[self._order(slots)])
            return
        # Pods of one priority keep their relative order.
        first = int(ledger[SEQ, slots].min())
        span = int(ledger[SEQ, slots].max()) - first + 1
        if span > SPAN_MAX:
            self._refuse(slots[self._order(slots)])
            return
        ledger[SEQ, slots] += self._next + 1 - first
        self._next += span
        self._count(slots)

    def _refuse(self, slots: Ints) -> None:
        """Count a refusal for each, in this order."""
        self._ledger[SEQ, slots] = np.arange(self._next + 1, self._next + 1 + slots.shape[0])
        self._next += slots.shape[0]
        self._count(slots)

    def _count(self, slots: Ints) -> None:
        self._ledger[REFUSALS, slots] += 1
        self._ledger[REPEATS, slots] += 1
        self._ledger[ADDED, slots] = self._context.now
        self._ledger[DUE, slots] = 0

    def _in_backoff(self, slots: Ints) -> tuple[Bools, Ints]:
        """Which slots are still in backoff, and their backoff ends; see `queue.backoff`."""
        ends = self._ledger[ADDED, slots].copy()
        ends += self._waits[np.minimum(self._ledger[REFUSALS, slots], DOUBLINGS)]
        ends -= ends % SECOND
        now = self._context.now - self._context.now % SECOND
        return (ends >= now) & self._backs_off, ends

    def _order(self, slots: Ints) -> Ints:
        """Indexes into `slots`, in the queue's pop order."""
        waiting, ends = self._in_backoff(slots)
        ledger = self._ledger
        priorities = np.array([-group.priority for group in self._groups], dtype=np.int64)
        order: Ints = np.lexsort(
            (
                ledger[SEQ, slots],
                ledger[DUE, slots],
                ledger[ADDED, slots],
                priorities[ledger[GROUP, slots]],
                np.where(waiting, ends, 0),
                waiting,
            )
        )
        return order

    # Fit checks.

    def _has_valid_fit_check(self, snapshot: Snapshot) -> bool:
        """True while only pods and allocatable amounts of nodes have changed for these classes."""
        if not snapshot.nominations.is_empty:
            return False
        if self._fit_check is None:
            engine = self._decider.engine()
            if engine is not None:
                # In the order of the groups.
                self._fit_check = engine.fit_check([*self._class_number_of_key], snapshot)
            self._found = None
        return self._fit_check is not None and self._fit_check.hold(snapshot)

    def _may_fit(self, snapshot: Snapshot) -> tuple[Bools, Bools]:
        """Twice bool (n_groups,): groups of which a pod may fit on some node; groups that other
        plugins refuse than before."""
        journal = snapshot.nodes.journal
        generation = journal.generation
        if self._found is None or self._found_at != generation:
            assert self._fit_check is not None
            rows = None if self._found is None else journal.since(self._found_at)
            fits = self._fit_check.may_fit(rows)
            self._found = fits, self._fit_check.other_refusers()
            self._found_at = generation
        fits, others = self._found
        # Pods are not attempted twice in one state of the nodes.
        fits = fits & (self._refused_at != generation)
        return fits, others & ~fits

    def latest(self, snapshot: Snapshot) -> Iterator[tuple[PodRecord, Decision]]:
        """Yield pods whose last refusal was only counted, with the decision of an attempt now."""
        for group_number, group in enumerate(self._groups):
            slots = [
                slot
                for slot in self._slots.values()
                if self._ledger[GROUP, slot] == group_number and self._ledger[REPEATS, slot]
            ]
            if slots:
                framework = group.pod_class.framework
                decision = self._decider.decide(group.entry.pod, snapshot, framework, 0)
                yield from ((self._entry(slot), decision) for slot in slots)


def _ignore_repeats(entry: PodRecord, n_repeats: int) -> None:
    """Default of `on_repeats`."""
