"""MachineOptions: everything that can be chosen about a machine beside its profiles."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stowplan.framework import Problem
from stowplan.queue import QueueOptions
from stowplan.queue.options import seconds_to_ns


class SchedulerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations are in seconds; the defaults are those of kube-scheduler 1.36.

    queue: how long pods wait, and whether hints decide. assume_limit_s: how long the watch may take
    to confirm a binding that the API has taken; None for ever. read_again_s: how long a read may go
    unanswered before it is asked for again. work_timeout_s: how long a plugin may work outside that
    does not say (`perform_timeout_s`). heads_max: how many pods one call decides at most, where the
    caller does not say. extender_waits_max: how many attempts may wait for extenders at a time; 1
    keeps the original's order of decisions. counts_repeats: see `scheduler.standing`. leads:
    whether it decides from the start, else LeaderElected makes it. term: of leadership, at the
    start.

    Of sessions. synced: whether all there is has been shown from the start, else Synced says so.
    resync_s: how long after a binding or an eviction was refused the pod is read; each time in a
    row twice as long, at most resync_max_s. identity: of the process, in the names of sessions.
    """

    queue: QueueOptions = QueueOptions()
    assume_limit_s: float | None = None
    read_again_s: float = 10
    work_timeout_s: float = 600
    heads_max: int = 1000
    extender_waits_max: int = 1
    counts_repeats: bool = False
    leads: bool = True
    term: int = 1
    synced: bool = False
    resync_s: float = 0.005
    resync_max_s: float = 1000
    identity: str = "session"

    def problems(self, path: str) -> Iterator[Problem]:
        """What is out of range."""
        yield from self.queue.problems(f"{path}.queue")
        if self.assume_limit_s is not None and not self.assume_limit_s >= 0:
            yield Problem(f"{path}.assume_limit_s", str(self.assume_limit_s), "0 or more")
        for name in ("read_again_s", "work_timeout_s", "resync_s", "resync_max_s"):
            if not seconds_to_ns(getattr(self, name)) > 0:
                yield Problem(f"{path}.{name}", str(getattr(self, name)), "more than 0")
        for name in ("heads_max", "extender_waits_max", "term"):
            if getattr(self, name) < 1:
                yield Problem(f"{path}.{name}", str(getattr(self, name)), "1 or more")
