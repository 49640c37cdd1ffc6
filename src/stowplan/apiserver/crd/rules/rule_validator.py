"""Validation of custom objects by the rules of their schema.

Source: apiextensions-apiserver v0.36, pkg/apiserver/schema/cel/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stowplan.apis.machinery.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    Cause,
    go_quoted,
    value_text,
)
from stowplan.apiserver.crd.rules.compiled_rules import RULES, CompiledRule, compiled_rules
from stowplan.apiserver.crd.rules.correlation import Counterpart, item_key, items_by_key
from stowplan.apiserver.crd.rules.declared_types import DeclaredType, declared_type
from stowplan.apiserver.crd.rules.field_names import escaped_name
from stowplan.apiserver.crd.rules.typed_values import typed_value
from stowplan.apiserver.crd.structural_schema import EMBEDDED
from stowplan.apiserver.crd.value_validation import NO_PATH
from stowplan.apiserver.expressions.messages import message_of
from stowplan.cel.values import NONE_VALUE, EvaluationError, OptionalValue
from stowplan.objects.encoding.tree import Tree

CALL_COST_MAX = 1_000_000
OBJECT_COST_MAX = 10_000_000
_BLOCKING = frozenset({NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID})
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)
_NO_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


@dataclass
class RuleNode:
    """The rules of a schema and of all below it. rules: None until they are first needed."""

    node: Tree
    declared: DeclaredType | None
    is_root: bool
    fields: dict[str, RuleNode] = field(default_factory=dict)
    item: RuleNode | None = None
    rest: RuleNode | None = None
    rules: list[CompiledRule] | None = None


def rule_tree(node: Tree, is_root: bool) -> RuleNode | None:
    """The rules of a schema; None for one without rules."""
    if not _has_rules(node):
        return None
    return _built(node, declared_type(node, "selfType", is_root), is_root)


def _has_rules(node: Tree) -> bool:
    if node.get(RULES):
        return True
    parts = [*(node.get("properties") or {}).values()]
    parts += [node.get("items"), node.get("additionalProperties")]
    return any(isinstance(one, dict) and _has_rules(one) for one in parts)


def _built(node: Tree, declared: DeclaredType | None, is_root: bool) -> RuleNode | None:
    """None where nothing below has rules."""
    if not _has_rules(node) or declared is None:
        return None
    made = RuleNode(node, declared, is_root)
    for key, below in (node.get("properties") or {}).items():
        identifier = escaped_name(key)
        whole = bool(below.get(EMBEDDED))
        found = declared.fields.get(identifier) if identifier else None
        if not identifier:
            found = declared_type(below, "selfType", whole)
        built = _built(below, found, whole)
        if built is not None:
            made.fields[key] = built
    for name in ("items", "additionalProperties"):
        below = node.get(name)
        if isinstance(below, dict):
            built = _built(below, declared.item, bool(below.get(EMBEDDED)))
            if name == "items":
                made.item = built
            else:
                made.rest = built
    return made


def unchecked_rules(causes: list[Cause]) -> Cause | None:
    """The cause that says that rules are not checked, because of causes found before."""
    if any(cause.reason in _BLOCKING for cause in causes):
        return Cause(NO_PATH, INVALID, f"Invalid value: null: {_UNCHECKED}")
    return None


class _BudgetSpent(Exception):
    """No further rule is evaluated."""


class RuleValidator:
    """One validation. causes: what is wrong; warnings: what was wrong before."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.warnings: list[str] = []
        self.left = OBJECT_COST_MAX

    def check(
        self,
        tree: RuleNode,
        value: Any,
        old: Any = None,
        path: str = "",
        counterpart: Counterpart | None = None,
    ) -> None:
        """Evaluate all rules. old: the stored value, None for none. counterpart: set where rules
        that an unchanged value breaks only warn."""
        try:
            self._check(tree, value, old, path, counterpart, None)
        except _BudgetSpent:
            return

    def _check(
        self,
        tree: RuleNode,
        value: Any,
        old: Any,
        path: str,
        own: Counterpart | None,
        parent: Counterpart | None,
    ) -> None:
        if value is None:
            return
        near = own if own is not None else parent
        self._expressions(tree, value, old, path, near)
        if isinstance(value, list) and tree.item is not None:
            held = items_by_key(old, tree.node)
            for at, one in enumerate(value):
                was = held.get(item_key(one, tree.node)) if held else None
                below = own.item(at) if own is not None else None
                self._check(tree.item, one, was, f"{path}[{at}]", below, near)
        elif isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, below_tree, here in _parts(tree, value, path):
                below = own.field(key) if own is not None else None
                above = near
                if own is not None and parent is None and key in ("apiVersion", "kind"):
                    below = above = None
                self._check(below_tree, value[key], before.get(key), here, below, above)

    def _expressions(
        self, tree: RuleNode, value: Any, old: Any, path: str, near: Counterpart | None
    ) -> None:
        if tree.rules is None:
            assert tree.declared is not None
            tree.rules = compiled_rules(tree.node, tree.declared)
        if not tree.rules:
            return
        formatted = value_text(tree.node.get("type", ""))
        if self.left <= 0:
            self._add(path, INVALID, f"Invalid value: {formatted}: {_NO_BUDGET}")
            raise _BudgetSpent
        own = _variables(tree, value, old)
        for rule in tree.rules:
            if rule.program is None:
                if rule.error:
                    text = f"rule compile error: {rule.error}"
                    self._add(path, INVALID, f"Invalid value: {formatted}: {text}")
                continue
            if rule.uses_old and old is None and not rule.is_old_optional:
                continue
            variables = own.optional if rule.is_old_optional else own.plain
            self._rule(rule, variables, own.plain, value, path, formatted, near)

    def _add(self, path: str, reason: str, message: str) -> None:
        self.causes.append(Cause(path or NO_PATH, reason, message))

    def _rule(
        self,
        rule: CompiledRule,
        variables: dict[str, Any],
        plain: dict[str, Any],
        value: Any,
        path: str,
        formatted: str,
        near: Counterpart | None,
    ) -> None:
        assert rule.program is not None
        found = rule.program.outcome(variables, CALL_COST_MAX)
        if found.cost > self.left:
            self._add(path, INVALID, f"Invalid value: {formatted}: {_NO_BUDGET}")
            raise _BudgetSpent
        self.left -= found.cost
        if found.error:
            text = _error_text(found.error, found.is_over, rule.source)
            self._add(path, INVALID, f"Invalid value: {formatted}: {text}")
            if found.is_over:
                raise _BudgetSpent
            return
        if found.value is True:
            return
        here = path
        if rule.field_path:
            here = f"{path}.{rule.field_path}" if path else rule.field_path
        detail, spent = self._detail(rule, plain)
        omits = rule_type(formatted) in ("object", "array")
        cause = _cause(here, rule.source.get("reason"), value, omits, detail)
        if spent:
            cause = Cause(here or NO_PATH, INVALID, f"Invalid value: {formatted}: {detail}")
        if not rule.uses_old and near is not None and near.is_same:
            self.warnings.append(f"{cause.field}: {cause.message}")
        else:
            self.causes.append(cause)
        if spent:
            raise _BudgetSpent

    def _detail(self, rule: CompiledRule, variables: dict[str, Any]) -> tuple[str, bool]:
        """(text of a broken rule, True if its message expression cost too much)."""
        if rule.message is None:
            return _message(rule.source), False
        source = go_quoted(rule.source["messageExpression"])
        found = rule.message.outcome(variables, CALL_COST_MAX)
        if found.cost > self.left:
            text = "messageExpression evaluation failed due to running out of cost budget"
            return f"{text}, no further validation rules will be run", True
        if found.is_over:
            text = "no further validation rules will be run due to call cost exceeds limit"
            return f"{text} for messageExpression: {source}", True
        self.left -= found.cost
        text = message_of(found)
        return (text or _message(rule.source)), False


