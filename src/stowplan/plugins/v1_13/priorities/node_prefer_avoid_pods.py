"""NodePreferAvoidPodsPriority: avoid nodes whose annotation names the pod's controller.

Source: Kubernetes v1.13, priorities/node_prefer_avoid_pods.go and apis/core/v1/helper.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import NodeInfo, NodeTable, Rows
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.objects.meta import Time
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.arithmetic import n_rows_of

Controller = tuple[str, str]
"""(kind, uid) of the owner that controls a pod."""

ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
KINDS = ("ReplicationController", "ReplicaSet")


class _PodController(msgspec.Struct, frozen=True, rename="lower"):
    """`podController`. Keys are compared without case, so they are lower-cased first."""

    kind: str | None = None
    uid: str | None = None
    name: str | None = None
    apiversion: str | None = None
    controller: bool | None = None
    blockownerdeletion: bool | None = None


class _PodSignature(msgspec.Struct, frozen=True):
    podcontroller: _PodController | None = None


class _PreferAvoidPodsEntry(msgspec.Struct, frozen=True):
    podsignature: _PodSignature | None = None
    evictiontime: Time | None = None
    reason: str | None = None
    message: str | None = None


class _AvoidPods(msgspec.Struct, frozen=True):
    preferavoidpods: tuple[_PreferAvoidPodsEntry, ...] | None = None


class NodePreferAvoidPodsPriority:
    """Score 0 where the node's annotation names the pod's controller, else 10.

    Only replication controllers and replica sets count. An invalid annotation is ignored.
    """

    name = "NodePreferAvoidPodsPriority"
    declaration = Plugin(name=name, reads=(), row_local=True)

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """0 or 10."""
        controller = controller_of(pod)
        avoided = controller is not None and controller in avoided_controllers(node.node)
        return 0 if avoided else PRIORITY_MAX

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        controller = controller_of(pod)
        if controller is None:
            return np.full(n_rows_of(rows), PRIORITY_MAX, dtype=np.int64)
        asked = nodes.nodes[rows] if isinstance(rows, slice) else [nodes.nodes[r] for r in rows]
        scores = (0 if controller in avoided_controllers(node) else PRIORITY_MAX for node in asked)
        return np.fromiter(scores, dtype=np.int64, count=n_rows_of(rows))

    def signature(self, pod: Pod) -> object:
        """The controller that counts."""
        return controller_of(pod)


def controller_of(pod: Pod) -> Controller | None:
    """The pod's controller, None unless nodes can avoid its kind."""
    owner = pod.controller
    return None if owner is None or owner.kind not in KINDS else (owner.kind, owner.uid)


def avoided_controllers(node: Node) -> frozenset[Controller]:
    """The controllers whose pods the node's annotation avoids."""
    text = node.metadata.annotations.get(ANNOTATION)
    return _parse_annotation(text) if text else frozenset()


@lru_cache(maxsize=1 << 12)
def _parse_annotation(text: str) -> frozenset[Controller]:
    try:
        tree = _lower_keys(msgspec.json.decode(text.encode()))
        avoided = msgspec.convert({} if tree is None else tree, _AvoidPods)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return frozenset()
    signatures = (entry.podsignature for entry in avoided.preferavoidpods or ())
    named = (s.podcontroller for s in signatures if s is not None and s.podcontroller is not None)
    return frozenset((controller.kind or "", controller.uid or "") for controller in named)


def _lower_keys(tree: Any) -> Any:
    """The tree with its keys in lower case; of keys that become equal the last counts."""
    if isinstance(tree, dict):
        return {key.lower(): _lower_keys(value) for key, value in tree.items()}
    return [_lower_keys(item) for item in tree] if isinstance(tree, list) else tree
