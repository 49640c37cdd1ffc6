"""A plugin of a profile as the framework calls it: by column or by node, results checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.columns.array_types import Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.extension_points import METHOD_PARAMETERS
from stowplan.framework.node_to_status import PluginVerdicts
from stowplan.framework.plugin_calls import (
    REJECTED_MEANS,
    Call,
    bind_method,
    definition_location,
    takes_parameter,
)
from stowplan.framework.problems import ContractError
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import OK, Status
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import INT64_MAX, INT64_MIN

CACHED_NODES_MIN = 64
"""With fewer nodes, caching columns costs more than evaluating them."""


class RegisteredPlugin:
    """A plugin of a profile with its methods bound; a missing method is None.

    row_local: its columns may be cached and re-evaluated for changed rows only. node_only: its
    answers depend on nodes and never on the pods on them. normalizes: form of NormalizeScore when
    it reads only the highest raw score of the other nodes: "highest" for percentages of it,
    "reversed" for 100 minus these, "" for any other. binds_all: it binds every pod. reads_objects:
    kinds of objects, other than nodes and pods, that its kernel terms depend on. declares_reads:
    False for an out-of-tree plugin without that declaration: it may read any. rests_when_skipped:
    when its PreFilter skips a pod, its Reserve, Unreserve and PreBind have nothing to do. may_help:
    of a PostFilter, False for a pod that it can only reject with a message that depends on the
    filters' rejections. has_stable_codes: the codes of its column form mean the same in every call.
    does_io: it has `perform`; in_parallel: in parallel with others. succeeded: Success of this
    plugin.
    """

    __slots__ = (
        "binds_all",
        "calls",
        "column_wants_rows",
        "declares_reads",
        "divisor",
        "does_io",
        "has_stable_codes",
        "in_parallel",
        "in_tree",
        "may_help",
        "name",
        "node_only",
        "normalizes",
        "plugin",
        "reads_objects",
        "rejected",
        "rests_when_skipped",
        "row_local",
        "succeeded",
        "weight",
    )

    def __init__(
        self,
        name: str,
        plugin: Any,
        weight: int,
        *,
        in_tree: bool,
        columns: bool = True,
        divisor: int = 1,
    ) -> None:
        """columns: False ignores the column methods, so that the plugin is called node by node.
        divisor: see `Profile.divisors`."""
        self.name = name
        self.plugin = plugin
        self.weight = weight
        self.divisor = divisor
        self.in_tree = in_tree
        self.calls: dict[str, Call | None] = {
            method: bind_method(plugin, method, in_tree=in_tree) for method in METHOD_PARAMETERS
        }
        if not columns:
            self.calls["filter_column"] = self.calls["score_column"] = None
        self.column_wants_rows = {
            method: takes_parameter(plugin, method, "rows")
            for method in ("filter_column", "score_column")
            if self.calls[method] is not None
        }
        self.rejected: Status | None = getattr(plugin, "REJECTED", None)
        self.row_local = (
            bool(getattr(plugin, "row_local", False)) and self.calls["signature"] is not None
        )
        self.binds_all = in_tree and bool(getattr(plugin, "binds_all", False))
        self.reads_objects: tuple[type[Object], ...] = getattr(plugin, "reads_objects", ())
        self.declares_reads = in_tree or hasattr(plugin, "reads_objects")
        self.node_only = bool(getattr(plugin, "node_only", False))
        self.normalizes = str(getattr(plugin, "normalizes", ""))
        self.rests_when_skipped = bool(getattr(plugin, "rests_when_skipped", False))
        self.does_io = callable(getattr(plugin, "perform", None))
        self.in_parallel = bool(getattr(plugin, "perform_in_parallel", False))
        self.may_help: Callable[[Pod, Snapshot], bool] | None = None
        if in_tree:
            self.may_help = getattr(plugin, "may_help", None)
        self.has_stable_codes = self.calls["filter_column"] is not None and (
            self.rejected is not None or bool(getattr(plugin, "by_amounts", False))
        )
        self.succeeded = OK.by(name)

    def call(self, method: str, *values: Any) -> Any:
        """Call a method that the plugin has."""
        function = self.calls[method]
        assert function is not None, (self.name, method)
        return function(*values)

    def place(self, *methods: str) -> str:
        """ " (packed.py:14)": location of the first of these methods, "" for an in-tree plugin."""
        return "" if self.in_tree else definition_location(self.plugin, *methods)

    def is_idle(self, state: CycleState) -> bool:
        """True when the plugin has no work for the pod after its node was chosen."""
        return self.rests_when_skipped and self.name in state.skip_filter

    def verdicts(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> PluginVerdicts:
        """Result of Filter for `rows`."""
        if self.calls["filter_column"] is None:
            return self._verdicts_one_by_one(pod, nodes, rows, state)
        answer = self._column("filter_column", pod, nodes, rows, state)
        if answer.dtype != np.bool_:
            if self.calls["filter_status"] is None:
                raise ContractError(
                    f"plugin {self.name!r}: filter_column returns int64 codes and the class has "
                    "no filter_status(code), which returns the status of a code; expected one, or "
                    f"bool and {REJECTED_MEANS}{self.place('filter_column')}"
                )
            return PluginVerdicts(answer, lambda code: self._refusal(code, pod, nodes, state))
        rejected = self.rejected
        if rejected is None:
            raise ContractError(
                f"plugin {self.name!r}: filter_column gives bool and the class has no REJECTED; "
                f"expected {REJECTED_MEANS}, or int64 codes and filter_status(code)"
                f"{self.place('filter_column')}"
            )
        return PluginVerdicts(
            (~answer).astype(np.int64), lambda code: rejected, rejected.is_rejected
        )

    def scores(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): result of Score for `rows`."""
        if self.calls["score_column"] is not None:
            return self._column("score_column", pod, nodes, rows, state)
        numbers = _numbers(rows)
        scores = np.zeros(len(numbers), dtype=np.int64)
        for place, row in enumerate(numbers):
            score = self.call("score", pod, nodes.info(row), state, nodes)
            is_whole = isinstance(score, int | np.integer) and not isinstance(score, bool)
            if not is_whole or not INT64_MIN <= score <= INT64_MAX:
                raise ContractError(
                    f"plugin {self.name!r}: score of pod {pod.key!r} on node "
                    f"{nodes.names[row]!r} is {score!r}; expected a whole number of 64 bits"
                    f"{self.place('score')}"
                )
            scores[place] = score
        return scores

    def normalized(
        self, scores: Ints, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> Ints:
        """int64 (n_rows,): `scores` after NormalizeScore, unchanged without one."""
        if self.calls["normalize_score"] is None:
            return scores
        normal: Ints = self.call("normalize_score", scores, pod, nodes, rows, state)
        self._check_array("normalize_score", pod, normal, scores.shape[0])
        return normal

    def _verdicts_one_by_one(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> PluginVerdicts:
        seen: dict[Status, int] = {OK: 0}
        numbers = _numbers(rows)
        codes = np.zeros(len(numbers), dtype=np.int64)
        for place, row in enumerate(numbers):
            status: Status = self.call("filter", pod, nodes.info(row), state)
            codes[place] = 0 if status.is_success else seen.setdefault(status, len(seen))
        by_code = list(seen)
        return PluginVerdicts(codes, lambda code: by_code[code])

    def _refusal(self, code: int, pod: Pod, nodes: NodeTable, state: CycleState) -> Status:
        status: Status = self.call("filter_status", code, pod, nodes, state)
        if status.is_success:
            raise ContractError(
                f"plugin {self.name!r}: filter_status of pod {pod.key!r} gave Success for code "
                f"{code}; expected the refusal that it stands for{self.place('filter_status')}"
            )
        return status

    def _column(
        self, method: str, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[Any]:
        if not self.row_local or nodes.n_nodes < CACHED_NODES_MIN:
            return self._column_anew(method, pod, nodes, rows, state)
        key = (self, method, self.call("signature", pod))
        kept = ColumnCache.of(nodes).column(
            key, nodes, lambda some: self._column_anew(method, pod, nodes, some, state)
        )
        # A slice of all rows is the column itself; callers do not write into it.
        return kept if isinstance(rows, slice) else kept[rows]

    def _column_anew(
        self, method: str, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[Any]:
        answer: NDArray[Any] = self.call(method, pod, nodes, rows, state)
        wants_rows = self.column_wants_rows[method]
        n_rows = len(_numbers(rows)) if wants_rows else nodes.n_nodes
        self._check_array(method, pod, answer, n_rows)
        return answer if wants_rows else answer[rows]

    def _check_array(self, method: str, pod: Pod, answer: Any, n_rows: int) -> None:
        kinds = (np.bool_, np.int64) if method == "filter_column" else (np.int64,)
        if not isinstance(answer, np.ndarray):
            got = f"a {type(answer).__name__}"
        elif answer.shape != (n_rows,) or answer.dtype not in kinds:
            got = f"{answer.dtype} {answer.shape}"
        else:
            return
        raise ContractError(
            f"plugin {self.name!r}: {method} of pod {pod.key!r} gave {got}; "
            f"expected an array {' or '.join(k.__name__ for k in kinds)} ({n_rows},)"
            f"{self.place(method)}"
        )


def _numbers(rows: Rows) -> Any:
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows
