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

from stowplan.batch.jobs import Task
from stowplan.framework.problems import ContractError, did_you_mean

Kind = Literal[
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

KINDS: tuple[str, ...] = get_args(Kind)
OWN_PACKAGE = "stowplan"
SHOWN_MAX = 80
"""Of an answer that is wrong so many characters are shown."""


class Invalid(msgspec.Struct, frozen=True):
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
    return said is None or (isinstance(said, Invalid) and bool(said.reason))


def _is_column(said: Any, asked: Sequence[Any]) -> bool:
    return isinstance(said, np.ndarray) and bool(said.shape == asked[1].shape)


def _are_bools(said: Any, asked: Sequence[Any]) -> bool:
    return _is_column(said, asked) and said.dtype == np.bool_


def _are_scores(said: Any, asked: Sequence[Any]) -> bool:
    is_numeric = _is_column(said, asked) and np.issubdtype(said.dtype, np.number)
    return bool(is_numeric and np.isfinite(said).all())


def _are_candidates(said: Any, asked: Sequence[Any]) -> bool:
    if not isinstance(said, Sequence) or not all(isinstance(one, Task) for one in said):
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


class _Contract(msgspec.Struct, frozen=True):
    """What a function is given, how its answer is judged, and that in words."""

    given: tuple[str, ...]
    reads: Reads
    wanted: str


_ORDER = _Contract(("first", "second"), _is_number, "a number below, above or equal to 0")
_VICTIMS = _Contract(("task", "candidates"), _are_candidates, "some of the candidates, as a list")
_TRUTH = "True or False"
CONTRACTS: Mapping[str, _Contract] = {
    "job_order": _ORDER,
    "queue_order": _ORDER,
    "task_order": _ORDER,
    "predicate": _Contract(("task", "rows"), _are_bools, "an array of bool, one per row"),
    "node_order": _Contract(("task", "rows"), _are_scores, "an array of finite numbers, one a row"),
    "preemptable": _VICTIMS,
    "reclaimable": _VICTIMS,
    "overused": _Contract(("queue",), _is_truth, _TRUTH),
    "job_ready": _Contract(("job",), _is_truth, _TRUTH),
    "job_pipelined": _Contract(("job",), _is_truth, _TRUTH),
    "job_valid": _Contract(("job",), _is_invalid, "None or Invalid with a reason"),
    "row_kind": _Contract(("task",), _is_hashable, "something hashable, or None"),
    "key": _Contract(("task",), _is_ordered, "something that can be compared"),
    "spares": _Contract(("job",), _is_truth, _TRUTH),
    "why": _Contract(("queue",), _is_text, "a text"),
}
"""By kind of function, and by keyword of `Hooks.register`."""


def checked(kind: str, policy: str, function: Any, place: str) -> Any:
    """The function as it is where it ships with us, else one that looks at each answer.

    place: where the policy has it from, for what is wrong with it.
    Raises ContractError for a kind that is not known, and for what cannot be called like that; the
    function that is answered with raises it for an answer that is none.
    """
    contract = CONTRACTS.get(kind)
    whose = f"{place}: policy {policy!r}"
    if contract is None:
        hint = did_you_mean(kind, KINDS)
        wanted = f"wanted one of {', '.join(KINDS)}{' (' + hint + ')' if hint else ''}"
        raise ContractError(f"{whose} registers for {kind!r}; {wanted}")
    if not callable(function):
        raise ContractError(f"{whose}, {kind}: got {shown(function)}, wanted a function")
    if _ships(function):
        return function
    if not takes(function, len(contract.given)):
        given = ", ".join(contract.given)
        raise ContractError(f"{whose}, {kind}: cannot be called with ({given})")

    # What is written on the function is no matter here; a partial has no name to be kept.
    @wraps(function, assigned=(), updated=())
    def looked_at(*asked: Any) -> Any:
        # What it is given it may change, which is looked for elsewhere.
        before = [tuple(one) if isinstance(one, list) else one for one in asked]
        said = function(*asked)
        if not contract.reads(said, before):
            raise ContractError(f"{whose}, {kind}: got {shown(said)}, wanted {contract.wanted}")
        return said

    return looked_at


def _ships(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == OWN_PACKAGE


def takes(function: Any, n_given: int) -> bool:
    """True when a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * n_given)
    except TypeError:
        return False
    except ValueError:
        # Of what is written in C nobody may know.
        return True
    return True


def place_of(function: Any) -> str:
    """Where a function, or a class, is written, as well as it can be said."""
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{module}.{name}" if module else str(name)


def shown(said: Any) -> str:
    """An answer in few words."""
    if isinstance(said, np.ndarray):
        return f"an array of {said.dtype} {said.shape}"
    text = repr(said)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
