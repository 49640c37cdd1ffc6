"""What the plugins of all profiles share: the world, who waits at Permit, who preempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stowplan.framework.object_store import ObjectStore
from stowplan.framework.status import OK, Status, error, unschedulable
from stowplan.objects.pod import Pod


class WaitingPod:
    """A pod that waits at Permit.

    pending: the plugins that have not allowed it yet -> how long it waits for each, in
    nanoseconds from `since`. verdict: None while it waits, then what became of it; the first
    one counts.
    """

    __slots__ = ("_settled", "node_name", "pending", "pod", "since", "verdict")

    def __init__(
        self,
        pod: Pod,
        node_name: str,
        since: int,
        pending: Mapping[str, int],
        settled: list[WaitingPod] | None = None,
    ) -> None:
        """settled: who has a verdict is added to it."""
        self.pod = pod
        self.node_name = node_name
        self.since = since
        self.pending = dict(pending)
        self.verdict: Status | None = None
        self._settled = [] if settled is None else settled

    @property
    def deadline(self) -> int:
        """When the first of its waits is over."""
        return self.since + min(self.pending.values())

    def late(self, now: int) -> str:
        """The plugin whose wait was over first, "" when none is over yet."""
        over = [(wait, name) for name, wait in self.pending.items() if self.since + wait <= now]
        return min(over, key=lambda one: one[0])[1] if over else ""

    def allow(self, plugin: str) -> None:
        """Let the pod go as far as `plugin` is concerned; it goes when all have."""
        self.pending.pop(plugin, None)
        if not self.pending:
            self._settle(OK)

    def reject(self, plugin: str, reason: str = "") -> bool:
        """Send the pod back to the queue, refused by `plugin`; False when it waits no more."""
        return self._settle(unschedulable(reason).by(plugin))

    def preempt(self, plugin: str, reason: str) -> bool:
        """Send the pod back to be tried again, as it was in the way; False as for `reject`."""
        return self._settle(error(reason).by(plugin))

    def _settle(self, verdict: Status) -> bool:
        if self.verdict is not None:
            return False
        self.verdict = verdict
        self._settled.append(self)
        return True


class WaitingPods:
    """The pods that wait at Permit, by uid. Any plugin may allow or reject any of them.

    settled: those that have got a verdict and have not been taken yet.
    """

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}
        self.settled: list[WaitingPod] = []

    def __iter__(self) -> Iterator[WaitingPod]:
        """In order of arrival."""
        return iter(tuple(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod of a uid, None when it does not wait."""
        return self._pods.get(uid)

    def add(self, pod: Pod, node_name: str, since: int, pending: Mapping[str, int]) -> WaitingPod:
        """A pod begins to wait for plugins, for each so many nanoseconds at most."""
        waiting = WaitingPod(pod, node_name, since, pending, self.settled)
        self._pods[pod.uid] = waiting
        return waiting

    def drop(self, uid: str) -> None:
        """A pod waits no more."""
        self._pods.pop(uid, None)

    def take_settled(self) -> list[WaitingPod]:
        """Those that have got a verdict since they were last asked for, in that order."""
        settled = [one for one in self.settled if self._pods.get(one.pod.uid) is one]
        self.settled.clear()
        for waiting in settled:
            self.drop(waiting.pod.uid)
        return settled


class HandleState:
    """waiting: at Permit. preempting: uids of pods that are held back while their victims go.

    to_activate: pods that are to be tried at once, by uid; emptied as soon as the plugin returns.
    world: the objects beside nodes and pods as they are now, for gates and hints, which are asked
    between attempts; in an attempt a plugin reads its snapshot's.
    """

    def __init__(self) -> None:
        self.waiting = WaitingPods()
        self.preempting: set[str] = set()
        self.to_activate: dict[str, Pod] = {}
        self.object_store = ObjectStore()

    @property
    def has_pending_requests(self) -> bool:
        """True when a plugin has asked for something that is to be seen to at once."""
        return bool(self.waiting.settled or self.to_activate)
