"""Ceilings: functions of at most 70 lines, files of at most 600."""

import ast

import pytest

from tests.tidy import tree

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
ARCHITECTURE_LINES_MAX = 250
# Numba's disk cache notices changes of the file that a kernel is in, not of others.
IN_ONE_FILE = (
    "src/stowplan/columns/engine/card_kernels.py",
    "src/stowplan/columns/engine/kernels.py",
)


def long_functions(where: str, text: str) -> list[str]:
    return [
        f"{where}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
        for node in tree.nodes(text, ast.FunctionDef, ast.AsyncFunctionDef)
        if (lines := _lines(node)) > FUNCTION_LINES_MAX
    ]


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    # Decorators are read with the function, so they count.
    first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
    return (node.end_lineno or first) - first + 1


def too_long(where: str, text: str, lines_max: int) -> list[str]:
    lines = text.count("\n")
    return [f"{where}: {lines} lines, at most {lines_max}"] if lines > lines_max else []


def test_functions_are_short() -> None:
    problems = [
        problem
        for path in tree.python("src", "tests", "bench")
        for problem in long_functions(tree.name(path), tree.read(path))
    ]
    assert not problems, tree.report(problems)


def test_files_are_short() -> None:
    problems = [
        problem
        for path in tree.python("src", "tests", "bench")
        if tree.name(path) not in IN_ONE_FILE
        for problem in too_long(tree.name(path), tree.read(path), FILE_LINES_MAX)
    ]
    assert not problems, tree.report(problems)


def test_architecture_is_short() -> None:
    text = tree.read(tree.ROOT / "ARCHITECTURE.md")
    assert not too_long("ARCHITECTURE.md", text, ARCHITECTURE_LINES_MAX)


@pytest.mark.parametrize("head", ["def f():\n", "async def f():\n", "class C:\n def f(self):\n"])
def test_control_long_function(head: str) -> None:
    most = head + "  pass\n" * (FUNCTION_LINES_MAX - 1)
    assert not long_functions("x.py", most)
    assert long_functions("x.py", most + "  pass\n")


def test_control_decorators_count() -> None:
    assert long_functions("x.py", "@a\n@b\ndef f():\n" + "  pass\n" * (FUNCTION_LINES_MAX - 2))


def test_control_long_file() -> None:
    assert not too_long("x.py", "\n" * 600, FILE_LINES_MAX)
    assert too_long("x.py", "\n" * 601, FILE_LINES_MAX)
