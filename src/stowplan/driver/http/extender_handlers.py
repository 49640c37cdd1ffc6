"""Extender handlers: filter, prioritize and preempt calls answered by the plugins of a profile.
Requests and responses are trees, as in JSON.

Nodes are evaluated with the pods known to run on them, if a cluster is followed. Otherwise the call
must contain whole nodes, which are evaluated as empty.

Source: Kubernetes v1.36, kube-scheduler/extender/v1; scheduler/extender.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stowplan.columns import NodeTable
from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.explanation import pending_form
from stowplan.framework import Framework, Snapshot, Status
from stowplan.framework.object_store import ObjectStore
from stowplan.framework.plugin import SCORE_MAX
from stowplan.framework.snapshot import Nominations
from stowplan.framework.status import Code
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

PRIORITY_MAX = 10
"""Highest extender score."""
UNKNOWN_NODE = "node is not known to the extender"


class InvalidExtenderArgs(ValueError):
    """Invalid ExtenderArgs: the text names the field and what is expected."""


class ExtenderHandlers:
    """Handlers of one profile. Their `snapshot` is that of the followed cluster, None for none."""

    def __init__(self, frameworks: Mapping[str, Framework], profile: str = "") -> None:
        """profile: scheduler name of the profile; "" for the first one."""
        name = profile or next(iter(frameworks))
        self.framework = frameworks[name]
        uses = self.framework.profile.points.get("score", ())
        self._weights = sum(use.weight for use in uses) or 1

    def filter(self, question: Any, snapshot: Snapshot | None) -> Tree:
        """Nodes that pass the filters, and the reasons of the others."""
        pod, names, whole = _parse_extender_args(question)
        found = self._found(snapshot, whole)
        attempt = filter_pod(pending_form(pod), found, self.framework)
        if attempt.failure is not None:
            return {"Error": attempt.failure.message}
        passed: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name in names:
            status = _verdict(attempt, name)
            if status is None:
                failed[name] = UNKNOWN_NODE
            elif status.is_success:
                passed.append(name)
            elif status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                unresolvable[name] = status.message
            else:
                failed[name] = status.message
        answer: Tree = {"NodeNames": passed if whole is None else None, "Nodes": None}
        if whole is not None:
            kept = set(passed)
            items = [tree for tree in whole if _name(tree) in kept]
            answer["Nodes"] = {"metadata": {}, "items": items}
        failures = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable, "Error": ""}
        return answer | failures

    def prioritize(self, question: Any, snapshot: Snapshot | None) -> list[Tree]:
        """A score of 0 to 10 for each node: the weighted sum of the profile's plugins, scaled."""
        pod, names, whole = _parse_extender_args(question)
        found = self._found(snapshot, whole)
        attempt = filter_pod(pending_form(pod), found, self.framework)
        rows = {name: found.nodes.row(name) for name in names}
        known = np.array(sorted(row for row in rows.values() if row >= 0), dtype=np.int64)
        totals: dict[int, int] = {}
        if attempt.failure is None and known.shape[0]:
            scores = score_pod(attempt, known)
            if scores is not None:
                totals = dict(zip(scores.rows.tolist(), scores.total.tolist(), strict=True))
        most = self._weights * SCORE_MAX
        return [
            {"Host": name, "Score": totals.get(row, 0) * PRIORITY_MAX // most}
            for name, row in rows.items()
        ]

    def preempt(self, question: Any, snapshot: Snapshot | None) -> Tree:
        """Candidate nodes on which the pod fits after the eviction of their victims."""
        pod = _pod(question)
        kept: Tree = {}
        if snapshot is None:
            raise InvalidExtenderArgs("needs a cluster to follow (--kubeconfig)")
        attempt = filter_pod(pending_form(pod), snapshot, self.framework)
        for name, victims in _candidates(question).items():
            uids = [_uid(victim) for victim in victims.get("Pods") or ()]
            if self._fits_without(attempt, name, set(uids)):
                kept[name] = {
                    "Pods": [{"UID": uid} for uid in uids],
                    "NumPDBViolations": victims.get("NumPDBViolations") or 0,
                }
        return {"NodeNameToMetaVictims": kept}

    def _fits_without(self, attempt: Attempt, name: str, uids: set[str]) -> bool:
        snapshot, framework, pod = attempt.snapshot, self.framework, attempt.pod
        row = snapshot.nodes.row(name)
        if row < 0 or not attempt.pre_filter.status.is_success:
            return False
        node, state = snapshot.nodes.info(row).copy(), attempt.state.clone()
        for info in [info for info in node.pods if info.uid in uids]:
            node.remove_pod(info.uid)
            if not framework.run_remove_pod(pod, info, node, state).is_success:
                return False
        return framework.filter_with_nominated(pod, node, snapshot, state).is_success

    def _found(self, snapshot: Snapshot | None, whole: list[Tree] | None) -> Snapshot:
        if snapshot is not None:
            return snapshot
        if whole is None:
            text = "needs whole nodes (nodeCacheCapable: false) or a cluster"
            raise InvalidExtenderArgs(f"NodeNames: {text} to follow")
        table = NodeTable()
        for i, tree in enumerate(whole):
            table.add_node(_read(tree, Node, f"Nodes.items[{i}]"))
        table.refresh()
        return Snapshot(table, ObjectStore(), Nominations())


def _verdict(attempt: Attempt, name: str) -> Status | None:
    row = attempt.snapshot.nodes.row(name)
    if row < 0:
        return None
    return attempt.diagnosis.status_of(row)


# Decoding of arguments. Go encodes its field names and decodes them in any case.


def _field(tree: Any, name: str) -> Any:
    if not isinstance(tree, dict):
        raise InvalidExtenderArgs(
            f"Invalid value: {type(tree).__name__}: expected {name} in an object"
        )
    if name in tree:
        return tree[name]
    return next((value for key, value in tree.items() if key.lower() == name.lower()), None)


def _parse_extender_args(question: Any) -> tuple[Pod, list[str], list[Tree] | None]:
    """The pod, the node names, and the whole nodes if the call contains them."""
    pod = _pod(question)
    names = _field(question, "NodeNames")
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidExtenderArgs("NodeNames: Invalid value: expected a list of names")
        return pod, names, None
    nodes = _field(question, "Nodes")
    if nodes is None:
        raise InvalidExtenderArgs("Required value: NodeNames or Nodes")
    items = _field(nodes, "items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidExtenderArgs("Nodes.items: Invalid value: expected a list of nodes")
    return pod, [_name(tree) for tree in items], items


def _pod(question: Any) -> Pod:
    tree = _field(question, "Pod")
    if tree is None:
        raise InvalidExtenderArgs("Pod: Required value")
    pod: Pod = _read(tree, Pod, "Pod")
    return pod


def _read(tree: Any, kind: type[Any], place: str) -> Any:
    try:
        return convert(tree, kind)
    except DecodeError as problem:
        raise InvalidExtenderArgs(f"{place}: {problem}") from None


def _candidates(question: Any) -> dict[str, Tree]:
    found = _field(question, "NodeNameToMetaVictims") or _field(question, "NodeNameToVictims") or {}
    if not isinstance(found, dict):
        raise InvalidExtenderArgs("NodeNameToVictims: Invalid value: expected a map by node")
    return {name: victims or {} for name, victims in found.items()}


def _uid(victim: Tree) -> str:
    uid = victim.get("UID")
    return str(uid if uid is not None else victim.get("metadata", {}).get("uid", ""))


def _name(tree: Tree) -> str:
    return str((tree.get("metadata") or {}).get("name", ""))
