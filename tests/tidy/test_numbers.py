"""The API server reads no number of a client by `int`: it refuses long ones with a ValueError."""

import ast

import pytest

from tests.tidy.tree import ROOT

PACKAGE = ROOT / "src" / "stowplan" / "cluster"
CONVERTED = PACKAGE / "strconv.py"
OWN_TEXTS = {
    "canonical.py": "a version that the server has written",
    "meta.py": "a digit of a uid that the server makes",
    "schema/parse.py": "a JSON number whose digits were counted",
    "schema/times.py": "a few digits that a pattern has counted",
    "times.py": "a few digits of a stored time",
}
"""Modules that may, and what they read."""
ELSEWHERE = ("controllers/", "hollow/")
"""What reads stored objects only, and has a test of its own for what stands in them."""


def bare(source: str) -> list[int]:
    """Lines that call `int`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int"
    ]


def test_numbers_are_read_in_one_place() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if path != CONVERTED and not name.startswith(ELSEWHERE) and bare(path.read_text("utf-8")):
            found[name] = bare(path.read_text("utf-8"))
    assert found.keys() == OWN_TEXTS.keys(), found


@pytest.mark.parametrize("line", ["x = int(text)", "int(text, 16)", "[int(x) for x in y]"])
def test_a_call_is_found(line: str) -> None:
    assert bare(line)
    assert not bare("x: int = parse_int(text)")
