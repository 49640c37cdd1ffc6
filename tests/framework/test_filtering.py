"""PreFilter, Filter, nominated pods and PostFilter.

Source: kube-scheduler v1.36, framework/runtime RunPreFilterPlugins, RunFilterPlugins,
RunFilterPluginsWithNominatedPods, RunPostFilterPlugins.
"""

from typing import Any

import numpy as np
import pytest

from stowplan.framework import (
    OK,
    SKIP,
    Code,
    ContractError,
    CycleState,
    NodeInfo,
    NodeTable,
    PodInfo,
    PostFilterResult,
    RestrictTo,
    Rows,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.runtime.outcomes import PreFilterOutcome
from stowplan.objects.pod import Pod
from stowplan.testing import pod
from tests.framework.stage import POD, framework_of, plugin, snapshot

NO = unschedulable("no room")
NEVER = unresolvable("never")
WAIT = Status(Code.WAIT, ("hold on",))
PENDING = Status(Code.PENDING, ("not yet",))


# PreFilter.


def pre_filtered(*answers: Status | RestrictTo) -> tuple[PreFilterOutcome, str]:
    """What plugins A, B ... with these answers lead to, and who was asked."""
    asked: list[str] = []

    def asks(name: str, answer: Status | RestrictTo) -> Any:
        def pre_filter(self: Any) -> Status | RestrictTo:
            asked.append(name)
            return answer

        return plugin(name, pre_filter=pre_filter)

    names = "ABCDEF"[: len(answers)]
    framework = framework_of(*map(asks, names, answers))
    outcome = framework.run_pre_filter(POD, snapshot(), CycleState())
    return outcome, "".join(asked)


def only(*names: str) -> RestrictTo:
    return RestrictTo(frozenset(names))


def test_success_asks_everybody() -> None:
    assert pre_filtered(OK, OK) == (PreFilterOutcome(OK), "AB")


def test_unresolvable_ends_the_walk() -> None:
    assert pre_filtered(OK, NEVER, OK) == (PreFilterOutcome(NEVER.by("B")), "AB")


def test_unschedulable_is_remembered_and_the_walk_goes_on() -> None:
    assert pre_filtered(NO, OK, OK) == (PreFilterOutcome(NO.by("A")), "ABC")


def test_the_last_unschedulable_counts() -> None:
    later = unschedulable("no room either")
    assert pre_filtered(NO, later, OK) == (PreFilterOutcome(later.by("B")), "ABC")


def test_unresolvable_after_unschedulable_counts() -> None:
    assert pre_filtered(NO, NEVER) == (PreFilterOutcome(NEVER.by("B")), "AB")


@pytest.mark.parametrize(
    ("answer", "message"), [(error("broken"), "broken"), (WAIT, "hold on"), (PENDING, "not yet")]
)
def test_any_other_answer_is_an_error(answer: Status, message: str) -> None:
    wanted = error(f'running PreFilter plugin "B": {message}').by("B")
    assert pre_filtered(NO, answer, OK) == (PreFilterOutcome(wanted), "AB")


def test_node_names_are_intersected() -> None:
    outcome, asked = pre_filtered(only("n1", "n2"), OK, only("n2", "n9"))
    assert (outcome.status, outcome.restrict, asked) == (OK, {"n2"}, "ABC")
    assert outcome.restricted_by == ("A", "C")


def test_one_plugin_that_leaves_no_node_refuses_the_pod() -> None:
    outcome, asked = pre_filtered(OK, only(), OK)
    assert outcome.status == unresolvable("node(s) didn't satisfy plugin B")
    assert (outcome.restrict, outcome.restricted_by, asked) == (frozenset(), ("B",), "AB")


def test_plugins_that_leave_no_node_together_are_named_in_order() -> None:
    registered = [
        plugin(name, pre_filter=answer)
        for name, answer in (("C", only("n1")), ("A", only("n1", "n2")), ("B", only("n3")))
    ]
    outcome = framework_of(*registered).run_pre_filter(POD, snapshot(), CycleState())
    assert outcome.status == unresolvable("node(s) didn't satisfy plugin(s) [A B C] simultaneously")


def test_a_restriction_does_not_undo_a_refusal() -> None:
    outcome, _ = pre_filtered(NO, only("n1"))
    assert (outcome.status, outcome.restrict) == (NO.by("A"), {"n1"})


def test_a_plugin_that_skips_does_not_filter() -> None:
    refuses = plugin("A", pre_filter=SKIP, filter=NO, add_pod=error("x"), remove_pod=error("x"))
    framework = framework_of(refuses, plugin("B", filter=NEVER))
    state = CycleState()
    assert framework.run_pre_filter(POD, snapshot(), state).status == OK
    assert state.skip_filter == {"A"}
    verdicts = framework.run_filters(POD, snapshot(), state)
    assert verdicts.status_of(0) == NEVER.by("B")
    node = snapshot().nodes.info(0)
    assert framework.filter_node(POD, node, state) == NEVER.by("B")
    assert framework.run_add_pod(POD, PodInfo.of(POD), node, state) == OK
    assert framework.run_remove_pod(POD, PodInfo.of(POD), node, state) == OK


# Filter.


def refusing(name: str, refusal: Status, *nodes: str) -> type[Any]:
    """A plugin that refuses these nodes."""

    def filter(self: Any, node: NodeInfo) -> Status:
        return refusal if node.name in nodes else OK

    return plugin(name, filter=filter)


def test_the_first_refusal_in_order_gives_the_reason() -> None:
    framework = framework_of(refusing("A", NO, "n1", "n2"), refusing("B", NEVER, "n2", "n3"))
    verdicts = framework.run_filters(POD, snapshot(), CycleState())
    assert [verdicts.at(place) for place in range(3)] == [NO.by("A"), NO.by("A"), NEVER.by("B")]
    assert verdicts.passed().tolist() == []
    assert verdicts.errors == []


def test_a_node_that_was_refused_is_not_asked_again_node_by_node() -> None:
    asked: list[str] = []

    def filter(self: Any, node: NodeInfo) -> Status:
        asked.append(node.name)
        return OK

    framework = framework_of(refusing("A", NO, "n2"), plugin("B", filter=filter))
    verdicts = framework.run_filters(POD, snapshot(), CycleState())
    assert asked == ["n1", "n3"]
    assert verdicts.passed().tolist() == [0, 2]


@pytest.mark.parametrize("answer", [error("broken"), WAIT])
def test_what_is_no_refusal_is_an_error_of_the_attempt(answer: Status) -> None:
    message = answer.message
    wanted = error(f'running "A" filter plugin: {message}').by("A")
    framework = framework_of(plugin("A", filter=answer))
    verdicts = framework.run_filters(POD, snapshot(), CycleState())
    assert verdicts.errors == [wanted]
    assert framework.filter_node(POD, snapshot().nodes.info(0), CycleState()) == wanted


def test_pending_is_a_refusal() -> None:
    verdicts = framework_of(plugin("A", filter=PENDING)).run_filters(POD, snapshot(), CycleState())
    assert (verdicts.errors, verdicts.at(0)) == ([], PENDING.by("A"))


def test_given_rows_are_answered_in_their_order() -> None:
    framework = framework_of(refusing("A", NO, "n3"))
    rows = np.array([2, 0], dtype=np.int64)
    verdicts = framework.run_filters(POD, snapshot(), CycleState(), rows)
    assert [verdicts.at(0), verdicts.at(1)] == [NO.by("A"), OK]
    assert verdicts.passed().tolist() == [0]


class ByColumn:
    """Refuses all nodes but n2, by codes that tell names apart."""

    name = "ByColumn"

    def filter(self, node: NodeInfo) -> Status:
        return OK if node.name == "n2" else unschedulable(f"code {node.name[1:]}")

    def filter_column(self, nodes: NodeTable) -> Any:
        codes = [0 if name == "n2" else int(name[1:]) for name in nodes.names]
        return np.array(codes, dtype=np.int64)

    def filter_status(self, code: int) -> Status:
        return unschedulable(f"code {code}")


@pytest.mark.parametrize("columns", [True, False])
def test_columns_give_what_nodes_give(columns: bool) -> None:
    framework = framework_of(ByColumn, columns=columns)
    verdicts = framework.run_filters(POD, snapshot(), CycleState())
    assert [verdicts.at(place).message for place in range(3)] == ["code 1", "", "code 3"]
    assert verdicts.passed().tolist() == [1]


def test_filters_apart_equals_each_filter_alone() -> None:
    framework = framework_of(refusing("A", NO, "n1"), refusing("B", NEVER, "n1", "n2"))
    nodes = snapshot().nodes
    apart = framework.filters_separately(POD, nodes, nodes.all_rows, CycleState())
    assert {name: one.codes.tolist() for name, one in apart.items()} == {
        "A": [1, 0, 0],
        "B": [1, 1, 0],
    }
    assert apart["B"].explain(1) == NEVER


def columns_of(answer: Any, **members: Any) -> type[Any]:
    def filter_column(self: Any, nodes: NodeTable, rows: Rows) -> Any:
        return answer

    return plugin("A", filter=OK, filter_column=filter_column, **members)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (columns_of([True] * 3), "gave a list; expected an array bool or int64 (3,)"),
        (columns_of(np.ones(2, dtype=np.bool_)), "gave bool (2,); expected an array"),
        (columns_of(np.ones(3)), "gave float64 (3,); expected an array"),
        (columns_of(np.ones(3, dtype=np.bool_)), "gives bool and the class has no REJECTED"),
        (columns_of(np.ones(3, dtype=np.int64)), "returns int64 codes and the class has no"),
        (
            columns_of(np.ones(3, dtype=np.int64), filter_status=OK),
            "gave Success for code 1; expected the refusal that it stands for",
        ),
    ],
)
def test_a_column_that_breaks_the_contract(broken: type[Any], message: str) -> None:
    with pytest.raises(ContractError) as caught:
        framework_of(broken).run_filters(POD, snapshot(), CycleState()).at(0)
    assert "plugin 'A'" in str(caught.value)
    assert message in str(caught.value)


