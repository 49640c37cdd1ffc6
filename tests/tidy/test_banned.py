"""What the source may not say: hidden input, output, clock and dice; empty names; lost failures."""

import ast
import io
import re
import tokenize
from collections.abc import Callable
from pathlib import PurePath

import pytest

from tests.tidy import tree

# Packages that may read clocks, files and sockets.
IMPURE = {
    "cli",
    "examples",
    "conformance",
    "experiments",
    "benchmarks",
    "forecast",
    "driver",
    "simulation",
    "insight",
    "inputs",
    "recording",
    "web",
}
CALLS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
CALL_ENDS = re.compile(
    r"(^|\.)(datetime\.(now|utcnow|today)|date\.today|(bz2|codecs|gzip|io|lzma)\.open"
    r"|(read|write)_(bytes|text))$"
)
# Seeded dice are arguments; NumPy's global ones, and unseeded new ones, are hidden input.
RANDOM_CALLS = re.compile(r"(^|\.)random\.[a-z]\w*$|(^|\.)default_rng$")
EMPTY_NAMES = {"common", "core", "helper", "helpers", "misc", "util", "utils"}
EMPTY_CLASSES = re.compile(r"(Helper|Processor|Util|Utils)$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
# A file in which a check's word does not occur is not parsed for it.
BARE_EXCEPT = re.compile(r"\bexcept\s*(\\\s*)?:")
EMPTY_CLASS = re.compile(r"\bclass\b[^:(]*" + EMPTY_CLASSES.pattern.replace("$", r"\b"))


def is_pure(path: PurePath) -> bool:
    """True for files of the package that lie below the driver and the simulator."""
    top, _, *rooms = path.parts
    return top == "src" and rooms[0] not in IMPURE


def banned_calls(where: str, text: str) -> list[str]:
    return [
        f"{where}:{node.lineno}: {called}() below the driver; make it an argument or an effect"
        for node in tree.nodes(text, ast.Call)
        if _is_banned(called := ast.unparse(node.func), node)
    ]


def _is_banned(called: str, node: ast.Call) -> bool:
    if RANDOM_CALLS.search(called):
        seeded = called.endswith("default_rng") and (node.args or node.keywords)
        return not seeded
    return called in CALLS or CALL_ENDS.search(called) is not None


def bare_excepts(where: str, text: str) -> list[str]:
    if not BARE_EXCEPT.search(text):
        return []
    return [
        f"{where}:{node.lineno}: bare except; name what is expected"
        for node in tree.nodes(text, ast.ExceptHandler)
        if node.type is None
    ]


def empty_names(where: str, text: str) -> list[str]:
    parts = {*PurePath(where).parent.parts, PurePath(where).stem}
    # The API group whose name is empty is called core by everybody.
    if where.startswith(("src/stowplan/apis/", "tests/apis/")):
        parts.discard("core")
    modules = [
        f"{where}: {part!r} names no thing; a file lives with its noun"
        for part in sorted(parts & EMPTY_NAMES)
    ]
    classes = [
        f"{where}:{node.lineno}: class {node.name} says what it does to, not what it is"
        for node in (tree.nodes(text, ast.ClassDef) if EMPTY_CLASS.search(text) else ())
        if EMPTY_CLASSES.search(node.name)
    ]
    return modules + classes


def unfinished(where: str, text: str) -> list[str]:
    if not UNFINISHED.search(text):
        return []
    return [
        f"{where}:{token.start[0]}: a TODO names its issue: TODO(#12)"
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and UNFINISHED.search(token.string)
    ]


def fixed_examples(where: str, text: str) -> list[str]:
    """A literal `max_examples` would not grow in a soak."""
    if "max_examples" not in text:
        return []
    return [
        f"{where}:{node.value.lineno}: max_examples={ast.unparse(node.value)};"
        " write examples(...) of tests/soak.py"
        for node in tree.nodes(text, ast.keyword)
        if node.arg == "max_examples" and isinstance(node.value, ast.Constant)
    ]


Check = Callable[[str, str], list[str]]


@pytest.mark.parametrize("check", [bare_excepts, empty_names, unfinished, fixed_examples])
def test_python_is_tidy(check: Check) -> None:
    paths = tree.python("src", "tests", "bench")
    problems = [line for path in paths for line in check(tree.name(path), tree.read(path))]
    assert not problems, tree.report(problems)


def test_calls_below_the_driver() -> None:
    paths = [p for p in tree.python("src") if is_pure(p.relative_to(tree.ROOT))]
    assert paths, "the package was not found, so nothing was checked"
    problems = [line for path in paths for line in banned_calls(tree.name(path), tree.read(path))]
    assert not problems, tree.report(problems)


@pytest.mark.parametrize(
    ("room", "pure"),
    [
        ("objects/a.py", True),
        ("__init__.py", True),
        ("simulation/a.py", False),
        ("cli/main.py", False),
    ],
)
def test_control_pure_rooms(room: str, pure: bool) -> None:
    assert is_pure(PurePath("src/stowplan", room)) is pure


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "print(1)",
        "input()",
        "eval(text)",
        "exec(text)",
        "gzip.open(path)",
        "Path(path).read_text()",
        "datetime.now(tz)",
        "dt.datetime.utcnow()",
        "np.random.default_rng()",
        "np.random.shuffle(rows)",
    ],
)
def test_control_banned_call(line: str) -> None:
    assert banned_calls("x.py", f"def f():\n    {line}\n")


@pytest.mark.parametrize(
    "line", ["np.random.default_rng(seed)", "dice.random()", "session.open()", "log.print(1)"]
)
def test_control_allowed_call(line: str) -> None:
    assert not banned_calls("x.py", line)


def test_control_bare_except() -> None:
    assert bare_excepts("x.py", "try:\n    f()\nexcept:\n    g()\n")
    assert not bare_excepts("x.py", "try:\n    f()\nexcept KeyError:\n    g()\n")


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("src/stowplan/utils/a.py", ""),
        ("src/stowplan/columns/helpers.py", ""),
        ("src/stowplan/core.py", ""),
        ("src/stowplan/columns/rows.py", "class RowHelper: ..."),
    ],
)
def test_control_empty_name(where: str, text: str) -> None:
    assert empty_names(where, text)
    assert not empty_names("src/stowplan/columns/rows.py", "class Rows: ...")


def test_control_unfinished() -> None:
    assert unfinished("x.py", "a = 1  # TO" + "DO: later\n")
    assert not unfinished("x.py", "a = 1  # TO" + "DO(#12): later\n")


def test_control_fixed_examples() -> None:
    assert fixed_examples("x.py", "settings(max_examples=50)")
    assert not fixed_examples("x.py", "settings(max_examples=examples(50))")
