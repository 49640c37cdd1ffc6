"""Kernel placement: consecutive queued pods with known pod classes are placed by one kernel call.

The result for each pod is the same as if it were decided alone. A run therefore ends where the next
choice may depend on something between two pods: before a pod that must be decided alone, and when
the active queue is empty, since a refused pod may then be retried before waiting pods.
"""

from __future__ import annotations

from collections.abc import Callable
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
        self, context: SchedulerContext, bindings: BindingCycles, attempt: Attempt, refuse: Refuse
    ) -> None:
        self._context = context
        self._bindings = bindings
        self._attempt = attempt
        self._refuse = refuse

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
    ) -> int:
        """Place or refuse the pods of a run; returns how many were handled. snapshot: returns the
        current state for the next attempt.

        If an attempt changes the queue's order, the rest of the run is returned to the queue.
        """
        queue = self._context.queue
        tie_breaks = TieBreaks(entries, rng)
        run = engine.run([entry.pod for entry in entries], classes, tie_breaks.numbers)
        start, n_pods = 0, len(entries)
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
            revision = queue.revision
            if refusal is None:
                self._attempt(entries[start], tie_breaks.of(start))
            else:
                self._refuse(entries[start], refusal)
            start += 1
            if start < n_pods and queue.revision != revision:
                queue.undo_pops(entries[start:])
                break
        tie_breaks.settle(start)
        return start

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
