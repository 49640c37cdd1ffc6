"""What plugins say about pods on a node that has changed, or that a pod has left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class PodWarning(msgspec.Struct, frozen=True):
    """An event of type Warning about a pod on a node. reason: in CamelCase, as `kubectl get events`
    lists it."""

    pod: Pod
    reason: str
    message: str


@runtime_checkable
class NodeUpdatePlugin(Protocol):
    """Says what a change of a node means for the pods that run on it."""

    def node_updated(self, before: Node, after: Node, pods: Sequence[Pod]) -> Sequence[PodWarning]:
        """Called for each changed version of a known node, with the pods on it; none of them is
        evicted. Misuse: an answer for changes that concern no pod, since it is asked at each
        heartbeat of a node."""


@runtime_checkable
class UnusedPodsPlugin(Protocol):
    """Knows pods that serve other pods of their node."""

    def unused_pods(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Called with the pods of a node after one has left it, and when the node has changed:
        those that serve no other pod any more, which are deleted unless they have changed. Misuse:
        pods that others have created."""
