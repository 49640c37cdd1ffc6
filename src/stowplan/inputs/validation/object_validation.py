"""Validation of objects that people write, as the API server does it when they are created.

Types, unknown fields and the rules of each kind are those of the embedded API server. Objects that
an API server has stored (with `metadata.uid` or `metadata.resourceVersion`) were validated there.

Differs: without `strict`, what is merely left out and no scheduler reads (the image of a container,
the selector of a workload) is no mistake: a pod that asks "would this fit" needs no image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stowplan.inputs.input_error import InputError, check_word
from stowplan.inputs.manifests import untyped_title
from stowplan.objects.encoding.json_codec import DecodeError

if TYPE_CHECKING:
    from stowplan.inputs.validation.api_rules import ApiServerRules

Tree = dict[str, Any]

MODES = ("auto", "strict", "warn", "ignore")
PROBLEMS_MAX = 100
"""How many mistakes are told of one object, and how many of all."""
NOTES_MAX = 20
REMEMBERED_MAX = 10_000
_OMISSIBLE = re.compile(
    r"(.*\.)?(containers|initContainers)(\[\d+\]\.(image|name))?"
    r"|spec\.selector|spec\.template\.metadata\.labels|(.*\.)?restartPolicy"
    r"|metadata\.ownerReferences\.(uid|apiVersion)"
)
"""Fields that may be left out where `strict` was not asked for."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")

_encoded = msgspec.msgpack.Encoder(order="deterministic").encode


class ValidationResult(NamedTuple):
    """The mistakes of an object, such as `unknown field "spec.nope"`. title: `Pod default/web`."""

    title: str
    mistakes: tuple[str, ...]
    is_fatal: bool


class ObjectValidator:
    """Validates objects and collects what is wrong with them. mode: one of `MODES`.

    notes: what was found with `warn`.
    """

    def __init__(self, mode: str) -> None:
        check_word("validate", mode, MODES)
        self.mode = mode
        self._mistakes: list[str] = []
        self._warnings: list[str] = []
        self._n_more = 0
        self._n_warned = 0
        self._good: set[bytes] = set()

    def applies(self, tree: Tree) -> bool:
        """True for an object that is to be validated."""
        return self.mode != "ignore" and not (self.mode == "auto" and is_stored(tree))

    def of(self, tree: Tree, path: str = "") -> ValidationResult | None:
        """What is wrong with an object, None for nothing; path: where it stands in a list."""
        if not self.applies(tree):
            return None
        rules = _rules()
        key = _key(tree)
        if key in self._good:
            return None
        mistakes = list(self._wanted(tree, rules.mistakes(tree)))[:PROBLEMS_MAX]
        if mistakes:
            return ValidationResult(untyped_title(tree, path), tuple(mistakes), self.mode != "warn")
        if key and len(self._good) < REMEMBERED_MAX:
            self._good.add(key)
        return None

    def _wanted(self, tree: Tree, found: Iterable[tuple[str, str]]) -> Iterator[str]:
        for path, text in found:
            if self.mode == "strict" or not _is_omitted(tree, path):
                yield f"{path}: {text}" if path else text

    def report(self, place: str, found: ValidationResult | None) -> None:
        """Note what was found with an object; place: file and document."""
        if found is not None:
            for mistake in found.mistakes:
                self._add(f"{place}: {found.title}: {mistake}", found.is_fatal)

    def report_unreadable(
        self, place: str, problem: DecodeError, found: ValidationResult | None
    ) -> None:
        """Note that an object cannot be read, and which of its fields are unknown."""
        unknown = [m for m in found.mistakes if m.startswith("unknown field")] if found else []
        if found is not None and unknown:
            self.report(place, found._replace(mistakes=tuple(unknown)))
        self._add(str(InputError.at(place, problem.path, problem.what)), is_fatal=True)

    def _add(self, line: str, is_fatal: bool) -> None:
        lines, most = (self._mistakes, PROBLEMS_MAX) if is_fatal else (self._warnings, NOTES_MAX)
        if len(lines) < most:
            lines.append(line)
        elif is_fatal:
            self._n_more += 1
        else:
            self._n_warned += 1

    @property
    def notes(self) -> list[str]:
        """The warnings, bounded."""
        more = [f"and {self._n_warned:,} mistakes more"] if self._n_warned else []
        return self._warnings + more

    def finish(self) -> None:
        """Raise InputError with all mistakes, if there are any."""
        if self._mistakes:
            more = [f"and {self._n_more:,} mistakes more"] if self._n_more else []
            raise InputError.of([*self._mistakes, *more])


def is_stored(tree: Tree) -> bool:
    """True for an object that an API server has stored."""
    meta = tree.get("metadata")
    return isinstance(meta, dict) and bool(meta.get("uid") or meta.get("resourceVersion"))


def _is_omitted(tree: Tree, path: str) -> bool:
    """True for a field that is not there and need not be."""
    if not _OMISSIBLE.fullmatch(path):
        return False
    if path == "spec.template.metadata.labels":
        # They are compared with the selector.
        path = "spec.selector"
    value: Any = tree
    for name, index in _STEP.findall(path):
        if name and isinstance(value, list):
            # Of owner references the path says no index.
            value = next((None for one in value if not one.get(name)), name)
        elif name:
            value = value.get(name) if isinstance(value, dict) else None
        else:
            value = value[int(index)] if isinstance(value, list) else None
    return value in (None, "", [], {})


def _key(tree: Tree) -> bytes:
    """Equal for objects that differ in a plain name only; b"" where there is none."""
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
        return b""
    rest = {key: value for key, value in meta.items() if key != "name"}
    return _encoded({**tree, "metadata": rest})


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")


@cache
def _rules() -> ApiServerRules:
    """The rules of the API server, loaded when the first object needs them."""
    from stowplan.inputs.validation.api_rules import ApiServerRules

    return ApiServerRules()
