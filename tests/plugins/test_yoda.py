"""Yoda: labels, verdicts, scores worked by hand in both modes, holds, and walk against walk.

Source: NJUPT-ISL Yoda-Scheduler 2.x, pkg/yoda.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from stowplan.assembly.build import configuration_of, frameworks_for
from stowplan.columns import PodInfo
from stowplan.cycle import decide
from stowplan.framework import (
    CycleState,
    Framework,
    NodeTable,
    ObjectStore,
    Pod,
    QueuedPod,
    Snapshot,
)
from stowplan.framework.clusterevents import SCV, Action, ClusterEvent, QueueingHint
from stowplan.inputs.manifests import ManifestInventory, items
from stowplan.objects.devices.scv import Scv
from stowplan.plugins.yoda.card_columns import CardColumns
from stowplan.plugins.yoda.gpu_request import UINT64_MAX, GpuRequest, parse_uint, queue_priority
from stowplan.plugins.yoda.yoda import NO_STATE, Yoda
from stowplan.testing import draw, pod
from tests.plugins.gpus import configuration, scv
from tests.property.wrong import assert_caught
from tests.soak import examples

Ints = NDArray[np.int64]
REFUSALS = {status.message: status for status in Yoda.REFUSALS.values()}
NO_REPORT, TOO_FEW, OTHER_CLOCK, NO_ROOM = (status.message for status in Yoda.REFUSALS.values())


def framework(*, compat: bool = False) -> Framework:
    configured, full = configuration_of(configuration(compat=compat, weight=1), "test")
    (made,) = frameworks_for(configured, full).values()
    return made


def cluster(text: str, *scvs: Scv) -> Snapshot:
    return Snapshot(draw(text).table, ObjectStore(scvs))


# Labels.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("+2", 2),
        ("007", 7),
        ("0", 0),
        ("", 0),
        ("two", 0),
        ("2 ", 0),
        ("1_000", 0),
        ("2.5", 0),
        ("٣", 0),
        ("-1", UINT64_MAX),
        ("-9223372036854775808", 2**63),
        ("-9223372036854775809", 0),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), 0),
    ],
)
def test_an_amount(text: str, value: int) -> None:
    assert parse_uint(text) == value


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        ({}, 0),
        ({"scv/priority": "7"}, 7),
        ({"scv/priority": "-7"}, -7),
        ({"scv/priority": "high"}, 0),
        ({"scv/priority": str(2**70)}, 2**63 - 1),
    ],
)
def test_a_priority(labels: dict[str, str], value: int) -> None:
    assert queue_priority(labels) == value


def test_a_demand() -> None:
    assert GpuRequest.of({"app": "web"}).is_none
    assert GpuRequest.of({"scv/priority": "3"}).is_none
    asked = GpuRequest.of({"scv/memory": "8000"})
    assert (asked.n_cards, asked.memory, asked.clock) == (1, 8000, None)
    assert GpuRequest.of({"scv/number": "0"}).n_cards == 0


def test_the_order_of_the_queue() -> None:
    yoda = framework().members["yoda"].plugin
    queued = [
        QueuedPod(pod("late", labels={"scv/priority": "1"}), 9.0),
        QueuedPod(pod("soon", labels={"scv/priority": "1"}), 3.0),
        QueuedPod(pod("vip", labels={"scv/priority": "1"}, priority=10), 9.0),
        QueuedPod(pod("top", labels={"scv/priority": "2"}), 9.0),
        QueuedPod(pod("none", priority=1000), 1.0),
        QueuedPod(pod("low", labels={"scv/priority": "-1"}), 1.0),
    ]
    assert [one.pod.name for one in sorted(queued, key=yoda.sort_key)] == [
        "top",
        "vip",
        "soon",
        "late",
        "none",
        "low",
    ]
    assert yoda.less(queued[3], queued[0])
    assert not yoda.less(queued[0], queued[0])


# Verdicts.


FILTERS: list[tuple[dict[str, str], Sequence[str] | None, str, str]] = [
    # Labels, the cards of the node (None: no report), the refusal here and in the original.
    ({}, None, "", NO_REPORT),
    ({}, (), "", TOO_FEW),
    ({}, ("0=9/9:unhealthy",), "", ""),
    ({"scv/memory": "1"}, None, NO_REPORT, NO_REPORT),
    ({"scv/number": "1"}, (), TOO_FEW, TOO_FEW),
    ({"scv/number": "2"}, ("0=9/9", "1=9/9"), "", ""),
    ({"scv/number": "3"}, ("0=9/9", "1=9/9"), TOO_FEW, TOO_FEW),
    ({"scv/number": "-1"}, ("0=9/9", "1=9/9"), TOO_FEW, TOO_FEW),
    ({"scv/number": "many"}, ("0=9/9:unhealthy",), "", ""),
    ({"scv/number": "2"}, ("0=9/9", "1=9/9:unhealthy"), TOO_FEW, ""),
    ({"scv/number": "2", "scv/memory": "5"}, ("0=9/9", "1=4/9"), NO_ROOM, NO_ROOM),
    ({"scv/number": "2", "scv/memory": "4"}, ("0=9/9", "1=4/9"), "", ""),
    ({"scv/memory": "5"}, ("0=9/9:unhealthy", "1=4/9"), NO_ROOM, NO_ROOM),
    ({"scv/memory": "-5"}, ("0=9/9",), NO_ROOM, NO_ROOM),
    # No amount is too large to be compared in the original; here a report's is bounded.
    ({"scv/memory": str(2**60)}, (f"0={2**61}/{2**61}",), NO_ROOM, ""),
    ({"scv/memory": str(2**60 + 1)}, (f"0={2**60}/{2**60}",), NO_ROOM, NO_ROOM),
    ({"scv/clock": "5"}, ("0=9/9:clock=5",), "", ""),
    ({"scv/clock": "5"}, ("0=9/9:clock=6",), OTHER_CLOCK, OTHER_CLOCK),
    ({"scv/clock": "5"}, ("0=9/9:clock=5:unhealthy", "1=9/9"), OTHER_CLOCK, OTHER_CLOCK),
    # The memory is on one card and the clock on another.
    ({"scv/memory": "5", "scv/clock": "7"}, ("0=9/9", "1=1/9:clock=7"), NO_ROOM, ""),
]


@pytest.mark.parametrize(("labels", "cards", "ours", "original"), FILTERS)
def test_a_verdict(
    labels: dict[str, str], cards: Sequence[str] | None, ours: str, original: str
) -> None:
    seen = cluster("node\nn1", *(() if cards is None else (scv("n1", *cards),)))
    for compat, wanted in ((False, ours), (True, original)):
        made, asked, state = framework(compat=compat), pod("web", labels=labels), CycleState()
        made.run_pre_filter(asked, seen, state)
        status = made.filter_node(asked, seen.nodes.info(0), state)
        assert status.message == wanted
        verdicts = made.run_filters(asked, seen, state)
        assert verdicts.at(0) == status
        if wanted:
            assert status == REFUSALS[wanted].by("yoda")


def test_a_profile_without_pre_filter_is_reported() -> None:
    made, seen = framework(), cluster("node\nn1", scv("n1", "0=9/9"))
    asked = pod("web", labels={"scv/number": "1"})
    member = made.members["yoda"]
    state = CycleState()
    assert member.call("filter", asked, seen.nodes.info(0), state) == NO_STATE
    codes = member.call("filter_column", asked, seen.nodes, seen.nodes.all_rows, state)
    assert member.call("filter_status", int(codes[0]), asked, seen.nodes, state) == NO_STATE


# Scores. Worked by hand; c0, c1 are the cards of a node.
#
#          bandwidth clock core power  free  total
#   n1 c0     15000  5000 1500   250  6000  12000
#   n1 c1     10000  4000 1000   200  8000   8000
#   n2 c0     12000  6000 2000   300  4000  16000
#   n2 c1     16000  6000 2000   300 16000  16000   not healthy

N1 = scv(
    "n1",
    "0=6000/12000:bandwidth=15000:clock=5000:core=1500:power=250",
    "1=8000/8000:bandwidth=10000:clock=4000:core=1000:power=200",
)
N2 = scv(
    "n2",
    "0=4000/16000:bandwidth=12000:clock=6000:core=2000:power=300",
    "1=16000/16000:bandwidth=16000:clock=6000:core=2000:power=300:unhealthy",
)
# A pod on n1 asks for 5000 MiB; n3 reports no memory at all, n4 reports nothing.
TWO = "node\nn1\nn2\n\npod  on labels\nthere n1 scv/memory=5000"
FOUR = "node\nn1\nn2\nn3\nn4\n\npod  on labels\nthere n1 scv/memory=5000"

SCORES: list[tuple[bool, dict[str, str], list[int], list[int]]] = [
    # Maxima of the three healthy cards: 15000, 6000, 2000, 300, 8000, 16000.
    #   n1 c0: 100 + 83 + 75 + 83 + 2*75 + 75 = 566
    #   n1 c1:  66 + 66 + 50 + 66 + 2*100 + 50 = 498
    #   n2 c0:  80 + 100 + 100 + 100 + 2*50 + 100 = 580
    # Free: n1 2*70, n2 2*62. Not asked for: n1 3*75, n2 3*100.
    (False, {"scv/memory": "3000"}, [566 + 498 + 140 + 225, 580 + 124 + 300], [100, 0]),
    # All four cards count, and clocks are divided by the highest bandwidth, 16000.
    #   n1 c0:  93 + 31 + 75 + 83 + 2*37 + 75 = 431
    #   n1 c1:  62 + 25 + 50 + 66 + 2*50 + 50 = 353
    #   n2 c0:  75 + 37 + 100 + 100 + 2*25 + 100 = 462
    #   n2 c1: 100 + 37 + 100 + 100 + 2*100 + 100 = 637
    (True, {"scv/memory": "3000"}, [431 + 353 + 140 + 225, 462 + 637 + 124 + 300], [0, 100]),
    # Of clock 4000 is n1 c1 alone; faster cards count in the score. n2 has none, so it is not
    # among those that passed: its score has the shares of memory only.
    #   maxima of n1's cards: 15000, 5000, 1500, 250, 8000, 12000
    #   n1 c0: 100 + 100 + 100 + 100 + 2*75 + 100 = 650
    #   n1 c1:  66 + 80 + 66 + 80 + 2*100 + 66 = 558
    (False, {"scv/clock": "4000"}, [650 + 558 + 140 + 225, 124 + 300], [100, 0]),
    #   by the bandwidth 15000: n1 c0 100 + 33 + 100 + 100 + 150 + 100 = 583
    #                           n1 c1  66 + 26 + 66 + 80 + 200 + 66 = 504
    (True, {"scv/clock": "4000"}, [583 + 504 + 140 + 225, 124 + 300], [100, 0]),
    # Two cards of 6000 MiB: only n1 has them, and the maxima are those of n1.
    #   n1 c0: 100 + 100 + 100 + 100 + 2*75 + 100 = 650; n1 c1: 66 + 80 + 66 + 80 + 200 + 66 = 558
    (
        False,
        {"scv/memory": "6000", "scv/number": "2"},
        [650 + 558 + 140 + 225, 124 + 300],
        [100, 0],
    ),
    # Nothing is asked for: the original wants one card of any kind.
    (True, {}, [431 + 353 + 140 + 225, 462 + 637 + 124 + 300], [0, 100]),
]


@pytest.mark.parametrize(("compat", "labels", "raw", "final"), SCORES)
def test_scores_by_hand(
    compat: bool, labels: dict[str, str], raw: list[int], final: list[int]
) -> None:
    seen, asked = cluster(TWO, N1, N2), pod("web", labels=labels)
    made = framework(compat=compat)
    assert scored(made, asked, seen) == (raw, final)


def scored(made: Framework, asked: Pod, seen: Snapshot) -> tuple[list[int], list[int]]:
    """Yoda's scores, before and after normalising, which both walks agree upon."""
    state, rows = CycleState(), np.arange(seen.nodes.n_nodes)
    made.run_pre_filter(asked, seen, state)
    assert made.run_pre_score(asked, seen, rows, state).is_success
    found = made.run_scores(asked, seen.nodes, rows, state)
    member = made.members["yoda"]
    by_node = [member.call("score", asked, i, state, seen.nodes) for i in seen.nodes.infos()]
    assert by_node == found.raw["yoda"].tolist()
    return by_node, found.final["yoda"].tolist()


