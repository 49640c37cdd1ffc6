"""Queue order cases: pending pods; the answer is the order in which the queue pops them.

A case is one JSON object: `queue`, pods with the second at which each was `added`, and optionally
the body of a KubeSchedulerConfiguration as `profile`, whose queueSort plugin sorts. A case without
a profile is a recorded one of Yoda: `yoda` sorts, with `compat: true`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from stowplan.assembly import frameworks_for
from stowplan.conformance.case_lines import case_configuration, case_reader
from stowplan.framework import QueuedPod
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod

YODA = {
    "profiles": [
        {
            "plugins": {
                "multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": "yoda"}, {"name": "DefaultBinder"}],
                }
            },
            "pluginConfig": [{"name": "yoda", "args": {"compat": True}}],
        }
    ]
}


class OrderCasePod(Value, frozen=True, gc=True):
    """A pod of the queue. added: time in seconds."""

    pod: Pod
    added: float = 0.0


class OrderCase(Value, frozen=True, gc=True):
    """One case."""

    id: str
    queue: tuple[OrderCasePod, ...]
    profile: dict[str, Any] | None = None


read_case = case_reader(OrderCase)


def answer(case: OrderCase, *, plugins: Sequence[type[Any]] = ()) -> dict[str, Any]:
    """Pod names in pop order; equal pods keep their order. Raises ConfigError and ContractError."""
    tree = YODA if case.profile is None else case.profile
    configuration, full = case_configuration(tree, case.id, plugins)
    # All profiles of a configuration have the same queueSort plugin.
    framework = next(iter(frameworks_for(configuration, full).values()))

    def compared(first: QueuedPod, second: QueuedPod) -> int:
        return framework.less(second, first) - framework.less(first, second)

    queue = [QueuedPod(waiting.pod, waiting.added) for waiting in case.queue]
    ordered = sorted(queue, key=framework.sort_key() or cmp_to_key(compared))
    return {"order": [queued.pod.name for queued in ordered]}
