"""SchedulerOptions: settings of the scheduler that are not part of a profile."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stowplan.framework import Problem
from stowplan.queue import QueueOptions
from stowplan.queue.options import seconds_to_ns

KUBE_SCHEDULER_1_36 = "kube-scheduler-1.36"
"""The scheduler whose defects with pod groups can be reproduced."""


class SchedulerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Durations are in seconds; defaults are those of kube-scheduler 1.36.

    queue: backoff, flush periods and whether QueueingHints are used. assume_limit_s: time for the
    watch to confirm a binding that the API server accepted; None is unlimited. read_again_s: time
    until an unanswered read is repeated. work_timeout_s: timeout of plugin I/O that does not set
    its own (`perform_timeout_s`). heads_max: default for the number of pods decided per call.
    extender_waits_max: number of attempts that may wait for extenders at the same time; 1 keeps the
    original's order of decisions. counts_repeats: see `lanes.unschedulable_classes`. leads:
    whether the scheduler starts as the leader; otherwise it waits for LeaderElected. term:
    leadership term at the start.

    compat: KUBE_SCHEDULER_1_36 has pod groups scheduled with the defects of that release; "" mends
    them.

    Sessions: synced: whether all informers are synced at the start; otherwise sessions wait for
    Synced. resync_s: delay after a refused binding or eviction until the pod is read; it doubles
    with each consecutive refusal, up to resync_max_s. identity: of the process, part of session
    names. unix_offset_ns: Unix time minus the scheduler's clock; sessions compare it with the times
    of pods.
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
    unix_offset_ns: int = 0
    compat: str = ""

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield a problem for every option that is out of range."""
        yield from self.queue.problems(f"{path}.queue")
        if self.assume_limit_s is not None and not self.assume_limit_s >= 0:
            yield Problem(f"{path}.assume_limit_s", str(self.assume_limit_s), "0 or more")
        for name in ("read_again_s", "work_timeout_s", "resync_s", "resync_max_s"):
            if not seconds_to_ns(getattr(self, name)) > 0:
                yield Problem(f"{path}.{name}", str(getattr(self, name)), "more than 0")
        for name in ("heads_max", "extender_waits_max", "term"):
            if getattr(self, name) < 1:
                yield Problem(f"{path}.{name}", str(getattr(self, name)), "1 or more")
