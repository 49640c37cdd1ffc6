"""BatchOptions: the block `batch`, named as the flags of kube-batch and Volcano."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from stowplan.config.strict_decoder import format_alternatives, format_value
from stowplan.framework.problems import Problem, did_you_mean
from stowplan.objects.encoding import duration

BIND_FAILURE_POLICIES = ("Keep", "Release")


class BatchOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The block of options, named as the flags of kube-batch and Volcano; the last two are
    Stowplan's.

    Only one of scheduler_name and scheduler_names may be set.
    """

    scheduler_name: str | None = None
    scheduler_names: tuple[str, ...] | None = None
    schedule_period: timedelta = timedelta(seconds=1)
    default_queue: str = "default"
    priority_class: bool = True
    bind_failures: int = 5
    bind_failure_policy: str = "Keep"

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems that types do not cover."""
        for name, text in (
            ("schedulerName", self.scheduler_name),
            ("defaultQueue", self.default_queue),
        ):
            if text == "":
                yield Problem(f"{path}.{name}", "''", "a name")
        yield from self._names_problems(path)
        if self.schedule_period <= timedelta(0):
            got = duration.render(self.schedule_period)
            yield Problem(f"{path}.schedulePeriod", got, "a duration above 0s")
        if self.bind_failures < 1:
            yield Problem(f"{path}.bindFailures", str(self.bind_failures), "1 or more")
        if self.bind_failure_policy not in BIND_FAILURE_POLICIES:
            got = repr(self.bind_failure_policy)
            yield Problem(
                f"{path}.bindFailurePolicy",
                got,
                format_alternatives(BIND_FAILURE_POLICIES),
                did_you_mean(self.bind_failure_policy, BIND_FAILURE_POLICIES),
            )

    def _names_problems(self, path: str) -> Iterator[Problem]:
        names = self.scheduler_names
        if names is None:
            return
        where = f"{path}.schedulerNames"
        if self.scheduler_name is not None:
            yield Problem(where, "schedulerName too", "schedulerName or schedulerNames")
        if not names or "" in names or len(set(names)) < len(names):
            yield Problem(where, format_value(list(names)), "names, each once")
