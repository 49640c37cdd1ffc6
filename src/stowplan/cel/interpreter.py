"""Interpreter: turns a checked expression into nested Python functions that count their cost.

Cost is counted as in the original: 1 per name, selection, index and call; more for calls whose
work grows with their arguments; 10 and 30 for a new list and map. A literal of constants is free.

Source: cel-go v0.26, interpreter/planner.go, interpretable.go, attributes.go, runtimecost.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.cel.checker import TYPE_NAMES
from stowplan.cel.overloads import Overload
from stowplan.cel.syntax_tree import (
    Comprehension,
    Constant,
    Expression,
    FunctionCall,
    Identifier,
    ListLiteral,
    MapLiteral,
    ObjectLiteral,
    Selection,
    walk,
)
from stowplan.cel.values import (
    NO_OVERLOAD,
    NONE_VALUE,
    CostLimitError,
    EvaluationError,
    MapValue,
    ObjectValue,
    OptionalValue,
    TypeValue,
    equal,
    kind_of,
)

LIST_COST = 10
MAP_COST = 30
OBJECT_COST = 40


class Activation:
    """Variables of one evaluation and what it has cost. limit: cost that it may not exceed."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        """variables: changed by loops while they run."""
        self.variables = variables
        self.limit = limit
        self.cost = 0

    def check(self, cost: int) -> None:
        """Raises CostLimitError if a cost would exceed the limit."""
        if self.cost + cost > self.limit:
            raise CostLimitError

    def spend(self, cost: int) -> None:
        """Count a cost; raises CostLimitError."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError


Step = Callable[[Activation], Any]


def plan(expression: Expression) -> Step:
    """The function that evaluates a checked expression; it raises EvaluationError and
    CostLimitError."""
    match expression:
        case Constant():
            return _constant(expression.value)
        case Identifier():
            return _identifier(expression)
        case Selection():
            return _selection(expression)
        case FunctionCall():
            return _call(expression)
        case ListLiteral():
            return _list(expression)
        case MapLiteral():
            return _map(expression)
        case ObjectLiteral():
            return _object(expression)
        case Comprehension():
            return _loop(expression)


def _constant(value: Any) -> Step:
    return lambda activation: value


def _identifier(expression: Identifier) -> Step:
    name = expression.name.removeprefix(".")
    type_value = TypeValue(name) if name in TYPE_NAMES else None

    def run(activation: Activation) -> Any:
        activation.spend(1)
        if name in activation.variables:
            return activation.variables[name]
        if type_value is not None:
            return type_value
        raise EvaluationError(f"no such attribute(s): {name}")

    return run


def _is_attribute(expression: Expression) -> bool:
    """True where a selection continues the same attribute instead of beginning a new one."""
    if isinstance(expression, FunctionCall):
        return expression.function in ("_[_]", "_[?_]", "_?_:_")
    return isinstance(expression, Identifier | Selection)


def _index(container: Any, key: Any) -> tuple[bool, Any]:
    """(found, value) of a key of a map or an index of a list; raises EvaluationError."""
    if isinstance(container, MapValue):
        if kind_of(key) not in ("string", "int", "uint", "bool", "double"):
            raise EvaluationError(NO_OVERLOAD)
        return container.find(key)
    if isinstance(container, tuple):
        if isinstance(key, bool) or not isinstance(key, int | float):
            raise EvaluationError(f"unsupported index type '{kind_of(key)}' in list")
        if key != int(key):
            raise EvaluationError(f"unsupported index value {key:g} in list")
        return (True, container[int(key)]) if 0 <= key < len(container) else (False, None)
    # Null and scalars have no keys, as an empty map has none.
    return False, None


def _absent(container: Any, key: Any) -> EvaluationError:
    if isinstance(container, tuple):
        return EvaluationError(f"index out of bounds: {int(key)}")
    formatted = "true" if key is True else "false" if key is False else key
    return EvaluationError(f"no such key: {formatted}")


def _qualified(container: Any, key: Any, *, is_optional: bool) -> Any:
    """One step into a value; steps into optional values give optional values."""
    inside = isinstance(container, OptionalValue)
    if inside:
        if not container.has_value:
            return container
        container = container.value
    found, value = _index(container, key)
    if inside or is_optional:
        return OptionalValue(True, value) if found else NONE_VALUE
    if not found:
        raise _absent(container, key)
    return value