@pytest.mark.parametrize("compat", [False, True])
def test_no_memory_is_no_division_by_zero(compat: bool) -> None:
    seen = cluster(FOUR, N1, N2, scv("n3"))
    raw, final = scored(framework(compat=compat), pod("web", labels={"scv/memory": "3000"}), seen)
    assert raw[2:] == [0, 0]
    assert final[2:] == [0, 0]


def test_more_asked_for_than_there_is() -> None:
    text = "node\nn1\n\npod  on labels\nthere n1 scv/memory=13000"
    seen = cluster(text, scv("n1", "0=6000/12000"))
    raw, final = scored(framework(), pod("web", labels={"scv/memory": "1"}), seen)
    # 2*100 for the memory that is free, 100 for what there is in all; 2*50; nothing is unasked.
    assert raw == [300 + 100]
    assert final == [100]


def test_a_pod_without_labels_is_not_scored() -> None:
    seen, state = cluster(TWO, N1, N2), CycleState()
    made = framework()
    made.run_pre_filter(pod("web"), seen, state)
    made.run_pre_score(pod("web"), seen, np.arange(2), state)
    assert {"yoda"} <= state.skip_score & state.skip_filter


# Holds.


def test_what_is_held_counts_in_scores() -> None:
    seen = cluster("node\nn1\nn2", scv("n1", "0=8000/8000"), scv("n2", "0=8000/8000"))
    made, state = framework(), CycleState()
    first, second = (pod(name, labels={"scv/memory": "2000"}) for name in ("a", "b"))
    made.run_pre_filter(first, seen, state)
    made.members["yoda"].call("reserve", first, "n1", state)
    # Free on n1: 6000 of 8000, of which 75 % of the most, 2 * 75, 2 * 75, and 3 * 100 unasked.
    assert scored(made, second, seen)[0] == [150 + 100 + 150 + 300, 200 + 100 + 200 + 300]
    assert decide(second, seen, made).node_name == "n2"
    made.members["yoda"].call("unreserve", first, "n1", state)
    assert scored(made, second, seen)[0] == [800, 800]