# Nominated pods.


class OnePod:
    """At most one pod a node, not counting pods that it was told have left."""

    name = "OnePod"

    def filter(self, node: NodeInfo) -> Status:
        return OK if not node.pods else NO


class NeedsPeer:
    """The pod only runs beside another; it hears of pods by AddPod."""

    name = "NeedsPeer"

    def pre_filter(self, state: CycleState) -> Status:
        state.write(self.name, PeerState())
        return OK

    def add_pod(self, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        state.read(self.name, PeerState).nodes.append(node.name)
        return OK

    def remove_pod(self, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        state.read(self.name, PeerState).nodes.remove(node.name)
        return OK

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        return OK if node.name in state.read(self.name, PeerState).nodes else NEVER


class PeerState:
    def __init__(self, nodes: tuple[str, ...] = ()) -> None:
        self.nodes = list(nodes)

    def clone(self) -> "PeerState":
        return PeerState(tuple(self.nodes))


def verdict(nominated: Pod, *plugins: type[Any], asks: Pod = POD) -> list[Status]:
    framework, state = framework_of(*plugins), CycleState()
    seen = snapshot(nominated=(nominated,))
    framework.run_pre_filter(asks, seen, state)
    verdicts = framework.run_filters(asks, seen, state)
    return [verdicts.at(place) for place in range(3)]


@pytest.mark.parametrize(
    ("priority", "passes"),
    [(4, True), (5, False), (6, False)],
)
def test_room_is_kept_for_nominated_pods_of_no_lower_priority(priority: int, passes: bool) -> None:
    answers = verdict(pod("big", priority=priority, nominated="n2"), OnePod)
    assert answers == [OK, OK if passes else NO.by("OnePod"), OK]


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    mine = pod("web", priority=5, nominated="n2")
    assert verdict(mine, OnePod, asks=mine) == [OK, OK, OK]


def test_a_pod_must_not_depend_on_a_nominated_one() -> None:
    # With the nominated pod the node passes, without it it does not: both must pass.
    answers = verdict(pod("big", priority=9, nominated="n2"), NeedsPeer)
    assert answers == [NEVER.by("NeedsPeer")] * 3


def test_counting_nominated_pods_leaves_no_trace() -> None:
    framework, state = framework_of(NeedsPeer, OnePod), CycleState()
    seen = snapshot(nominated=(pod("big", priority=9, nominated="n2"),))
    framework.run_pre_filter(POD, seen, state)
    framework.run_filters(POD, seen, state)
    assert state.read("NeedsPeer", PeerState).nodes == []
    assert seen.nodes.info(1).pods == []


def test_a_nomination_to_a_node_that_is_gone_does_not_matter() -> None:
    assert verdict(pod("big", priority=9, nominated="n9"), OnePod) == [OK, OK, OK]


def test_a_failure_to_count_a_nominated_pod_in_is_an_error() -> None:
    fails = plugin("Fails", pre_filter=OK, add_pod=error("lost"), remove_pod=OK)
    answers = verdict(pod("big", priority=9, nominated="n2"), fails, OnePod)
    wanted = error('running AddPod on PreFilter plugin "Fails": lost').by("Fails")
    assert answers == [OK, wanted, OK]


def test_a_failure_to_take_a_pod_out_is_an_error() -> None:
    fails = plugin("Fails", pre_filter=OK, add_pod=OK, remove_pod=NO)
    node = snapshot().nodes.info(0)
    status = framework_of(fails).run_remove_pod(POD, PodInfo.of(POD), node, CycleState())
    assert status == error('running RemovePod on PreFilter plugin "Fails": no room').by("Fails")


# PostFilter.


def post_filtered(*results: PostFilterResult) -> tuple[PostFilterResult, str]:
    asked: list[str] = []

    def asks(name: str, result: PostFilterResult) -> Any:
        def post_filter(self: Any, diagnosis: Diagnosis) -> PostFilterResult:
            asked.append(name)
            return result

        return plugin(name, post_filter=post_filter)

    framework = framework_of(*map(asks, "ABC", results))
    found = framework.run_post_filter(POD, snapshot(), Diagnosis(3), CycleState())
    return found, "".join(asked)


def test_the_first_that_helps_ends_the_round() -> None:
    helps = PostFilterResult(OK, "n1")
    found, asked = post_filtered(PostFilterResult(NO, "n9"), helps, PostFilterResult(OK, "n2"))
    assert (found, asked) == (PostFilterResult(OK.by("B"), "n1"), "AB")


def test_what_does_not_help_is_joined() -> None:
    other = unschedulable("nor here", "nor there")
    found, asked = post_filtered(PostFilterResult(NO), PostFilterResult(other))
    wanted = unschedulable("no room", "nor here", "nor there").by("A")
    assert (found, asked) == (PostFilterResult(wanted, None), "AB")
    assert found.status.message == "no room, nor here, nor there"


@pytest.mark.parametrize(
    ("nominations", "kept"),
    [((None, None), None), (("", None), ""), ((None, ""), ""), (("n1", ""), "")],
)
def test_the_last_word_on_the_nomination_is_kept(
    nominations: tuple[str | None, ...], kept: str | None
) -> None:
    found, _ = post_filtered(*(PostFilterResult(NO, name) for name in nominations))
    assert found.nominated_node == kept


def test_unresolvable_ends_the_round_with_its_own_words() -> None:
    found, asked = post_filtered(
        PostFilterResult(NO, "n9"), PostFilterResult(NEVER), PostFilterResult(OK)
    )
    assert (found, asked) == (PostFilterResult(NEVER.by("B")), "AB")


def test_pending_lets_the_next_be_asked() -> None:
    found, asked = post_filtered(PostFilterResult(PENDING), PostFilterResult(NO))
    assert (found.status, asked) == (unschedulable("not yet", "no room").by("A"), "AB")


@pytest.mark.parametrize("answer", [error("broken"), SKIP])
def test_an_error_ends_the_round(answer: Status) -> None:
    found, asked = post_filtered(PostFilterResult(answer, "n1"), PostFilterResult(OK))
    assert (found, asked) == (PostFilterResult(error(*answer.reasons).by("A")), "A")


def test_no_priorities() -> None:
    found, _ = post_filtered()
    assert found == PostFilterResult(Status(Code.UNSCHEDULABLE))


# PreEnqueue.


def test_the_first_that_gates_a_pod_is_named() -> None:
    gates = [plugin("A", pre_enqueue=OK), plugin("B", pre_enqueue=NEVER)]
    framework = framework_of(*gates, plugin("C", pre_enqueue=NO))
    assert framework.run_pre_enqueue(POD) == NEVER.by("B")
    assert framework_of(gates[0]).run_pre_enqueue(POD) == OK
