"""Nominator: pods that wait for a node to be made free for them.

Source: kube-scheduler v1.36, backend/queue/nominator.go.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.framework.snapshot import Nominations
from stowplan.objects.pod import Pod

PodLister = Callable[[str], Pod | None]
"""Key of a pod -> the newest version that the cluster is known to have, None if it has none."""


class Nominator(Nominations):
    """The nominations, kept true while pods come, change and go."""

    def __init__(self, listed: PodLister) -> None:
        super().__init__()
        self._listed = listed

    def __len__(self) -> int:
        return len(self._node_of)

    def nominate(self, pod: Pod, node: str | None = None) -> None:
        """Nominate a pod in place of what was before.

        node: None takes what the pod's status says, and nothing where it says nothing. A pod that
        is gone, or bound already, is not nominated. "" is kept like a name: the pod has then
        been told that it has no node, whatever its status says.
        """
        listed = self._listed(pod.key)
        is_pending = listed is not None and not listed.node_name
        if node == "" and is_pending and self.add_again(pod):
            return
        self.drop(pod.uid)
        name = pod.status.nominated_node_name if node is None else node
        if is_pending and (name or node is not None):
            self.add(pod, name)

    def follow(self, old: Pod, new: Pod) -> None:
        """A pod was updated: its status decides, unless that has never named a node.

        Then a nomination made here stays: the update is older than it.
        """
        kept = None
        if not old.status.nominated_node_name and not new.status.nominated_node_name:
            kept = self._node_of.get(old.uid)
        self.drop(old.uid)
        self.nominate(new, kept)
