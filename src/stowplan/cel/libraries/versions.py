"""Semantic versions: parsing, order, and the functions of CEL about them.

Source: semver.org 2.0.0; blang/semver v4 (messages); apiserver v1.36, pkg/cel/library/semverlib.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stowplan.cel.libraries.standard_library import traversal
from stowplan.cel.overloads import Library
from stowplan.cel.values import LIBRARY_KINDS, EvaluationError, ValueKind, read_digits

SEMVER_TYPE = "kubernetes.Semver"
_UINT64_MAX = 2**64 - 1
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class SemanticVersion:
    """A version. prerelease: identifiers; those of digits only are int. build: not compared."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    def compare(self, other: SemanticVersion) -> int:
        """-1, 0 or 1."""
        mine = (self.major, self.minor, self.patch)
        others = (other.major, other.minor, other.patch)
        if mine != others:
            return 1 if mine > others else -1
        if not self.prerelease or not other.prerelease:
            return bool(other.prerelease) - bool(self.prerelease)
        for one, two in zip(self.prerelease, other.prerelease, strict=False):
            if one != two:
                return 1 if _order(one) > _order(two) else -1
        longer = len(self.prerelease) - len(other.prerelease)
        return (longer > 0) - (longer < 0)


def _order(identifier: int | str) -> tuple[bool, int, str]:
    """Numbers come before texts."""
    is_text = isinstance(identifier, str)
    return (is_text, 0, str(identifier)) if is_text else (False, int(identifier), "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _number(text: str, name: str) -> int:
    if not re.fullmatch("[0-9]*", text) or not text:
        raise EvaluationError(f"Invalid character(s) found in {name} number {_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        word = name.capitalize()
        raise EvaluationError(f"{word} number must not contain leading zeroes {_quoted(text)}")
    return _in_range(text)


def _in_range(text: str) -> int:
    number = read_digits(text)
    if number > _UINT64_MAX:
        raise EvaluationError(f"strconv.ParseUint: parsing {_quoted(text)}: value out of range")
    return number


def _prerelease(text: str) -> int | str:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if text.isascii() and text.isdigit():
        if len(text) > 1 and text[0] == "0":
            message = "Numeric PreRelease version must not contain leading zeroes"
            raise EvaluationError(f"{message} {_quoted(text)}")
        return _in_range(text)
    if _IDENTIFIER.fullmatch(text) is None:
        raise EvaluationError(f"Invalid character(s) found in prerelease {_quoted(text)}")
    return text


def _build(text: str) -> str:
    if not text:
        raise EvaluationError("Build meta data is empty")
    if _IDENTIFIER.fullmatch(text) is None:
        raise EvaluationError(f"Invalid character(s) found in build meta data {_quoted(text)}")
    return text


def parse_version(text: str) -> SemanticVersion:
    """A version in its full form; raises EvaluationError with the original's text."""
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    return SemanticVersion(
        major,
        minor,
        _number(patch, "patch"),
        tuple(_prerelease(one) for one in prerelease.split(".")) if dash else (),
        tuple(_build(one) for one in build.split(".")) if plus else (),
    )


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1].isdigit() and stripped.isascii() else f"0{stripped}"


def parse_lenient(text: str, normalize: bool) -> SemanticVersion:
    """A version; normalize: `v1.02` is accepted and means 1.2.0. Raises EvaluationError."""
    if not normalize:
        return parse_version(text)
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            message = "short version cannot contain PreRelease/Build meta data"
            raise EvaluationError(message)
        parts += ["0"] * (3 - len(parts))
    return parse_version(".".join(parts))


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        parse_lenient(text, normalize)
    except EvaluationError:
        return False
    return True


LIBRARY_KINDS[SemanticVersion] = ValueKind(
    SEMVER_TYPE, lambda one, two: bool(one.compare(two) == 0)
)


def semver_library() -> Library:
    """`semver`, `isSemver` and what versions answer."""
    library = Library()
    add = library.add
    kind = SEMVER_TYPE
    add("string_to_semver", f"semver(string) {kind}", parse_version, traversal())
    add("string_bool_to_semver", f"semver(string, bool) {kind}", parse_lenient, traversal())
    add("is_semver_string", "isSemver(string) bool", _is_version, traversal())
    add("is_semver_string_bool", "isSemver(string, bool) bool", _is_version, traversal())
    add("semver_is_greater_than", f"{kind}->isGreaterThan({kind}) bool",
        lambda one, two: one.compare(two) > 0)  # fmt: skip
    add("semver_is_less_than", f"{kind}->isLessThan({kind}) bool",
        lambda one, two: one.compare(two) < 0)  # fmt: skip
    add("semver_compare_to", f"{kind}->compareTo({kind}) int",
        lambda one, two: one.compare(two))  # fmt: skip
    for part in ("major", "minor", "patch"):

        def get(version: SemanticVersion, part: str = part) -> int:
            return int(getattr(version, part))

        add(f"semver_{part}", f"{kind}->{part}() int", get)
    return library
