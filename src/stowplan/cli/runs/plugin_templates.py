"""What `stowplan plugin new` does: write a plugin to start from, and its test."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import keyword
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template

import click

from stowplan.cli.errors import CommandError

CLUSTER = '''\
from stowplan.testing import Check, checks, draw

CLUSTER = draw("""
    node  labels
    n1    team=a
    n2    team=b
    n3    -

    pod   labels
    ours  team=a
    free  -
""")
'''
"""What both tests evaluate a plugin on."""

FUNCTION = Template('''\
"""$name: prefer nodes of the pod's own team.

Try it:

    stowplan simulate --plugin $name.py
    stowplan plugin check $name.py
"""

from __future__ import annotations

from stowplan.framework import NodeInfo, Pod, score


@score("$name", weight=1)
def $name(pod: Pod, node: NodeInfo) -> int:
    """Score of `node` for `pod`, from 0 to 100."""
    team = pod.labels.get("team")
    return 100 if team is not None and node.labels.get("team") == team else 0
''')

FUNCTION_TEST = Template('''\
"""Tests of $name; run them with `pytest`."""

from __future__ import annotations

import pytest
from $name import $name

$cluster

@pytest.mark.parametrize(("pod", "expected"), [("ours", [100, 0, 0]), ("free", [0, 0, 0])])
def test_nodes_are_scored(pod: str, expected: list[int]) -> None:
    assert [$name(CLUSTER.pods[pod], node) for node in CLUSTER.table.infos()] == expected


@pytest.mark.parametrize("check", checks($name))
def test_the_contract_is_kept(check: Check) -> None:
    check()
''')

CLASS = Template('''\
"""$title: keep nodes for their team, and prefer nodes with free memory.

Try it:

    stowplan simulate --plugin $name.py
    stowplan plugin check $name.py
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.framework import OK, NodeInfo, NodeTable, Pod, Rows, Status, unresolvable


class ${title}Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The arguments in `pluginConfig`. label: of pods and nodes, whose values must be equal."""

    label: str = "team"


class $title:
    """Reject nodes of another team; prefer those with the most free memory."""

    name = "$title"
    weight = 1
    Args = ${title}Args
    # No eviction of pods changes the labels of a node.
    REJECTED = unresolvable("node(s) belonged to another team")

    def __init__(self, args: ${title}Args) -> None:
        self.label = args.label

    # The rule, over one value of the label.

    def suits(self, owner: str | None, pod: Pod) -> bool:
        """True for a node without an owner, or of the pod's team."""
        return owner is None or owner == pod.labels.get(self.label)

    # One node.

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        return OK if self.suits(node.labels.get(self.label), pod) else self.REJECTED

    def score(self, node: NodeInfo) -> int:
        return max(0, node.free("memory")) >> 20

    # All nodes at once: the same answers.

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        owners = nodes.labels.column(self.label)
        return owners.where(lambda owner: self.suits(owner, pod), rows)

    def score_column(self, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        free = nodes.allocatable("memory")[rows] - nodes.requested("memory")[rows]
        megabytes: NDArray[np.int64] = np.maximum(free, 0) >> 20
        return megabytes

    def normalize_score(self, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """Scores from 0 to 100, the node with the most free memory."""
        most = scores.max(initial=0)
        return scores * 100 // most if most else scores
''')

CLASS_TEST = Template('''\
"""Tests of $title; run them with `pytest`."""

from __future__ import annotations

import pytest
from $name import $title, ${title}Args

from stowplan.framework import OK
$cluster

@pytest.mark.parametrize(
    ("pod", "expected"), [("ours", [True, False, True]), ("free", [False, False, True])]
)
def test_nodes_are_rejected(pod: str, expected: list[bool]) -> None:
    plugin = $title($title.Args())
    statuses = [plugin.filter(CLUSTER.pods[pod], node) for node in CLUSTER.table.infos()]
    assert statuses == [OK if fits else $title.REJECTED for fits in expected]


@pytest.mark.parametrize("check", checks($title, ${title}Args(label="app")))
def test_the_contract_is_kept(check: Check) -> None:
    check()
''')


def _names_in(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name


RESERVED_NAMES = frozenset(
    name.lower()
    for text in (FUNCTION, FUNCTION_TEST, CLASS, CLASS_TEST)
    for name in _names_in(text.substitute(name="_", title="_", cluster=CLUSTER))
) - {"_", "_args"}
"""Names, in lower case, that the templates use themselves."""


def write_plugin(name: str, *, as_class: bool) -> None:
    """Write NAME.py and test_NAME.py; raises CommandError and overwrites nothing."""
    _check_name(name)
    title = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    words = {"name": name, "title": title, "cluster": CLUSTER}
    plugin, test = (CLASS, CLASS_TEST) if as_class else (FUNCTION, FUNCTION_TEST)
    texts = {f"{name}.py": plugin.substitute(words), f"test_{name}.py": test.substitute(words)}
    for path in texts:
        if Path(path).exists():
            raise CommandError(f'"{path}" already exists')
    for path, text in texts.items():
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise CommandError(f"cannot write {path}: {reason}") from None
    click.echo(f"{' and '.join(texts)} created")
    click.echo(
        f"Try: stowplan simulate --plugin {name}.py; stowplan plugin check {name}.py; pytest"
    )


def _check_name(name: str) -> None:
    """Raise CommandError unless a module of this name can be imported beside all others."""
    plain = name.removesuffix(".py").replace("-", "_").replace(".", "_")
    invalid = f'NAME: Invalid value: "{name}": must'
    if not name.isidentifier() or keyword.iskeyword(name) or not name.strip("_"):
        is_near = plain != name and plain.isidentifier() and not keyword.iskeyword(plain)
        hint = f' (did you mean "{plain}"?)' if is_near else ""
        raise CommandError(f"{invalid} be a Python identifier, such as near_data{hint}")
    if name.lower() in RESERVED_NAMES or hasattr(builtins, name):
        raise CommandError(f"{invalid} not be a name that the plugin's code uses")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise CommandError(f"{invalid} not be the name of an installed Python module")
