"""The API server reads no number of a client by `int`: it refuses long ones with a ValueError."""

import ast

import pytest

from tests.tidy.tree import ROOT, nodes, read

PACKAGE = ROOT / "src" / "stowplan"
CONVERTED = PACKAGE / "apis" / "machinery" / "strconv.py"
OWN_TEXTS = {
    "apis/core/pod_lifecycle.py": "exit codes whose digits were counted",
    "apis/machinery/stored_form.py": "a version that the server has written",
    "apis/machinery/object_meta.py": "a digit of a uid that the server makes",
    "apis/schema/json_parser.py": "a JSON number whose digits were counted",
    "apis/schema/canonical_time.py": "a few digits that a pattern has counted",
    "apis/machinery/timestamps.py": "a few digits of a stored time",
    "apiserver/admission/policies/patch_results.py": "an unsigned number of CEL as a plain one",
    "apiserver/crd/rules/typed_values.py": "a JSON number as a whole one",
}
"""Modules that may, and what they read."""
CHECKED = ("apis", "apiserver")
"""What reads what clients send. Controllers read stored objects only, and have their own test."""


def bare(source: str) -> list[int]:
    """Lines that call `int`."""
    return [
        node.lineno
        for node in nodes(source, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "int"
    ]


def test_numbers_are_read_in_one_place() -> None:
    found = {}
    for path in sorted(file for package in CHECKED for file in (PACKAGE / package).rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if path != CONVERTED and (lines := bare(read(path))):
            found[name] = lines
    assert found.keys() == OWN_TEXTS.keys(), found


@pytest.mark.parametrize("line", ["x = int(text)", "int(text, 16)", "[int(x) for x in y]"])
def test_a_call_is_found(line: str) -> None:
    assert bare(line)
    assert not bare("x: int = parse_int(text)")
