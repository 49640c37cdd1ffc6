"""Answers: what policies may be asked, and the border at which theirs are looked at.

What ships is trusted. Of a stranger's function every answer is looked at where it comes in: a wrong
one would otherwise break, or bend, something further on that knows nothing of who has said it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from stowplan.batch.state.jobs import TaskInfo
from stowplan.framework.problems import ContractError, did_you_mean

HookKind = Literal[
    "job_order",
    "queue_order",
    "task_order",
    "predicate",
    "node_order",
    "preemptable",
    "reclaimable",
    "overused",
    "job_ready",
    "job_pipelined",
    "job_valid",
]

HOOK_KINDS: tuple[str, ...] = get_args(HookKind)
OWN_PACKAGE = "stowplan"
SHOWN_MAX = 80
"""Of an answer that is wrong so many characters are shown."""


class ValidateResult(msgspec.Struct, frozen=True):
    """Why a job cannot be scheduled as it is."""

    reason: str
    message: str


Reads = Callable[[Any, Sequence[Any]], bool]
"""Is an answer one that may be given to these arguments?"""


def _is_number(said: Any, asked: Sequence[Any]) -> bool:
    numbers = int | float | np.integer | np.floating
    return isinstance(said, numbers) and not isinstance(said, bool) and not np.isnan(said)


def _is_truth(said: Any, asked: Sequence[Any]) -> bool:
    return isinstance(said, bool | np.bool_)


def _is_text(said: Any, asked: Sequence[Any]) -> bool:
    return isinstance(said, str)


def _is_invalid(said: Any, asked: Sequence[Any]) -> bool:
    return said is None or (isinstance(said, ValidateResult) and bool(said.reason))


def _is_column(said: Any, asked: Sequence[Any]) -> bool:
    return isinstance(said, np.ndarray) and bool(said.shape == asked[1].shape)


def _are_bools(said: Any, asked: Sequence[Any]) -> bool:
    return _is_column(said, asked) and said.dtype == np.bool_


def _are_scores(said: Any, asked: Sequence[Any]) -> bool:
    is_numeric = _is_column(said, asked) and np.issubdtype(said.dtype, np.number)
    return bool(is_numeric and np.isfinite(said).all())


def _are_candidates(said: Any, asked: Sequence[Any]) -> bool:
    if not isinstance(said, Sequence) or not all(isinstance(one, TaskInfo) for one in said):
        return False
    return {one.uid for one in said} <= {other.uid for other in asked[1]}


def _is_hashable(said: Any, asked: Sequence[Any]) -> bool:
    try:
        hash(said)
    except TypeError:
        return False
    return True


def _is_ordered(said: Any, asked: Sequence[Any]) -> bool:
    try:
        return not said < said
    except TypeError:
        return False


class _HookContract(msgspec.Struct, frozen=True):
    """What a function is given, how its answer is judged, and that in words."""

    given: tuple[str, ...]
    reads: Reads
    wanted: str


_ORDER = _HookContract(("first", "second"), _is_number, "a number below, above or equal to 0")
_VICTIMS = _HookContract(
    ("task", "candidates"), _are_candidates, "some of the candidates, as a list"
)
_TRUTH = "True or False"
HOOK_CONTRACTS: Mapping[str, _HookContract] = {
    "job_order": _ORDER,
    "queue_order": _ORDER,
    "task_order": _ORDER,
    "predicate": _HookContract(("task", "rows"), _are_bools, "an array of bool, one per row"),
    "node_order": _HookContract(
        ("task", "rows"), _are_scores, "an array of finite numbers, one a row"
    ),
    "preemptable": _VICTIMS,
    "reclaimable": _VICTIMS,
    "overused": _HookContract(("queue",), _is_truth, _TRUTH),
    "job_ready": _HookContract(("job",), _is_truth, _TRUTH),
    "job_pipelined": _HookContract(("job",), _is_truth, _TRUTH),
    "job_valid": _HookContract(("job",), _is_invalid, "None or Invalid with a reason"),
    "row_kind": _HookContract(("task",), _is_hashable, "something hashable, or None"),
    "key": _HookContract(("task",), _is_ordered, "something that can be compared"),
    "spares": _HookContract(("job",), _is_truth, _TRUTH),
    "why": _HookContract(("queue",), _is_text, "a text"),
}
"""By kind of function, and by keyword of `Hooks.register`."""


def check_answers(kind: str, policy: str, function: Any, place: str) -> Any:
    """The function as it is where it ships with us, else one that looks at each answer.

    place: where the policy has it from, for what is wrong with it.
    Raises ContractError for a kind that is not known, and for what cannot be called like that; the
    function that is answered with raises it for an answer that is none.
    """
    contract = HOOK_CONTRACTS.get(kind)
    whose = f"{place}: policy {policy!r}"
    if contract is None:
        hint = did_you_mean(kind, HOOK_KINDS)
        wanted = f"wanted one of {', '.join(HOOK_KINDS)}{' (' + hint + ')' if hint else ''}"
        raise ContractError(f"{whose} registers for {kind!r}; {wanted}")
    if not callable(function):
        raise ContractError(f"{whose}, {kind}: got {short_repr(function)}, wanted a function")
    if is_shipped(function):
        return function
    if not accepts_arguments(function, len(contract.given)):
        given = ", ".join(contract.given)
        raise ContractError(f"{whose}, {kind}: cannot be called with ({given})")

    # What is written on the function is no matter here; a partial has no name to be kept.
    @wraps(function, assigned=(), updated=())
    def looked_at(*asked: Any) -> Any:
        # What it is given it may change, which is looked for elsewhere.
        before = [tuple(one) if isinstance(one, list) else one for one in asked]
        said = function(*asked)
        if not contract.reads(said, before):
            raise ContractError(
                f"{whose}, {kind}: got {short_repr(said)}, wanted {contract.wanted}"
            )
        return said

    return looked_at


def is_shipped(function: Any) -> bool:
    """True for a function that this package defines."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == OWN_PACKAGE


def accepts_arguments(function: Any, n_given: int) -> bool:
    """True when a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * n_given)
    except TypeError:
        return False
    except ValueError:
        # Of what is written in C nobody may know.
        return True
    return True


def source_location(function: Any) -> str:
    """Where a function, or a class, is written, as well as it can be said."""
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{module}.{name}" if module else str(name)


def short_repr(said: Any) -> str:
    """An answer in few words."""
    if isinstance(said, np.ndarray):
        return f"an array of {said.dtype} {said.shape}"
    text = repr(said)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