def _selection(expression: Selection) -> Step:
    if expression.variable:
        return _identifier(Identifier(expression.variable, expression.offset))
    operand = plan(expression.operand)
    key, is_optional = expression.field, expression.is_optional
    cost = 1 if _is_attribute(expression.operand) else 2

    def run(activation: Activation) -> Any:
        container = operand(activation)
        activation.spend(cost)
        return _qualified(container, key, is_optional=is_optional)

    def test(activation: Activation) -> bool:
        container = operand(activation)
        # The original counts neither the test nor the name it begins with, only the steps.
        activation.spend(cost - 1)
        if isinstance(container, OptionalValue):
            return container.has_value and _index(container.value, key)[0]
        return _index(container, key)[0]

    return test if expression.is_test else run


def _list(expression: ListLiteral) -> Step:
    steps = [plan(element) for element in expression.elements]
    optional = expression.optional
    if not optional and all(isinstance(one, Constant) for one in expression.elements):
        folded = tuple(one.value for one in expression.elements if isinstance(one, Constant))
        return _constant(folded)

    def run(activation: Activation) -> Any:
        made: list[Any] = []
        for index, step in enumerate(steps):
            value = step(activation)
            if index in optional:
                value = _as_optional(value)
                if not value.has_value:
                    continue
                value = value.value
            made.append(value)
        activation.spend(LIST_COST)
        return tuple(made)

    return run


def _as_optional(value: Any) -> OptionalValue:
    if isinstance(value, OptionalValue):
        return value
    text = f"cannot initialize optional list element from non-optional value {value}"
    raise EvaluationError(text)


def _map(expression: MapLiteral) -> Step:
    steps = [(plan(key), plan(value)) for key, value in expression.entries]
    optional = expression.optional
    is_constant = all(
        isinstance(key, Constant) and isinstance(value, Constant)
        for key, value in expression.entries
    )
    cost = 0 if is_constant and not optional else MAP_COST

    def run(activation: Activation) -> Any:
        pairs: list[tuple[Any, Any]] = []
        for index, (key_step, value_step) in enumerate(steps):
            key, value = key_step(activation), value_step(activation)
            if kind_of(key) not in ("string", "int", "uint", "bool"):
                raise EvaluationError("unsupported key type")
            if index in optional:
                value = _as_optional(value)
                if not value.has_value:
                    continue
                value = value.value
            pairs.append((key, value))
        activation.spend(cost)
        return MapValue(pairs)

    return run


def _object(expression: ObjectLiteral) -> Step:
    steps = [(name, plan(value)) for name, value, _ in expression.fields]
    type_name, optional = expression.name.removeprefix("."), expression.optional

    def run(activation: Activation) -> Any:
        pairs = []
        for name, step in steps:
            value = step(activation)
            if name in optional:
                value = _as_optional(value)
                if not value.has_value:
                    continue
                value = value.value
            pairs.append((name, value))
        activation.spend(OBJECT_COST)
        return ObjectValue(type_name, pairs)

    return run


def _call(call: FunctionCall) -> Step:
    special = _SPECIAL.get(call.function)
    if special is not None:
        return special(call)
    arguments = call.arguments if call.target is None else [call.target, *call.arguments]
    steps = [plan(one) for one in arguments]
    overloads: tuple[Overload, ...] = call.overloads
    known = overloads[0] if len(overloads) == 1 else None
    if _is_folded(call, arguments):
        return _folded(steps, overloads)

    def run(activation: Activation) -> Any:
        values = tuple([step(activation) for step in steps])
        overload = choose(overloads, values)
        cost_of = overload.cost
        if overload.is_priced_first and cost_of is not None:
            activation.check(cost_of(values, None))
        result = overload.run(*values)
        # Costs of standard functions count only where the checker knows the overload.
        if cost_of is None or (known is None and overload.function in _COST_BY_OVERLOAD):
            activation.spend(1)
        else:
            activation.spend(cost_of(values, result))
        return result

    return run


def choose(overloads: tuple[Overload, ...], values: tuple[Any, ...]) -> Overload:
    """The overload for values; raises EvaluationError."""
    kinds = tuple([kind_of(value) for value in values])
    for overload in overloads:
        if overload.accepts(kinds):
            return overload
    raise EvaluationError(_no_overload(overloads, kinds))


