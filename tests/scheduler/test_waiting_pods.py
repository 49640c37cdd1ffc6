"""Pods that wait at Permit, as plugins see them."""

from __future__ import annotations

from stowplan.framework import OK, CycleState, error, unschedulable
from stowplan.framework.handle_state import WaitingPods
from stowplan.testing import pod

WEB, API = pod("web"), pod("api")


def test_a_pod_continues_when_all_plugins_have_allowed_it() -> None:
    pods = WaitingPods()
    waiting = pods.add(WEB, "n1", 0, {"A": 10, "B": 20})
    waiting.allow("C")
    waiting.allow("B")
    assert (waiting.verdict, pods.settled) == (None, [])
    waiting.allow("A")
    assert (waiting.verdict, pods.take_settled()) == (OK, [waiting])
    assert (len(pods), pods.settled) == (0, [])


def test_one_plugin_is_enough_to_reject_and_the_first_answer_counts() -> None:
    pods = WaitingPods()
    waiting = pods.add(WEB, "n1", 0, {"A": 10, "B": 20})
    assert waiting.reject("B", "no")
    assert not waiting.reject("A", "nor I")
    assert not waiting.preempt("C", "out of my way")
    waiting.allow("A")
    waiting.allow("B")
    assert waiting.verdict == unschedulable("no").by("B")
    assert pods.take_settled() == [waiting]


def test_a_preempted_pod_is_requeued_as_after_an_error() -> None:
    waiting = WaitingPods().add(WEB, "n1", 0, {"A": 10})
    assert waiting.preempt("P", "preempted")
    assert waiting.verdict == error("preempted").by("P")


def test_settled_pods_are_taken_in_the_order_of_their_verdicts() -> None:
    pods = WaitingPods()
    web, api = (pods.add(each, "n1", 0, {"A": 10}) for each in (WEB, API))
    assert list(pods) == [web, api]
    api.allow("A")
    web.allow("A")
    assert pods.take_settled() == [api, web]


def test_a_dropped_waiting_pod_has_no_verdict() -> None:
    pods = WaitingPods()
    old = pods.add(WEB, "n1", 0, {"A": 10})
    old.allow("A")
    pods.drop(WEB.uid)
    new = pods.add(WEB, "n1", 5, {"A": 10})
    assert (pods.take_settled(), pods.get(WEB.uid)) == ([], new)


def test_the_first_timeout_names_the_plugin() -> None:
    waiting = WaitingPods().add(WEB, "n1", 100, {"A": 30, "B": 10, "C": 20})
    assert (waiting.deadline, waiting.late(109)) == (110, "")
    assert [waiting.late(now) for now in (110, 125, 1000)] == ["B"] * 3
    waiting.allow("B")
    assert (waiting.deadline, waiting.late(119), waiting.late(1000)) == (120, "", "C")


def test_with_equal_timeouts_the_first_plugin_is_named() -> None:
    waiting = WaitingPods().add(WEB, "n1", 0, {"B": 10, "A": 10})
    assert waiting.late(10) == "B"


def test_pods_to_activate_are_cloned_with_the_state() -> None:
    state = CycleState()
    state.to_activate[WEB.uid] = WEB
    clone = state.clone()
    clone.to_activate[API.uid] = API
    assert (state.to_activate, len(clone.to_activate)) == ({WEB.uid: WEB}, 2)
