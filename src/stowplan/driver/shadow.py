"""Shadow: decides beside the cluster's own scheduler and writes nothing.

It remembers where each pod would have gone, and compares as the watch shows what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.extender import Verb
from stowplan.objects.pod import Pod

KEPT_MAX = 100_000
FORBIDDEN = 403
_WHY = "a dry run writes nothing"


class Opinion(msgspec.Struct, frozen=True):
    """What was decided for a pod. node: "" where none would take it, then `why`."""

    key: str
    node: str
    why: str = ""


class Difference(msgspec.Struct, frozen=True):
    """Where the two do not agree. ours, theirs: nodes, "" for none."""

    pod: str
    ours: str
    theirs: str
    why: str = ""


class Shadow:
    """counts: same, other node, theirs only, ours only. differences: the latest of them first."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.n_evictions = 0
        self.on_difference: Callable[[Difference], None] = _nothing
        self._tell = tell
        self._opinions: dict[str, Opinion] = {}

    def take(self, effect: Effect) -> bool:
        """Note what an effect says, and tell the machine what it has to hear; False for effects
        that write nothing and are to be carried out."""
        match effect:
            case to_do.ReadPod():
                return False
            case to_do.CallExtender() if effect.question.verb is not Verb.BIND:
                return False
            case to_do.Bind():
                key = f"{effect.namespace}/{effect.name}"
                self._think(effect.uid, Opinion(key, effect.node))
                self._tell(happened.BindDone(effect.effect, effect.uid))
            case to_do.PatchStatus():
                if effect.reason:
                    key = f"{effect.namespace}/{effect.name}"
                    self._think(effect.uid, Opinion(key, "", effect.message))
            case to_do.Evict():
                self.n_evictions += 1
                refused = happened.EvictFailed(effect.effect, effect.uid, FORBIDDEN, _WHY)
                self._tell(refused)
            case to_do.Write():
                version = effect.value.metadata.resource_version
                self._tell(happened.WriteDone(effect.effect, effect.uid, version))
            case to_do.Prepare():
                self._tell(happened.PrepareDone(effect.effect, effect.uid))
            case to_do.CallExtender():
                self._tell(happened.ExtenderFailed(effect.effect, effect.uid, _WHY))
            case _:
                pass
        return True

    def _think(self, uid: str, opinion: Opinion) -> None:
        self._opinions[uid] = opinion
        if len(self._opinions) > KEPT_MAX:
            del self._opinions[next(iter(self._opinions))]

    def seen(self, events: Iterable[Event]) -> None:
        """What the cluster shows."""
        for event in events:
            if isinstance(event, happened.PodAdded | happened.PodUpdated):
                if event.pod.spec.node_name and event.pod.uid in self._opinions:
                    self._compare(event.pod, self._opinions.pop(event.pod.uid))
            elif isinstance(event, happened.PodDeleted):
                self._opinions.pop(event.pod.uid, None)

    def _compare(self, pod: Pod, opinion: Opinion) -> None:
        theirs = pod.spec.node_name
        if opinion.node == theirs:
            self.counts["same"] += 1
            return
        self.counts["other node" if opinion.node else "theirs only"] += 1
        self._differ(Difference(opinion.key, opinion.node, theirs, opinion.why))

    def _differ(self, difference: Difference) -> None:
        self.differences.append(difference)
        del self.differences[:-1000]
        self.on_difference(difference)

    def ours_only(self) -> list[Opinion]:
        """Pods that have a node here and none in the cluster, so far."""
        return [opinion for opinion in self._opinions.values() if opinion.node]


def _nothing(difference: Difference) -> None:
    """Nobody wants to know."""
