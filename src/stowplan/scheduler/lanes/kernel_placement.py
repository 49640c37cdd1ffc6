"""Kernel placement: consecutive queued pods with known pod classes are placed by one kernel call.

The result for each pod is the same as if it were decided alone. A run therefore ends where the next
choice may depend on something between two pods: before a pod that must be decided alone, and when
the active queue is empty, since a refused pod may then be retried before waiting pods.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from stowplan.columns.engine.tie_break import TieBreakSource
from stowplan.framework import Snapshot
from stowplan.framework.deciders.decider import Decision, KernelPlacer, KernelRun
from stowplan.queue import PodRecord
from stowplan.queue.pod_record import BindingCycle
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.tie_breaks import TieBreaks

AHEAD_MIN, AHEAD_GROWTH = 16, 8
"""Pods that are taken from the queue at first, and how many times as many after each time that all
of them have classes; the others go back to where they were."""

Attempt = Callable[[PodRecord, TieBreakSource], None]
"""Decides one pod alone and applies the decision."""

Refuse = Callable[[PodRecord, Decision], None]
"""Applies the refusal of a pod."""


class KernelPlacement:
    """Pops runs of pods from the queue and places them."""

    def __init__(
        self,
        context: SchedulerContext,
        bindings: BindingCycles,
        attempt: Attempt,
        refuse: Refuse,
        attempted: Callable[[PodRecord], None],
    ) -> None:
        """attempt, refuse: of one pod. attempted: is called with pods that would be attempted
        alone, and are decided together."""
        self._context = context
        self._bindings = bindings
        self._attempt = attempt
        self._refuse = refuse
        self._attempted = attempted

    def take(
        self, engine: KernelPlacer, n_max: int
    ) -> tuple[list[PodRecord], list[Any], PodRecord | None]:
        """Pop a run of at most `n_max` pods: their entries and classes. If the first pod must be
        decided alone, return it as the third value."""
        queue = self._context.queue
        first = queue.pop()
        classes = [] if first is None else self._classes_of([first], engine)
        if first is None or not classes:
            return [], [], first
        entries, n_ahead = [first], AHEAD_MIN
        while queue.active.live and len(entries) < n_max:
            n_items = min(n_ahead, n_max - len(entries))
            items, n_gone = queue.active.pop_items(n_items), 0
            try:
                ahead = [item[2] for item in items]
                found = self._classes_of(ahead, engine)
                n_popped = queue.start_attempts(ahead[: len(found)])
                # One that was in flight already is popped, and not attempted.
                n_gone = n_popped + len(queue.discarded)
            finally:
                # The others stay in the queue, also where a plugin has failed.
                queue.active.restore_all(items[n_gone:])
            entries += ahead[:n_popped]
            classes += found[:n_popped]
            if n_popped < n_items:
                break
            n_ahead *= AHEAD_GROWTH
        return entries, classes, None

    def _classes_of(self, entries: list[PodRecord], engine: KernelPlacer) -> list[Any]:
        """The classes of the first of these pods, up to one that must be decided alone."""
        context = self._context
        pods = [entry.pod for entry in entries]
        extenders = context.extenders if context.extenders.all else None
        for n_pods, pod in enumerate(pods):
            if (
                pod.metadata.deletion_timestamp is not None
                or (context.pod_groups is not None and pod.spec.scheduling_group is not None)
                or (extenders is not None and extenders.any_for(pod))
            ):
                del pods[n_pods:]
                break
        return engine.classes_of(pods, context.frameworks)

    def place(
        self,
        engine: KernelPlacer,
        entries: list[PodRecord],
        classes: list[Any],
        snapshot: Callable[[], Snapshot],
        rng: np.random.Generator | None,
        n_max: int = 1,
    ) -> int:
        """Place or refuse the pods of a run; returns how many were handled. snapshot: returns the
        current state for the next attempt. n_max: where pods are placed on the nodes that they are
        nominated to, as many may be handled, from the backoff queue as well.

        If an attempt changes the queue's order, the rest of the run is returned to the queue.
        """
        queue = self._context.queue
        tie_breaks = TieBreaks(entries, rng)
        run = engine.run([entry.pod for entry in entries], classes, tie_breaks.numbers)
        start, n_pods, may_plan = 0, len(entries), True
        while start < n_pods:
            now, refusal = snapshot(), None
            if now.nominations.is_empty:
                refusal = classes[start].refusal_in(now)
            if refusal is None and not classes[start].is_decided_alone(entries[start].pod, now):
                rows = run.place(start, now)
                self._bind(entries, classes, start, rows, run)
                start += len(rows)
                if start == n_pods:
                    break
            n_nominated, revision = 0, queue.revision
            if refusal is None:
                n_nominated = self._place_nominated(
                    engine, entries, classes, start, snapshot, tie_breaks, n_max
                )
            if n_nominated:
                start += n_nominated
                n_pods = len(entries)
            elif refusal is not None:
                self._refuse(entries[start], refusal)
                start += 1
            else:
                n_preempting = 0
                if may_plan:
                    n_preempting, may_plan = self._preempt_in_turn(entries, classes, start, now)
                if not n_preempting:
                    self._attempt(entries[start], tie_breaks.of(start))
                start += n_preempting or 1
            if start < n_pods and queue.revision != revision:
                queue.undo_pops(entries[start:])
                break
        tie_breaks.settle(start)
        return start

    def _place_nominated(
        self,
        engine: KernelPlacer,
        entries: list[PodRecord],
        classes: list[Any],
        start: int,
        snapshot: Callable[[], Snapshot],
        tie_breaks: TieBreaks,
        n_max: int,
    ) -> int:
        """Place pods from `start` on that are nominated to nodes, each there or, where others take
        it as well, on the best of these; returns how many. Where the active queue is empty, pods of
        the backoff queue that follow the run are added to it. See `place`."""
        now, queue, rows = snapshot(), self._context.queue, dict[int, int | None]()
        n_own, place, is_scored = len(entries), start, False
        while place < n_max:
            is_added = place == len(entries)
            if is_added and not self._add_next(engine, entries, classes):
                break
            entry, one, score = entries[place], classes[place], None
            # Where the pod before was scored, this one will mostly be as well.
            row = -1 if is_scored or one is None else one.nominated_row(entry.pod, now)
            # What is free on a row is compared before any of these pods is counted there.
            if one is not None and (row < 0 or row in rows):
                self._bind_nominated(entries, classes, place, rows, snapshot)
                draw = partial(tie_breaks.of_entry, entry, place)
                decision = one.nominated_decision(entry.pod, now, draw)
                row = -1 if decision is None else now.nodes.row(decision.node_name)
                score = None if decision is None else decision.score
            if row < 0:
                if is_added:
                    queue.undo_pops([entries.pop()])
                    classes.pop()
                break
            tie_breaks.of_entry(entry, place)
            rows[row], place, is_scored = score, place + 1, score is not None
            if is_scored:
                self._bind_nominated(entries, classes, place, rows, snapshot)
                if place < n_own:
                    # Others of the run may have to wait for pods that this one has woken.
                    break
        self._bind_nominated(entries, classes, place, rows, snapshot)
        return place - start

    def _add_next(self, engine: KernelPlacer, entries: list[PodRecord], classes: list[Any]) -> bool:
        """Add the next pod of the backoff queue, with its class, None where it must be decided
        alone; False without one, and where pods of the active queue come before it."""
        queue = self._context.queue
        entry = None if len(queue.active) else queue.pop()
        if entry is None:
            return False
        entries.append(entry)
        classes += self._classes_of([entry], engine) or [None]
        return True

    def _bind_nominated(
        self,
        entries: list[PodRecord],
        classes: list[Any],
        end: int,
        rows: dict[int, int | None],
        snapshot: Callable[[], Snapshot],
    ) -> None:
        """Bind the last pods before `end` to these rows, with their scores, which are cleared."""
        if not rows:
            return
        start, scores = end - len(rows), list(rows.values())
        cache, names = self._context.cache, self._context.cache.nodes.names
        for entry, row in zip(entries[start:end], rows, strict=True):
            self._attempted(entry)
            cache.assume(entry.pod, names[row])
            snapshot()
        self._bindings.begin_run(entries, classes, start, list(rows), scores, {})
        rows.clear()

    def _preempt_in_turn(
        self, entries: list[PodRecord], classes: list[Any], start: int, now: Snapshot
    ) -> tuple[int, bool]:
        """Apply decisions for pods from `start` on that preempt, as long as they hold: how many,
        and whether to ask for others in this run. now: the current state."""
        queue, pods = self._context.queue, self._context.pods
        revision, n_applied = queue.revision, 0
        left = classes[start].decide_in_turn(
            [entry.pod for entry in entries[start:]], classes[start:], now
        )
        for entry, decision in zip(entries[start:], left, strict=False):
            if pods.get(entry.key) is not entry.pod:
                return n_applied, False
            before = _marks(now)
            self._attempted(entry)
            self._refuse(entry, decision)
            n_applied += 1
            *others, n_nominations = before
            if _marks(now) != (*others, n_nominations + 1) or queue.revision != revision:
                # More has changed than the nomination of this pod.
                return n_applied, False
        return n_applied, True

    def _bind(
        self,
        entries: list[PodRecord],
        classes: list[Any],
        start: int,
        rows: list[int],
        run: KernelRun,
    ) -> None:
        """Begin the binding of placed pods in their order: at once, but for pods with claims."""
        first, end = start, start + len(rows)
        scores = run.scores[start:end].tolist()
        for place in (*sorted(place for place in run.states if start <= place < end), end):
            some = slice(first - start, place - start)
            if place > first:
                self._bindings.begin_run(
                    entries, classes, first, rows[some], scores[some], run.annotations
                )
            if place < end:
                framework, score = classes[place].framework, scores[place - start]
                node = self._context.cache.nodes.names[rows[place - start]]
                self._bindings.begin_placed(
                    entries[place], BindingCycle(node, framework, run.states[place], score)
                )
                self._bindings.apply_plugin_requests()
            first = place + 1


def _marks(now: Snapshot) -> tuple[int, ...]:
    """What changes with what decisions read; the number of changes of nominations stands last."""
    nodes = now.nodes
    return (*nodes.marks, nodes.shape, now.object_store.version, now.nominations.generation)
