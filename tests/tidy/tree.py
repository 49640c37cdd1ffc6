"""The project's own files, as the tidy tests read them."""

import ast
import gc
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

ROOT = Path(__file__).parents[2]
UNTRACKED = {".git", ".venv", ".hypothesis", "__pycache__", "build", "dist", "out"}
# A file that starts with this line was written by a template, which is what gets reviewed.
GENERATED = "# stowplan: generated kernel"


Node = TypeVar("Node", bound=ast.AST)


@cache
def files() -> tuple[Path, ...]:
    """Every file that is tracked or about to be; in an unpacked sdist, every file but caches."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = b""
    paths = [ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name]
    return tuple(sorted(path for path in paths or _walk() if path.is_file()))


def _walk() -> Iterator[Path]:
    for folder, names, leaves in os.walk(ROOT):
        names[:] = [name for name in names if name not in UNTRACKED and "_cache" not in name]
        yield from (Path(folder, leaf) for leaf in leaves)


def python(*tops: str) -> list[Path]:
    """Python files under the folders `tops`, without generated ones."""
    return [
        path
        for path in files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in tops
        and not read(path).startswith(GENERATED)
    ]


def markdown() -> list[Path]:
    """Every page of documentation."""
    return [path for path in files() if path.suffix == ".md"]


@cache
def read(path: Path) -> str:
    """The text of `path`."""
    return path.read_text(encoding="utf-8")


def nodes(text: str, *types: type[Node]) -> Iterator[Node]:
    """The nodes of some types in a Python text, type by type."""
    found = _nodes_by_type(text)
    return cast("Iterator[Node]", (node for one in types for node in found.get(one, ())))


@cache
def _nodes_by_type(text: str) -> dict[type[ast.AST], list[ast.AST]]:
    """All checks read the same nodes: to parse every file for each check would take a minute."""
    # They stay to the end of the tidy tests, and have no cycles.
    gc.disable()
    try:
        waiting: list[ast.AST] = [ast.parse(text)]
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in waiting:
            found.setdefault(type(node), []).append(node)
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    waiting += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    waiting.append(value)
        gc.freeze()
    finally:
        gc.enable()
    return found


def forget() -> None:
    """Let go of what was read."""
    read.cache_clear()
    _nodes_by_type.cache_clear()


def name(path: Path) -> str:
    """`path` as complaints print it."""
    return path.relative_to(ROOT).as_posix()


def report(problems: list[str]) -> str:
    """What a failing test prints: one complaint a line."""
    return "\n" + "\n".join(problems)
