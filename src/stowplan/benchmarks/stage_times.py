"""Stage times: timers around the parts of a scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stowplan.scheduler import Scheduler

REST = "rest"


class StageStopwatch:
    """Time spent in chosen methods, by label; nested calls count for the outermost one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running = False

    def watch(self, label: str, owner: Any, *methods: str) -> None:
        """Time these methods of an object, as far as it has them."""
        self.seconds.setdefault(label, 0.0)
        for name in methods:
            if hasattr(owner, name):
                setattr(owner, name, self._timed(label, getattr(owner, name)))

    def _timed(self, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if self._running:
                return method(*args, **named)
            self._running = True
            began = time.perf_counter()
            try:
                return method(*args, **named)
            finally:
                self.seconds[label] += time.perf_counter() - began
                self._running = False

        return call


def watch_stages(scheduler: Scheduler) -> StageStopwatch:
    """Timers on the parts of a scheduler."""
    watch = StageStopwatch()
    watch.watch("decision", scheduler.pod_lane.decider, "decide")
    watch.watch("decision", scheduler.pod_lane.decider.engine(), "class_of", "place")
    watch.watch(
        "queue",
        scheduler.queue,
        "add",
        "enter",
        "pop",
        "done",
        "add_unschedulable_if_not_present",
        "move",
        "update",
    )
    watch.watch("cache", scheduler.cache, "assume", "snapshot", "put_pod", "drop_pod", "put_node")
    # Includes their calls of the queue: binding cycles and refusals start here.
    watch.watch("effects", scheduler.bindings, "begin", "begin_placed", "begin_run")
    watch.watch("effects", scheduler._failure_handler, "attempt_failed")
    return watch


def stage_times(watch: StageStopwatch, total_s: float, n_units: int) -> dict[str, float]:
    """Microseconds per unit, by stage; `rest` is the remainder."""
    parts = {**watch.seconds, REST: total_s - sum(watch.seconds.values())}
    return {label: round(seconds / n_units * 1e6, 2) for label, seconds in parts.items()}
