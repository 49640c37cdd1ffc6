"""Nominator: pods nominated to a node by preemption.

Source: kube-scheduler v1.36, backend/queue/nominator.go.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.columns import PodInfo
from stowplan.framework.snapshot import Nominations
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod

PodLister = Callable[[str], Pod | None]
"""Key of a pod -> its latest known version, None when it does not exist."""


class Nominator(Nominations):
    """Nominations, updated with pod events."""

    def __init__(self, listed: PodLister) -> None:
        super().__init__()
        self._listed = listed

    def __len__(self) -> int:
        return len(self._node_of)

    def nominate(self, pod: Pod, node: str | None = None) -> None:
        """Nominate a pod, replacing its previous nomination.

        node: None takes `status.nominatedNodeName`, if set. A pod that was deleted or is already
        bound is not nominated. "" is recorded like a name: the pod has no nomination, whatever its
        status says.
        """
        listed = self._listed(pod.key)
        is_pending = listed is not None and not listed.node_name
        if node == "" and is_pending and self.add_again(pod):
            return
        self.drop(pod.uid)
        name = pod.status.nominated_node_name if node is None else node
        if is_pending and (name or node is not None):
            self.add(pod, name)

    def popped(self, pod: Pod) -> None:
        """A member of a group is attempted beside others: what it is nominated to is kept, but it
        counts as a pod that requests nothing, of priority 0."""
        node = self._node_of.get(pod.uid)
        if node:
            meta = pod.metadata
            name = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=pod.uid)
            self._by_node[node][pod.uid] = PodInfo.of(Pod(metadata=name))
            self._note(node)

    def follow(self, old: Pod, new: Pod) -> None:
        """Update the nomination of an updated pod by its status.

        A status that never named a node does not replace a nomination made here, which is newer
        than the update.
        """
        kept = None
        if not old.status.nominated_node_name and not new.status.nominated_node_name:
            kept = self._node_of.get(old.uid)
        self.drop(old.uid)
        self.nominate(new, kept)
