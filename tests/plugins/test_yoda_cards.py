"""What pods hold of reported cards: their binding writes it, and a restart reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.cycle import decide
from stowplan.framework import CycleState, Pod, Snapshot
from stowplan.plugins.yoda.card_columns import CardColumns
from stowplan.plugins.yoda.gpu_ledger import GpuLedger
from stowplan.plugins.yoda.scv_devices import CARDS_KEY, format_shares, parse_shares
from stowplan.testing import pod
from tests.plugins.gpus import scv
from tests.plugins.test_yoda import CARDS, LABELS, NAMES, NO_ROOM, Play, cluster, framework
from tests.property.wrong import assert_caught
from tests.soak import examples

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("scv"), st.sampled_from(NAMES), st.lists(CARDS, max_size=3)),
        st.tuples(st.just("place"), st.sampled_from(NAMES), LABELS),
        st.tuples(st.just("place"), st.just("n1"), LABELS),
        st.tuples(st.just("give back"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("leave"), st.sampled_from(NAMES), st.none()),
    ),
    max_size=10,
)


class AnnotatedPlay(Play):
    """Placed pods have what their binding has written."""

    def place(self, asked: Pod, name: str) -> None:
        state = CycleState()
        self.made.run_pre_filter(asked, self.snapshot, state)
        row = self.table.row(name)
        if row < 0 or not self.made.filter_node(asked, self.table.info(row), state).is_success:
            return
        assert self.made.run_reserve(asked, name, state).is_success
        meta = replace(asked.metadata, annotations=dict(state.binding_annotations))
        self.placed.append(replace(asked, metadata=meta))
        self.table.add_pod(self.placed[-1], name)


def left(play: Play, made: Any) -> list[list[int]]:
    plugin = made.members["yoda"].plugin
    found = CardColumns.of(play.table, plugin._ledger, plugin._bound)
    found.follow(play.table, play.object_store)
    return [found.left.tolist(), found.open.tolist()]


def restarted(steps: list[tuple[str, str, Any]]) -> None:
    play = AnnotatedPlay(compat=False)
    for step in steps:
        play.take(step)
        assert left(play, framework()) == left(play, play.made)


@settings(max_examples=examples(40))
@given(STEPS)
def test_a_scheduler_that_is_started_again_has_the_same_left(
    steps: list[tuple[str, str, Any]],
) -> None:
    restarted(steps)


def test_a_scheduler_that_reads_no_pods_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuLedger, "read_pods", lambda self, node, pods: None)
    assert_caught(restarted, STEPS, known=([("place", "n1", {"scv/memory": "3"})],))


# By example.


def bound(labels: dict[str, str], cards: str) -> tuple[Snapshot, Pod]:
    """A node with two cards, and a pod on it whose binding has written these cards."""
    seen = cluster("node\nn1", scv("n1", "0=4000/4000", "1=4000/4000", "at=10s"))
    made = pod("a", labels=labels)
    made = replace(made, metadata=replace(made.metadata, annotations={CARDS_KEY: cards}))
    seen.nodes.add_pod(made, "n1")
    return seen, made


def test_the_binding_has_the_cards() -> None:
    seen = cluster("node\nn1", scv("n1", "0=4000/4000", "1=3000/4000"))
    for labels, cards in (
        ({"scv/number": "2", "scv/memory": "500"}, "1:500,0:500"),
        ({"scv/number": "1"}, "1"),
    ):
        state, asked = CycleState(), pod("a", labels=labels)
        made = framework()
        made.run_pre_filter(asked, seen, state)
        made.run_reserve(asked, "n1", state)
        assert state.binding_annotations == {CARDS_KEY: cards}
        assert format_shares(parse_shares(cards)) == cards
    state, original = CycleState(), framework(compat=True)
    original.run_pre_filter(asked, seen, state)
    original.run_reserve(asked, "n1", state)
    assert state.binding_annotations == {}


def test_after_a_restart_the_memory_is_not_given_again() -> None:
    seen, _ = bound({"scv/memory": "3000"}, "0:3000")
    two = pod("b", labels={"scv/number": "2", "scv/memory": "2000"})
    assert decide(two, seen, framework()).reasons == {NO_ROOM: 1}
    one = pod("c", labels={"scv/memory": "2000"})
    assert decide(one, seen, framework()).node_name == "n1"


@pytest.mark.parametrize("text", ["", "x", "0:", "0:many", "0:-3", "0:5,", ":5", "0:" + "9" * 30])
def test_an_annotation_that_makes_no_sense_holds_nothing(text: str) -> None:
    seen, _ = bound({"scv/memory": "4000"}, text)
    two = pod("b", labels={"scv/number": "2", "scv/memory": "4000"})
    assert decide(two, seen, framework()).node_name == "n1"


def test_a_pod_that_requests_no_cards_holds_none_by_its_annotation() -> None:
    seen, _ = bound({}, "0,1")
    two = pod("b", labels={"scv/number": "2", "scv/memory": "4000"})
    assert decide(two, seen, framework()).node_name == "n1"


def test_a_card_that_the_report_no_longer_has_is_held_nowhere() -> None:
    seen, _ = bound({"scv/memory": "4000"}, "7:4000")
    two = pod("b", labels={"scv/number": "2", "scv/memory": "4000"})
    assert decide(two, seen, framework()).node_name == "n1"


def test_a_reservation_that_has_ended_is_not_read_again() -> None:
    seen, holder = bound({"scv/memory": "4000"}, "0:4000")
    made, rival = framework(), pod("b", labels={"scv/number": "2", "scv/memory": "4000"})
    assert decide(rival, seen, made).reasons == {NO_ROOM: 1}
    running = replace(holder, status=replace(holder.status, phase="Running"))
    seen.nodes.remove_pod(holder.uid)
    seen.nodes.add_pod(running, "n1")
    # Since when it runs is unknown: the next report includes it.
    assert decide(rival, seen, made).reasons == {NO_ROOM: 1}
    seen.object_store.put(scv("n1", "0=4000/4000", "1=4000/4000", "at=20s"))
    assert decide(rival, seen, made).node_name == "n1"
    seen.nodes.add_pod(pod("c"), "n1")
    assert decide(rival, seen, made).node_name == "n1"
