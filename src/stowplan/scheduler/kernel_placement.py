"""Runs: pods of known classes that follow each other in the queue, placed at one go.

What becomes of each is what would have become of it alone. So a run ends where something may
happen between two pods that the choice for the second depends on: at a pod that has to be decided
for itself, and when the active queue is empty, since a refused pod may then be tried again before
others that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.engine.tie_break import TieBreakSource, draw_tie_break, draw_tie_breaks
from stowplan.framework import Snapshot
from stowplan.framework.deciders.decider import Decision, KernelPlacer
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext

NO_TIE_BREAKS: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

Attempt = Callable[[QueueEntry, TieBreakSource], None]
"""Decides one pod for itself, and sees to what follows from it."""

Refuse = Callable[[QueueEntry, Decision], None]
"""Sees to what follows from the refusal of a pod."""


class KernelPlacement:
    """Takes pods from the queue and places them."""

    def __init__(
        self, context: SchedulerContext, bindings: BindingCycles, attempt: Attempt, refuse: Refuse
    ) -> None:
        self._context = context
        self._bindings = bindings
        self._attempt = attempt
        self._refuse = refuse

    def take(
        self, engine: KernelPlacer, n_max: int
    ) -> tuple[list[QueueEntry], list[Any], QueueEntry | None]:
        """Pop a run of at most `n_max` pods: their entries and their classes; or, where the first
        pod has to be decided for itself, that one alone."""
        queue = self._context.queue
        active, pop = queue.active, queue.pop
        entries: list[QueueEntry] = []
        classes: list[Any] = []
        while len(entries) < n_max:
            # The next one stays where it is until it is known that it goes with the others.
            entry = active.peek() if entries else pop()
            one = None if entry is None else self._class_of(entry.pod, engine)
            if one is None or entry is None:
                return entries, classes, None if entries else entry
            if entries:
                popped = pop()
                if popped is not entry:
                    # It was in flight already, and another came up in its place.
                    queue.undo_pops([popped] if popped is not None else [])
                    return entries, classes, None
            entries.append(entry)
            classes.append(one)
        return entries, classes, None

    def _class_of(self, pod: Pod, engine: KernelPlacer) -> Any:
        context = self._context
        if pod.metadata.deletion_timestamp is not None:
            return None
        if len(context.extenders) and context.extenders.any_for(pod):
            return None
        return engine.class_of(pod, context.frameworks[pod.spec.scheduler_name])

    def place(
        self,
        engine: KernelPlacer,
        entries: list[QueueEntry],
        classes: list[Any],
        snapshot: Callable[[], Snapshot],
        rng: np.random.Generator | None,
    ) -> int:
        """See to the pods of a run; how many of them were. snapshot: gives the state as it is for
        the next attempt.

        Where an attempt stirs the queue, what comes next is for the queue to say: the rest of the
        run goes back.
        """
        queue = self._context.queue
        lots = TieBreaks(entries, rng)
        run = engine.run([entry.pod for entry in entries], classes, lots.numbers)
        start, n_pods = 0, len(entries)
        while start < n_pods:
            now, refusal = snapshot(), None
            if now.nominations.is_empty:
                refusal = classes[start].refusal_in(now)
                if refusal is None:
                    rows = run.place(start, now)
                    scores = run.scores[start : start + len(rows)].tolist()
                    self._bindings.begin_run(entries, classes, start, rows, scores)
                    start += len(rows)
                    if start == n_pods:
                        break
            revision = queue.revision
            if refusal is None:
                self._attempt(entries[start], lots.of(start))
            else:
                self._refuse(entries[start], refusal)
            start += 1
            if start < n_pods and queue.revision != revision:
                queue.undo_pops(entries[start:])
                break
        lots.settle(start)
        return start


class TieBreaks:
    """What breaks ties for the pods of a run. Each pod keeps the number of its first attempt, so
    that how often one is tried again changes nothing for others.

    numbers: uint64, one per entry; none where nothing is drawn.
    """

    __slots__ = ("_before", "_entries", "_new", "_rng", "numbers")

    def __init__(self, entries: list[QueueEntry], rng: np.random.Generator | None) -> None:
        self._entries = entries
        self._rng = rng
        self._new: list[int] = []
        self._before: Any = None
        self.numbers = NO_TIE_BREAKS
        if rng is None:
            return
        self._new = [i for i, entry in enumerate(entries) if entry.tie_break is None]
        self.numbers = np.array([entry.tie_break or 0 for entry in entries], dtype=np.uint64)
        if self._new:
            self._before = rng.bit_generator.state
            self.numbers[self._new] = draw_tie_breaks(rng, len(self._new))

    def of(self, place: int) -> int | None:
        """The number of an entry."""
        return None if self._rng is None else int(self.numbers[place])

    def settle(self, n_tried: int) -> None:
        """The first entries have been tried; what was drawn for the others goes back."""
        tried = [i for i in self._new if i < n_tried]
        for i in tried:
            self._entries[i].tie_break = int(self.numbers[i])
        if self._rng is not None and len(tried) < len(self._new):
            self._rng.bit_generator.state = self._before
            draw_tie_breaks(self._rng, len(tried))


def tie_break_of(entry: QueueEntry, rng: TieBreakSource) -> int | None:
    """What breaks ties for a pod that is decided for itself: see `TieBreaks`."""
    if rng is not None and entry.tie_break is None:
        entry.tie_break = draw_tie_break(rng)
    return entry.tie_break