def test_the_smallest_card_that_suits_is_taken() -> None:
    seen = cluster("node\nn1", scv("n1", "0=9000/9000", "1=4000/9000", "2=6000/9000"))
    made = framework()
    for name, memory, left in (
        ("a", 4000, [9000, 0, 6000]),
        ("b", 5000, [9000, 0, 1000]),
        ("c", 7000, [2000, 0, 1000]),
    ):
        asked, state = pod(name, labels={"scv/memory": str(memory)}), CycleState()
        made.run_pre_filter(asked, seen, state)
        assert made.members["yoda"].call("reserve", asked, "n1", state).is_success
        assert columns(made, seen).left.tolist() == left
    full = pod("d", labels={"scv/memory": "3000"})
    assert decide(full, seen, made).reasons == {NO_ROOM: 1}


def columns(made: Framework, seen: Snapshot) -> CardColumns:
    plugin = made.members["yoda"].plugin
    found = CardColumns.of(seen.nodes, plugin._ledger, plugin._bound)
    found.follow(seen.nodes, seen.object_store)
    return found


def test_what_was_taken_meanwhile_cannot_be_reserved() -> None:
    seen = cluster("node\nn1", scv("n1", "0=4000/4000"))
    made = framework()
    asked = [pod(name, labels={"scv/number": "1"}) for name in ("a", "b")]
    states = [CycleState(), CycleState()]
    for one, state in zip(asked, states, strict=True):
        made.run_pre_filter(one, seen, state)
    answers = [
        made.members["yoda"].call("reserve", one, "n1", state)
        for one, state in zip(asked, states, strict=True)
    ]
    assert [answer.message for answer in answers] == ["", NO_ROOM]


