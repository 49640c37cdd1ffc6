"""The details of many nodes at once are those of each node alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from stowplan.columns import NodeTable
from stowplan.forecast.explain import framework_for
from stowplan.framework import CycleState
from stowplan.objects.pod import Affinity, NodeAffinity, Pod
from stowplan.objects.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.testing import builders

NAMES = NodeSelectorTerm(
    match_expressions=(NodeSelectorRequirement("pool", "In", ("c",)),),
    match_fields=(NodeSelectorRequirement("metadata.name", "In", ("n1", "n3")),),
)
AFFINITY = Affinity(node_affinity=NodeAffinity(required=NodeSelector((NAMES,))))
CASES = [
    ("NodeResourcesFit", builders.pod("w", cpu="3", memory="3Gi")),
    ("NodeResourcesFit", builders.pod("w", resources={"example.com/gpu": "1"})),
    ("TaintToleration", builders.pod("w")),
    ("NodeAffinity", builders.pod("w", node_selector={"pool": "a", "disk": "ssd"})),
    ("NodeAffinity", builders.pod("w", affinity=AFFINITY)),
]
TAINTS = ((), ("team=x:NoSchedule",), ("team=x:NoSchedule", "gpu:NoExecute"))


def table(seed: int) -> NodeTable:
    rng, nodes = Random(seed), NodeTable()
    for i in range(12):
        labels = {"pool": rng.choice("ab")} | ({"disk": "ssd"} if rng.random() < 0.5 else {})
        cpu, taints = rng.choice("24"), rng.choice(TAINTS)
        pods = rng.choice((2, 6))
        node = builders.node(
            f"n{i}", cpu=cpu, memory="4Gi", pods=pods, labels=labels, taints=taints
        )
        nodes.add_node(node)
        for j in range(rng.randrange(4)):
            cpu = rng.choice(["500m", "1"])
            nodes.add_pod(builders.pod(f"p{i}-{j}", cpu=cpu, memory="1Gi", on=f"n{i}"))
    nodes.refresh()
    return nodes


@pytest.mark.parametrize(("name", "pod"), CASES)
def test_explain_column_is_explain_of_each_row(name: str, pod: Pod) -> None:
    framework = framework_for(pod, read_deciders(None, ()), None)
    calls = framework.members[name].calls
    explain, explain_column = calls["explain"], calls["explain_column"]
    assert explain is not None
    assert explain_column is not None
    n_texts = 0
    for seed in range(10):
        nodes, state = table(seed), CycleState()
        rows = np.array([7, 3, 3, 0, 11], dtype=np.int64)
        each = [list(explain(pod, nodes.info(row), state)) for row in rows.tolist()]
        assert explain_column(pod, nodes, rows, state) == each
        n_texts += sum(map(len, each))
    assert n_texts
