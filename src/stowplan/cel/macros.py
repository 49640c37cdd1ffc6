"""Macros of CEL: calls that become loops, tests and bindings.

Source: cel-go v0.26, parser/macro.go, ext/bindings.go, ext/comprehensions.go, cel/library.go
(optional types).
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.cel.syntax_tree import (
    Comprehension,
    Constant,
    Expression,
    FunctionCall,
    Identifier,
    Issues,
    ListLiteral,
    MapLiteral,
    Selection,
)

ACCUMULATOR = "@result"
UNUSED = "#unused"

Macro = Callable[[FunctionCall, Issues], Expression | None]


def expanded(call: FunctionCall, issues: Issues) -> Expression:
    """The expansion of a call that is a macro, else the call."""
    macro = _MACROS.get((call.function, len(call.arguments), call.target is not None))
    if macro is None:
        return call
    found = macro(call, issues)
    return call if found is None else found


def _call(name: str, offset: int, *arguments: Expression) -> FunctionCall:
    return FunctionCall(name, list(arguments), offset)


def _result(offset: int) -> Identifier:
    return Identifier(ACCUMULATOR, offset)


def _variable(argument: Expression, issues: Issues) -> str:
    if isinstance(argument, Identifier) and not argument.name.startswith("."):
        return argument.name
    issues.report(argument.offset, "argument must be a simple name")
    return UNUSED


def _has(call: FunctionCall, issues: Issues) -> Expression:
    argument = call.arguments[0]
    if isinstance(argument, Selection) and not argument.is_optional and not argument.is_test:
        return Selection(argument.operand, argument.field, call.offset, is_test=True)
    issues.report(argument.offset, "invalid argument to has() macro")
    return Constant(False, call.offset)


def _loop(
    call: FunctionCall,
    issues: Issues,
    initial: Expression,
    condition: Expression,
    step: Expression,
    result: Expression,
    n_variables: int = 1,
) -> Expression:
    names = [_variable(one, issues) for one in call.arguments[:n_variables]]
    assert call.target is not None
    if n_variables == 2 and names[0] == names[1] != UNUSED:
        issues.report(call.arguments[1].offset, f"duplicate variable name: {names[1]}")
    second = names[1] if n_variables == 2 else ""
    return Comprehension(
        names[0], call.target, ACCUMULATOR, initial, condition, step, result, call.offset, second
    )


def _quantifier(n_variables: int, *, is_all: bool) -> Macro:
    def expand(call: FunctionCall, issues: Issues) -> Expression:
        at = call.offset
        predicate = call.arguments[n_variables]
        going_on: Expression = _result(at) if is_all else _call("!_", at, _result(at))
        return _loop(
            call,
            issues,
            Constant(is_all, at),
            _call("@not_strictly_false", at, going_on),
            _call("_&&_" if is_all else "_||_", at, _result(at), predicate),
            _result(at),
            n_variables,
        )

    return expand


def _exists_one(n_variables: int) -> Macro:
    def expand(call: FunctionCall, issues: Issues) -> Expression:
        at = call.offset
        counted = _call("_+_", at, _result(at), Constant(1, at))
        step = _call("_?_:_", at, call.arguments[n_variables], counted, _result(at))
        result = _call("_==_", at, _result(at), Constant(1, at))
        return _loop(call, issues, Constant(0, at), Constant(True, at), step, result, n_variables)

    return expand


def _list_step(
    call: FunctionCall, transformed: Expression, predicate: Expression | None
) -> Expression:
    at = call.offset
    step: Expression = _call("_+_", at, _result(at), ListLiteral([transformed], at))
    return step if predicate is None else _call("_?_:_", at, predicate, step, _result(at))


def _to_list(n_variables: int, *, has_predicate: bool) -> Macro:
    def expand(call: FunctionCall, issues: Issues) -> Expression:
        at = call.offset
        predicate = call.arguments[n_variables] if has_predicate else None
        step = _list_step(call, call.arguments[-1], predicate)
        return _loop(
            call, issues, ListLiteral([], at), Constant(True, at), step, _result(at), n_variables
        )

    return expand


def _filter(call: FunctionCall, issues: Issues) -> Expression:
    at = call.offset
    element = Identifier(_variable(call.arguments[0], issues), at)
    step = _list_step(call, element, call.arguments[1])
    return _loop(call, issues, ListLiteral([], at), Constant(True, at), step, _result(at))


def _to_map(*, has_predicate: bool, is_entry: bool) -> Macro:
    def expand(call: FunctionCall, issues: Issues) -> Expression:
        at = call.offset
        transformed = call.arguments[-1]
        key = Identifier(_variable(call.arguments[0], issues), at)
        if is_entry:
            step: Expression = _call("cel.@mapInsert", at, _result(at), transformed)
        else:
            step = _call("cel.@mapInsert", at, _result(at), key, transformed)
        if has_predicate:
            step = _call("_?_:_", at, call.arguments[2], step, _result(at))
        return _loop(call, issues, MapLiteral([], at), Constant(True, at), step, _result(at), 2)

    return expand


def _binding(variable: str, value: Expression, result: Expression, offset: int) -> Comprehension:
    """A loop over nothing whose accumulator is the variable."""
    return Comprehension(
        UNUSED,
        ListLiteral([], offset),
        variable,
        value,
        Constant(False, offset),
        Identifier(variable, offset),
        result,
        offset,
    )


def _bind(call: FunctionCall, issues: Issues) -> Expression | None:
    if not isinstance(call.target, Identifier) or call.target.name != "cel":
        return None
    name, value, result = call.arguments
    if not isinstance(name, Identifier):
        issues.report(name.offset, "cel.bind() variable names must be simple identifiers")
        return call
    return _binding(name.name, value, result, call.offset)


def _optional_map(*, is_flat: bool) -> Macro:
    function = "optFlatMap" if is_flat else "optMap"

    def expand(call: FunctionCall, issues: Issues) -> Expression:
        at = call.offset
        name, mapped = call.arguments
        if not isinstance(name, Identifier):
            issues.report(name.offset, f"{function}() variable name must be a simple identifier")
            return call
        assert call.target is not None
        value = FunctionCall("value", [], at, call.target)
        inner: Expression = _binding(name.name, value, mapped, at)
        if not is_flat:
            inner = _call("optional.of", at, inner)
        has_value = FunctionCall("hasValue", [], at, call.target)
        return _call("_?_:_", at, has_value, inner, _call("optional.none", at))

    return expand


def _sort_by(call: FunctionCall, issues: Issues) -> Expression:
    at = call.offset
    assert call.target is not None
    name = _variable(call.arguments[0], issues)
    keys = Comprehension(
        name,
        call.target,
        ACCUMULATOR,
        ListLiteral([], at),
        Constant(True, at),
        _call("_+_", at, _result(at), ListLiteral([call.arguments[1]], at)),
        _result(at),
        at,
    )
    return FunctionCall("@sortByAssociatedKeys", [keys], at, call.target)


_MACROS: dict[tuple[str, int, bool], Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier(1, is_all=True),
    ("all", 3, True): _quantifier(2, is_all=True),
    ("exists", 2, True): _quantifier(1, is_all=False),
    ("exists", 3, True): _quantifier(2, is_all=False),
    ("exists_one", 2, True): _exists_one(1),
    ("existsOne", 2, True): _exists_one(1),
    ("existsOne", 3, True): _exists_one(2),
    ("map", 2, True): _to_list(1, has_predicate=False),
    ("map", 3, True): _to_list(1, has_predicate=True),
    ("transformList", 3, True): _to_list(2, has_predicate=False),
    ("transformList", 4, True): _to_list(2, has_predicate=True),
    ("transformMap", 3, True): _to_map(has_predicate=False, is_entry=False),
    ("transformMap", 4, True): _to_map(has_predicate=True, is_entry=False),
    ("transformMapEntry", 3, True): _to_map(has_predicate=False, is_entry=True),
    ("transformMapEntry", 4, True): _to_map(has_predicate=True, is_entry=True),
    ("filter", 2, True): _filter,
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _optional_map(is_flat=False),
    ("optFlatMap", 2, True): _optional_map(is_flat=True),
    ("sortBy", 2, True): _sort_by,
}
