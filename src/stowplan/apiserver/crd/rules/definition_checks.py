"""Checks of the rules of a definition: their form, whether they compile, and what they may cost.

Source: apiextensions-apiserver v0.36, pkg/apis/apiextensions/validation/validation.go,
cel_validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported, required
from stowplan.apiserver.crd.rules.compiled_rules import (
    RULES,
    CompiledRule,
    compiled_rules,
    n_values_max,
)
from stowplan.apiserver.crd.rules.declared_types import DeclaredType, declared_type
from stowplan.apiserver.crd.rules.field_names import escaped_name
from stowplan.apiserver.crd.rules.field_paths import normalized_path
from stowplan.apiserver.crd.structural_schema import EMBEDDED
from stowplan.apiserver.crd.value_validation import LIST_TYPE
from stowplan.cel.values import UINT_MAX
from stowplan.objects.encoding.tree import Tree

_RULE_COST_MAX = 10_000_000
_TOTAL_COST_MAX = 100_000_000
_N_LISTED_MAX = 4
_REASONS = (
    "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired",
)  # fmt: skip
_LINE_BREAK = re.compile(r"[\n\r]")


def rule_form_causes(node: Tree, path: str) -> Iterator[Cause]:
    """Causes of the form of the rules of one schema."""
    for at, rule in enumerate(node.get(RULES) or ()):
        here = f"{path}.{RULES}[{at}]"
        text, message = rule["rule"].strip(), rule.get("message", "")
        if not text:
            yield required(f"{here}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid(f"{here}.message", message, "must be non-empty if specified")
        elif _LINE_BREAK.search(message.strip()):
            yield invalid(f"{here}.message", message, "must not contain line breaks")
        elif _LINE_BREAK.search(text) and not message.strip():
            why = "message must be specified if rule contains line breaks"
            yield required(f"{here}.message", why)
        given = rule.get("messageExpression", "")
        if given and not given.strip():
            why = "messageExpression must be non-empty if specified"
            yield required(f"{here}.messageExpression", why)
        if rule.get("reason") is not None and rule["reason"] not in _REASONS:
            yield not_supported(f"{here}.reason", rule["reason"], _REASONS)
        yield from _field_path_causes(rule.get("fieldPath", ""), node, f"{here}.fieldPath")


def _field_path_causes(text: str, node: Tree, path: str) -> Iterator[Cause]:
    if text and not text.strip():
        yield invalid(path, text, "must be non-empty if specified")
    if _LINE_BREAK.search(text):
        yield invalid(path, text, "must not contain line breaks")
    if text and normalized_path(text, node) is None:
        yield invalid(path, text, "must be a valid path")


class _Place(NamedTuple):
    """Where a schema is. n_max: how many values it can have, None: no bound. declared: its type,
    None above all rules. uncorrelated: the part in which old values have no counterpart."""

    path: str
    n_max: int | None
    declared: DeclaredType | None
    is_root: bool = False
    uncorrelated: str = ""


@dataclass
class _TotalCost:
    total: int = 0
    most: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, UINT_MAX)
        if cost >= _TOTAL_COST_MAX // 100:
            self.most.append((cost, path))
            self.most.sort(key=lambda one: -one[0])
            del self.most[_N_LISTED_MAX:]


def rule_causes(schema: Tree, path: str, schema_causes: list[Cause]) -> list[Cause]:
    """Causes of the rules of a structural schema. schema_causes: those found in the schema; rules
    of its faulty parts are not compiled."""
    total = _TotalCost()
    faulty = [cause.field for cause in schema_causes]
    causes = list(_walk(schema, _Place(path, 1, None, is_root=True), faulty, total))
    if total.total > _TOTAL_COST_MAX:
        why = (
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3"
            " schema"
        )
        causes += [forbidden_field(place, why) for _, place in total.most]
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        causes.append(forbidden_field(path, _cost_text(name, total.total, _TOTAL_COST_MAX)))
    return causes


def _is_faulty(path: str, faulty: list[str]) -> bool:
    return any(one.startswith(path) and one[len(path) :][:1] in ("", ".", "[") for one in faulty)


def _walk(node: Tree, place: _Place, faulty: list[str], total: _TotalCost) -> Iterator[Cause]:
    declared = place.declared
    if declared is None and node.get(RULES) and not _is_faulty(place.path, faulty):
        is_root = place.is_root or bool(node.get(EMBEDDED))
        declared = declared_type(node, "selfType", is_root)
    place = place._replace(declared=declared)
    for below, there in _parts(node, place):
        yield from _walk(below, there, faulty, total)
    if not node.get(RULES) or _is_faulty(place.path, faulty):
        return
    if declared is None:
        why = "unable to convert structural schema to CEL declarations"
        text = "internal error: failed to construct type information for"
        yield Cause(
            f"{place.path}.{RULES}",
            "InternalError",
            f"Internal error: {text} x-kubernetes-validations rules: {why}",
        )
        return
    n_max = place.n_max if place.n_max is not None else n_values_max(declared)
    for at, rule in enumerate(compiled_rules(node, declared)):
        yield from _one_rule_causes(rule, f"{place.path}.{RULES}[{at}]", n_max, place, total)


def _parts(node: Tree, place: _Place) -> Iterator[tuple[Tree, _Place]]:
    """The direct sub-schemas with their places."""
    path, declared, count = place.path, place.declared, _n_elements_max(node)
    n_max = None if place.n_max is None or count is None else min(place.n_max * count, UINT_MAX)
    item = declared.item if declared is not None else None
    below = place._replace(is_root=False, n_max=n_max)
    if isinstance(node.get("additionalProperties"), dict):
        there = f"{path}.additionalProperties"
        yield node["additionalProperties"], below._replace(path=there, declared=item)
    for key, one in (node.get("properties") or {}).items():
        found = declared.fields.get(escaped_name(key)) if declared is not None else None
        yield one, below._replace(path=f"{path}.properties[{key}]", declared=found)
    if isinstance(node.get("items"), dict):
        uncorrelated = place.uncorrelated
        if node.get(LIST_TYPE) != "map":
            uncorrelated = uncorrelated or path
        there = f"{path}.items"
        yield (
            node["items"],
            below._replace(path=there, declared=item, uncorrelated=uncorrelated),
        )


def _n_elements_max(node: Tree) -> int | None:
    kind = node.get("type", "")
    if kind == "object" and node.get("additionalProperties") is not None:
        most = node.get("maxProperties")
    elif kind == "array":
        most = node.get("maxItems")
    else:
        return 1
    return None if most is None else max(most, 0)


def _printed(rule: Tree) -> Tree:
    """A rule as the original prints it."""
    return {
        "Rule": rule["rule"],
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _cost_text(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    formatted = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else ""
    formatted = formatted or f"{factor:.1f}x"
    hint = (
        "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays,"
        " maps, and strings are declared)"
    )
    return f"{name} exceeds budget by factor of {formatted} {hint}"


def _one_rule_causes(
    rule: CompiledRule, path: str, n_max: int, place: _Place, total: _TotalCost
) -> Iterator[Cause]:
    cost = min(rule.cost_max * n_max, UINT_MAX)
    if cost > _RULE_COST_MAX:
        text = _cost_text("estimated rule cost", cost, _RULE_COST_MAX)
        yield forbidden_field(f"{path}.rule", text)
    total.add(f"{path}.rule", cost)
    if rule.error:
        yield invalid(f"{path}.rule", _printed(rule.source), rule.error)
    if rule.message_error:
        yield invalid(f"{path}.messageExpression", _printed(rule.source), rule.message_error)
    elif rule.message is not None:
        cost = rule.message_cost_max
        if cost > _RULE_COST_MAX:
            text = _cost_text("estimated messageExpression cost", cost, _RULE_COST_MAX)
            yield forbidden_field(f"{path}.messageExpression", text)
        total.add(f"{path}.messageExpression", cost)
    given = rule.source.get("optionalOldSelf")
    if rule.uses_old and place.uncorrelated:
        where = f"within {place.uncorrelated}"
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema {where}"
        yield invalid(f"{path}.rule", rule.source["rule"], why)
    if not rule.uses_old and given is not None:
        why = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{path}.optionalOldSelf", given, why)
