"""Rules as functions: `@score`, `@filter` and `@priority` make plugins of plain functions.

    @score("near-data", weight=2)
    def near_data(pod, node): ...          # one node: a whole number from 0 to 100

    @score("free-memory")
    def free_memory(pod, nodes): ...       # all nodes at once: int64 (n_nodes,)

The names of a function's parameters select what it is called with, as everywhere: `node` is one
node, `nodes` the table of all of them. It may leave out `pod`. A function over `nodes` may ask for
`rows` as well and then answers for these rows, in their order.

The function stays what it was, so that a test may call it; `plugin_of` has the plugin behind it.
Where one node is asked about, a function over `nodes` is asked all the same: a filter with a table
of that node alone, as eviction may have changed it, so it must not compare nodes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeInfo, NodeTable, Rows
from stowplan.columns.array_types import Bools, Ints
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.functions.priorities import PRIORITY_MAX, Priority, PriorityReduceFunction
from stowplan.framework.plugin import SCORE_MAX
from stowplan.framework.plugin_calls import (
    FUNCTION,
    Call,
    definition_location,
    narrow_parameters,
    parameters_of,
)
from stowplan.framework.problems import ContractError, did_you_mean
from stowplan.framework.status import OK, Status, unresolvable, unschedulable
from stowplan.objects.pod import Pod

ScoreFunction = TypeVar("ScoreFunction", bound=Callable[..., int | Ints])
FilterFunction = TypeVar("FilterFunction", bound=Callable[..., bool | Status | Bools])

_PLUGIN = "__stowplan_plugin__"
_ONE = ("pod", "node")
_ALL = ("pod", "nodes", "rows")
_META = "meta"
_REDUCE = ("scores", "pod", "nodes", "rows", _META)


def plugin_of(value: Any) -> Any:
    """The plugin class behind a decorated function; any other value unchanged."""
    return getattr(value, _PLUGIN, value)


def is_rule(value: object) -> bool:
    """True for a function decorated as a plugin."""
    return hasattr(value, _PLUGIN)


def score(name: str, *, weight: int = 1) -> Callable[[ScoreFunction], ScoreFunction]:
    """Make a function a plugin that scores nodes: 0 to 100, times `weight`.

    A function of `node` returns an integer, a function of `nodes` int64 (n_nodes,). Raises
    ContractError for unknown parameters.
    """
    _check_name("score", name)

    def decorate(function: ScoreFunction) -> ScoreFunction:
        made = _FunctionPluginBuilder("score", name, function, weight)
        if made.is_of_one:
            made.give(_FunctionPlugin, score=staticmethod(function))
        else:
            made.give(_ArrayScore, _ask=staticmethod(made.call))
        return function

    return decorate


def filter(
    name: str, *, reason: str = "", evicting_helps: bool = True
) -> Callable[[FilterFunction], FilterFunction]:
    """Make a function a plugin that filters nodes: those for which it returns False are rejected.

    A function of `node` returns a bool or a Status, a function of `nodes` bool (n_nodes,). reason:
    message of a rejection. evicting_helps: False where evicting pods cannot change the answer, so
    that preemption skips the node. Raises ContractError as `score` does.
    """
    _check_name("filter", name)

    def decorate(function: FilterFunction) -> FilterFunction:
        made = _FunctionPluginBuilder("filter", name, function, 1)
        refused = unschedulable if evicting_helps else unresolvable
        text = reason or f"node(s) were refused by {name}"
        base = _NodeFilter if made.is_of_one else _ArrayFilter
        made.give(base, _ask=staticmethod(made.call), REJECTED=refused(text))
        return function

    return decorate


def priority(
    name: str,
    *,
    weight: int = 1,
    metadata: Callable[[Pod], Any] | None = None,
    reduce: Callable[..., Ints] | None = None,
) -> Callable[[ScoreFunction], ScoreFunction]:
    """Make a function a priority of Kubernetes 1.13: scores 0 to 10.

    A function of `node` is a map; `reduce` may scale its scores: it takes `scores` (int64
    (n_rows,)) and any of pod, nodes, rows and meta. A function of `nodes` scores all nodes.
    metadata: computed once per pod and passed to the function and to `reduce` as `meta`. Scores are
    multiplied by ten, so that 10 weighs as much as 100 of a plugin. Raises ContractError as `score`
    does.
    """
    _check_name("priority", name)

    def decorate(function: ScoreFunction) -> ScoreFunction:
        made = _FunctionPluginBuilder("priority", name, function, weight, metadata is not None)
        reducer = None if reduce is None else made.reducer(reduce)
        one, many = (made.call, None) if made.is_of_one else (None, made.call)
        config = Priority(name, weight, many, one, reducer, metadata)
        more = {} if metadata is None else {"pre_score": _pre_score}
        made.give(_MapPriority if made.is_of_one else _ListPriority, priority=config, **more)
        return function

    return decorate


def _check_name(kind: str, name: Any) -> None:
    """Raise ContractError when the decorator is used without a name: `@score` instead of
    `@score(...)` would be ignored silently."""
    if not isinstance(name, str) or not name:
        got = f"a {type(name).__name__}" if name else "no name"
        raise ContractError(f'@{kind}: Invalid value: {got}: expected a name: @{kind}("my-rule")')


class _FunctionPluginBuilder:
    """Builds a plugin class from a function. call: the function with all parameters by position."""

    def __init__(
        self, kind: str, name: str, function: Any, weight: Any, has_meta: bool = False
    ) -> None:
        self.name = name
        self.function = function
        self.weight = weight
        self.where = f"rule {name!r}"
        if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
            what = "an async function" if inspect.isfunction(function) else repr(function)
            raise ContractError(f"{self.where}: Invalid value: {what}: expected a plain function")
        if is_rule(function):
            raise ContractError(f"{self.where}: {function.__name__}() is decorated already")
        if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
            raise ContractError(
                f"{self.where}: weight is {weight!r}; expected a whole number above 0"
            )
        names = parameters_of(function)
        self.is_of_one = "node" in names
        if self.is_of_one == ("nodes" in names):
            got = f"{function.__name__}({', '.join(names)})"
            raise ContractError(
                f"{self.where}: Invalid value: {got}: expected `node`, for one node, or "
                "`nodes`, about all of them as arrays"
            )
        # Priorities are called with a fixed parameter list, with or without metadata.
        offered = _ONE if self.is_of_one else _ALL
        self.call = self._fitted(
            function,
            (*offered, _META) if kind == "priority" else offered,
            "" if has_meta or kind != "priority" else _META,
        )

    def reducer(self, reduce: Callable[..., Ints]) -> PriorityReduceFunction:
        """`reduce` with all parameters by position."""
        if not self.is_of_one:
            got = "a reduce for a function of all nodes"
            raise ContractError(f"{self.where}: Invalid value: {got}: expected one of one `node`")
        return self._fitted(reduce, _REDUCE, "")

    def _fitted(self, function: Call, offered: tuple[str, ...], missing: str) -> Call:
        """`function` with all parameters by position. missing: parameters that are not
        available."""
        title = getattr(function, "__name__", repr(function))
        for name in parameters_of(function):
            if name == missing:
                wanted = f"metadata=... beside {self.name!r} for it"
                raise ContractError(f"{self.where}: {title}() takes {name!r}; expected {wanted}")
            if name not in offered:
                hint = did_you_mean(name, offered)
                raise ContractError(
                    f"{self.where}: {title}() has an unknown parameter {name!r}; available: "
                    f"{', '.join(offered)}{' (' + hint + ')' if hint else ''}"
                )
        return narrow_parameters(function, offered, tuple(parameters_of(function)))

    def give(self, base: type[_FunctionPlugin], **attributes: Any) -> None:
        """Attach the plugin class to the function."""
        function = self.function
        body = {
            "name": self.name,
            "weight": self.weight,
            "_title": function.__name__,
            "_takes_rows": "rows" in parameters_of(function),
            FUNCTION: staticmethod(function),
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
        }
        setattr(function, _PLUGIN, type(function.__name__, (base,), body | attributes))


# The plugins behind the functions.


class _FunctionPlugin:
    """Base of all function plugins. _title: the function's name; _takes_rows: it has a parameter
    `rows`."""

    name: ClassVar[str]
    weight: ClassVar[int]
    _title: ClassVar[str]
    _takes_rows: ClassVar[bool]

    def _broken(self, pod: Pod, got: str, wanted: str) -> ContractError:
        return ContractError(
            f"plugin {self.name!r}: {self._title}() of pod {pod.key!r}{got}; expected {wanted}"
            f"{definition_location(self)}"
        )

    def _column(
        self, call: Call, kind: type[Any], pod: Pod, nodes: NodeTable, rows: Rows, *more: Any
    ) -> NDArray[Any]:
        """`kind` (n_rows,): the function's result for `rows`; it is not called without rows."""
        n_rows = len(range(rows.start, rows.stop)) if isinstance(rows, slice) else len(rows)
        if n_rows == 0:
            return np.zeros(0, dtype=kind)
        answer: Any = call(pod, nodes, rows, *more)
        n_wanted = n_rows if self._takes_rows else nodes.n_nodes
        if not isinstance(answer, np.ndarray):
            got = f" gave a {type(answer).__name__}"
        elif answer.shape != (n_wanted,) or answer.dtype != kind:
            got = f" gave {answer.dtype} {answer.shape}"
        else:
            column: NDArray[Any] = answer if self._takes_rows else answer[rows]
            return column
        raise self._broken(pod, got, f"an array {np.dtype(kind).name} ({n_wanted},)")


