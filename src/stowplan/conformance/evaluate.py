"""evaluate(): answers scheduling cases in bulk, one per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from stowplan.config.session_configuration import KUBE_BATCH_0_5, VOLCANO_1_15
from stowplan.conformance import (
    attempt_cases,
    queue_cases,
    queue_order_cases,
    queue_scripts,
    sequences,
    session_evaluation,
    v1_13_cases,
)
from stowplan.conformance.gpu_share import gpu_share_answers
from stowplan.conformance.pod_groups import pod_group_cases, pod_group_scripts
from stowplan.conformance.queue_models import (
    kai_cases,
    kueue_cases,
    queue_model_answers,
    queue_model_cases,
)
from stowplan.framework import ConfigError, ContractError
from stowplan.framework.feature_gates import changed_gates
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource, plugin_classes
from stowplan.objects.encoding.json_codec import DecodeError, untyped
from stowplan.objects.quantity import QuantityError
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36
from stowplan.simulation.scheduler_configuration import FeatureGateSettings, read_feature_gates

Answer = dict[str, Any]
Case = Any
"""A case of any format, with an `id`."""
BadCase = (DecodeError, ConfigError, QuantityError, ValueError, OverflowError)
"""Exceptions of cases with invalid values."""

COMPATS_OF: dict[str, tuple[str, ...]] = {
    "session": (KUBE_BATCH_0_5,),
    "podgroups": (KUBE_SCHEDULER_1_36,),
    "queues": (VOLCANO_1_15, kai_cases.KAI, kueue_cases.KUEUE),
}
"""Format -> schedulers whose defects can be reproduced."""

INVALID = "Invalid"
"""`reason` of the answer to an invalid line."""
SCHEDULER_ERROR = "SchedulerError"
"""`reason` of the answer to a case in which a plugin broke its contract."""


class CaseFormat(msgspec.Struct, frozen=True):
    """A format of lines. read: raises DecodeError. takes_plugins: `answer` has a parameter
    `plugins`. takes_gates: cases have `feature_gates` of kube-scheduler."""

    read: Callable[[bytes], Case]
    answer: Callable[..., Answer]
    takes_plugins: bool = False
    takes_gates: bool = False


def _read_attempt(line: bytes) -> Case:
    try:
        return attempt_cases.read_case(line)
    except DecodeError:
        if _is_order(line):
            return queue_order_cases.read_case(line)
        raise


def _is_order(line: bytes) -> bool:
    tree = untyped(line)
    if isinstance(tree, dict) and isinstance(tree.get("case"), dict):
        tree = tree["case"]
    return isinstance(tree, dict) and "queue" in tree and "pod" not in tree


def _answer_attempt(case: Case, plugins: Sequence[type[Any]] = ()) -> Answer:
    if isinstance(case, queue_order_cases.OrderCase):
        return queue_order_cases.answer(case, plugins=plugins)
    return attempt_cases.answer(case, plugins=plugins)


FORMATS = {
    "attempt": CaseFormat(_read_attempt, _answer_attempt, takes_plugins=True, takes_gates=True),
    "sequence": CaseFormat(sequences.read_case, sequences.answer, takes_plugins=True),
    "order": CaseFormat(queue_order_cases.read_case, queue_order_cases.answer, takes_plugins=True),
    "queue": CaseFormat(queue_cases.read_case, queue_scripts.answer),
    "legacy": CaseFormat(v1_13_cases.read_case, v1_13_cases.answer),
    "gpushare": CaseFormat(gpu_share_answers.read_case, gpu_share_answers.answer),
    "queues": CaseFormat(queue_model_cases.read_case, queue_model_answers.answer),
    "podgroups": CaseFormat(pod_group_cases.read_case, pod_group_scripts.answer, takes_gates=True),
    "session": CaseFormat(session_evaluation.read_case, session_evaluation.answer),
}


def evaluate(
    lines: Iterable[bytes | str],
    *,
    form: str = "attempt",
    source: str = "input",
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
    feature_gates: FeatureGateSettings | None = None,
) -> Iterator[dict[str, Any]]:
    """Answer each line; yields `{"id": ..., "result": {...}}` in the order of the lines.

    form: format of the lines, a key of `FORMATS`; `attempt` accepts queue order cases, too. source:
    name in errors. plugins: as for `simulate`. compat: for sessions, the scheduler whose defects
    are reproduced. feature_gates: of cases that do not set them. Blank lines are skipped. An
    invalid line does not end the others: its result is `{"outcome": "error", "reason": ...,
    "message": ...}`, with the reason SCHEDULER_ERROR when a plugin broke its contract, else
    INVALID. Raises InputError for conflicting options, and ContractError for plugins that cannot be
    loaded.
    """
    if form not in FORMATS:
        raise InputError(source, "--as", repr(form), f"one of {', '.join(FORMATS)}")
    chosen = FORMATS[form]
    answered = chosen.answer
    gates = changed_gates(read_feature_gates(feature_gates))
    if gates:
        if not chosen.takes_gates:
            forms = " or ".join(f"--as {name}" for name, one in FORMATS.items() if one.takes_gates)
            raise InputError(source, "--feature-gates", f"not allowed with --as {form}", forms)
        chosen = msgspec.structs.replace(chosen, read=partial(_with_gates, chosen.read, gates))
    if compat:
        answered = partial(answered, compat=_checked_compat(source, form, compat))
    classes = plugin_classes(plugins)
    if classes:
        if not chosen.takes_plugins:
            forms = ", ".join(name for name, one in FORMATS.items() if one.takes_plugins)
            raise InputError(source, "--plugin", f"not allowed with --as {form}", f"--as {forms}")
        answered = partial(answered, plugins=classes)
    for number, line in enumerate(_checked_lines(lines, form, source), start=1):
        text = line.encode() if isinstance(line, str) else line
        if text.strip():
            yield _answered(text, f"line {number}", source, chosen.read, answered)


def _checked_lines(lines: Iterable[bytes | str], form: str, source: str) -> Iterator[bytes | str]:
    """The lines; raises InputError for several of which none is JSON, as of a manifest."""
    rest = iter(lines)
    held: list[bytes | str] = []
    for line in rest:
        held.append(line)
        if _is_object(line):
            break
    else:
        n = sum(bool(line.strip()) for line in held)
        if n > 1:
            got = f"none of its {n} lines is a JSON object"
            raise InputError(source, "", got, f"JSON lines with a case of --as {form} on each")
    yield from held
    yield from rest


def _is_object(line: bytes | str) -> bool:
    try:
        return isinstance(untyped(line.encode() if isinstance(line, str) else line), dict)
    except (DecodeError, RecursionError):
        return False


def _with_gates(read: Callable[[bytes], Case], gates: dict[str, bool], line: bytes) -> Case:
    """The case of a line with these gates, where it does not set them itself."""
    case = read(line)
    if not hasattr(case, "feature_gates"):
        return case
    return msgspec.structs.replace(case, feature_gates=gates | case.feature_gates)


def _answered(
    line: bytes,
    place: str,
    source: str,
    read: Callable[[bytes], Case],
    answer: Callable[[Case], Answer],
) -> dict[str, Any]:
    """The answer to a line, or an error answer."""
    case = None
    try:
        case = read(line)
        return {"id": case.id, "result": answer(case)}
    except ContractError as fault:
        found = {"outcome": "error", "reason": SCHEDULER_ERROR, "message": str(fault)}
    except BadCase as problem:
        message = str(InputError.at(source, place, problem))
        found = {"outcome": "error", "reason": INVALID, "message": message}
    except RecursionError:
        message = str(InputError(source, place, "nested too deeply", "a Kubernetes object"))
        found = {"outcome": "error", "reason": INVALID, "message": message}
    return {"id": _id_of(line, place) if case is None else case.id, "result": found}


def _id_of(line: bytes, place: str) -> str:
    """The id on an invalid line, or its place."""
    try:
        tree = untyped(line)
    except (DecodeError, RecursionError):
        return place
    for holder in (tree.get("case"), tree) if isinstance(tree, dict) else ():
        if isinstance(holder, dict) and isinstance(holder.get("id"), str):
            return str(holder["id"])
    return place


def _checked_compat(source: str, form: str, compat: str) -> str:
    """The compat name, for sessions only; raises InputError."""
    if form not in COMPATS_OF:
        forms = " or ".join(f"--as {name}" for name in COMPATS_OF)
        raise InputError(source, "--compat", f"not allowed with --as {form}", forms)
    known = COMPATS_OF[form]
    if compat not in known:
        raise InputError(source, "--compat", repr(compat), f"one of {', '.join(known)}")
    return compat


def compat_for(form: str, compats: Sequence[str]) -> str:
    """Of several compat names the one that concerns a format, or the first; "" for none.

    Of two schedulers of one format the earlier one in `COMPATS_OF` counts: the later one has no
    defects that are mended.
    """
    known = COMPATS_OF.get(form, ())
    return next((name for name in known if name in compats), compats[0] if compats else "")


def encoded(answer: dict[str, Any]) -> bytes:
    """An answer as a JSON line."""
    return msgspec.json.encode(answer) + b"\n"
