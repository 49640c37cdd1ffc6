"""Lines of cases: a case alone, or under `case` beside its recorded answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from stowplan import config
from stowplan.assembly import registered
from stowplan.config import Configuration
from stowplan.framework import FeatureGates, Registry
from stowplan.objects.encoding.json_codec import decode

C = TypeVar("C", bound=msgspec.Struct)

_WRAPPED = re.compile(rb'"case"\s*:\s*\{')


def case_configuration(
    profile: dict[str, Any] | None,
    source: str,
    plugins: Iterable[type[Any]],
    gates: FeatureGates | None = None,
) -> tuple[Configuration, Registry]:
    """The configuration of a case, and its plugins; raises ConfigError.

    profile: body of a KubeSchedulerConfiguration, None for the default one. gates: of the case.
    """
    full, defaults = registered(plugins, "" if profile is None else str(profile), gates)
    if profile is None:
        return config.default(full, defaults), full
    return config.from_tree(profile, source, full, defaults, body=True), full


def case_reader(kind: type[C]) -> Callable[[bytes | str], C]:
    """A function that reads the case of a line; it raises DecodeError."""
    line_type = msgspec.defstruct(f"{kind.__name__}Line", [("case", kind)])

    def read_case(line: bytes | str) -> C:
        text = line if isinstance(line, bytes) else line.encode()
        if _WRAPPED.search(text):
            found: C = decode(text, line_type).case  # type: ignore[attr-defined]
            return found
        return decode(text, kind)

    return read_case