def test_profiles_share_what_is_held() -> None:
    text = (
        configuration()
        .replace(
            '"profiles": [',
            '"profiles": [{"schedulerName": "other", '
            '"plugins": {"multiPoint": {"enabled": [{"name": "yoda"}]}, '
            '"queueSort": {"disabled": [{"name": "PrioritySort"}]}}}, ',
        )
        .replace('[{"plugins"', '[{"schedulerName": "one", "plugins"', 1)
    )
    text = text.replace('}, {"plugins"', '}, {"schedulerName": "one", "plugins"')
    one, other = frameworks_for(*configuration_of(text, "test")).values()
    seen, state = cluster("node\nn1", scv("n1", "0=4000/4000")), CycleState()
    asked = pod("a", labels={"scv/number": "1"})
    one.run_pre_filter(asked, seen, state)
    one.run_reserve(asked, "n1", state)
    assert decide(pod("b", labels={"scv/number": "1"}), seen, other).reasons == {NO_ROOM: 1}


def test_what_if_a_pod_came_or_went() -> None:
    seen = cluster("node\nn1", scv("n1", "0=4000/4000"))
    made, state = framework(), CycleState()
    holder, asked = (pod(name, labels={"scv/memory": "3000"}) for name in ("a", "b"))
    made.run_pre_filter(holder, seen, state)
    made.run_reserve(holder, "n1", state)
    seen.nodes.add_pod(holder, "n1")
    state = CycleState()
    made.run_pre_filter(asked, seen, state)
    node = seen.nodes.info(0).copy()

    def verdict(state: CycleState) -> str:
        return made.filter_node(asked, node, state).message

    assert verdict(state) == NO_ROOM
    clone = state.clone()
    there = PodInfo.of(holder)
    made.run_remove_pod(asked, there, node, clone)
    assert verdict(clone) == ""
    made.run_add_pod(asked, PodInfo.of(pod("c", labels={"scv/number": "1"})), node, clone)
    assert verdict(clone) == NO_ROOM
    made.run_remove_pod(asked, PodInfo.of(pod("c")), node, clone)
    made.run_add_pod(asked, there, node, clone)
    assert verdict(clone) == verdict(state) == NO_ROOM