class _ArrayScore(_FunctionPlugin):
    """A score over arrays; a single node is one row."""

    _ask: ClassVar[Call]

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        return self._column(self._ask, np.int64, pod, nodes, rows)

    def score(self, pod: Pod, node: NodeInfo, nodes: NodeTable) -> int:
        return int(self.score_column(pod, nodes, _row_of(node, nodes))[0])


class _NodeFilter(_FunctionPlugin):
    """A filter of one node."""

    _ask: ClassVar[Call]
    REJECTED: ClassVar[Status]

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        answer = self._ask(pod, node)
        if isinstance(answer, Status):
            return answer
        if isinstance(answer, bool | np.bool_):
            return OK if answer else self.REJECTED
        got = f" on node {node.name!r} gave {answer!r}"
        raise self._broken(pod, got, "True, False or a Status")


class _ArrayFilter(_FunctionPlugin):
    """A filter over arrays; a single node is a table of one row."""

    _ask: ClassVar[Call]
    REJECTED: ClassVar[Status]

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        return self._column(self._ask, np.bool_, pod, nodes, rows)

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        alone = NodeTable()
        alone.add_node(node.node)
        for info in node.pods:
            alone.add_pod(info, node.name)
        alone.refresh()
        return OK if self.filter_column(pod, alone, alone.all_rows)[0] else self.REJECTED


