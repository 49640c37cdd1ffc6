"""A plugin of a profile as the framework calls it: by column or by node, results checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from stowplan.framework.runtime.declarations import declaration_of
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import OK, Status
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import INT64_MAX, INT64_MIN

CACHED_NODES_MIN = 64
"""With fewer nodes, caching columns costs more than evaluating them."""


class RegisteredPlugin:
    """A plugin of a profile with its methods bound; a method that it lacks is None.

    declaration: what it declares; `row_local`, `node_only`, `rests_when_skipped` and `normalizes`
    repeat it, as they are read for every pod. row_local also needs a `signature`.
    in_tree: part of Stowplan, so its exceptions are bugs and are not blamed on a plugin's author.
    has_stable_codes: the codes of its column walk mean the same at every call. does_io: it has
    `perform`. succeeded: Success with this plugin's name.
    """

    __slots__ = (
        "calls",
        "column_wants_rows",
        "declaration",
        "divisor",
        "does_io",
        "has_stable_codes",
        "in_tree",
        "name",
        "node_only",
        "normalizes",
        "plugin",
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
        """columns: False leaves the column walk out: nodes are evaluated one by one. divisor: see
        `Profile.divisors`. Raises ContractError for an invalid declaration."""
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
        declared = self.declaration = declaration_of(plugin)
        self.row_local = declared.row_local and self.calls["signature"] is not None
        self.node_only = declared.node_only
        self.normalizes = declared.normalizes
        self.rests_when_skipped = declared.rests_when_skipped
        self.does_io = callable(getattr(plugin, "perform", None))
        self.has_stable_codes = self.calls["filter_column"] is not None and (
            self.rejected is not None or declared.by_amounts or declared.stable_codes
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

    def may_help(self, pod: Pod, snapshot: Snapshot) -> bool:
        """False where PostFilter can only refuse the pod, for reasons that the filters gave."""
        call = self.calls["may_help"]
        return call is None or bool(call(pod, snapshot))

    def is_idle(self, state: CycleState) -> bool:
        """True when the plugin has no work for the pod after its node was chosen."""
        return self.rests_when_skipped and self.name in state.skip_filter

    def reads_row_only(self, state: CycleState) -> bool:
        """True when Filter reads nothing but the row, for every pod or for this one."""
        return self.row_local or self.name in state.row_signatures

    def row_signature(self, pod: Pod, state: CycleState) -> Any:
        """Equal for pods that get the same verdict on every row, where `reads_row_only`."""
        own = state.row_signatures
        return own[self.name] if self.name in own else self.call("signature", pod)

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


def calls_of(members: Iterable[RegisteredPlugin], method: str) -> tuple[Callable[..., Any], ...]:
    """The method of the plugins that have it."""
    return tuple(call for one in members if (call := one.calls[method]) is not None)


def _numbers(rows: Rows) -> Any:
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows
