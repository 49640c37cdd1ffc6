"""Pending pods, decisions, preemptions, grouped reasons and queue history of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly import frameworks_for
from stowplan.cycle.explanation import Explanation, NodeExplanation, RuleRefusal
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.objects.pod import Pod, PodCondition
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.testing.builders import pod
from stowplan.web.model import decision_ring, pending_rows
from stowplan.web.model.decision_ring import (
    PROFILES,
    DecisionRing,
    DecisionSample,
    HandledCall,
    RecordedDecision,
    decisions_page,
)
from stowplan.web.model.grouped_why import grouped_rules, why_tree
from stowplan.web.model.page_frames import FrameHeader, FrameKind, Topic, encode_frame
from stowplan.web.model.pending_rows import (
    PendingRows,
    PendingState,
    QueuedCopy,
    gpus_of,
    page_of,
    rule_and_reason,
    rules_of_reasons,
)
from stowplan.web.model.preemption_loops import preemption_trees
from stowplan.web.model.queue_history import QueueHistory
from tests.web.frame_client import FrameClient

NONE_FIT = "0/10 nodes are available: 3 Insufficient cpu, 7 node(s) had untolerated taint(s). more"


def refused(name: str, message: str = NONE_FIT, **more: Any) -> Pod:
    condition = PodCondition("PodScheduled", "False", "Unschedulable", message)
    made = pod(name, uid=name, created_at=100, **more)
    return replace(made, status=replace(made.status, conditions=(condition,)))


def copied(value: Pod, place: str = "unschedulable", *rules: str, tries: int = 1) -> QueuedCopy:
    return QueuedCopy(value, place, None, tries, 5.0, None, rules)


@pytest.mark.parametrize(
    ("message", "rules", "found"),
    [
        (NONE_FIT, ("TaintToleration",), ("TaintToleration", "node(s) had untolerated taint(s)")),
        (
            NONE_FIT,
            ("NodeResourcesFit", "TaintToleration"),
            ("TaintToleration", "node(s) had untolerated taint(s)"),
        ),
        (
            "0/2 nodes are available: 2 Insufficient memory.",
            ("A", "NodeResourcesFit"),
            ("A, NodeResourcesFit", "Insufficient memory"),
        ),
        (
            "0/9 nodes are available: 8 Insufficient cpu, 1 node(s) had untolerated taint(s).",
            ("NodeResourcesFit", "TaintToleration"),
            ("NodeResourcesFit", "Insufficient cpu"),
        ),
        (
            "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) fit this pod alone, not its "
            "gang. Preemption is not helpful.",
            ("gang",),
            ("gang", "node(s) fit this pod alone, not its gang"),
        ),
        ("0/2 nodes are available: 2 strange thing.", ("B", "A"), ("A, B", "strange thing")),
        ("", (), ("", "not tried yet")),
        ("", ("SchedulingGates",), ("SchedulingGates", "")),
        ("running PreFilter plugin: x failed", ("P",), ("P", "x failed")),
    ],
)
def test_rule_and_reason(message: str, rules: Sequence[str], found: tuple[str, str]) -> None:
    known = {"node(s) had untolerated taint(s)": "TaintToleration"}
    assert rule_and_reason(message, rules, known) == found


def test_reasons_of_plugins_are_read_from_their_declarations() -> None:
    deciders = read_deciders(None)
    frameworks = frameworks_for(deciders.configuration, deciders.registry)
    known = rules_of_reasons(frameworks)
    assert known["node(s) had untolerated taint(s)"] == "TaintToleration"
    assert known["node(s) didn't match the requested node name"] == "NodeName"
    # Declared by the class above.
    assert known["node(s) were unschedulable"] == "NodeUnschedulable"
    assert len(set(known.values())) >= 5


def test_cards_that_a_pod_requests() -> None:
    assert gpus_of(pod("a", resources={"nvidia.com/gpu": "2"})) == 2
    notes = {"alibabacloud.com/gpu-milli": "500", "alibabacloud.com/gpu-count": "2"}
    made = pod("a")
    assert gpus_of(replace(made, metadata=replace(made.metadata, annotations=notes))) == 1.0
    assert gpus_of(pod("a", cpu="1")) == 0


def state_of(*copies: QueuedCopy, rows: PendingRows | None = None) -> PendingState:
    return (rows or PendingRows()).state(copies, {})


def test_pods_are_grouped_by_reason_and_keep_their_numbers() -> None:
    rows = PendingRows()
    other = "0/10 nodes are available: 10 Too many pods."
    first = state_of(
        copied(refused("a", resources={"nvidia.com/gpu": "4"}), "backoff", "TaintToleration"),
        copied(refused("b", other), "unschedulable", "NodeResourcesFit"),
        copied(refused("c"), "unschedulable", "TaintToleration"),
        rows=rows,
    )
    assert first.groups == [
        {"reason": 0, "pods": 2, "gpus": 4.0, "since": 100_000.0},
        {"reason": 1, "pods": 1, "gpus": 0.0, "since": 100_000.0},
    ]
    second = state_of(copied(refused("c")), copied(refused("d")), rows=rows)
    assert {row[1]: number for number, row in second.rows.items()} == {
        "default/c": 3,
        "default/d": 4,
    }


def test_a_state_without_difference_is_the_same_object() -> None:
    rows, waiting = PendingRows(), refused("a")
    first = state_of(copied(waiting), rows=rows)
    assert state_of(copied(waiting), rows=rows) is first
    assert state_of(copied(waiting, tries=2), rows=rows) is not first


pods = st.dictionaries(
    st.integers(0, 7), st.tuples(st.sampled_from(["active", "backoff"]), st.integers(0, 2))
)


def client_after(looks: list[dict[int, tuple[str, int]]], *, keeps_removed: bool = False) -> bool:
    """Whether a client has the last state after an update for each look."""
    rows, client = PendingRows(), FrameClient()
    before: PendingState | None = None
    for number, look in enumerate(looks):
        messages = [f"0/3 nodes are available: 3 reason {n}." for n in range(3)]
        copies = [
            copied(refused(f"p{name}", messages[why]), place, "R")
            for name, (place, why) in look.items()
        ]
        after = rows.state(copies, {})
        body = None if before is None else after.update_since(before)
        kind = FrameKind.SNAPSHOT if body is None else FrameKind.UPDATE
        if keeps_removed and body is not None:
            body.tree["removed"] = []
        header = FrameHeader(Topic.PENDING, kind, 1, number + 1, 0.0)
        client.take(encode_frame(header, body or after.snapshot()))
        before = after
    fresh = FrameClient()
    assert before is not None
    header = FrameHeader(Topic.PENDING, FrameKind.SNAPSHOT, 1, 1, 0.0)
    fresh.take(encode_frame(header, before.snapshot()))
    mine, other = client.state[Topic.PENDING], fresh.state[Topic.PENDING]
    return all(mine[name] == other[name] for name in ("rows", "reasons", "groups", "total"))


@given(looks=st.lists(pods, min_size=1, max_size=6))
def test_updates_of_pending_pods_give_the_state_of_a_snapshot(
    looks: list[dict[int, tuple[str, int]]],
) -> None:
    assert client_after(looks)


def test_an_update_that_forgets_removed_pods_is_seen() -> None:
    assert not client_after([{1: ("active", 0)}, {}], keeps_removed=True)


def test_above_the_limit_frames_have_groups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_rows, "ROWS_MAX", 2)
    rows = PendingRows()
    few = state_of(copied(refused("a")), copied(refused("b")), rows=rows)
    many = state_of(*(copied(refused(name)) for name in "abc"), rows=rows)
    assert many.update_since(few) is None
    tree = many.snapshot().tree
    assert (tree["rows"], tree["complete"], tree["total"]) == ([], False, 3)


def test_pages_are_filtered_and_sorted_on_the_server() -> None:
    made = [copied(refused(f"p{n}", priority=n), "active", "R", tries=9 - n) for n in range(9)]
    state = state_of(*made, copied(refused("web", "0/1 nodes are available: 1 Too many pods.")))
    page = page_of(state, {"sort": "tries", "limit": "2", "offset": "1", "filter": "TAINT"})
    assert [row[1] for row in page["rows"]] == ["default/p7", "default/p6"]
    assert (page["total"], page["matching"]) == (10, 9)
    page = page_of(state, {"sort": "priority", "order": "desc", "limit": "1"})
    assert page["rows"][0][1] == "default/p8"
    assert page_of(state, {"reason": "1"})["matching"] == 1
    for query, text in (({"sort": "nope"}, "sort"), ({"limit": "-1"}, "limit"),
                        ({"offset": "x"}, "offset"), ({"reason": "x"}, "reason")):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            page_of(state, query)


# Decisions.


def bind(name: str, node: str = "n0") -> Effect:
    return to_do.Bind(1, 1, name, "default", name, node)


def unschedulable(name: str) -> list[Effect]:
    return [
        to_do.PatchStatus(1, 1, name, "default", name, "Unschedulable", "none"),
        to_do.RecordEvent(
            2, 1, name, "default", name, "s", "Warning", "FailedScheduling", "Scheduling", "none"
        ),
    ]


def evict(victim: str, preemptor: str) -> list[Effect]:
    note = f"Preempted by pod {preemptor} on node n1"
    return [
        to_do.Evict(1, 1, victim, "default", victim, preemptor, "s: preempting"),
        to_do.RecordEvent(
            2, 1, victim, "default", victim, "s", "Normal", "Preempted", "Preempting", note
        ),
    ]


def call(at: float, *effects: Effect) -> HandledCall:
    return HandledCall(at, 1_000_000, PROFILES, list(effects))


def test_decisions_are_read_from_effects() -> None:
    ring = DecisionRing(lambda key: f"of {key}")
    ring.add_sample("a", DecisionSample(3, 9, [{"name": "n0"}]))
    ring.add(call(1.0, bind("a"), *unschedulable("b")))
    ring.add(call(2.0, *evict("c", "b"), to_do.Wake(3, 1, 5)))
    assert ring.read() == 3
    trees = [one.tree() for one in ring.since(0)]
    assert [(one["pod"], one["outcome"], one["node"]) for one in trees] == [
        ("default/a", "bound", "n0"),
        ("default/b", "unschedulable", ""),
        ("default/c", "evicted", "n1"),
    ]
    assert trees[0]["scores"] == [{"name": "n0"}]
    assert (trees[0]["feasible"], trees[1]["feasible"]) == (3, None)
    assert trees[0]["microseconds"] == 500.0
    assert trees[0]["scheduler"] == "of default/a"
    assert trees[2]["preemptor"] == "default/b"
    assert ring.get(2) == ring.since(1)[0]
    assert ring.get(4) is None


def test_nothing_is_made_of_effects_until_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_ring, "EFFECTS_MAX", 100)
    n_read = 0
    ring = DecisionRing(lambda key: str(count()))

    def count() -> int:
        nonlocal n_read
        n_read += 1
        return n_read

    for number in range(50):
        ring.add(call(number, *(bind(f"p{number}-{one}") for one in range(10))))
    assert n_read == 0
    assert ring.n_kept <= 100
    assert ring.read() == 100
    assert ring.since(0)[-1].pod == "default/p49-9"


def test_evictions_outlive_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_ring, "EFFECTS_MAX", 20)
    ring = DecisionRing()
    ring.add(call(1.0, *unschedulable("high"), *evict("low", "high")))
    for number in range(30):
        ring.add(call(2.0 + number, bind(f"p{number}")))
    ring.read()
    (kept,) = ring.evictions
    assert (kept.pod, kept.preemptor, kept.node) == ("default/low", "default/high", "n1")


def test_the_node_of_a_victim_is_known_without_its_event_or_before_it() -> None:
    seen = pod("seen", uid="seen", on="n7", priority=3)
    ring = DecisionRing(pod_of={"default/seen": seen}.get)
    event_before = to_do.RecordEvent(
        3, 1, "bound", "default", "bound", "s", "Normal", "Preempted", "Preempting", "s: reclaim"
    )
    ring.add(call(1.0, bind("bound", "n4")))
    ring.add(
        call(2.0, to_do.Evict(2, 1, "bound", "default", "bound", "", "s: reclaim"), event_before)
    )
    ring.add(call(3.0, to_do.Evict(4, 1, "seen", "default", "seen", "", "s: preempting")))
    # Another pod of this name is no evidence.
    ring.add(call(4.0, to_do.Evict(5, 1, "old", "default", "seen", "", "s: preempting")))
    eviction, event = evict("later", "x")
    ring.add(call(5.0, eviction))
    ring.read()
    assert [(one.node, one.priority) for one in ring.evictions] == [
        ("n4", None), ("n7", 3), ("", None), ("", None)
    ]  # fmt: skip
    ring.add(call(6.0, event))
    ring.read()
    assert ring.evictions[-1].node == "n1"
    assert next(ring.newest_first()).node == "n1"


def test_pages_of_decisions() -> None:
    ring = DecisionRing()
    ring.add(call(1.0, *(bind(f"p{number}") for number in range(5)), *unschedulable("q")))
    ring.read()
    page = decisions_page(ring, {}, 2, 0)
    assert [one["id"] for one in page["decisions"]] == [6, 5]
    assert page["more"]
    assert [one["id"] for one in decisions_page(ring, {}, 9, 3)["decisions"]] == [2, 1]
    assert len(decisions_page(ring, {"outcome": "bound"}, 9, 0)["decisions"]) == 5
    assert len(decisions_page(ring, {"filter": "P3"}, 9, 0)["decisions"]) == 1


def eviction(number: int, victim: str, preemptor: str, at: float) -> RecordedDecision:
    return RecordedDecision(
        number, at, f"ns/{victim}", victim, "evicted", "n", preemptor=f"ns/{preemptor}"
    )


def test_loops_of_preemptions() -> None:
    evictions = [
        eviction(1, "low-5b6fd-aaaaa", "high-1", 1.0),
        eviction(2, "low-5b6fd-bbbbb", "high-1", 5.0),
        eviction(3, "other-1", "high-1", 1.0),
        eviction(4, "gang-a", "big", 7.0),
        eviction(5, "gang-b", "big", 7.0),
        eviction(6, "x", "y", 8.0),
        eviction(7, "y", "x", 9.0),
    ]
    bound = [RecordedDecision(8, 3.0, "ns/high-1", "h", "bound", "n")]
    found = preemption_trees(evictions, bound, {"ns/gang-a": "ns/gang", "ns/gang-b": "ns/gang"})
    loops = [(one["pods"], one["count"]) for one in found["loops"]]
    # One preemption with two victims of one owner is no loop.
    assert loops == [(["ns/high-1", "ns/low"], 2), (["ns/x", "ns/y"], 2)]
    by_id = {one["id"]: one for one in found["preemptions"]}
    assert (by_id[1]["gapMs"], by_id[2]["gapMs"]) == (2.0, None)
    assert found["preemptions"][0]["id"] == 7


def test_one_preemption_is_no_loop() -> None:
    """Replicas that each evict several pods of a workload, not all at one time, are done then."""
    evictions = [
        eviction(number, f"low-5b6fd-a{number}aaa", f"high-7c8d9-{preemptor}aaaa", at)
        for number, (preemptor, at) in enumerate([("a", 1.0), ("a", 1.1), ("b", 4.0), ("b", 4.1)])
    ]
    bound = [RecordedDecision(8, 2.0, "ns/high-7c8d9-aaaaa", "h", "bound", "n")]
    assert preemption_trees(evictions, bound, {})["loops"] == []
    # The room that the first two left was taken by a pod that had to leave again.
    again = RecordedDecision(9, 4.05, "ns/low-5b6fd-a3aaa", "l", "bound", "n")
    (loop,) = preemption_trees(evictions, [*bound, again], {})["loops"]
    assert loop["pods"] == ["ns/high", "ns/low"]


def test_refusals_are_grouped_by_rule_and_reason() -> None:
    def short(free: str) -> RuleRefusal:
        detail = f"cpu: needs 4000m, {free} free of 8000m"
        return RuleRefusal("NodeResourcesFit", "Unschedulable", ("Insufficient cpu",), (detail,))

    taint = RuleRefusal("TaintToleration", "UnschedulableAndUnresolvable", ("untolerated",))
    nodes = [
        NodeExplanation(
            f"n{n}", False, short(f"{n * 1000 - 1000}m"), (short(f"{n * 1000 - 1000}m"),)
        )
        for n in range(7)
    ]
    nodes.append(NodeExplanation("tainted", False, taint, (taint, short("900m"))))
    nodes.append(NodeExplanation("fits", True))
    explanation = Explanation("v1", "default/p", "s", "pending", nodes=tuple(nodes))
    first, second = grouped_rules(explanation)
    assert (first["rule"], first["first"], first["nodes"]) == ("NodeResourcesFit", 7, 8)
    assert (first["need"], first["have"]) == ("4", {"least": "-1", "most": "5"})
    assert [one["node"] for one in first["examples"]] == ["n0", "n1", "n2", "n3", "n4"]
    assert (second["rule"], second["first"]) == ("TaintToleration", 1)
    assert "need" not in second
    tree = why_tree(explanation)
    assert (tree["nodes"], tree["fitting"]) == (9, 1)


def test_need_and_have_are_named_for_each_resource_of_a_refusal() -> None:
    def short(cpu: str, memory: str) -> RuleRefusal:
        details = (
            f"cpu: needs 40000m, {cpu} free of 64000m",
            f"memory: needs 60Gi, {memory} free of 64Gi",
        )
        reasons = ("Insufficient cpu", "Insufficient memory")
        return RuleRefusal("NodeResourcesFit", "Unschedulable", reasons, details)

    refusals = [short("0m", "35Gi"), short("1500m", "4Gi")]
    nodes = tuple(
        NodeExplanation(f"n{place}", False, one, (one,)) for place, one in enumerate(refusals)
    )
    (rule,) = grouped_rules(Explanation("v1", "default/p", "s", "pending", nodes=nodes))
    assert rule["amounts"] == [
        {"resource": "cpu", "need": "40", "have": {"least": "0", "most": "1500m"}},
        {"resource": "memory", "need": "60Gi", "have": {"least": "4Gi", "most": "35Gi"}},
    ]
    # One text cannot say both.
    assert "need" not in rule


def test_history_is_bounded_and_keeps_an_hour() -> None:
    history = QueueHistory()
    for second in range(0, 3 * 3600, 5):
        queue = {"name": "q", "allocated": {"cpu": float(second)}, "deserved": None, "pending": {}}
        history.add(second * 1000.0, [{"schedulerName": "s", "queues": [queue]}])
    tree = history.tree(0)
    times = tree["times"]
    assert times == sorted(set(times))
    assert (times[0], times[-1]) == (0.0, (3 * 3600 - 10) * 1000.0)
    last_hour = [time for time in times if time > 2 * 3600 * 1000]
    assert len(last_hour) == 359
    (series,) = tree["series"]
    assert (series["field"], series["values"][-1]) == ("allocated", 3 * 3600 - 10)
    assert history.tree(2 * 3600 * 1000)["times"][0] == 2 * 3600 * 1000
