"""Sampled checks of the plugins of others while a simulation runs.

Does a plugin leave pods, nodes and columns alone, and does its column walk say what it says node by
node? Of each method the first pods are looked at and then one of many, on a few nodes, so that it
costs next to nothing; `stowplan plugin check` looks closely.
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
"""So many pods are looked at from the first one on."""
PODS_EVERY = 500
"""Then one of so many."""
NODES_MAX = 8
"""For each of them so many nodes are looked at."""
ADVICE = "`stowplan plugin check FILE.py` says more"


class PluginSampler:
    """Looks at the plugins of others in some frameworks. warnings: what was found, each once."""

    def __init__(self, frameworks: Iterable[Framework]) -> None:
        self.warnings: list[str] = []
        self._found: set[tuple[str, str]] = set()
        for framework in frameworks:
            for member in framework.members.values():
                if not member.in_tree:
                    self._watch(member)

    def warn(self, member: RegisteredPlugin, method: str, text: str) -> None:
        """Put a finding on record, the first of each method."""
        if (member.name, method) not in self._found:
            self._found.add((member.name, method))
            said = f"plugin {member.name!r}: {method}{member.place(method)} {text}; {ADVICE}"
            self.warnings.append(said)

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
    """Which calls of a method are looked at."""

    def __init__(self) -> None:
        self._pod: Pod | None = None
        self._n_pods = 0
        self._left = 0

    def takes(self, pod: Pod) -> bool:
        """True for a call about `pod` that is to be looked at."""
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
    """The answer of a column walk, compared with the answers for a few of the nodes alone."""

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
        """What differs, if anything does."""
        asked = np.arange(nodes.n_nodes)[rows]
        n_wanted = asked.shape[0] if self._wants_rows else nodes.n_nodes
        if not isinstance(answer, np.ndarray) or answer.shape != (n_wanted,):
            # The runtime refuses it.
            return
        places = np.unique(np.linspace(0, asked.shape[0] - 1, NODES_MAX).astype(np.int64))
        for place in places[places >= 0].tolist():
            row = int(asked[place])
            value = answer[place if self._wants_rows else row]
            try:
                got = self._said(value, pod, nodes, state)
                wanted = self._alone(pod, nodes.info(row), nodes, state)
            except ContractError as fault:
                yield f"cannot be compared with {self._scalar}: {fault}"
                return
            if got != wanted:
                where = f"pod {pod.key!r} on node {nodes.names[row]!r}"
                yield f"says {got} of {where}, and {self._scalar} says {wanted}"
                return

    def _said(self, value: Any, pod: Pod, nodes: NodeTable, state: CycleState) -> str:
        """What the column says, as text."""
        if self._scalar == "score":
            return str(int(value))
        if isinstance(value, np.bool_):
            return _text(Status() if value else self._rejected)
        status = self._calls["filter_status"]
        return _text(Status() if value == 0 or not status else status(value, pod, nodes, state))

    def _alone(self, pod: Pod, node: NodeInfo, nodes: NodeTable, state: CycleState) -> str:
        """What the walk of one node says, as text; it must not leave anything in the state."""
        own = state.clone()
        if self._scalar == "score":
            return str(self._calls["score"](pod, node, own, nodes))
        return _text(self._calls["filter"](pod, node, own))


def _text(status: Status | None) -> str:
    if status is None:
        return "nothing"
    return f"{status.code.title} {status.message!r}" if status.reasons else status.code.title


def _changed(pod: Pod, node: NodeInfo, before: tuple[bytes, bytes, list[str]]) -> str:
    """What a call about one node has changed, "" for nothing."""
    for value, was in ((pod, before[0]), (node.node, before[1])):
        now = encode(value)
        if now != was:
            return f"changed {object_title(value)}: {field_change(was, now)}"
    if [info.uid for info in node.pods] != before[2]:
        return f"changed the list of the pods on node {node.name!r}"
    return ""


def _columns(nodes: NodeTable) -> dict[str, bytes]:
    """The columns of a table and its nodes, as bytes to compare."""
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
