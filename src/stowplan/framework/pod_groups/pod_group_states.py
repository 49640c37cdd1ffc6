"""Members of groups: which pods name a group, and which of them have a node.

A group is known from its first pod to its last one, whether its PodGroup exists or not.

Source: kube-scheduler v1.36, backend/cache/podgroupstate.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stowplan.objects.pod import Pod

_KEPT = "group key"


def group_key_of(pod: Pod) -> str:
    """`NAMESPACE/NAME` of the group that a pod names, "" for none."""
    spec = pod.spec
    if spec.scheduling_group is None:
        return ""
    # Asked a dozen times for each member; those of a template share a spec.
    namespace = pod.metadata.namespace
    kept: tuple[str, str] | None = spec.__dict__.get(_KEPT)
    if kept is not None and kept[0] == namespace:
        return kept[1]
    name = spec.scheduling_group.pod_group_name
    key = "" if name is None else f"{pod.namespace}/{name}"
    spec.__dict__[_KEPT] = namespace, key
    return key


class PodGroupState:
    """The pods of one group by uid, in order of arrival. Times are whole nanoseconds.

    key: `NAMESPACE/NAME` of the group. arrived: uid -> when the pod became known. unscheduled,
    assigned: uids. assumed: uid -> node.
    """

    __slots__ = ("arrived", "assigned", "assumed", "key", "pods", "unscheduled")

    def __init__(self, key: str) -> None:
        self.key = key
        self.pods: dict[str, Pod] = {}
        self.arrived: dict[str, int] = {}
        self.unscheduled: dict[str, None] = {}
        self.assumed: dict[str, str] = {}
        self.assigned: dict[str, None] = {}

    @property
    def n_scheduled(self) -> int:
        """Number of pods that have a node, assumed or bound."""
        return len(self.assumed) + len(self.assigned)

    def unscheduled_pods(self) -> list[Pod]:
        """Pods without a node, in order of arrival."""
        if len(self.unscheduled) == len(self.pods):
            return list(self.pods.values())
        return [pod for uid, pod in self.pods.items() if uid in self.unscheduled]

    def scheduled_nodes(self) -> Iterator[tuple[Pod, str]]:
        """Pods that have a node with its name, in order of arrival."""
        for uid, pod in self.pods.items():
            if uid in self.assigned:
                yield pod, pod.node_name
            elif uid in self.assumed:
                yield pod, self.assumed[uid]

    def place(self, uid: str, node: str) -> None:
        """A pod is assumed on a node."""
        self.unscheduled.pop(uid, None)
        self.assumed[uid] = node

    def place_all(self, uids: Sequence[str], nodes: Sequence[str]) -> None:
        """Pods are assumed, each on its node."""
        for uid in uids:
            self.unscheduled.pop(uid, None)
        self.assumed.update(zip(uids, nodes, strict=True))

    def unplace(self, uid: str) -> None:
        """A pod is not assumed any more; one that the watch has shown on a node is assigned."""
        if self.assumed.pop(uid, None) is not None:
            home = self.assigned if self.pods[uid].node_name else self.unscheduled
            home[uid] = None


class PodGroupStates:
    """The states of all groups by `NAMESPACE/NAME`. keeps_bound: a pod that another client has
    bound stays among the unscheduled ones, too.

    Differs: in the original it does so always; here with `compat` only.
    """

    def __init__(self, *, keeps_bound: bool = False) -> None:
        self._keeps_bound = keeps_bound
        self._states: dict[str, PodGroupState] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def values(self) -> Iterable[PodGroupState]:
        """The states of all groups."""
        return self._states.values()

    def get(self, key: str) -> PodGroupState | None:
        """The state of a group; None where no pod names it."""
        return self._states.get(key)

    def of(self, pod: Pod) -> PodGroupState | None:
        """The state of the group of a known pod; None for a pod without one."""
        return self._states.get(group_key_of(pod))

    def put(self, pod: Pod, now: int) -> PodGroupState | None:
        """A pod was added or updated: pending, or on a node. The state of its group."""
        key = group_key_of(pod)
        if not key:
            return None
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = PodGroupState(key)
        uid = pod.metadata.uid or pod.key
        if uid not in state.pods:
            state.arrived[uid] = now
        state.pods[uid] = pod
        if pod.spec.node_name:
            if not self._keeps_bound or uid in state.assumed:
                state.unscheduled.pop(uid, None)
            state.assumed.pop(uid, None)
            state.assigned[uid] = None
        elif uid not in state.assumed and uid not in state.assigned:
            state.unscheduled[uid] = None
        return state

    def put_new(self, key: str, pods: Sequence[Pod], now: int) -> PodGroupState:
        """Pending pods of a group, none of which is known, were added. The state of the group."""
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = PodGroupState(key)
        for pod in pods:
            uid = pod.metadata.uid or pod.key
            state.arrived[uid] = now
            state.pods[uid] = pod
            state.unscheduled[uid] = None
        return state

    def drop(self, pod: Pod) -> None:
        """A pod was deleted; the last one takes the state of its group with it."""
        key, uid = group_key_of(pod), pod.uid
        state = self._states.get(key)
        if state is None or uid not in state.pods:
            return
        del state.pods[uid], state.arrived[uid]
        for holder in (state.unscheduled, state.assumed, state.assigned):
            holder.pop(uid, None)
        if not state.pods:
            del self._states[key]

    def assume(self, pod: Pod, node: str) -> None:
        """A pod is assumed on a node."""
        state = self.of(pod)
        if state is not None and pod.uid in state.pods:
            state.place(pod.uid, node)

    def forget(self, pod: Pod) -> None:
        """A pod is not assumed any more."""
        state = self.of(pod)
        if state is not None:
            state.unplace(pod.uid)
