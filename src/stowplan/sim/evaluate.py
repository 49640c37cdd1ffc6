"""evaluate(): scheduling questions in bulk, a line each, answered a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from stowplan.batch import COMPATS, Compat
from stowplan.framework import ConfigError, ContractError
from stowplan.objects.codec import DecodeError
from stowplan.objects.quantity import QuantityError
from stowplan.sim import attempts, legacy, queue_cases, queue_scripts, sequences, sessions
from stowplan.sim.input_error import InputError
from stowplan.sim.plugins import PluginSource, plugin_classes

FORMATS: dict[str, Callable[[bytes], tuple[str, dict[str, Any]]]] = {}
"""What a line may be read as -> a function from the line to (id, result)."""

WITH_PLUGINS: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {}
"""Those of FORMATS whose functions take `plugins`, classes that take part, as well."""


def _attempt(line: bytes, plugins: Sequence[type[Any]] = ()) -> tuple[str, dict[str, Any]]:
    case = attempts.read_case(line)
    return case.id, attempts.answer(case, plugins=plugins)


def _sequence(line: bytes, plugins: Sequence[type[Any]] = ()) -> tuple[str, dict[str, Any]]:
    case = sequences.read_case(line)
    return case.id, sequences.answer(case, plugins=plugins)


def _queue(line: bytes) -> tuple[str, dict[str, Any]]:
    case = queue_cases.read_case(line)
    return case.id, queue_scripts.answer(case)


def _legacy(line: bytes) -> tuple[str, dict[str, Any]]:
    case = legacy.read_case(line)
    return case.id, legacy.answer(case)


def _session(line: bytes, compat: Compat | None = None) -> tuple[str, dict[str, Any]]:
    case = sessions.read_case(line)
    return case.id, sessions.answer(case, compat)


FORMATS["attempt"] = WITH_PLUGINS["attempt"] = _attempt
FORMATS["sequence"] = WITH_PLUGINS["sequence"] = _sequence
FORMATS["queue"] = _queue
FORMATS["legacy"] = _legacy
FORMATS["session"] = _session


def evaluate(
    lines: Iterable[bytes | str],
    *,
    form: str = "attempt",
    source: str = "input",
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
) -> Iterator[dict[str, Any]]:
    """Answer each line; yields `{"id": ..., "result": {...}}` in the order of the lines.

    form: what a line holds; `attempt` is a cluster and one pending pod. source: named in errors.
    plugins: as for `simulate`. compat: for sessions, whose defects to keep. Blank lines are passed
    over. Raises InputError naming the line that cannot be answered, and ContractError for plugins
    that cannot be loaded.
    """
    if form not in FORMATS:
        raise InputError(source, "--as", form, ", ".join(FORMATS))
    answered = FORMATS[form]
    if compat:
        answered = _compatible(source, form, compat)
    classes = plugin_classes(plugins)
    if classes:
        if form not in WITH_PLUGINS:
            raise InputError(source, "--plugin", f"it with --as {form}", ", ".join(WITH_PLUGINS))
        answered = partial(WITH_PLUGINS[form], plugins=classes)
    for number, line in enumerate(lines, start=1):
        text = line.encode() if isinstance(line, str) else line
        if not text.strip():
            continue
        try:
            name, result = answered(text)
        except (DecodeError, ConfigError, ContractError, QuantityError, ValueError) as problem:
            raise InputError.at(source, f"line {number}", problem) from problem
        except RecursionError:
            place = f"line {number}"
            raise InputError(source, place, "deeper nesting", "nesting that objects have") from None
        yield {"id": name, "result": result}


def _compatible(
    source: str, form: str, compat: str
) -> Callable[[bytes], tuple[str, dict[str, Any]]]:
    """What answers as another scheduler does, its defects included."""
    if form != "session":
        raise InputError(source, "--compat", f"it with --as {form}", "session")
    if compat not in COMPATS:
        raise InputError(source, "--compat", compat, ", ".join(COMPATS))
    return partial(_session, compat=COMPATS[compat])


def encoded(answer: dict[str, Any]) -> bytes:
    """An answer as a line of JSON, with its newline."""
    return msgspec.json.encode(answer) + b"\n"
