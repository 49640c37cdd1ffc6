"""Flags of KAI-Scheduler, as a SchedulingShard has them in `args`: which count here, and why others
do not.

Source: KAI-Scheduler, cmd/scheduler/app/options/options.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from stowplan.config.strict_decoder import Problems, child_path, format_value
from stowplan.framework.problems import did_you_mean
from stowplan.objects.encoding import duration

MOVED_MAX, STALENESS_GRACE, SIGNATURES = (
    "max-consolidation-preemptees",
    "default-staleness-grace-period",
    "use-scheduling-signatures",
)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

_OF_THE_PROCESS = (
    "be about its process, its log, its metrics or its requests: `run` has options of its own"
)
WITHOUT_EFFECT: Mapping[str, str] = {
    "scheduler-name": "say whose pods are decided: `batch.schedulerName` does here",
    "schedule-period": "set the time between cycles: `batch.schedulePeriod` does here",
    "detailed-fit-errors": "write reasons for each node: `explain` has them",
    "update-pod-eviction-condition": "write a condition on pods that are evicted",
    "resource-reservation-app-label": "find pods that reserve cards",
    **dict.fromkeys(
        (
            "namespace", "metrics-namespace", "scheduler-conf", "leader-elect", "version",
            "listen-address", "enable-profiler", "profiler-port", "pyroscope-address",
            "pyroscope-mutex-profiler-rate", "pyroscope-block-profiler-rate", "v", "log-json",
            "qps", "burst", "num-of-status-recording-workers", "plugin-server-port",
            "feature-gates",
        ),
        _OF_THE_PROCESS,
    ),
}  # fmt: skip
"""Flag that is read and has no effect here -> what it would do in KAI."""

ONLY: Mapping[str, str] = {
    "restrict-node-scheduling": "false",
    "partition-label-value": "",
    "nodepool-label-key": "kai.scheduler/node-pool",
    "queue-label-key": "kai.scheduler/queue",
    "schedule-csi-storage": "false",
    "full-hierarchy-fairness": "true",
    "allow-consolidating-reclaim": "true",
    "stuck-in-releasing-threshold": "2m",
    "cpu-worker-node-label-key": "node-role.kubernetes.io/cpu-worker",
    "gpu-worker-node-label-key": "node-role.kubernetes.io/gpu-worker",
    "mig-worker-node-label-key": "node-role.kubernetes.io/mig-enabled",
}
"""Flag -> the only value, its default, by which sessions decide here."""


def _number(text: str) -> int:
    return int(text)


def _seconds(text: str) -> float:
    return duration.parse(text) / timedelta(seconds=1)


def _boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


APPLIED: Mapping[str, tuple[Callable[[str], Any], str]] = {
    MOVED_MAX: (_number, "a whole number"),
    STALENESS_GRACE: (_seconds, "a duration such as 60s"),
    SIGNATURES: (_boolean, "true or false"),
}
"""Flag that counts here -> reader of its text, which raises ValueError, and what it is."""


def read_flags(
    tree: Any, path: str, problems: Problems, warn: Callable[[str, str, str], None]
) -> Mapping[str, Any]:
    """Flag -> value, of those that count. warn: (path, what, what it would do in KAI)."""
    found: dict[str, Any] = {}
    if not isinstance(tree, dict):
        problems.add(path, format_value(tree), "a mapping")
        return found
    for key, given in tree.items():
        name, place = str(key), child_path(path, str(key))
        text = str(given).lower() if isinstance(given, bool) else str(given)
        if name in APPLIED:
            read, wanted = APPLIED[name]
            try:
                found[name] = read(text)
            except ValueError:
                problems.add(place, format_value(given), wanted)
        elif name in WITHOUT_EFFECT:
            warn(place, "it", WITHOUT_EFFECT[name])
        elif name in ONLY:
            if not _is_same(text, ONLY[name]):
                wanted = f'"{ONLY[name]}", by which alone sessions decide here'
                problems.add(place, format_value(given), wanted)
        else:
            known = (*APPLIED, *ONLY, *WITHOUT_EFFECT)
            problems.add(place, "an unknown flag", "a flag of KAI", did_you_mean(name, known))
    return found


def _is_same(text: str, other: str) -> bool:
    if text == other:
        return True
    try:
        return _seconds(text) == _seconds(other)
    except ValueError:
        return text.lower() in _BOOLEANS and _BOOLEANS[text.lower()] == _BOOLEANS.get(other)