def rule_type(formatted: str) -> str:
    """The type of a quoted one."""
    return formatted.strip('"')


@dataclass(frozen=True)
class _RuleVariables:
    plain: dict[str, Any]
    optional: dict[str, Any]


def _variables(tree: RuleNode, value: Any, old: Any) -> _RuleVariables:
    own = _typed(tree, value)
    plain, optional = {"self": own}, {"self": own, "oldSelf": NONE_VALUE}
    assert tree.rules is not None
    if old is not None and any(rule.uses_old for rule in tree.rules):
        plain["oldSelf"] = _typed(tree, old)
        optional["oldSelf"] = OptionalValue(True, plain["oldSelf"])
    return _RuleVariables(plain, optional)


def _typed(tree: RuleNode, value: Any) -> Any:
    """A value; an error stands for one that does not fit its schema."""
    try:
        return typed_value(value, tree.node, tree.is_root)
    except EvaluationError as error:
        return error


def _parts(tree: RuleNode, value: Tree, path: str) -> Iterator[tuple[str, RuleNode, str]]:
    """The entries of an object that have rules, with their paths."""
    for key in value:
        if tree.rest is not None:
            yield key, tree.rest, f"{path}[{key}]"
        elif key in tree.fields:
            yield key, tree.fields[key], f"{path}.{key}" if path else key


def _source(rule: Tree) -> str:
    return str(rule.get("message") or rule["rule"]).strip()


def _message(rule: Tree) -> str:
    message = rule.get("message", "")
    return message.strip() if message else f"failed rule: {_source(rule)}"


def _error_text(error: str, is_over: bool, rule: Tree) -> str:
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro"
            f" signature for rule: {_source(rule)}"
        )
    if is_over:
        return (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit"
            f" for rule: {_source(rule)}"
        )
    return f"{error} evaluating rule: {_source(rule)}"


def _cause(path: str, reason: str | None, value: Any, omits: bool, detail: str) -> Cause:
    """omits: the value is not formatted."""
    path = path or NO_PATH
    if reason == FORBIDDEN:
        return Cause(path, FORBIDDEN, f"Forbidden: {detail}")
    if reason == REQUIRED:
        return Cause(path, REQUIRED, f"Required value: {detail}")
    formatted = "" if omits else f": {value_text(value)}"
    if reason == DUPLICATE:
        return Cause(path, DUPLICATE, f"Duplicate value{formatted}")
    return Cause(path, INVALID, f"Invalid value{formatted}: {detail}")
