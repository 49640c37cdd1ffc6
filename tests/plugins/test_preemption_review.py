"""Preemption where extenders have a say: nodes that only they refuse, and what they leave."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.columns.nodetable import table_of
from stowplan.cycle import Attempt, filter_pod
from stowplan.cycle.decision import run_post_filters
from stowplan.framework import Code, PostFilterResult, Snapshot, error, unschedulable
from stowplan.framework.deciders.extender_review import ExtenderReview, PreemptionCandidate
from stowplan.plugins.preemption import default_preemption
from stowplan.testing import node
from tests.plugins.preemption_walk import framework, made_pod

NAMES = [f"n{i}" for i in range(1, 9)]
VIP = made_pod("vip", {"cpu": "1"}, priority=100)


@pytest.fixture(params=["kept, many", "kept, few", "anew"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How dry runs are done."""
    monkeypatch.setattr(
        default_preemption, "VECTOR_DRY_RUN_MIN", 1 if request.param == "kept, many" else 10**9
    )
    found: str = request.param
    return found


def attempt_of(way: str, cpu: str) -> Attempt:
    """The pod on eight nodes, each with a lower pod of one CPU."""
    nodes = [node(name, cpu=cpu) for name in NAMES]
    lows = [made_pod(f"low-{name}", {"cpu": "1"}, on=name, priority=1) for name in NAMES]
    return filter_pod(VIP, Snapshot(table_of(nodes, lows)), framework(columns=way != "anew"))


def refuse_all(attempt: Attempt) -> PostFilterResult:
    """As if an extender had dropped every node, with a reason that evictions may mend."""
    verdicts = attempt.verdicts
    assert verdicts is not None
    places = np.arange(verdicts.rows.shape[0])
    verdicts.overrule_all(places, np.zeros_like(places), (unschedulable("no"),))
    result = run_post_filters(attempt)
    assert result is not None
    return result


def test_a_node_that_has_room_needs_no_victim(way: str) -> None:
    """That is an error of every dry run; all are told, and nothing that others have said."""
    result = refuse_all(attempt_of(way, "4"))
    assert result.status.code is Code.ERROR
    message = ", ".join(f'expected at least one victim pod on node "{name}"' for name in NAMES)
    assert result.status.message == f"preemption: [{message}]"


def reviewed(way: str, review: ExtenderReview) -> PostFilterResult:
    attempt = attempt_of(way, "1")
    assert attempt.failure is None
    review.enter(attempt.state)
    result = run_post_filters(attempt)
    assert result is not None
    return result


def test_candidates_are_offered_in_order(way: str) -> None:
    review = ExtenderReview()
    assert reviewed(way, review).status.code is Code.WAIT
    assert [one.node_name for one in review.offered] == NAMES
    assert {len(one.victims) for one in review.offered} == {1}


def test_the_best_of_what_is_left_is_chosen(way: str) -> None:
    first = ExtenderReview()
    reviewed(way, first)
    by_name = {one.node_name: one for one in first.offered}
    review = ExtenderReview()
    costly = PreemptionCandidate("n2", by_name["n2"].victims, 3)
    review.answer = (costly, by_name["n5"], by_name["n4"])
    result = reviewed(way, review)
    assert (result.status.is_success, result.nominated_node) == (True, "n4")
    assert result.victims == by_name["n4"].victims


def test_an_empty_result_and_failures_are_reported(way: str) -> None:
    nothing, failed = ExtenderReview(), ExtenderReview()
    nothing.answer, failed.answer = (), error("out of order")
    text = "preemption: no candidate node for preemption"
    assert reviewed(way, nothing).status.reasons[-1] == text
    result = reviewed(way, failed)
    assert result.status.reasons == ("preemption: out of order",)
    assert result.nominated_node is None
