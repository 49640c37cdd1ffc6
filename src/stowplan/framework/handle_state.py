"""State shared by the plugins of all profiles: waiting pods, preempting pods, objects."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping

from stowplan._deprecated import deprecated_property
from stowplan.framework.object_store import ObjectChange, ObjectStore
from stowplan.framework.pod_groups.pod_group_states import PodGroupStates
from stowplan.framework.status import OK, Status, error, unschedulable
from stowplan.objects.pod import Pod


class WaitingPod:
    """A pod that waits at Permit.

    pending: plugin that has not allowed it -> timeout in nanoseconds from `since`. verdict: None
    while it waits, then the final status; the first one counts.
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
        """settled: list to which the pod is appended when it gets a verdict."""
        self.pod = pod
        self.node_name = node_name
        self.since = since
        self.pending = dict(pending)
        self.verdict: Status | None = None
        self._settled = [] if settled is None else settled

    @property
    def deadline(self) -> int:
        """When the first timeout is over."""
        return self.since + min(self.pending.values())

    def late(self, now: int) -> str:
        """The plugin whose timeout was over first, "" when none is over."""
        over = [(wait, name) for name, wait in self.pending.items() if self.since + wait <= now]
        return min(over, key=lambda one: one[0])[1] if over else ""

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of `plugin`; it stops waiting when all plugins allowed it."""
        self.pending.pop(plugin, None)
        if not self.pending:
            self._settle(OK)

    def reject(self, plugin: str, reason: str = "") -> bool:
        """Reject the pod on behalf of `plugin`: it is requeued; False when it no longer waits."""
        return self._settle(unschedulable(reason).by(plugin))

    def preempt(self, plugin: str, reason: str) -> bool:
        """Preempt the pod: it is requeued for a new attempt; False when it no longer waits."""
        return self._settle(error(reason).by(plugin))

    def _settle(self, verdict: Status) -> bool:
        if self.verdict is not None:
            return False
        self.verdict = verdict
        self._settled.append(self)
        return True


class WaitingPods:
    """Pods that wait at Permit, by uid. Any plugin may allow or reject any of them.

    settled: pods with a verdict that were not taken yet.
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
        """A waiting pod by uid, None when it does not wait."""
        return self._pods.get(uid)

    def of(self, uid: str) -> WaitingPod:
        """The pod with this uid, which waits."""
        return self._pods[uid]

    def add(self, pod: Pod, node_name: str, since: int, pending: Mapping[str, int]) -> WaitingPod:
        """Add a pod that waits for plugins.

        pending: plugin -> timeout in nanoseconds.
        """
        waiting = WaitingPod(pod, node_name, since, pending, self.settled)
        self._pods[pod.uid] = waiting
        return waiting

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        self._pods.pop(uid, None)

    def take_settled(self) -> list[WaitingPod]:
        """Remove and return the pods that got a verdict, in that order."""
        settled = [one for one in self.settled if self._pods.get(one.pod.uid) is one]
        self.settled.clear()
        for waiting in settled:
            self.drop(waiting.pod.uid)
        return settled


class PreemptingPods(set[str]):
    """Uids of pods, or of their groups, that are held back until their victims are gone.

    on_discard: called with each uid that leaves.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_discard: Callable[[str], None] | None = None

    def discard(self, uid: object) -> None:
        """Remove a uid, if it is there."""
        super().discard(uid)
        if self.on_discard is not None and isinstance(uid, str):
            self.on_discard(uid)


class HandleState:
    """State shared by the plugins of all profiles.

    waiting: pods at Permit. preempting: uids of pods held back until their victims are gone.
    to_activate: pods to move to the active queue, by uid; emptied when the plugin returns.
    object_store: current objects, for gates and hints, which are called between attempts; during an
    attempt a plugin reads its snapshot's. now: time of day, None where plugins get none.
    pod_groups: members of groups; None where pods are scheduled one by one. has_group_defects: True
    where the defects of kube-scheduler with groups are reproduced. to_write: changes that
    PostFilter asks for; emptied after each attempt.
    """

    def __init__(self) -> None:
        self.waiting = WaitingPods()
        self.preempting = PreemptingPods()
        self.to_activate: dict[str, Pod] = {}
        self._object_store = ObjectStore()
        self._store_readers: dict[Callable[[ObjectStore], object], None] = {}
        self.now: datetime.datetime | None = None
        self.pod_groups: PodGroupStates | None = None
        self.has_group_defects = False
        self.to_write: list[ObjectChange] = []

    @property
    def object_store(self) -> ObjectStore:
        """See the class."""
        return self._object_store

    @object_store.setter
    def object_store(self, object_store: ObjectStore) -> None:
        self._object_store = object_store
        for begin in self._store_readers:
            begin(object_store)

    def read_from_start(self, begin: Callable[[ObjectStore], object]) -> None:
        """Call `begin` with each object store that becomes the current one, before it has objects,
        for an index that reads them as they come."""
        self._store_readers[begin] = None

    @property
    def has_pending_requests(self) -> bool:
        """True when a plugin asked for an action that must be carried out at once."""
        return bool(self.waiting.settled or self.to_activate)

    world = deprecated_property("world", "object_store")