# Reports that come and go, and what is said of them.


def test_a_report_is_read_from_a_manifest() -> None:
    inventory = ManifestInventory()
    tree = {
        "apiVersion": "core.run-linux.com/v1",
        "kind": "Scv",
        "metadata": {"name": "n1"},
        "spec": {"updateInterval": 1000},
        "status": {
            "cardNumber": 1,
            "totalMemorySum": 12194,
            "freeMemorySum": 12192,
            "updateTime": "2020-12-11T08:41:42Z",
            "cardList": [
                {
                    "id": 0,
                    "health": "Healthy",
                    "model": "TITAN Xp",
                    "power": 250,
                    "totalMemory": 12194,
                    "clock": 5705,
                    "freeMemory": 12192,
                    "core": 1911,
                    "bandwidth": 15760,
                }
            ],
        },
    }
    for item, path in items(tree):
        inventory.add_item(item, path, "here")
    found = inventory.find(Scv, "n1")
    assert found is not None
    assert found.status.card_list[0].clock == 5705
    assert found.status.card_list[0].is_healthy
    assert found.status.free_memory_sum == 12192
    assert not inventory.ignored


def test_an_explanation_names_need_and_have() -> None:
    seen = cluster("node\nn1", scv("n1", "0=3000/9000:clock=5", "1=4000/9000:unhealthy"))
    made, state = framework(), CycleState()
    asked = pod("web", labels={"scv/memory": "4000", "scv/clock": "5", "scv/number": "2"})
    made.run_pre_filter(asked, seen, state)
    (text,) = made.members["yoda"].call("explain", asked, seen.nodes.info(0), state)
    assert text == (
        "gpus: needs 2 cards, 4000 MiB free on each, clock 5 MHz, there are "
        "card 0: 3000 of 9000 MiB free, clock 5 MHz; "
        "card 1: 4000 of 9000 MiB free, clock 0 MHz, not healthy"
    )


