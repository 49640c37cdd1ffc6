"""MeasuredLoad: the load of nodes that plugins read, by annotations of the node.

Differs: Volcano asks Prometheus or Elasticsearch, as the section `metrics` of its file says. Here
the numbers are written to the nodes, by an exporter or in the files of a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

CPU_USAGE, MEMORY_USAGE = "stowplan.dev/usage-cpu", "stowplan.dev/usage-memory"
"""Annotations of a node: percent in use, as the mean over some minutes."""
MEASURED_AT = "stowplan.dev/usage-time"
"""Annotation of a node: time of the measurement in RFC 3339; without it, it is always recent."""
RECENT_S = 300.0


class MeasuredLoad(msgspec.Struct, frozen=True):
    """Percent in use. is_recent: False if nothing was measured, or too long ago."""

    cpu: float = 0.0
    memory: float = 0.0
    is_recent: bool = False

    @classmethod
    def of(cls, annotations: Mapping[str, str], now: float) -> MeasuredLoad:
        """The load that annotations state. now: seconds since 1970."""
        cpu, memory = (_number(annotations.get(key)) for key in (CPU_USAGE, MEMORY_USAGE))
        if cpu is None and memory is None:
            return cls()
        at = _seconds(annotations.get(MEASURED_AT), now)
        return cls(cpu or 0.0, memory or 0.0, at is not None and now - at <= RECENT_S)


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0.0 <= found < float("inf") else None


def _seconds(text: str | None, default: float) -> float | None:
    if text is None:
        return default
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
