"""Validation of manifests by the API server's rules for creation.

Types, unknown fields and the rules of each kind are those of the embedded API server. Objects that
an API server has stored (with `metadata.uid` or `metadata.resourceVersion`) were validated there.

Differs: without `strict`, missing required fields that no scheduler reads (image of a container,
selector of a workload) are accepted, since a pod for a simulation needs no image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError, check_word
from stowplan.inputs.manifests import untyped_title
from stowplan.objects.encoding.json_codec import DecodeError

if TYPE_CHECKING:
    from stowplan.inputs.validation.api_rules import ApiServerRules, FieldMistake

Tree = dict[str, Any]

MODES = ("auto", "strict", "warn", "ignore")
PROBLEMS_MAX = 100
"""Mistakes reported per object and in total."""
NOTES_MAX = 20
REMEMBERED_MAX = 10_000
_OMISSIBLE = re.compile(
    r"(.*\.)?(containers|initContainers)(\[\d+\]\.(image|name))?"
    r"|spec\.selector|spec\.template\.metadata\.labels|(.*\.)?restartPolicy"
    r"|metadata\.ownerReferences\.(uid|apiVersion)"
)
"""Required fields that may be missing without `strict`."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")

_encoded = msgspec.msgpack.Encoder(order="deterministic").encode


class ValidationResult(NamedTuple):
    """Mistakes of an object, such as `unknown field "spec.nope"`. title: `Pod default/web`."""

    title: str
    mistakes: tuple[FieldMistake, ...]
    is_fatal: bool


class ObjectValidator:
    """Validates objects and collects their mistakes. mode: one of `MODES`.

    notes: mistakes found with `warn`.
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
        """True for an object that must be validated."""
        return self.mode != "ignore" and not (self.mode == "auto" and is_stored(tree))

    def of(self, tree: Tree, path: str = "") -> ValidationResult | None:
        """Mistakes of an object, None for none; path: its position in a list."""
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

    def unreadable(self, tree: Tree, path: str = "") -> ValidationResult | None:
        """Values of an object that cannot be read, which is a mistake whatever the mode; None for
        none. For kinds that have no typed form here. path: its position in a list."""
        mistakes = tuple(_rules().unreadable(tree))
        return ValidationResult(untyped_title(tree, path), mistakes, True) if mistakes else None

    def without_nulls(self, tree: Tree) -> Tree:
        """An object of another project without its null fields, others unchanged."""
        # Most objects are of built-in kinds without a dot, which are many.
        is_looked_at = "." in str(tree.get("apiVersion"))
        return _rules().without_nulls(tree) if is_looked_at else tree

    def _wanted(self, tree: Tree, found: Iterable[FieldMistake]) -> Iterator[FieldMistake]:
        for mistake in found:
            if self.mode == "strict" or not _is_omitted(tree, mistake.path):
                yield mistake

    def report(self, place: str, found: ValidationResult | None) -> None:
        """Record the mistakes of an object; place: file and document."""
        if found is not None:
            for one in found.mistakes:
                line = f"{one.path}: {one.text}" if one.path else one.text
                self._add(f"{place}: {found.title}: {line}", found.is_fatal and not one.is_warning)

    def report_unreadable(
        self, place: str, problem: DecodeError, found: ValidationResult | None
    ) -> None:
        """Record that an object cannot be decoded, and its other mistakes.

        What the server says of the same field counts where it says more than its type.
        """
        if found is not None:
            # An object without a name has another title here.
            named = _steps_of(problem.path.rpartition(": ")[2])
            same = [one for one in found.mistakes if _steps_of(one.path) == named]
            is_answered = found.is_fatal and any(not one.is_unreadable for one in same)
            others = found.mistakes
            if not is_answered:
                # What is missing below a field that is not of its type is no mistake of its own.
                others = tuple(one for one in others if _steps_of(one.path)[: len(named)] != named)
            self.report(place, found._replace(mistakes=others))
            if is_answered:
                return
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
        more = [f"and {count_of(self._n_warned, 'more error')}"] if self._n_warned else []
        return self._warnings + more

    def finish(self) -> None:
        """Raise InputError with all mistakes, if any."""
        if self._mistakes:
            more = [f"and {count_of(self._n_more, 'more error')}"] if self._n_more else []
            raise InputError.of([*self._mistakes, *more])


def _steps_of(path: str) -> list[str]:
    """The steps of a path, however its keys are written: `a.b`, `a[b]` or `a['b']`.

    Without `requests`, which the server leaves out for claims.
    """
    return [step for step in re.findall(r"[^.\[\]']+", path) if step != "requests"]


def is_stored(tree: Tree) -> bool:
    """True for an object that an API server has stored."""
    meta = tree.get("metadata")
    return isinstance(meta, dict) and bool(meta.get("uid") or meta.get("resourceVersion"))


def _is_omitted(tree: Tree, path: str) -> bool:
    """True for a missing field that is not required without `strict`."""
    if not _OMISSIBLE.fullmatch(path):
        return False
    if path == "spec.template.metadata.labels":
        # They are compared with the selector.
        path = "spec.selector"
    value: Any = tree
    for name, index in _STEP.findall(path):
        if name and isinstance(value, list):
            # Paths into ownerReferences have no index.
            value = next((None for one in value if not one.get(name)), name)
        elif name:
            value = value.get(name) if isinstance(value, dict) else None
        else:
            value = value[int(index)] if isinstance(value, list) else None
    return value in (None, "", [], {})


def _key(tree: Tree) -> bytes:
    """Equal for objects that differ only in a simple name; b"" for an object without one."""
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
        return b""
    rest = {key: value for key, value in meta.items() if key != "name"}
    return _encoded({**tree, "metadata": rest})


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")


@cache
def _rules() -> ApiServerRules:
    """The API server's rules, loaded on first use."""
    from stowplan.inputs.validation.api_rules import ApiServerRules

    return ApiServerRules()
