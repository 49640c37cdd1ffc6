"""Validation of a Job's pod failure policy and success policy.

Source: kubernetes v1.36, pkg/apis/batch/validation, validatePodFailurePolicy and
validateSuccessPolicy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from stowplan.apis.machinery.errors import (
    INVALID,
    Cause,
    duplicate,
    go_quoted,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from stowplan.apis.machinery.strconv import NumError, atoi
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_RULES_MAX = 20
_PATTERNS_MAX = 20
_EXIT_CODES_MAX = 255
_INDEXES_BYTES_MAX = 64 * 1024


def validate_failure_policy(spec: Tree, path: str) -> Iterator[Cause]:
    """`podFailurePolicy`, at `path`, of the spec of a job."""
    rules = spec["podFailurePolicy"]["rules"] or []
    if len(rules) > _RULES_MAX:
        yield too_many(f"{path}.rules", len(rules), _RULES_MAX)
    pod = spec["template"]["spec"]
    containers = (*(pod.get("containers") or ()), *(pod.get("initContainers") or ()))
    names = {each["name"] for each in containers}
    for at, rule in enumerate(rules):
        yield from _failure_rule(rule, spec, names, f"{path}.rules[{at}]")


def _failure_rule(rule: Tree, spec: Tree, names: set[str], path: str) -> Iterator[Cause]:
    if rule["action"] == "FailIndex":
        if "backoffLimitPerIndex" not in spec:
            text = "requires the backoffLimitPerIndex to be set"
            yield invalid(f"{path}.action", "FailIndex", text)
    else:
        yield from _listed(rule["action"], _ACTIONS, f"{path}.action")
    codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if codes is not None:
        yield from _exit_codes(codes, names, f"{path}.onExitCodes")
    if len(patterns) > _PATTERNS_MAX:
        yield too_many(f"{path}.onPodConditions", len(patterns), _PATTERNS_MAX)
    for at, pattern in enumerate(patterns):
        here = f"{path}.onPodConditions[{at}]"
        yield from field_checks.qualified_name(pattern["type"], f"{here}.type")
        yield from _listed(pattern["status"], _STATUSES, f"{here}.status")
    if (codes is None) == (not patterns):
        one = "one of OnExitCodes and OnPodConditions is required"
        both = "both OnExitCodes and OnPodConditions is not supported"
        text = one if codes is None else both
        yield Cause(path, INVALID, f"Invalid value: specifying {text}")


def _listed(value: str, allowed: Sequence[str], path: str) -> Iterator[Cause]:
    if not value:
        yield required(path, f"valid values: [{' '.join(map(go_quoted, allowed))}]")
    elif value not in allowed:
        yield not_supported(path, value, allowed)


def _exit_codes(codes: Tree, names: set[str], path: str) -> Iterator[Cause]:
    yield from _listed(codes["operator"], _OPERATORS, f"{path}.operator")
    name = codes.get("containerName")
    if name is not None and name not in names:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", name, text)
    values = codes["values"] or []
    path = f"{path}.values"
    if not values:
        yield invalid(path, values, "at least one value is required")
    if len(values) > _EXIT_CODES_MAX:
        yield too_many(path, len(values), _EXIT_CODES_MAX)
    seen: set[int] = set()
    for at, value in enumerate(values):
        if not value and codes["operator"] == "In":
            yield invalid(f"{path}[{at}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{path}[{at}]", value)
        seen.add(value)
    if any(before > after for before, after in pairwise(values)):
        yield invalid(path, values, "must be ordered")


def validate_success_policy(spec: Tree, path: str) -> Iterator[Cause]:
    """`successPolicy`, at `path`, of the spec of an indexed job."""
    rules = spec["successPolicy"]["rules"] or []
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        yield required(f"{path}.rules", text)
    if len(rules) > _RULES_MAX:
        yield too_many(f"{path}.rules", len(rules), _RULES_MAX)
    for at, rule in enumerate(rules):
        yield from _success_rule(rule, spec.get("completions", 0), f"{path}.rules[{at}]")


def _success_rule(rule: Tree, completions: int, path: str) -> Iterator[Cause]:
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if indexes is None and count is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    n_indexes = 0
    if indexes is not None:
        here = f"{path}.succeededIndexes"
        if len(indexes.encode()) > _INDEXES_BYTES_MAX:
            yield too_long(here, _INDEXES_BYTES_MAX)
        try:
            n_indexes = _count_indexes(indexes, completions)
        except ValueError as error:
            yield invalid(here, indexes, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    here, at_most = f"{path}.succeededCount", "must be less than or equal to"
    yield from field_checks.not_negative(count, here)
    if count > completions:
        yield invalid(here, count, f"{at_most} {completions} (the number of specified completions)")
    if indexes is not None and count > n_indexes:
        where = "the number of indexes in the specified succeededIndexes field"
        yield invalid(here, count, f"{at_most} {n_indexes} ({where})")


def _count_indexes(text: str, completions: int) -> int:
    """The number of indexes in a text such as `0,2-4`. Raises ValueError."""
    total, last = 0, None
    for interval in text.split(",") if text else ():
        limits = interval.split("-")
        if len(limits) > 2:
            raise ValueError(
                f"the fragment {go_quoted(interval)} violates the requirement that an index"
                " interval can have at most two parts separated by '-'"
            )
        first, *rest = (_index(each, completions) for each in limits)
        for before, after in (*((first, each) for each in rest), (last, first)):
            if before is not None and before >= after:
                raise ValueError(f"non-increasing order, previous: {before}, current: {after}")
        last = rest[0] if rest else first
        total += last - first + 1
    return total


def _index(text: str, completions: int) -> int:
    """Raises ValueError."""
    try:
        index = atoi(text)
    except NumError:
        raise ValueError(f"cannot convert string to integer for index: {go_quoted(text)}") from None
    if index >= completions:
        raise ValueError(f"too large index: {go_quoted(text)}")
    return index
