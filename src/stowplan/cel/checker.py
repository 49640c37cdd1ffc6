"""Type checker: finds the type of every expression and the overloads of every call.

Source: cel-go v0.26, checker/checker.go, checker/errors.go; homogeneous aggregate literals as
Kubernetes has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stowplan.cel.cel_types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    CelType,
    Substitution,
    cel_type,
    most_general,
)
from stowplan.cel.overloads import Library, Overload
from stowplan.cel.syntax_tree import (
    Comprehension,
    Constant,
    Expression,
    FunctionCall,
    Identifier,
    Issues,
    ListLiteral,
    MapLiteral,
    ObjectLiteral,
    Selection,
    qualified_name,
)
from stowplan.cel.values import Uint

TYPE_NAMES = frozenset({
    "bool", "bytes", "double", "dyn", "google.protobuf.Duration", "google.protobuf.Timestamp",
    "int", "list", "map", "null_type", "optional_type", "string", "type", "uint",
})  # fmt: skip
_LITERALS: dict[type, CelType] = {
    bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL,
}  # fmt: skip


@dataclass(frozen=True)
class CheckedTypes:
    """What the checker found. result: type of the expression. by_node: type of each node, by its
    id. variables: names of the environment that it reads."""

    result: CelType
    by_node: Mapping[int, CelType]
    variables: frozenset[str]


def check(
    expression: Expression,
    issues: Issues,
    library: Library,
    variables: Mapping[str, CelType],
    objects: Mapping[str, CelType] | None = None,
) -> CheckedTypes:
    """Types of an expression, with calls resolved in place; issues are reported.

    objects: types that expressions may construct, by name.
    """
    checker = _Checker(issues, library, variables, objects or {})
    found = checker.type_of(expression)
    by_node = {
        node: checker.types.resolve(one, free_to_dyn=True) for node, one in checker.found.items()
    }
    result = checker.types.resolve(found, free_to_dyn=True)
    return CheckedTypes(result, by_node, frozenset(checker.variables))


class _Checker:
    def __init__(
        self,
        issues: Issues,
        library: Library,
        variables: Mapping[str, CelType],
        objects: Mapping[str, CelType],
    ) -> None:
        self.types = Substitution()
        self.found: dict[int, CelType] = {}
        self.variables: set[str] = set()
        self._objects = objects
        self._issues = issues
        self._functions = library.functions
        self._scopes: list[Mapping[str, CelType]] = [variables]

    def type_of(self, expression: Expression) -> CelType:
        """The type of an expression, as far as it is known."""
        match expression:
            case Constant():
                found = _LITERALS[type(expression.value)]
            case Identifier():
                found = self._identifier(expression)
            case Selection():
                found = self._selection(expression)
            case FunctionCall():
                found = self._call(expression)
            case ListLiteral():
                found = self._list(expression)
            case MapLiteral():
                found = self._map(expression)
            case ObjectLiteral():
                found = self._object(expression)
            case Comprehension():
                found = self._comprehension(expression)
        self.found[id(expression)] = found
        return found

    def _variable(self, name: str) -> CelType | None:
        name = name.removeprefix(".")
        for depth in range(len(self._scopes) - 1, -1, -1):
            if name in self._scopes[depth]:
                if depth == 0:
                    self.variables.add(name)
                return self._scopes[depth][name]
        return CelType("type", (cel_type(name),)) if name in TYPE_NAMES else None

    def _identifier(self, expression: Identifier) -> CelType:
        found = self._variable(expression.name)
        if found is not None:
            return found
        self._undeclared(expression.offset, expression.name)
        return ERROR

    def _undeclared(self, offset: int, name: str) -> None:
        self._issues.report(offset, f"undeclared reference to '{name}' (in container '')")

    def _selection(self, expression: Selection) -> CelType:
        name = qualified_name(expression)
        if name in TYPE_NAMES:
            return CelType("type", (cel_type(name),))
        if name in self._scopes[0]:
            # A variable whose name has a point.
            expression.variable = name
            return self._scopes[0][name]
        operand = self.types.resolve(self.type_of(expression.operand))
        was_optional = operand.name == "optional_type"
        target = operand.parameters[0] if was_optional else operand
        found = self._field(expression, target)
        if expression.is_test:
            return BOOL
        if was_optional or expression.is_optional:
            return CelType("optional_type", (found,))
        return found

    def _field(self, expression: Selection, target: CelType) -> CelType:
        if target.name == "map":
            return target.parameters[1]
        if target.fields is not None:
            found = target.fields.get(expression.field)
            if found is not None:
                return found
            self._issues.report(expression.offset, f"undefined field '{expression.field}'")
            return ERROR
        if target.is_parameter:
            self.types.assign(DYN, target)
        elif not target.is_dynamic:
            text = f"type '{target}' does not support field selection"
            self._issues.report(expression.offset, text)
        return DYN

    def _call(self, call: FunctionCall) -> CelType:
        if call.target is not None:
            name = f"{qualified_name(call.target)}.{call.function}".removeprefix(".")
            if "." in name and name in self._functions:
                call.function, call.target = name, None
        call.function = call.function.removeprefix(".")
        given = [self.type_of(argument) for argument in call.arguments]
        if call.target is not None:
            given.insert(0, self.type_of(call.target))
        overloads = self._functions.get(call.function)
        if overloads is None:
            self._undeclared(call.offset, call.function)
            return ERROR
        return self._resolved(call, overloads, given)

    def _resolved(
        self, call: FunctionCall, overloads: list[Overload], given: list[CelType]
    ) -> CelType:
        result: CelType | None = None
        found: list[Overload] = []
        given = [self.types.resolve(one) for one in given]
        for overload in overloads:
            if overload.is_member is not (call.target is not None):
                continue
            names: dict[str, CelType] = {}
            wanted = [self.types.instance(one, names) for one in overload.parameters]
            if not self.types.assign_all(given, wanted):
                continue
            found.append(overload)
            one = self.types.resolve(self.types.instance(overload.result, names))
            if result is None:
                result = one
            elif result != one:
                result = DYN
        call.overloads = tuple(found)
        if result is not None:
            return result
        formatted = [str(self.types.resolve(one, free_to_dyn=True)) for one in given]
        if call.target is not None:
            signature = f"{formatted[0]}.({', '.join(formatted[1:])})"
        else:
            signature = f"({', '.join(formatted)})"
        text = f"found no matching overload for '{call.function}' applied to '{signature}'"
        self._issues.report(call.offset, text)
        return ERROR

    def _joined(self, expression: Expression, before: CelType | None, found: CelType) -> CelType:
        """The common type of elements of a literal."""
        if before is None:
            return found
        if self.types.assign(before, found):
            return most_general(before, found)
        self._mismatch(expression.offset, before, found)
        return ERROR

    def _mismatch(self, offset: int, expected: CelType, found: CelType) -> None:
        wanted = self.types.resolve(expected, free_to_dyn=True)
        got = self.types.resolve(found, free_to_dyn=True)
        self._issues.report(offset, f"expected type '{wanted}' but found '{got}'")

    def _unwrapped(self, expression: Expression, found: CelType) -> CelType:
        """The type inside of an optional element."""
        found = self.types.resolve(found)
        if found.name == "optional_type":
            return found.parameters[0]
        if not found.is_dynamic:
            self._mismatch(expression.offset, CelType("optional_type", (found,)), found)
        return found

    def _list(self, expression: ListLiteral) -> CelType:
        common: CelType | None = None
        for index, element in enumerate(expression.elements):
            found = self.type_of(element)
            if index in expression.optional:
                found = self._unwrapped(element, found)
            common = self._joined(element, common, found)
        return CelType("list", (self.types.fresh() if common is None else common,))

    def _map(self, expression: MapLiteral) -> CelType:
        keys: CelType | None = None
        values: CelType | None = None
        for index, (key, value) in enumerate(expression.entries):
            keys = self._joined(key, keys, self.type_of(key))
            found = self.type_of(value)
            if index in expression.optional:
                found = self._unwrapped(value, found)
            values = self._joined(value, values, found)
        if keys is None or values is None:
            return CelType("map", (self.types.fresh(), self.types.fresh()))
        return CelType("map", (keys, values))

    def _object(self, expression: ObjectLiteral) -> CelType:
        name = expression.name.removeprefix(".")
        made = self._objects.get(name)
        if made is None or made.fields is None:
            self._undeclared(expression.offset, expression.name)
            return ERROR
        for key, value, offset in expression.fields:
            wanted = made.fields.get(key)
            if wanted is None:
                self._issues.report(offset, f"undefined field '{key}'")
            found = self.type_of(value)
            if key in expression.optional:
                found = self._unwrapped(value, found)
            if wanted is not None and not self.types.assign(found, wanted):
                provided = self.types.resolve(found, free_to_dyn=True)
                text = f"expected type of field '{key}' is '{wanted}' but provided type is"
                self._issues.report(offset, f"{text} '{provided}'")
        return made

    def _comprehension(self, loop: Comprehension) -> CelType:
        over = self.types.resolve(self.type_of(loop.range))
        accumulated = self.type_of(loop.initial)
        first, second = self._loop_types(loop, over)
        scope = {loop.accumulator: accumulated}
        inner = {loop.variable: first}
        if loop.variable2:
            inner[loop.variable2] = second
        self._scopes += [scope, inner]
        self._assert(loop.condition, BOOL)
        self._assert(loop.step, accumulated)
        self._scopes.pop()
        result = self.type_of(loop.result)
        self._scopes.pop()
        return self.types.resolve(result)

    def _loop_types(self, loop: Comprehension, over: CelType) -> tuple[CelType, CelType]:
        if over.name == "list":
            return (INT, over.parameters[0]) if loop.variable2 else (over.parameters[0], DYN)
        if over.name == "map":
            return over.parameters[0], over.parameters[1]
        if over.is_parameter:
            self.types.assign(DYN, over)
        elif not over.is_dynamic:
            text = f"expression of type '{over}' cannot be range of a comprehension"
            text += " (must be list, map, or dynamic)"
            self._issues.report(loop.range.offset, text)
            return ERROR, ERROR
        return DYN, DYN

    def _assert(self, expression: Expression, wanted: CelType) -> None:
        found = self.type_of(expression)
        if not self.types.assign(found, wanted):
            self._mismatch(expression.offset, wanted, found)
