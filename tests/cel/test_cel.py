"""CEL: values, types, costs and messages of Kubernetes' environment."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.cel.cel_types import cel_type
from stowplan.cel.program import Environment, kubernetes_library
from stowplan.cel.syntax_tree import CompileError
from stowplan.cel.values import CostLimitError, EvaluationError, MapValue

MANY = "[0,1,2,3,4,5,6,7,8,9]"


def environment() -> Environment:
    variables = {"labels": cel_type("map(string, string)"), "any": cel_type("any")}
    return Environment(variables, kubernetes_library())


def evaluated(text: str, limit: int = 10_000) -> tuple[Any, int]:
    variables = {"labels": MapValue([("a", "x"), ("b", "y")]), "any": 3}
    return environment().compile(text).evaluate(variables, limit)


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3 == 7",
        "-7 / 2 == -3 && -7 % 2 == -1",
        "1 < 2.5 && 2u > 1 && dyn(2u) == 2",
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1)",
        "[1, 2, 3].map(x, x * 2).filter(y, y > 2) == [4, 6]",
        "[1, 2, 3].exists_one(x, x == 2)",
        "labels.all(k, labels[k] != '')",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
        "cel.bind(x, 5, x + 1) == 6",
        "optional.of(3).optMap(x, x + 1).orValue(0) == 4",
        "labels.?nope.orValue('none') == 'none'",
        "labels[?'a'].value() == 'x'",
        "has(labels.a) && !has(labels.nope)",
        "'b' in labels && 2 in [1, 2]",
        "any == 3 && any > 2 && any != 'a'",
        "'a,b'.split(',').join('-') == 'a-b'",
        "'%d %s'.format([dyn(1), dyn('x')]) == '1 x'",
        "'hello'.matches('^h.*o$') && 'abc'.find('b.') == 'bc'",
        "quantity('1Gi').add(quantity('1Mi')).asInteger() == 1074790400",
        "quantity('1.5').isInteger() == false && quantity('1k') == quantity('1000')",
        "semver('v1.02', true).minor() == 2",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "duration('1h30m') > duration('1m') && string(duration('90s')) == '90s'",
        "timestamp('2024-02-29T00:00:00Z').getDayOfYear() == 59",
        "type(1) == int && type('a') != int",
        "sets.contains([1, 2, 3], [2]) && [1, 2, 2].distinct() == [1, 2]",
        "int('42') == 42 && string(1.5) == '1.5' && double('2') == 2.0",
        "!has(dyn(null).a) && !has(dyn('x').a) && !dyn(1).?a.hasValue() && !dyn(1)[?0].hasValue()",
        "b'abc'.size() == 3 && 'naïve'.size() == 5",
        '"\\u00e9\\n" == "é\\x0a"',
    ],
)
def test_true(text: str) -> None:
    assert evaluated(text)[0] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("labels.nope == ''", "no such key: nope"),
        ("any > 'a'", "no such overload"),
        ("dyn(null).foo == 1", "no such key: foo"),
        ("dyn('x')[0] == 1", "no such key: 0"),
        ("has(dyn(true).a.b)", "no such key: a"),
        ("dyn([1]).foo == 1", "unsupported index type 'string' in list"),
        ("dyn([1])[1.5] == 1", "unsupported index value 1.5 in list"),
        ("dyn([1])[1.0] == 1", "index out of bounds: 1"),
        ("dyn(null) + 1 == 1", "no such overload: _+_"),
        ("dyn('a') + 1 == 1", "no such overload"),
        ("dyn([1]) < dyn([2])", "no such overload: _<_"),
        ("size(dyn(null)) == 1", "no such overload: size"),
        ("string(dyn(null)) == ''", "no such overload: string(null_type)"),
        ("dyn(1).startsWith('a')", "no such overload"),
        ("'a' in dyn(null)", "no such overload"),
        ("dyn(null).all(x, true)", "got 'types.Null', expected iterable type"),
        ("1 / (any - 3) == 1", "division by zero"),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("[1][any] == 1", "index out of bounds: 3"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("semver('1') == semver('1.0.0')", "No Major.Minor.Patch elements found"),
        ("semver('1.02.0').major() == 1", 'Minor number must not contain leading zeroes "02"'),
        ("quantity('1').add(quantity('0.5')).asInteger() == 1", "cannot convert value to integer"),
    ],
)
def test_evaluation_errors(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        evaluated(text)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("nosuch(1)", "undeclared reference to 'nosuch' (in container '')", "1:7"),
        ("labels.a.b", "type 'string' does not support field selection", "1:9"),
        ("'a' + 1", "found no matching overload for '_+_' applied to '(string, int)'", "1:5"),
        ("'a'.size(1)", "found no matching overload for 'size' applied to 'string.(int)'", "1:9"),
        ("[1, 'a']", "expected type 'int' but found 'string'", "1:5"),
        ("[1].all(x, x)", "found no matching overload for '_&&_' applied to '(bool, int)'", "1:8"),
        ("a b", "Syntax error: extraneous input 'b' expecting <EOF>", "1:3"),
        ("(1", "Syntax error: missing ')' at '<EOF>'", "1:3"),
        ("1 + $", "Syntax error: token recognition error at: '$'", "1:5"),
        ("if", "reserved identifier: if", "1:1"),
        ("1 +\n x", "undeclared reference to 'x' (in container '')", "2:2"),
    ],
)
def test_compile_errors(text: str, message: str, place: str) -> None:
    with pytest.raises(CompileError) as raised:
        environment().compile(text)
    assert str(raised.value).splitlines()[0] == f"ERROR: <input>:{place}: {message}"


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("true", 0),
        ("any == 3", 2),
        ("labels['a'] == 'x'", 3),
        ("has(labels.a)", 1),
        ("[1, 2, any].size() == 3", 13),
        (f"{MANY}.all(x, x >= 0)", 51),
    ],
)
def test_costs(text: str, cost: int) -> None:
    assert evaluated(text)[1] == cost
    if cost:
        with pytest.raises(CostLimitError, match="actual cost limit exceeded"):
            evaluated(text, cost - 1)


def test_a_text_is_compiled_once() -> None:
    one = environment()
    assert one.compile("1 == 1") is one.compile("1 == 1")


def test_nesting_has_a_limit() -> None:
    with pytest.raises(CompileError, match="expression recursion limit exceeded: 250"):
        environment().compile("(" * 300 + "1" + ")" * 300)
