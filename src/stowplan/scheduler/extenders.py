"""Extenders: those of a machine, and which of them have a say about a pod."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.objects.extender import Extender, Verb, in_order
from stowplan.objects.pod import Pod

_KEY = "Extenders"
_IN_ATTEMPTS = {Verb.FILTER, Verb.PRIORITIZE, Verb.PREEMPT}

Some = tuple[Extender, ...]


class Extenders:
    """Every extender, in the order in which they are asked."""

    def __init__(self, extenders: Iterable[Extender] = ()) -> None:
        self.all: Some = in_order(tuple(extenders))

    def __len__(self) -> int:
        return len(self.all)

    def concern(self, pod: Pod) -> bool:
        """True when some extender has to be asked about a pod before it is bound."""
        asked, binder = self._about(pod)
        return bool(asked) or binder is not None

    def asked_about(self, pod: Pod) -> Some:
        """Those that are asked in an attempt of the pod."""
        return self._about(pod)[0]

    def binder_of(self, pod: Pod) -> Extender | None:
        """Who binds the pod in place of the plugins."""
        return self._about(pod)[1] if self.all else None

    def _about(self, pod: Pod) -> tuple[Some, Extender | None]:
        # Pods of one template share their spec, so what it means is kept there.
        kept = pod.spec.__dict__.get(_KEY)
        if kept is not None and kept[0] is self:
            found: tuple[Some, Extender | None] = kept[1]
            return found
        interested = [one for one in self.all if one.is_interested(pod)]
        asked = tuple(one for one in interested if not _IN_ATTEMPTS.isdisjoint(one.verbs))
        binder = next((one for one in interested if Verb.BIND in one.verbs), None)
        pod.spec.__dict__[_KEY] = self, (asked, binder)
        return asked, binder
