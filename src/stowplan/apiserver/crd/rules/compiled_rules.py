"""Compiled rules of one schema: programs, their greatest cost, and errors of compilation.

Source: apiextensions-apiserver v0.36, pkg/apiserver/schema/cel/compilation.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan.apiserver.crd.rules.declared_types import REQUEST_BYTES_MAX, DeclaredType
from stowplan.apiserver.crd.rules.field_paths import normalized_path
from stowplan.apiserver.expressions.environments import api_library
from stowplan.cel.cel_types import CelType
from stowplan.cel.cost_estimate import estimate_cost
from stowplan.cel.program import Environment, Program
from stowplan.cel.syntax_tree import CompileError
from stowplan.objects.encoding.tree import Tree

RULES = "x-kubernetes-validations"


@dataclass
class CompiledRule:
    """A rule. error, message_error: of compilation, "" for none. costs: the greatest ones.
    field_path: from the value, "" for the value itself."""

    source: Tree
    program: Program | None = None
    message: Program | None = None
    error: str = ""
    message_error: str = ""
    uses_old: bool = False
    cost_max: int = 0
    message_cost_max: int = 0
    field_path: str = ""

    @property
    def is_old_optional(self) -> bool:
        """True if the rule runs without an old value too."""
        return bool(self.source.get("optionalOldSelf"))


def n_values_max(declared: DeclaredType) -> int:
    """How many values of a type fit into a request."""
    return REQUEST_BYTES_MAX // (declared.json_bytes_min + 1)


def compiled_rules(node: Tree, declared: DeclaredType) -> list[CompiledRule]:
    """The rules of a schema, in order."""
    own = declared.cel
    plain = Environment({"self": own, "oldSelf": own}, api_library())
    optional_type = CelType("optional_type", (own,))
    optional = Environment({"self": own, "oldSelf": optional_type}, api_library())
    made = []
    for rule in node.get(RULES) or ():
        environment = optional if rule.get("optionalOldSelf") else plain
        made.append(_compiled(rule, node, environment, declared))
    return made


def _program(environment: Environment, text: str, kind: str, word: str) -> tuple[Program, str]:
    """A program; raises CompileError with the original's text."""
    start = f"{word} " if word else ""
    try:
        program = environment.compile(text)
    except CompileError as error:
        raise CompileError(f"{start}compilation failed: {error}") from None
    if program.result_type.name != kind:
        subject = "messageExpression" if word else "cel expression"
        article = "a bool" if kind == "bool" else "a string"
        raise CompileError(f"{subject} must evaluate to {article}")
    if program.fault:
        text = "messageExpression instantiation" if word else "program instantiation"
        raise CompileError(f"{text} failed: {program.fault}")
    return program, ""


def _compiled(
    rule: Tree, node: Tree, environment: Environment, declared: DeclaredType
) -> CompiledRule:
    made = CompiledRule(rule)
    if not rule["rule"].strip():
        return made
    try:
        made.program, _ = _program(environment, rule["rule"], "bool", "")
    except CompileError as error:
        made.error = str(error)
        return made
    made.uses_old = "oldSelf" in made.program.types.variables
    made.cost_max = estimate_cost(made.program, declared.size_of).high
    text = rule.get("messageExpression", "")
    if text:
        try:
            made.message, _ = _program(environment, text, "string", "messageExpression")
        except CompileError as error:
            made.message_error = str(error)
            return made
        made.message_cost_max = estimate_cost(made.message, declared.size_of).high
    made.field_path = normalized_path(rule.get("fieldPath", ""), node) or ""
    return made
