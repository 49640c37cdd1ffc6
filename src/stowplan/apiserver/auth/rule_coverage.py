"""Permissions of a rule that a user does not hold, without enumerating all combinations.

A rule of a thousand verbs, groups and resources has 10^9 combinations. Values that the same held
rules cover are treated as one, so the work grows with the length of the rule.

Source: component-helpers v1.36, auth/rbac/validation/policy_comparator.go.
Differs: at most `MISSING_RULES_MAX` missing permissions are returned; the original lists all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product

from stowplan.apiserver.auth.rbac import PolicyRule, covers_path

MISSING_RULES_MAX = 200
Masks = Callable[[str], int]
"""The held rules that cover a value, as a bit mask."""


class OwnerRules:
    """The rules that a user holds."""

    def __init__(self, rules: Sequence[PolicyRule]) -> None:
        self._verbs = _masks([rule.verbs for rule in rules])
        self._groups = _masks([rule.groups for rule in rules])
        self._resources = _masks([rule.resources for rule in rules])
        self._names = _masks([rule.names for rule in rules], wildcard="")
        self._urls = [
            (at, url) for at, rule in enumerate(rules) for url in dict.fromkeys(rule.urls)
        ]
        self._unnamed = sum(1 << at for at, rule in enumerate(rules) if not rule.names)

    def missing(self, rule: PolicyRule) -> Iterator[PolicyRule]:
        """The permissions of `rule` that no held rule covers, at most `MISSING_RULES_MAX`.

        Each is a rule of one verb, group, resource and name (or path).
        """
        if rule.urls:
            found = _uncovered((rule.verbs, self._verbs), (rule.urls, self._url))
            yield from (PolicyRule((verb,), urls=(url,)) for verb, url in found)
            return
        found = _uncovered(
            (rule.groups, self._groups),
            (rule.resources, self._resource),
            (rule.verbs, self._verbs),
            (rule.names or ("",), self._name),
        )
        for group, resource, verb, name in found:
            yield PolicyRule((verb,), (group,), (resource,), (name,) if name else ())

    def _resource(self, value: str) -> int:
        _, slash, subresource = value.partition("/")
        wild = self._resources(f"*/{subresource}") if slash else 0
        return self._resources(value) | wild

    def _name(self, value: str) -> int:
        return self._unnamed | (self._names(value) if value else 0)

    def _url(self, value: str) -> int:
        return sum({1 << at for at, own in self._urls if covers_path(own, value)})


def _masks(lists: Sequence[Sequence[str]], wildcard: str = "*") -> Masks:
    """By value, the mask of the lists that contain it; the wildcard contains every value."""
    known: dict[str, int] = {}
    for at, values in enumerate(lists):
        for value in values:
            known[value] = known.get(value, 0) | 1 << at
    wild = known.get(wildcard, 0)
    return lambda value: known.get(value, 0) | wild


def _uncovered(*dimensions: tuple[Sequence[str], Masks]) -> list[tuple[str, ...]]:
    """Combinations of one value of each dimension that no single held rule covers, in order."""
    classes = [_by_mask(values, mask) for values, mask in dimensions]
    found: list[tuple[int, ...]] = []
    for masks in product(*classes):
        covering = masks[0]
        for mask in masks[1:]:
            covering &= mask
        if not covering:
            positions = product(*(one[mask] for one, mask in zip(classes, masks, strict=True)))
            found += islice(positions, MISSING_RULES_MAX - len(found))
        if len(found) == MISSING_RULES_MAX:
            break
    found.sort()
    return [
        tuple(values[at] for at, (values, _) in zip(place, dimensions, strict=True))
        for place in found
    ]


def _by_mask(values: Sequence[str], mask: Masks) -> dict[int, list[int]]:
    """Indexes of the values by mask; of equal values the first."""
    positions = {value: at for at, value in reversed(list(enumerate(values)))}
    classes: dict[int, list[int]] = {}
    for value, at in sorted(positions.items(), key=lambda item: item[1]):
        classes.setdefault(mask(value), []).append(at)
    return classes