def test_hints() -> None:
    made = framework()
    events = made.members["yoda"].call("events_to_register")
    hint = next(
        one.hint for one in events if one.event == ClusterEvent(SCV, Action.ADD | Action.UPDATE)
    )
    asked = pod("web", labels={"scv/memory": "4000"})
    poor, rich = scv("n1", "0=3000/9000"), scv("n1", "0=4000/9000")
    assert hint(asked, None, poor) == QueueingHint.SKIP
    assert hint(asked, poor, rich) == QueueingHint.QUEUE
    # It may show what was held until now.
    assert hint(asked, rich, replace(rich)) == QueueingHint.QUEUE


# Both walks, on anything.

CARDS = st.builds(
    lambda free, total, health, clock, rest: (
        f"{min(free, total)}/{total}{health}:clock={clock}:core={rest}:power={rest * 7 % 11}"
        f":bandwidth={rest * 5 % 13}"
    ),
    st.sampled_from([0, 1, 3, 5, 8, 2**63 - 1]),
    st.sampled_from([0, 5, 8, 2**64 // 100 + 1]),
    st.sampled_from(["", "", ":unhealthy"]),
    st.sampled_from([0, 4, 6]),
    st.integers(0, 9) | st.sampled_from([2**50, 2**57 + 3, 2**63 - 1]),
)
USUAL = st.sampled_from(
    [{"scv/memory": "3"}, {"scv/number": "1"}, {"scv/memory": "5"}, {"scv/clock": "4"}]
)
LABELS = USUAL | st.fixed_dictionaries(
    {},
    optional={
        "scv/number": st.sampled_from(["0", "1", "2", "x", "-1"]),
        "scv/memory": st.sampled_from(["0", "1", "3", "5", "-2", str(2**63 - 1)]),
        "scv/clock": st.sampled_from(["4", "6"]),
    },
)
NAMES = ("n1", "n2", "n3")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("scv"), st.sampled_from(NAMES), st.lists(CARDS, max_size=3)),
        st.tuples(st.just("no scv"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("place"), st.sampled_from(NAMES), LABELS),
        st.tuples(st.just("place"), st.just("n1"), LABELS),
        st.tuples(st.just("give back"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("run"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("leave"), st.sampled_from(NAMES), st.none()),
    ),
    max_size=14,
)


class Play:
    """A cluster that changes, with columns kept, and a framework that is asked node by node."""

    def __init__(self, *, compat: bool) -> None:
        self.made = framework(compat=compat)
        self.table, self.object_store = NodeTable(), ObjectStore()
        self.snapshot = Snapshot(self.table, self.object_store)
        self.placed: list[Pod] = []
        for name in NAMES:
            self.table.add_node(draw(f"node\n{name}").nodes[name])
        self.object_store.put(scv("n1", "0=8/8:clock=4", "1=5/8:clock=6"))
        self.object_store.put(scv("n2", "0=3/5:clock=4:core=3"))

    def take(self, step: tuple[str, str, Any]) -> None:
        what, name, more = step
        if what == "scv":
            self.object_store.put(scv(name, *(f"{i}={text}" for i, text in enumerate(more))))
        elif what == "no scv" and self.object_store.find(Scv, name):
            self.object_store.drop(Scv, name)
        elif what == "node" and self.table.row(name) >= 0:
            self.table.remove_node(name)
        elif what == "node":
            self.table.add_node(draw(f"node\n{name}").nodes[name])
        elif what == "place":
            self.place(pod(f"p{len(self.placed)}", labels=more), name)
        elif self.placed:
            self.change(what)

    def place(self, asked: Pod, name: str) -> None:
        state = CycleState()
        self.made.run_pre_filter(asked, self.snapshot, state)
        row = self.table.row(name)
        if row < 0 or not self.made.filter_node(asked, self.table.info(row), state).is_success:
            return
        self.table.add_pod(asked, name)
        assert self.made.run_reserve(asked, name, state).is_success
        self.placed.append(asked)

    def change(self, what: str) -> None:
        one = self.placed[-1]
        if not self.table.knows_pod(one.uid):
            return
        if what == "run":
            home = self.table.names[row] if (row := self.table.row_of_pod(one.uid)) >= 0 else ""
            if home:
                running = replace(one, status=replace(one.status, phase="Running"))
                self.table.remove_pod(one.uid)
                self.table.add_pod(running, home)
            return
        if what == "give back":
            self.made.run_unreserve(one, "", CycleState())
        self.table.remove_pod(one.uid)

    def compare(self, asked: Pod) -> None:
        state, rows = CycleState(), np.arange(self.table.n_nodes)
        self.made.run_pre_filter(asked, self.snapshot, state)
        by_column = self.made.run_filters(asked, self.snapshot, state)
        for place, row in enumerate(rows.tolist()):
            one = self.made.filter_node(asked, self.table.info(row), state)
            assert by_column.at(place) == one, (asked.labels, self.table.names[row])
        if "yoda" not in state.skip_score:
            self.made.run_pre_score(asked, self.snapshot, rows, state)
        if "yoda" not in state.skip_score:
            member = self.made.members["yoda"]
            column = member.call("score_column", asked, self.table, self.table.all_rows, state)
            nodes = [self.table.info(row) for row in rows.tolist()]
            scores = [member.call("score", asked, node, state, self.table) for node in nodes]
            assert column.tolist() == scores, asked.labels


def played(steps: list[tuple[str, str, Any]], labels: dict[str, str], *, compat: bool) -> None:
    play = Play(compat=compat)
    for step in steps:
        play.take(step)
        play.compare(pod("asked", labels=labels))


@settings(max_examples=examples(60))
@given(STEPS, LABELS, st.booleans())
def test_both_walks_agree_whatever_happens(
    steps: list[tuple[str, str, Any]], labels: dict[str, str], compat: bool
) -> None:
    played(steps, labels, compat=compat)


class ForgetsNodes(CardColumns):
    """Does not look up the reports of rows again after nodes have come or gone."""

    def _follow_rows(self, table: NodeTable, rows: Any, ledger: Any) -> set[str]:
        names = super()._follow_rows(table, (), ledger)
        return names | {table.names[row] for row in rows if row < table.n_nodes}


class ForgetsHolds(CardColumns):
    """Writes reports and never what is held of them."""

    def _write_left(self, index: int, ledger: Any) -> None:
        self.left[:], self.left_sum[:] = self.free, self.free_sum


@pytest.mark.parametrize("wrong", [ForgetsNodes, ForgetsHolds])
def test_control_wrong_columns(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.plugins.yoda.yoda.CardColumns", wrong)

    assert_caught(lambda steps, labels: played(steps, labels, compat=False), STEPS, LABELS)
