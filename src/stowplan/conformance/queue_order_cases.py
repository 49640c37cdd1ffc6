"""Queue orders in bulk: pods that wait in, the order in which a queue gives them out.

A case is one JSON object: `queue`, the pods each with the second in which it was `added`, and
optionally the body of a KubeSchedulerConfiguration as `profile`, whose queueSort plugin decides. A
case without a profile is a recorded one of Yoda's: `yoda` sorts, with `compat: true`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import msgspec

from stowplan import config
from stowplan.assembly import frameworks_for, registered
from stowplan.conformance.case_lines import WRAPPED
from stowplan.framework import QueuedPod
from stowplan.objects.encoding.json_codec import decode
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
    """A pod of the queue. added: seconds, when it was added."""

    pod: Pod
    added: float = 0.0


class OrderCase(Value, frozen=True, gc=True):
    """One question."""

    id: str
    queue: tuple[OrderCasePod, ...]
    profile: dict[str, Any] | None = None


class OrderLine(msgspec.Struct):
    """A line of input: a case under `case`, as in the recorded answers."""

    case: OrderCase


def read_case(line: bytes) -> OrderCase:
    """The case on a line; raises DecodeError."""
    if WRAPPED.search(line):
        return decode(line, OrderLine).case
    return decode(line, OrderCase)


def answer(case: OrderCase, *, plugins: Sequence[type[Any]] = ()) -> dict[str, Any]:
    """The names of the pods in the order in which they are popped; those that the queueSort plugin
    holds equal stay as they are. Raises ConfigError and ContractError."""
    tree = YODA if case.profile is None else case.profile
    full, defaults = registered(plugins, str(tree))
    configuration = config.from_tree(tree, case.id, full, defaults, body=True)
    # All profiles of a configuration sort alike.
    framework = next(iter(frameworks_for(configuration, full).values()))

    def compared(first: QueuedPod, second: QueuedPod) -> int:
        return framework.less(second, first) - framework.less(first, second)

    queue = [QueuedPod(waiting.pod, waiting.added) for waiting in case.queue]
    ordered = sorted(queue, key=framework.sort_key() or cmp_to_key(compared))
    return {"order": [queued.pod.name for queued in ordered]}
