"""Configured extenders, and which of them are interested in a pod."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.messages.extender_api import ExtenderVerb, HTTPExtender, in_call_order
from stowplan.objects.pod import Pod

_KEY = "Extenders"
_IN_ATTEMPTS = {ExtenderVerb.FILTER, ExtenderVerb.PRIORITIZE, ExtenderVerb.PREEMPT}

ExtenderTuple = tuple[HTTPExtender, ...]


class InterestedExtenders:
    """All extenders, in configuration order."""

    def __init__(self, extenders: Iterable[HTTPExtender] = ()) -> None:
        self.all: ExtenderTuple = in_call_order(tuple(extenders))

    def __len__(self) -> int:
        return len(self.all)

    def any_for(self, pod: Pod) -> bool:
        """True if some extender is interested in the pod."""
        asked, binder = self._about(pod)
        return bool(asked) or binder is not None

    def for_attempt(self, pod: Pod) -> ExtenderTuple:
        """Extenders called during the pod's scheduling cycle."""
        return self._about(pod)[0]

    def binder_of(self, pod: Pod) -> HTTPExtender | None:
        """The extender that binds the pod in place of Bind plugins, or None."""
        return self._about(pod)[1] if self.all else None

    def _about(self, pod: Pod) -> tuple[ExtenderTuple, HTTPExtender | None]:
        # Pods of one template share their spec, so the answer is cached on the spec.
        kept = pod.spec.__dict__.get(_KEY)
        if kept is not None and kept[0] is self:
            found: tuple[ExtenderTuple, HTTPExtender | None] = kept[1]
            return found
        interested = [one for one in self.all if one.is_interested(pod)]
        asked = tuple(one for one in interested if not _IN_ATTEMPTS.isdisjoint(one.verbs))
        binder = next((one for one in interested if ExtenderVerb.BIND in one.verbs), None)
        pod.spec.__dict__[_KEY] = self, (asked, binder)
        return asked, binder