def _no_overload(overloads: tuple[Overload, ...], kinds: tuple[str, ...]) -> str:
    """Why values have no overload: operators say whether the first value has them at all, other
    functions list the types where the checker has left several overloads."""
    name = overloads[0].function
    able = _OPERANDS.get(name)
    if able is not None:
        is_able = kinds[0] in able or kinds[0] in _RECEIVERS
        return NO_OVERLOAD if is_able else f"{NO_OVERLOAD}: {name}"
    if len(overloads) == 1 or name == "@in":
        return NO_OVERLOAD
    return f"{NO_OVERLOAD}: {name}({', '.join(kinds)})"


_NUMBERS = frozenset({"int", "uint", "double"})
_TIMES = frozenset({"google.protobuf.Duration", "google.protobuf.Timestamp"})
_ORDERED = _NUMBERS | _TIMES | {"bool", "string", "bytes"}
_OPERANDS = {
    "_+_": _NUMBERS | _TIMES | {"string", "bytes", "list"},
    "_-_": _NUMBERS | _TIMES,
    "_*_": _NUMBERS,
    "_/_": _NUMBERS,
    "_%_": frozenset({"int", "uint"}),
    "-_": frozenset({"int", "double", "bool"}),
    "_<_": _ORDERED,
    "_<=_": _ORDERED,
    "_>_": _ORDERED,
    "_>=_": _ORDERED,
    "size": frozenset({"string", "bytes", "list", "map"}),
}
"""Types that have an operator at all, whatever its other operand."""
_RECEIVERS = _TIMES | {"string"}
"""Types that are asked about every operator, and answer for themselves."""


_COST_BY_OVERLOAD = frozenset({
    "startsWith", "endsWith", "contains", "matches", "string", "bytes", "@in", "_<_", "_<=_", "_>_",
    "_>=_", "_+_", "strings.quote", "format",
})  # fmt: skip
_CONVERSIONS = frozenset({
    "bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint",
})  # fmt: skip


def _is_folded(call: FunctionCall, arguments: list[Expression]) -> bool:
    """True where the original evaluates the call once: a conversion of a constant, or a search in
    constants."""
    if call.function in _CONVERSIONS:
        return len(arguments) == 1 and isinstance(arguments[0], Constant)
    if call.function != "@in" or not isinstance(arguments[1], ListLiteral):
        return False
    elements = arguments[1].elements
    kinds = {type(one.value) if isinstance(one, Constant) else None for one in elements}
    return len(kinds) == 1 and None not in kinds


def instantiation_fault(expression: Expression) -> str:
    """Error of the first conversion of a constant that fails, which the original evaluates before
    it runs the expression; "" for none."""
    for one in walk(expression):
        if not isinstance(one, FunctionCall) or one.function not in _CONVERSIONS:
            continue
        if one.target is None and _is_folded(one, one.arguments):
            (argument,) = one.arguments
            assert isinstance(argument, Constant)
            try:
                choose(one.overloads, (argument.value,)).run(argument.value)
            except EvaluationError as error:
                return str(error)
    return ""


def _folded(steps: list[Step], overloads: tuple[Overload, ...]) -> Step:
    def run(activation: Activation) -> Any:
        values = tuple([step(activation) for step in steps])
        return choose(overloads, values).run(*values)

    return run


def _logical(call: FunctionCall) -> Step:
    """`&&` and `||`: a decisive side absorbs an error of the other."""
    decisive = call.function == "_||_"
    first, second = (plan(argument) for argument in call.arguments)

    def run(activation: Activation) -> bool:
        fault: EvaluationError | None = None
        for step in (first, second):
            try:
                value = step(activation)
            except EvaluationError as error:
                fault = fault or error
                continue
            if not isinstance(value, bool):
                fault = fault or EvaluationError(NO_OVERLOAD)
            elif value is decisive:
                return decisive
        if fault is not None:
            raise fault
        return not decisive

    return run


def _conditional(call: FunctionCall) -> Step:
    condition, truthy, falsy = (plan(argument) for argument in call.arguments)

    def run(activation: Activation) -> Any:
        value = condition(activation)
        if not isinstance(value, bool):
            raise EvaluationError(NO_OVERLOAD)
        return truthy(activation) if value else falsy(activation)

    return run


