"""Results in notebooks and as frames: a short repr, a small table, a row per entry."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stowplan
from stowplan.forecast.explain import explain_changes
from stowplan.forecast.explain_pending import explain_pending
from stowplan.forecast.other_configuration import ConfigurationComparison, PlacementDifference
from stowplan.forecast.queue_shares import Loan, QueueShares, Shares
from stowplan.insight.capacity.card_moves import CardFigures, CardMove, DefragmentPlan
from stowplan.insight.capacity.node_fit import NodeFit, PoolCount

CLUSTER = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", pods: "9"}}}
- {apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "4", pods: "9"}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: a, annotations: {stowplan.dev/run-seconds: "60"},
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: a, uid: u, controller: true}]}
  spec: {nodeName: n1, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: w, annotations: {note: "<b>"}}
  spec: {priority: 9, containers: [{name: c, image: i, resources: {requests: {cpu: "5"}}}]}
"""
MORE = """
apiVersion: v1
kind: Pod
metadata: {name: more}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "2"}}}]}
"""
SESSIONS = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'
KEY = "default/w"


class Parsed(HTMLParser):
    """Checks that elements nest, and counts rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.n_rows = 0
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("b", "script")
        self.open.append(tag)
        self.n_rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("views")
    for name, text in (("cluster", CLUSTER), ("more", MORE), ("sessions", SESSIONS)):
        (found / f"{name}.yaml").write_text(text)
    return found


@pytest.fixture(autouse=True)
def pandas_of_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are their columns; pandas need not be installed."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))


CARDS = CardFigures(1000, 500.0, 0.25, 0.5), CardFigures(1000, 250.0, 0.125, 0.25)
MOVE = CardMove("default/<b>", "n1", ("0",), "n2", ("1",))
QUEUE = QueueShares("<b>", 2, 1, 3, {"cpu": 0.5}, {"cpu": 4.0}, {"cpu": 1.0}, {}, 0.25)
CHANGED = PlacementDifference("default/p", "moved", "n1", "n2", 3.0)
MADE = {
    "NodeFit(2 nodes, cost 4, the least)": NodeFit(
        "v", 3, 2, 4.0, 4.0, True, (PoolCount("a", 2, 2.0, 3),)
    ),
    "DefragmentPlan(1 move, fragments 25.0% to 12.5%)": DefragmentPlan(
        "p", "v", 3, *CARDS, (MOVE,)
    ),
    "Shares(1 queue, 3 pending pods, 1 loan)": Shares(
        "v", "s", {"cpu": 8.0}, [QUEUE], [Loan("q", "r", "cpu", 1.0, 0.0)], {}
    ),
    "ConfigurationComparison(2 pods, 1 moved)": ConfigurationComparison(
        2, {"moved": 1, "later": 0}, (0, 0), 0, [CHANGED]
    ),
}


def check(found: Any, text: str, n_rows: int) -> None:
    """n_rows: of the frame."""
    assert repr(found) == text
    assert bool(Parsed(found._repr_html_()).n_rows) >= bool(n_rows)
    columns = found.to_frame("pandas")
    assert {len(values) for values in columns.values()} == {n_rows}


@pytest.mark.parametrize(("text", "found"), MADE.items())
def test_values(text: str, found: Any) -> None:
    check(found, text, 1)


def test_answers(folder: Path) -> None:
    cluster, more = folder / "cluster.yaml", folder / "more.yaml"
    found = explain_changes(KEY, stowplan.read_cluster(cluster))
    check(found, f"PodChanges({KEY!r}, request 20)", 1)
    check(explain_pending(cluster), "PendingCauses(1 pending pod, 1 cause)", 1)
    check(stowplan.explain(KEY, cluster), f"Explanation({KEY!r}, pending, 0 of 2 nodes fit)", 2)
    job = stowplan.explain_job(KEY, cluster, config=folder / "sessions.yaml")
    check(job, f"JobExplanation({KEY!r}, unseen)", 0)
    check(stowplan.what_if(cluster, [("drain", "n1")]), "WhatIf(1 moved)", 1)
    check(stowplan.capacity(more, cluster), "CapacityCount(pod/more: 3)", 1)
    check(stowplan.compact(cluster), "CompactPlan(1 of 2 nodes emptied, saves 1)", 0)
    starts = stowplan.eta(cluster)
    check(starts, repr(starts), len(starts.pods))
    assert "never" in starts._repr_html_()
    preview = stowplan.preempt_preview(cluster, pod=KEY)
    check(preview, repr(preview), 0)
