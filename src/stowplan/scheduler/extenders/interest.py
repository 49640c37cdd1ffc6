"""Extenders: those of a machine, and which of them have a say about a pod."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.messages.extender_api import ExtenderVerb, HTTPExtender, in_call_order
from stowplan.objects.pod import Pod

_KEY = "Extenders"
_IN_ATTEMPTS = {ExtenderVerb.FILTER, ExtenderVerb.PRIORITIZE, ExtenderVerb.PREEMPT}

ExtenderTuple = tuple[HTTPExtender, ...]


class InterestedExtenders:
    """Every extender, in the order in which they are asked."""

    def __init__(self, extenders: Iterable[HTTPExtender] = ()) -> None:
        self.all: ExtenderTuple = in_call_order(tuple(extenders))

    def __len__(self) -> int:
        return len(self.all)

    def any_for(self, pod: Pod) -> bool:
        """True when some extender has to be asked about a pod before it is bound."""
        asked, binder = self._about(pod)
        return bool(asked) or binder is not None

    def for_attempt(self, pod: Pod) -> ExtenderTuple:
        """Those that are asked in an attempt of the pod."""
        return self._about(pod)[0]

    def binder_of(self, pod: Pod) -> HTTPExtender | None:
        """Who binds the pod in place of the plugins."""
        return self._about(pod)[1] if self.all else None

    def _about(self, pod: Pod) -> tuple[ExtenderTuple, HTTPExtender | None]:
        # Pods of one template share their spec, so what it means is kept there.
        kept = pod.spec.__dict__.get(_KEY)
        if kept is not None and kept[0] is self:
            found: tuple[ExtenderTuple, HTTPExtender | None] = kept[1]
            return found
        interested = [one for one in self.all if one.is_interested(pod)]
        asked = tuple(one for one in interested if not _IN_ATTEMPTS.isdisjoint(one.verbs))
        binder = next((one for one in interested if ExtenderVerb.BIND in one.verbs), None)
        pod.spec.__dict__[_KEY] = self, (asked, binder)
        return asked, binder