def _element(call: FunctionCall) -> Step:
    """`a[b]` and `a[?b]`."""
    container_step, key_step = (plan(argument) for argument in call.arguments)
    is_optional = call.function == "_[?_]"
    cost = 1 if _is_attribute(call.arguments[0]) else 2

    def run(activation: Activation) -> Any:
        container = container_step(activation)
        key = key_step(activation)
        activation.spend(cost)
        return _qualified(container, key, is_optional=is_optional)

    return run


def _not_strictly_false(call: FunctionCall) -> Step:
    (operand,) = (plan(argument) for argument in call.arguments)

    def run(activation: Activation) -> bool:
        try:
            value = operand(activation)
        except EvaluationError:
            value = True
        activation.spend(1)
        return value is not False

    return run


def _or_value(call: FunctionCall) -> Step:
    """`a.or(b)` and `a.orValue(b)`: b is evaluated only where a has no value."""
    assert call.target is not None
    target, other = plan(call.target), plan(call.arguments[0])
    is_flat = call.function == "or"

    def run(activation: Activation) -> Any:
        value = target(activation)
        if not isinstance(value, OptionalValue):
            raise EvaluationError(NO_OVERLOAD)
        if not value.has_value:
            return other(activation)
        return value if is_flat else value.value

    return run


def _equality(call: FunctionCall) -> Step:
    """`==` and `!=`; a library's values cost 1, others by the smaller size."""
    first, second = (plan(argument) for argument in call.arguments)
    wanted = call.function == "_==_"
    cost_of = call.overloads[0].cost

    def run(activation: Activation) -> bool:
        left, right = first(activation), second(activation)
        activation.spend(cost_of((left, right), None))
        return equal(left, right) is wanted

    return run


_SPECIAL: dict[str, Callable[[FunctionCall], Step]] = {
    "_&&_": _logical,
    "_||_": _logical,
    "_?_:_": _conditional,
    "_[_]": _element,
    "_[?_]": _element,
    "@not_strictly_false": _not_strictly_false,
    "or": _or_value,
    "orValue": _or_value,
    "_==_": _equality,
    "_!=_": _equality,
}
_MISSING = object()


def _loop(loop: Comprehension) -> Step:
    over, initial, condition, step, result = (
        plan(one) for one in (loop.range, loop.initial, loop.condition, loop.step, loop.result)
    )
    accumulator, variable, variable2 = loop.accumulator, loop.variable, loop.variable2

    def run(activation: Activation) -> Any:
        items = _items(over(activation), two=bool(variable2))
        variables = activation.variables
        names = (accumulator, variable, variable2)
        before = [variables.get(name, _MISSING) for name in names]
        held: Any = _attempt(initial, activation)
        for first, second in items:
            variables[variable] = first
            if variable2:
                variables[variable2] = second
            variables[accumulator] = held
            if condition(activation) is not True:
                break
            held = _attempt(step, activation)
        _restore(variables, (variable, variable2), before[1:])
        variables[accumulator] = held
        try:
            return result(activation)
        finally:
            _restore(variables, (accumulator,), before[:1])

    return run


class _Variables(dict[str, Any]):
    """Variables some of which are errors: reading one of these raises it."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, EvaluationError):
            raise value
        return value


def variables_of(values: dict[str, Any]) -> dict[str, Any]:
    """Variables for an Activation."""
    return _Variables(values)


def _attempt(step: Step, activation: Activation) -> Any:
    """The value, or the error as a value: a later decisive value may absorb it."""
    try:
        return step(activation)
    except EvaluationError as error:
        return error


def _restore(variables: dict[str, Any], names: tuple[str, ...], before: list[Any]) -> None:
    for name, value in zip(names, before, strict=True):
        if value is _MISSING:
            variables.pop(name, None)
        else:
            variables[name] = value


def _items(over: Any, *, two: bool) -> list[tuple[Any, Any]]:
    if isinstance(over, tuple):
        return list(enumerate(over)) if two else [(one, None) for one in over]
    if isinstance(over, MapValue):
        return [(key, value) for key, value in over.entries.values()]
    raise EvaluationError(f"got '{_class_of(over)}', expected iterable type")


def _class_of(value: Any) -> str:
    """The original's name of the class of a value."""
    kind = kind_of(value)
    name = {"null_type": "Null", "optional_type": "Optional"}.get(kind)
    return f"types.{name or kind.rpartition('.')[2].capitalize()}"
