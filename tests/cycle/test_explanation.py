"""Nodes are explained rule by rule, a column at a time; the answers are those of asking each rule
about each node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.assembly import configuration_of, frameworks_for
from stowplan.cycle import explanation
from stowplan.cycle.attempt import Attempt, filter_pod
from stowplan.cycle.explanation import NodeExplanation, RuleRefusal
from stowplan.framework import Status
from stowplan.framework.node_to_status import PluginVerdicts
from stowplan.testing import generate_cluster
from tests.soak import examples

FRAMEWORK = next(iter(frameworks_for(*configuration_of(None, "test")).values()))


def refusal_on(attempt: Attempt, plugin: str, status: Status, row: int) -> RuleRefusal:
    member, node = attempt.framework.members[plugin], attempt.snapshot.nodes.info(row)
    details: tuple[str, ...] = ()
    if member.calls["explain"] is not None:
        details = tuple(member.call("explain", attempt.pod, node, attempt.state))
    return RuleRefusal(plugin, status.code.title, status.reasons, details)


def one_by_one(attempt: Attempt) -> list[NodeExplanation]:
    """Every rule asked about every node by its scalar method."""
    nodes, verdicts, state = attempt.snapshot.nodes, attempt.verdicts, attempt.state
    assert verdicts is not None
    found = []
    for row in nodes.order.tolist():
        name = nodes.names[row]
        if row not in verdicts.rows:
            absent = attempt.diagnosis.absent
            refused = RuleRefusal(absent.plugin, absent.code.title, absent.reasons)
            found.append(NodeExplanation(name, False, refused))
            continue
        failing = []
        for member in attempt.framework.at("filter"):
            if member.name not in state.skip_filter:
                status = member.call("filter", attempt.pod, nodes.info(row), state)
                if not status.is_success:
                    failing.append(refusal_on(attempt, member.name, status, row))
        first = verdicts.status_of(row)
        if first.is_success:
            found.append(NodeExplanation(name, True))
            continue
        refused = refusal_on(attempt, first.plugin, first, row)
        found.append(NodeExplanation(name, False, refused, tuple(failing)))
    return found


def attempts(seed: int) -> list[Attempt]:
    """The attempts of a generated cluster's pending pods that looked at nodes."""
    cluster = generate_cluster(np.random.default_rng(seed))
    pending = (explanation.pending_form(pod) for pod in cluster.pending)
    found = [filter_pod(pod, cluster.snapshot(), FRAMEWORK) for pod in pending]
    return [one for one in found if one.verdicts is not None and one.failure is None]


def test_nodes_are_explained_as_one_by_one() -> None:
    @settings(max_examples=examples(60))
    @given(st.integers(0, 2**32 - 1))
    def look(seed: int) -> None:
        for attempt in attempts(seed):
            assert explanation._nodes(attempt) == one_by_one(attempt)

    look()


def test_a_rule_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    independently = explanation.run_filters_independently

    def some(attempt: Attempt) -> dict[str, PluginVerdicts]:
        answers = independently(attempt)
        return {name: one for name, one in answers.items() if name != "NodeResourcesFit"}

    monkeypatch.setattr(explanation, "run_filters_independently", some)
    differing = [
        attempt
        for seed in range(10)
        for attempt in attempts(seed)
        if explanation._nodes(attempt) != one_by_one(attempt)
    ]
    assert differing
