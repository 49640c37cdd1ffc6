"""PrioritizeNodes: total score per node from configured priorities and extenders.

Source: kube-scheduler v1.13, scheduler/core PrioritizeNodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from stowplan.columns import NodeTable, Rows
from stowplan.columns.array_types import Ints
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.functions.priorities import PRIORITY_MAX, Priority, PriorityMetadataProducer
from stowplan.framework.plugin_calls import failure_location
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.pod import Pod

T = TypeVar("T")


class PrioritiesFailed(RuntimeError):
    """Priority functions failed; the message has every distinct error."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(dict.fromkeys(errors))
        text = self.errors[0] if len(self.errors) == 1 else f"[{', '.join(self.errors)}]"
        super().__init__(text)


class ExtenderError(RuntimeError):
    """An extender failed; its scores are left out."""


class PrioritizingExtender(Protocol):
    """An extender that scores nodes. weight: factor of its scores."""

    weight: int

    def is_interested(self, pod: Pod) -> bool:
        """False for a pod that the extender is not called for."""

    def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Node name -> score; a node left out gets 0. Raises ExtenderError."""


class Prioritized(msgspec.Struct, frozen=True):
    """Result for `rows`.

    node_names: of each row. mapped: priority -> int64 (n_rows,), scores of a map before its reduce.
    scores: priority -> int64 (n_rows,), final scores. totals: int64 (n_rows,): weighted sums.
    """

    rows: Ints
    node_names: tuple[str, ...]
    mapped: dict[str, Ints]
    scores: dict[str, Ints]
    totals: Ints

    @property
    def top(self) -> tuple[str, ...]:
        """The nodes with the highest total, in the order of `rows`."""
        best = self.totals == self.totals.max(initial=0)
        return tuple(name for name, is_best in zip(self.node_names, best, strict=True) if is_best)


def prioritize_nodes(
    pod: Pod,
    nodes: NodeTable,
    priorities: Sequence[Priority],
    *,
    rows: Ints | None = None,
    metadata: PriorityMetadataProducer | None = None,
    extenders: Sequence[PrioritizingExtender] = (),
) -> Prioritized:
    """Score `rows` (default: all) by every priority, weigh and add up.

    metadata: computed once for the pod and passed to every function, except to priorities with a
    metadata function of their own. With neither priorities nor extenders every node scores 1.
    Errors of extenders are ignored. Raises PrioritiesFailed with all errors of functions:
    exceptions, arrays of a wrong shape or type, final scores outside 0 to 10.
    """
    numbers = np.arange(nodes.n_nodes) if rows is None else rows
    names = tuple(nodes.names[row] for row in numbers.tolist())
    asked = _PrioritizeRequest(pod, nodes, numbers, metadata)
    mapped: dict[str, Ints] = {}
    scores: dict[str, Ints] = {}
    totals = np.zeros(numbers.shape[0], dtype=np.int64)
    if not priorities and not extenders:
        return Prioritized(numbers, names, mapped, scores, totals + 1)
    for priority in priorities:
        try:
            first = asked.first(priority)
            if priority.map is not None:
                mapped[priority.name] = first
            scores[priority.name] = asked.last(priority, first)
        except ContractError as broken:
            asked.errors.append(str(broken))
    if asked.errors:
        raise PrioritiesFailed(asked.errors)
    for priority in priorities:
        totals += scores[priority.name] * priority.weight
    for extender in extenders:
        if extender.is_interested(pod):
            totals += _extender_scores(extender, pod, names)
    return Prioritized(numbers, names, mapped, scores, totals)


class _PrioritizeRequest:
    """Evaluation of all priorities for one pod. errors: failures so far."""

    def __init__(
        self,
        pod: Pod,
        nodes: NodeTable,
        rows: Ints,
        metadata: PriorityMetadataProducer | None = None,
    ) -> None:
        self.pod = pod
        self.nodes = nodes
        self.numbers = rows
        every = np.array_equal(rows, np.arange(nodes.n_nodes))
        self.rows: Rows = nodes.all_rows if every else rows
        self.errors: list[str] = []
        self._shared = metadata
        self._known: dict[PriorityMetadataProducer, Any] = {}

    def first(self, priority: Priority) -> Ints:
        """int64 (n_rows,): scores of a whole-list function or of a map; raises ContractError."""
        metadata = self._metadata(priority)
        if priority.whole_list is not None:
            call = partial(priority.whole_list, self.pod, self.nodes, self.rows, metadata)
            return self._array(priority, "whole_list", call)
        assert priority.map is not None
        scores = np.zeros(self.numbers.shape[0], dtype=np.int64)
        failed = False
        for place, row in enumerate(self.numbers.tolist()):
            try:
                scores[place] = self._mapped(priority, row, metadata)
            except ContractError as broken:
                failed = True
                self.errors.append(str(broken))
        if failed:
            raise ContractError(self.errors.pop())
        return scores

    def last(self, priority: Priority, scores: Ints) -> Ints:
        """int64 (n_rows,): final scores, in range; raises ContractError."""
        if priority.reduce is not None:
            metadata = self._metadata(priority)
            given = (scores.copy(), self.pod, self.nodes, self.rows, metadata)
            scores = self._array(priority, "reduce", partial(priority.reduce, *given))
        outside = np.flatnonzero((scores < 0) | (scores > PRIORITY_MAX))
        if outside.size:
            place = int(outside[0])
            node = self.nodes.names[int(self.numbers[place])]
            raise ContractError(
                f"priority {priority.name!r}: score of pod {self.pod.key!r} on node {node!r} is "
                f"{scores[place]}; expected 0..{PRIORITY_MAX}"
            )
        return scores

    def _metadata(self, priority: Priority) -> Any:
        function = priority.metadata or self._shared
        if function is None:
            return None
        if function not in self._known:
            about = f"of pod {self.pod.key!r}"
            call = partial(function, self.pod)
            self._known[function] = _call_function(priority, "metadata", about, call)
        return self._known[function]

    def _mapped(self, priority: Priority, row: int, metadata: Any) -> int:
        node = self.nodes.info(row)
        assert priority.map is not None
        about = f"of pod {self.pod.key!r} on node {node.name!r}"
        call = partial(priority.map, self.pod, node, metadata)
        score = _call_function(priority, "map", about, call)
        if isinstance(score, bool) or not isinstance(score, int | np.integer):
            raise ContractError(
                f"priority {priority.name!r}: map {about} gave {score!r}; expected a whole number"
            )
        return int(score)

    def _array(self, priority: Priority, function: str, call: Callable[[], Any]) -> Ints:
        about = f"of pod {self.pod.key!r}"
        answer: Any = _call_function(priority, function, about, call)
        shape = self.numbers.shape
        if not isinstance(answer, np.ndarray):
            got = f"a {type(answer).__name__}"
        elif answer.shape != shape or answer.dtype != np.int64:
            got = f"{answer.dtype} {answer.shape}"
        else:
            return answer
        wanted = f"an array int64 {shape}"
        raise ContractError(
            f"priority {priority.name!r}: {function} {about} gave {got}; expected {wanted}"
        )


def _call_function(priority: Priority, function: str, about: str, call: Callable[[], T]) -> T:
    """The result of a function; raises ContractError for any exception."""
    try:
        return call()
    # Third-party functions may raise anything; the error names the priority.
    except Exception as failure:
        raise ContractError(
            f"priority {priority.name!r}: {function} {about} raised "
            f"{type(failure).__name__}: {failure}{failure_location(failure)}"
        ) from failure


def _extender_scores(extender: PrioritizingExtender, pod: Pod, names: tuple[str, ...]) -> Ints:
    try:
        given = extender.prioritize(pod, names)
    except ExtenderError:
        return np.zeros(len(names), dtype=np.int64)
    return np.array([given.get(name, 0) * extender.weight for name in names], dtype=np.int64)


def priorities_of(framework: Framework, snapshot: Snapshot) -> list[Priority]:
    """The score plugins of a profile as priorities that score one node each, on one snapshot.

    Their metadata is the CycleState of PreFilter and PreScore, whose errors become errors of the
    priorities. A plugin that declares `whole_list` is one function.
    """
    everything = np.arange(snapshot.nodes.n_nodes)

    def prepared(pod: Pod) -> CycleState:
        state = CycleState()
        framework.run_pre_filter(pod, snapshot, state)
        status = framework.run_pre_score(pod, snapshot, everything, state)
        if not status.is_success:
            raise ContractError(status.message)
        return state

    return [_priority_of(member, snapshot, prepared) for member in framework.at("score")]


def _priority_of(
    member: RegisteredPlugin, snapshot: Snapshot, prepared: PriorityMetadataProducer
) -> Priority:
    nodes = snapshot.nodes

    def score(pod: Pod, node: Any, state: CycleState) -> int:
        scored: int = member.call("score", pod, node, state, nodes)
        return scored

    def reduce(scores: Ints, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        final = member.normalized(scores, pod, nodes, rows, state)
        return final if member.divisor == 1 else final // member.divisor

    def whole(pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        return reduce(member.scores(pod, nodes, rows, state), pod, nodes, rows, state)

    if member.declaration.whole_list:
        return Priority(member.name, member.weight, whole_list=whole, metadata=prepared)
    reducing = reduce if member.calls["normalize_score"] or member.divisor != 1 else None
    return Priority(member.name, member.weight, map=score, reduce=reducing, metadata=prepared)