class _PriorityPlugin(_FunctionPlugin):
    """A priority as a plugin: 0 to 10 becomes 0 to 100."""

    priority: ClassVar[Priority]

    def normalize_score(
        self, scores: Ints, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> Ints:
        reduce = self.priority.reduce
        final: Any = scores
        if reduce is not None and len(scores):
            final = reduce(scores.copy(), pod, nodes, rows, self._meta(pod, state))
            if not isinstance(final, np.ndarray):
                got = f" gave a {type(final).__name__} from its reduce"
                raise self._broken(pod, got, f"an array int64 {scores.shape}")
            if final.shape != scores.shape or final.dtype != np.int64:
                got = f" gave {final.dtype} {final.shape} from its reduce"
                raise self._broken(pod, got, f"an array int64 {scores.shape}")
        wrong = np.flatnonzero((final < 0) | (final > PRIORITY_MAX))
        if len(wrong):
            place = int(wrong[0])
            row = place if isinstance(rows, slice) else int(rows[place])
            got = f" on node {nodes.names[row]!r} came to {final[place]}"
            raise self._broken(pod, got, f"0..{PRIORITY_MAX}")
        scaled: Ints = final * (SCORE_MAX // PRIORITY_MAX)
        return scaled

    def _meta(self, pod: Pod, state: CycleState) -> Any:
        """The pod's metadata: from PreScore, or computed now where the profile does not run
        PreScore."""
        if self.priority.metadata is None:
            return None
        found = state.find(self.name)
        if not isinstance(found, _Metadata):
            found = _Metadata(self.priority.metadata(pod))
            state.write(self.name, found)
        return found.value


class _Metadata:
    """Metadata of a pod, which may be None."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _pre_score(self: _PriorityPlugin, pod: Pod, state: CycleState) -> Status:
    self._meta(pod, state)
    return OK


class _MapPriority(_PriorityPlugin):
    """A priority that scores one node at a time."""

    def score(self, pod: Pod, node: NodeInfo, state: CycleState) -> int:
        assert self.priority.map is not None
        return self.priority.map(pod, node, self._meta(pod, state))


class _ListPriority(_PriorityPlugin):
    """A priority that scores all nodes at once."""

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        whole_list, meta = self.priority.whole_list, self._meta(pod, state)
        assert whole_list is not None
        return self._column(whole_list, np.int64, pod, nodes, rows, meta)

    def score(self, pod: Pod, node: NodeInfo, state: CycleState, nodes: NodeTable) -> int:
        return int(self.score_column(pod, nodes, _row_of(node, nodes), state)[0])


def _row_of(node: NodeInfo, nodes: NodeTable) -> Ints:
    return np.array([nodes.row(node.name)], dtype=np.int64)
