"""Sampled checks of out-of-tree plugins while a simulation runs.

They detect a plugin that modifies pods, nodes or columns, and a column walk that disagrees with the
scalar walk. Each method is checked for its first pods and then for one in many, on a few nodes, at
little cost; `stowplan plugin check` checks thoroughly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stowplan.columns import NodeInfo, NodeTable
from stowplan.framework import ContractError, CycleState, Framework, Status
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.encoding.object_difference import field_change, object_title
from stowplan.objects.pod import Pod

Call = Callable[..., Any]

PODS_FIRST = 3
"""Pods checked at the start."""
PODS_EVERY = 500
"""Afterwards one in so many pods is checked."""
NODES_MAX = 8
"""Nodes checked per pod."""
ADVICE = "run `stowplan plugin check FILE.py` for details"


class PluginSampler:
    """Checks the out-of-tree plugins of frameworks. warnings: findings, one per method."""

    def __init__(self, frameworks: Iterable[Framework]) -> None:
        self.warnings: list[str] = []
        self._found: set[tuple[str, str]] = set()
        for framework in frameworks:
            for member in framework.members.values():
                if not member.in_tree:
                    self._watch(member)

    def warn(self, member: RegisteredPlugin, method: str, text: str) -> None:
        """Record a finding, the first of each method only."""
        if (member.name, method) not in self._found:
            self._found.add((member.name, method))
            where = f"plugin {member.name!r}: {method}{member.place(method)}"
            self.warnings.append(f"{where} {text}; {ADVICE}")

    def _watch(self, member: RegisteredPlugin) -> None:
        made = {
            "filter": self._of_one,
            "score": self._of_one,
            "filter_column": self._of_many,
            "score_column": self._of_many,
        }
        calls = dict(member.calls)
        for method, watching in made.items():
            call = calls[method]
            if call is not None:
                member.calls[method] = watching(member, method, call, calls)

    def _of_one(
        self, member: RegisteredPlugin, method: str, call: Call, calls: dict[str, Any]
    ) -> Call:
        sample = _CallSample()

        def calling(pod: Pod, node: NodeInfo, *more: Any) -> Any:
            if not sample.takes(pod):
                return call(pod, node, *more)
            before = encode(pod), encode(node.node), [info.uid for info in node.pods]
            answer = call(pod, node, *more)
            text = _changed(pod, node, before)
            if text:
                self.warn(member, method, text)
            return answer

        return calling

    def _of_many(
        self, member: RegisteredPlugin, method: str, call: Call, calls: dict[str, Any]
    ) -> Call:
        sample = _CallSample()

        def calling(pod: Pod, nodes: NodeTable, rows: Any, state: CycleState) -> Any:
            if not sample.takes(pod):
                return call(pod, nodes, rows, state)
            before, pod_before = _columns(nodes), encode(pod)
            answer = call(pod, nodes, rows, state)
            changed = [name for name, column in _columns(nodes).items() if column != before[name]]
            if encode(pod) != pod_before:
                text = f"changed {object_title(pod)}: {field_change(pod_before, encode(pod))}"
                self.warn(member, method, text)
            elif changed:
                self.warn(member, method, f"changed the node table: {changed[0]}")
            else:
                wants_rows = member.column_wants_rows[method]
                compared = _ColumnComparison(member, method, calls, wants_rows=wants_rows)
                for text in compared.run(answer, pod, nodes, rows, state):
                    self.warn(member, method, text)
            return answer

        return calling


class _CallSample:
    """Selects the calls of a method that are checked."""

    def __init__(self) -> None:
        self._pod: Pod | None = None
        self._n_pods = 0
        self._left = 0

    def takes(self, pod: Pod) -> bool:
        """True for a call about `pod` that is to be checked."""
        if pod is not self._pod:
            self._pod = pod
            self._n_pods += 1
            is_chosen = self._n_pods <= PODS_FIRST or self._n_pods % PODS_EVERY == 0
            self._left = NODES_MAX if is_chosen else 0
        if self._left == 0:
            return False
        self._left -= 1
        return True


class _ColumnComparison:
    """Compares a column walk with the scalar walk on some of the nodes."""

    def __init__(
        self, member: RegisteredPlugin, method: str, calls: dict[str, Any], *, wants_rows: bool
    ) -> None:
        """calls: the plugin's own methods."""
        self._scalar = method.removesuffix("_column")
        self._calls = calls
        self._wants_rows = wants_rows
        self._rejected = member.rejected

    def run(
        self, answer: Any, pod: Pod, nodes: NodeTable, rows: Any, state: CycleState
    ) -> Iterator[str]:
        """The first difference, if any."""
        asked_rows = np.arange(nodes.n_nodes)[rows]
        n_wanted = asked_rows.shape[0] if self._wants_rows else nodes.n_nodes
        if not isinstance(answer, np.ndarray) or answer.shape != (n_wanted,):
            # The runtime rejects such an answer.
            return
        places = np.unique(np.linspace(0, asked_rows.shape[0] - 1, NODES_MAX).astype(np.int64))
        for place in places[places >= 0].tolist():
            row = int(asked_rows[place])
            value = answer[place if self._wants_rows else row]
            try:
                got = self._column_answer(value, pod, nodes, state)
                expected = self._scalar_answer(pod, nodes.info(row), nodes, state)
            except ContractError as fault:
                yield f"cannot be compared with {self._scalar}: {fault}"
                return
            if got != expected:
                where = f"pod {pod.key!r} on node {nodes.names[row]!r}"
                yield f"returns {got} for {where}, but {self._scalar} returns {expected}"
                return

    def _column_answer(self, value: Any, pod: Pod, nodes: NodeTable, state: CycleState) -> str:
        """The answer of the column walk, as text."""
        if self._scalar == "score":
            return str(int(value))
        if isinstance(value, np.bool_):
            return _text(Status() if value else self._rejected)
        status = self._calls["filter_status"]
        return _text(Status() if value == 0 or not status else status(value, pod, nodes, state))

    def _scalar_answer(self, pod: Pod, node: NodeInfo, nodes: NodeTable, state: CycleState) -> str:
        """The answer of the scalar walk, as text; runs on a clone of the state."""
        own = state.clone()
        if self._scalar == "score":
            return str(self._calls["score"](pod, node, own, nodes))
        return _text(self._calls["filter"](pod, node, own))


def _text(status: Status | None) -> str:
    if status is None:
        return "nothing"
    return f"{status.code.title} {status.message!r}" if status.reasons else status.code.title


def _changed(pod: Pod, node: NodeInfo, before: tuple[bytes, bytes, list[str]]) -> str:
    """What a call for one node has modified, "" for nothing."""
    for value, was in ((pod, before[0]), (node.node, before[1])):
        now = encode(value)
        if now != was:
            return f"changed {object_title(value)}: {field_change(was, now)}"
    if [info.uid for info in node.pods] != before[2]:
        return f"changed the list of the pods on node {node.name!r}"
    return ""


def _columns(nodes: NodeTable) -> dict[str, bytes]:
    """The nodes and columns of a table as bytes, for comparison."""
    found = {
        "nodes": encode(nodes.nodes),
        "pod count": nodes.pod_count.tobytes(),
        "unschedulable": nodes.unschedulable.tobytes(),
        "order": nodes.order.tobytes(),
    }
    for name in nodes.resources.values:
        found[f"allocatable {name}"] = nodes.allocatable(name).tobytes()
        found[f"requested {name}"] = nodes.requested(name).tobytes()
    return found
