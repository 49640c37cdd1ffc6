"""Hook contracts: arguments and return values of session plugins' functions, and their checks.

Built-in functions are trusted. Every answer of a custom function is checked when it is returned,
since an invalid one would otherwise fail later in code that does not know its origin.
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
REPR_CHARACTERS_MAX = 80
"""Maximum number of characters shown of an invalid answer."""


class ValidateResult(msgspec.Struct, frozen=True):
    """Why a job is invalid."""

    reason: str
    message: str


AnswerCheck = Callable[[Any, Sequence[Any]], bool]
"""Whether an answer is valid for these arguments: (answer, arguments) -> bool."""


def _is_number(answer: Any, arguments: Sequence[Any]) -> bool:
    numbers = int | float | np.integer | np.floating
    return isinstance(answer, numbers) and not isinstance(answer, bool) and not np.isnan(answer)


def _is_truth(answer: Any, arguments: Sequence[Any]) -> bool:
    return isinstance(answer, bool | np.bool_)


def _is_text(answer: Any, arguments: Sequence[Any]) -> bool:
    return isinstance(answer, str)


def _is_invalid(answer: Any, arguments: Sequence[Any]) -> bool:
    return answer is None or (isinstance(answer, ValidateResult) and bool(answer.reason))


def _is_column(answer: Any, arguments: Sequence[Any]) -> bool:
    return isinstance(answer, np.ndarray) and bool(answer.shape == arguments[1].shape)


def _are_bools(answer: Any, arguments: Sequence[Any]) -> bool:
    return _is_column(answer, arguments) and answer.dtype == np.bool_


def _are_scores(answer: Any, arguments: Sequence[Any]) -> bool:
    is_numeric = _is_column(answer, arguments) and np.issubdtype(answer.dtype, np.number)
    return bool(is_numeric and np.isfinite(answer).all())


def _are_candidates(answer: Any, arguments: Sequence[Any]) -> bool:
    if not isinstance(answer, Sequence) or not all(isinstance(one, TaskInfo) for one in answer):
        return False
    return {one.uid for one in answer} <= {other.uid for other in arguments[1]}


def _is_hashable(answer: Any, arguments: Sequence[Any]) -> bool:
    try:
        hash(answer)
    except TypeError:
        return False
    return True


def _is_ordered(answer: Any, arguments: Sequence[Any]) -> bool:
    try:
        return not answer < answer
    except TypeError:
        return False


class _HookContract(msgspec.Struct, frozen=True):
    """Arguments of a function, the check of its answer, and the expected answer in words."""

    given: tuple[str, ...]
    accepts: AnswerCheck
    expected: str


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
    "job_valid": _HookContract(("job",), _is_invalid, "None or a ValidateResult with a reason"),
    "row_kind": _HookContract(("task",), _is_hashable, "something hashable, or None"),
    "key": _HookContract(("task",), _is_ordered, "something that can be compared"),
    "spares": _HookContract(("job",), _is_truth, _TRUTH),
    "why": _HookContract(("queue",), _is_text, "a text"),
}
"""By kind of function, and by keyword of `Hooks.register`."""


def check_answers(kind: str, plugin: str, function: Any, place: str) -> Any:
    """Return a built-in function as it is, and any other with its answers checked.

    place: source location of the session plugin, for messages. Raises ContractError for an unknown
    kind and for a function that does not accept the arguments; the returned function raises it for
    an invalid answer.
    """
    contract = HOOK_CONTRACTS.get(kind)
    subject = f"{place}: plugin {plugin!r}"
    if contract is None:
        hint = did_you_mean(kind, HOOK_KINDS)
        wanted = f"expected one of {', '.join(HOOK_KINDS)}{' (' + hint + ')' if hint else ''}"
        raise ContractError(f"{subject}: unknown hook {kind!r}: {wanted}")
    if not callable(function):
        raise ContractError(
            f"{subject}, {kind}: invalid value: {short_repr(function)}: expected a function"
        )
    if is_shipped(function):
        return function
    if not accepts_arguments(function, len(contract.given)):
        given = ", ".join(contract.given)
        raise ContractError(f"{subject}, {kind}: cannot be called with ({given})")

    # Function attributes are not copied: a partial has none.
    @wraps(function, assigned=(), updated=())
    def checked(*arguments: Any) -> Any:
        # The function may modify its arguments; that is checked elsewhere.
        before = [tuple(one) if isinstance(one, list) else one for one in arguments]
        answer = function(*arguments)
        if not contract.accepts(answer, before):
            text = f"invalid answer: {short_repr(answer)}: expected {contract.expected}"
            raise ContractError(f"{subject}, {kind}: {text}")
        return answer

    return checked


def is_shipped(function: Any) -> bool:
    """True for a function that this package defines."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == OWN_PACKAGE


def accepts_arguments(function: Any, n_given: int) -> bool:
    """True if a function can be called with this many arguments."""
    try:
        inspect.signature(function).bind(*[None] * n_given)
    except TypeError:
        return False
    except ValueError:
        # Functions written in C may have no signature.
        return True
    return True


def source_location(function: Any) -> str:
    """Source location of a function or class, as far as known."""
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{module}.{name}" if module else str(name)


def short_repr(answer: Any) -> str:
    """A short representation of an answer."""
    if isinstance(answer, np.ndarray):
        return f"an array of {answer.dtype} {answer.shape}"
    text = repr(answer)
    return text if len(text) <= REPR_CHARACTERS_MAX else f"{text[:REPR_CHARACTERS_MAX]}..."
