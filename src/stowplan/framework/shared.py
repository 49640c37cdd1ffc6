"""What the plugins of all profiles of one scheduler share: who waits at Permit, who preempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stowplan.framework.status import OK, Status, unschedulable
from stowplan.objects.pod import Pod


class WaitingPod:
    """A pod that waits at Permit for the plugins in `deadlines` (plugin -> when its wait ends).

    verdict: None while it waits, then what became of it.
    """

    __slots__ = ("deadlines", "node_name", "pod", "verdict")

    def __init__(self, pod: Pod, node_name: str, deadlines: Mapping[str, int]) -> None:
        self.pod = pod
        self.node_name = node_name
        self.deadlines = dict(deadlines)
        self.verdict: Status | None = None

    def allow(self, plugin: str) -> None:
        """Let the pod go as far as `plugin` is concerned; it goes when all have."""
        self.deadlines.pop(plugin, None)
        if not self.deadlines and self.verdict is None:
            self.verdict = OK

    def reject(self, plugin: str, reason: str = "") -> None:
        """Send the pod back to the queue, refused by `plugin`."""
        if self.verdict is None:
            self.verdict = unschedulable(reason).by(plugin)


class WaitingPods:
    """The pods that wait at Permit, by uid. Any plugin may allow or reject any of them."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(tuple(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod of a uid, None when it does not wait."""
        return self._pods.get(uid)

    def add(self, waiting: WaitingPod) -> None:
        """A pod begins to wait."""
        self._pods[waiting.pod.uid] = waiting

    def drop(self, uid: str) -> None:
        """A pod waits no more."""
        self._pods.pop(uid, None)


class Shared:
    """waiting: at Permit. preempting: uids of pods whose victims are being evicted.

    to_activate: pods that plugins want tried at once; emptied after every attempt.
    """

    def __init__(self) -> None:
        self.waiting = WaitingPods()
        self.preempting: set[str] = set()
        self.to_activate: dict[str, Pod] = {}
