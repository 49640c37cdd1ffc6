"""Times that bindings carry onto pods, different for all pods of a node.

Device plugins serve the pods of a node in the order of these times. Two pods that are bound within
a second would otherwise have the same.
"""

from __future__ import annotations

from stowplan.messages.effects import Bind

UNITS_NS = {"s": 1_000_000_000, "ns": 1}


class BindingTimes:
    """The last time that each node was given, per unit."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}
        self._forgotten: dict[str, int] = {}

    def annotations(self, effect: Bind, wall_ns: int) -> dict[str, str]:
        """All annotations of a binding, with its times. wall_ns: nanoseconds since 1970."""
        if not effect.times:
            return effect.annotations
        found = dict(effect.annotations)
        for unit in sorted(set(effect.times.values())):
            now = wall_ns // UNITS_NS[unit]
            moment = max(now, self._last.get((effect.node, unit), -1) + 1)
            self._forget(unit, now)
            self._last[effect.node, unit] = moment
            found |= {name: str(moment) for name, own in effect.times.items() if own == unit}
        return found

    def _forget(self, unit: str, now: int) -> None:
        """Drop what is past, once for each moment."""
        if self._forgotten.get(unit) == now:
            return
        self._forgotten[unit] = now
        self._last = {key: at for key, at in self._last.items() if key[1] != unit or at >= now}
