"""Columns kept for one pod and read for another give the reasons that the scalar walk gives."""

from __future__ import annotations

import pytest

from stowplan.columns.nodetable import table_of
from stowplan.conformance.attempt_cases import AttemptCase, framework_of
from stowplan.cycle import decide
from stowplan.framework import Snapshot
from stowplan.framework.runtime import registered_plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.resources.fit import NodeResourcesFit
from stowplan.testing import node, pod

A, B = "example.com/a", "example.com/b"
ORDERS = ({A: 1, B: 1}, {B: 1, A: 1}, {B: 1})


def messages(*, columns: bool) -> list[str]:
    """What pods that name their resources in different orders are told, one after the other."""
    snapshot = Snapshot(table_of(node(f"n{i}", resources={B: 4}, pods=9) for i in range(3)))
    waiting: list[Pod] = [pod(f"p{i}", resources=asked) for i, asked in enumerate(ORDERS)]
    framework = framework_of(AttemptCase("case", waiting[0]), columns=columns)
    return [decide(each, snapshot, framework).message for each in waiting]


@pytest.fixture(autouse=True)
def always_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_plugin, "CACHED_NODES_MIN", 1)


def test_kept_codes_give_each_pod_its_own_reasons() -> None:
    kept = messages(columns=True)
    assert kept == messages(columns=False)
    assert ["Insufficient example.com/a" in text for text in kept] == [True, True, False]


def test_control_a_signature_that_forgets_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def unordered(self: NodeResourcesFit, pod: Pod) -> object:
        return frozenset(self.wanted(pod))

    monkeypatch.setattr(NodeResourcesFit, "signature", unordered)
    assert messages(columns=True) != messages(columns=False)
