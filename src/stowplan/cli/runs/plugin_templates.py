"""What `stowplan plugin new` writes: a rule to start from, and its test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from string import Template

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
    """How well `node` suits `pod`: from 0 to 100, the most."""
    team = pod.labels.get("team")
    return 100 if team is not None and node.labels.get("team") == team else 0
''')

FUNCTION_TEST = Template('''\
"""$name does what it says; run by `pytest`."""

from __future__ import annotations

import pytest
from $name import $name

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


@pytest.mark.parametrize(("pod", "wanted"), [("ours", [100, 0, 0]), ("free", [0, 0, 0])])
def test_nodes_are_scored(pod: str, wanted: list[int]) -> None:
    assert [$name(CLUSTER.pods[pod], node) for node in CLUSTER.table.infos()] == wanted


@pytest.mark.parametrize("check", checks($name))
def test_the_contract_is_kept(check: Check) -> None:
    check()
''')

CLASS = Template('''\
"""$title: keep nodes for their team, and prefer nodes with memory left.

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
    """What `pluginConfig` may say. label: of pods and nodes, whose values must be the same."""

    label: str = "team"


class $title:
    """Refuse nodes of another team; prefer those with the most memory free."""

    name = "$title"
    weight = 1
    Args = ${title}Args
    # No eviction of pods changes the labels of a node.
    REJECTED = unresolvable("node(s) belonged to another team")

    def __init__(self, args: ${title}Args) -> None:
        self.label = args.label

    # The rule, over one value of the label.

    def suits(self, owner: str | None, pod: Pod) -> bool:
        """True for a node that is nobody's, or the pod's team's."""
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
        """From 0 to 100, the most free memory."""
        most = scores.max(initial=0)
        return scores * 100 // most if most else scores
''')

CLASS_TEST = Template('''\
"""$title does what it says; run by `pytest`."""

from __future__ import annotations

import pytest
from $name import $title, ${title}Args

from stowplan.framework import OK
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


@pytest.mark.parametrize(
    ("pod", "wanted"), [("ours", [True, False, True]), ("free", [False, False, True])]
)
def test_nodes_are_refused(pod: str, wanted: list[bool]) -> None:
    plugin = $title($title.Args())
    asked = [plugin.filter(CLUSTER.pods[pod], node) for node in CLUSTER.table.infos()]
    assert asked == [OK if suits else $title.REJECTED for suits in wanted]


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
    for name in _names_in(text.substitute(name="_", title="_"))
) - {"_", "_args"}
"""Names, in lower case, that these texts use for something else."""
