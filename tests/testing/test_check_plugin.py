"""check_plugin: a sound plugin passes, and for each check a realistic mistake does not."""

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.framework import (
    OK,
    Code,
    CycleState,
    FeatureGates,
    Handle,
    NodeInfo,
    NodeTable,
    PermitWait,
    PodInfo,
    QueuedPod,
    Rows,
    Snapshot,
    Status,
    score,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import (
    NODE,
    POD,
    Action,
    ClusterEventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.pod import Pod
from stowplan.testing import CheckFailed, check_plugin, checks
from stowplan.testing.check_plugin import CHECKS
from tests.testing.test_placement_checks import MISTAKES as PLACEMENT_MISTAKES

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FULL = unschedulable("node(s) had too many pods")


class FewPods:
    """A sound plugin: refuses crowded nodes and prefers the emptier of the others."""

    name = "FewPods"
    REJECTED = FULL

    class Args(msgspec.Struct, frozen=True):
        """most: how many pods are no crowd."""

        most: int = 2

    def __init__(self, args: Args, handle: Handle) -> None:
        self.most = args.most
        self.gates = handle.gates

    def filter(self, node: NodeInfo) -> Status:
        return OK if len(node.pods) <= self.most else self.REJECTED

    def filter_column(self, nodes: NodeTable, rows: Rows) -> Bools:
        few: Bools = nodes.pod_count[rows] <= self.most
        return few

    def score(self, node: NodeInfo) -> int:
        return -len(node.pods)

    def score_column(self, nodes: NodeTable) -> Ints:
        return -nodes.pod_count

    def normalize_score(self, scores: Ints) -> Ints:
        return np.maximum(100 + 10 * scores, 0)

    def signature(self, pod: Pod) -> object:
        return ()


def test_a_sound_plugin_passes() -> None:
    check_plugin(FewPods)
    check_plugin(FewPods, FewPods.Args(most=0), seeds=[1], gates=FeatureGates())


class Emptier:
    """A plugin of the fewest lines: scalar only, no arguments."""

    name = "Emptier"

    def score(self, node: NodeInfo) -> int:
        return max(0, 100 - len(node.pods))


def test_a_plugin_without_columns_passes() -> None:
    check_plugin(Emptier)


class Peers(msgspec.Struct):
    """How many pods of the pod's app there are."""

    count: int

    def clone(self) -> "Peers":
        return Peers(self.count)


class FewPeers:
    """A sound plugin with state: at most so many pods of an app; a booked app stays out."""

    name = "FewPeers"
    FULL = unschedulable("too many pods of the app")
    BOOKED = unschedulable("the app is booked")

    def __init__(self) -> None:
        self.booked: set[str] = set()

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        infos = (info for node in snapshot.nodes.infos() for info in node.pods)
        state.write(self.name, Peers(sum(app(info.pod) == app(pod) for info in infos)))
        return self.BOOKED if app(pod) in self.booked else OK

    def add_pod(self, pod: Pod, info: PodInfo, state: CycleState) -> Status:
        state.read(self.name, Peers).count += app(info.pod) == app(pod)
        return OK

    def remove_pod(self, pod: Pod, info: PodInfo, state: CycleState) -> Status:
        state.read(self.name, Peers).count -= app(info.pod) == app(pod)
        return OK

    def filter(self, state: CycleState) -> Status:
        return OK if state.read(self.name, Peers).count < 2 else self.FULL

    def reserve(self, pod: Pod) -> Status:
        self.booked.add(app(pod))
        return OK

    def unreserve(self, pod: Pod) -> None:
        self.booked.discard(app(pod))

    def permit(self, pod: Pod) -> Status | PermitWait:
        return PermitWait(2.5) if app(pod) else OK

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [
            on(POD, Action.DELETE, lambda pod, old, new: queue_if(app(old) == app(pod))),
            on(POD, Action.UPDATE_POD_LABEL),
            # A new node brings the pods along that were bound to it, and takes none away.
            on(NODE, Action.DELETE),
        ]


def app(pod: Pod) -> str:
    return pod.labels.get("app", "")


def queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def test_a_plugin_with_every_point_after_the_choice_passes() -> None:
    check_plugin(FewPeers)


def test_a_decorated_function_is_checked() -> None:
    @score("few")
    def few(node: NodeInfo) -> int:
        return max(0, 100 - len(node.pods))

    check_plugin(few)
    assert all(check.plugin.name == "few" for check in checks(few))


AFTER = {
    "queue_order_is_strict",
    "add_and_remove_pod_agree_with_filter",
    "unreserve_undoes_reserve",
    "permit_results_are_valid",
    "events_to_register_are_complete",
}


def test_checks_are_named_for_test_ids() -> None:
    listed = checks(FewPods, seeds=[3])
    of_groups = {check for _, check, _ in PLACEMENT_MISTAKES}
    others = [name for name in CHECKS if name not in AFTER | of_groups]
    assert [check.name for check in listed] == others
    assert {check.name for check in checks(FewPeers)} >= AFTER - {"queue_order_is_strict"}
    assert [check.__name__ for check in listed] == [f"FewPods-{check.name}" for check in listed]
    assert repr(listed[0]) == "FewPods-column_agrees_with_scalar"
    names = {check.name for check in checks(Emptier)}
    assert "column_agrees_with_scalar" not in names
    assert "equal_signatures_mean_equal_answers" not in names
    assert "scores_are_in_range" in names


@pytest.mark.parametrize("check", checks(FewPods, seeds=[5]))
def test_a_check_is_a_test(check: Any) -> None:
    check()


def line_of(method: Any) -> str:
    return f" (test_check_plugin.py:{method.__code__.co_firstlineno})"


def broken_contract(plugin: type[Any]) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        check_plugin(plugin)
    return caught.value


# One mistake each.


class OffByOne(FewPods):
    def filter_column(self, nodes: NodeTable, rows: Rows) -> Bools:
        few: Bools = nodes.pod_count[rows] < self.most
        return few


class OtherReason(FewPods):
    REJECTED = unresolvable("node(s) had too many pods")

    def filter(self, node: NodeInfo) -> Status:
        return OK if len(node.pods) <= self.most else FULL


class OtherScore(FewPods):
    def score(self, node: NodeInfo) -> int:
        return -sum(info.pod.priority >= 0 for info in node.pods)


class SortsTheRows(FewPods):
    def filter_column(self, nodes: NodeTable, rows: Rows) -> Bools:
        few: Bools = nodes.pod_count[rows if isinstance(rows, slice) else np.sort(rows)] <= 2
        return few


class NormalisesInPlace(FewPods):
    def normalize_score(self, scores: Ints) -> Ints:
        scores *= 10
        scores += 100
        return np.maximum(scores, 0, out=scores)


class LabelsThePod(FewPods):
    def filter(self, pod: Pod, node: NodeInfo) -> Status:  # type: ignore[override]
        pod.labels["seen"] = "yes"
        return super().filter(node)

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:  # type: ignore[override]
        pod.labels["seen"] = "yes"
        return super().filter_column(nodes, rows)


class CountsItselfIn(FewPods):
    def filter_column(self, nodes: NodeTable, rows: Rows) -> Bools:
        count = nodes.pod_count
        count += 1
        few: Bools = count[rows] <= self.most + 1
        return few


class ReordersPods(Emptier):
    def score(self, node: NodeInfo) -> int:
        node.pods.sort(key=lambda info: info.pod.priority)
        return super().score(node)


class LendsAColumn(FewPods):
    def score(self, node: NodeInfo) -> int:
        return len(node.pods)

    def score_column(self, nodes: NodeTable) -> Ints:
        return nodes.pod_count


class ScoresTooHigh(Emptier):
    def score(self, node: NodeInfo) -> int:
        return 101 - len(node.pods)


class ScoresTooLow(Emptier):
    def score(self, node: NodeInfo) -> int:
        return -len(node.pods)


class ScoresFractions(FewPods):
    def normalize_score(self, scores: Ints) -> Any:
        return 100 / (1 - scores)


class PrefersLowRows(Emptier):
    def pre_score(self, snapshot: Snapshot, state: CycleState) -> Status:
        state.write(self.name, {name: row for row, name in enumerate(snapshot.nodes.names)})
        return OK

    def score(self, node: NodeInfo, state: CycleState) -> int:  # type: ignore[override]
        row: int = state.find(self.name)[node.name]
        return 100 - row


class CountsQuestions(Emptier):
    def __init__(self) -> None:
        self.asked = 0

    def score(self, node: NodeInfo) -> int:
        self.asked += 1
        return self.asked % 100


class BestIsMaximum(FewPods):
    def normalize_score(self, scores: Ints) -> Ints:
        return np.maximum(100 + 10 * (scores - scores.max()), 0)


class RemembersNodes(Emptier):
    """Keeps what it found out about a node, and forgets that it was for another pod."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}

    def score(self, pod: Pod, node: NodeInfo) -> int:  # type: ignore[override]
        return self.kept.setdefault(node.name, abs(pod.priority) % 100)


class RemembersTheCluster(FewPods):
    """Keeps a column from the first cluster that it saw."""

    def __init__(self, args: FewPods.Args, handle: Handle) -> None:
        super().__init__(args, handle)
        self.counts: dict[str, int] = {}

    def score(self, node: NodeInfo) -> int:
        return -self.counts.setdefault(node.name, len(node.pods))

    def score_column(self, nodes: NodeTable) -> Ints:
        return np.array([self.score(info) for info in nodes.infos()], dtype=np.int64)


class SignsTooLittle(Emptier):
    def score(self, pod: Pod, node: NodeInfo) -> int:  # type: ignore[override]
        return 10 * len(pod.spec.containers) + 7 * len(pod.tolerations)

    def signature(self, pod: Pod) -> object:
        return len(pod.spec.containers)


class SignsWithAList(Emptier):
    def signature(self, pod: Pod) -> object:
        return [pod.name]


class SortsEquals:
    name = "SortsEquals"

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        return first.pod.priority >= second.pod.priority


class SortsInCircles:
    name = "SortsInCircles"

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        places = [int(queued.pod.name[1:]) % 3 for queued in (first, second)]
        return places in ([0, 1], [1, 2], [2, 0])


class SortsByKeyBackwards:
    name = "SortsByKeyBackwards"

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        return first.pod.priority > second.pod.priority

    def sort_key(self, queued: QueuedPod) -> int:
        return queued.pod.priority


class ForgetsToAdd(FewPeers):
    def add_pod(self, pod: Pod, info: PodInfo, state: CycleState) -> Status:
        return OK


class CountsOnTheSharedState(FewPeers):
    """Its state has no `clone`, so that what if changes what is."""

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        answer = super().pre_filter(pod, snapshot, state)
        state.write(self.name, {"count": state.read(self.name, Peers).count})
        return answer

    def add_pod(self, pod: Pod, info: PodInfo, state: CycleState) -> Status:
        state.read(self.name, dict)["count"] += app(info.pod) == app(pod)
        return OK

    def remove_pod(self, pod: Pod, info: PodInfo, state: CycleState) -> Status:
        state.read(self.name, dict)["count"] -= app(info.pod) == app(pod)
        return OK

    def filter(self, state: CycleState) -> Status:
        return OK if state.read(self.name, dict)["count"] < 2 else self.FULL


class KeepsTheBooking(FewPeers):
    def unreserve(self, pod: Pod) -> None:
        self.booked.discard(pod.name)


class UnreservesWithoutLooking(FewPeers):
    def unreserve(self, pod: Pod) -> None:
        self.booked.remove(app(pod))


class WaitsForNoTime(FewPeers):
    def permit(self, pod: Pod) -> Status | PermitWait:
        return PermitWait(0)


class WaitsByStatus(FewPeers):
    def permit(self, pod: Pod) -> Status | PermitWait:
        return Status(Code.WAIT)


class DoesNotHearOfDepartures(FewPeers):
    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [on(POD, Action.ADD | Action.UPDATE_POD_LABEL)]


class HintsTheOtherWay(FewPeers):
    def events_to_register(self) -> list[ClusterEventWithHint]:
        hint = lambda pod, old, new: queue_if(app(old) != app(pod))  # noqa: E731
        return [on(POD, Action.DELETE, hint), on(POD, Action.UPDATE_POD_LABEL)]


class RegistersNonsense(FewPeers):
    def events_to_register(self) -> list[Any]:
        return [on("Node/Add", Action.ADD)]


class RegistersNames(FewPeers):
    def events_to_register(self) -> list[Any]:
        return ["Pod"]


MISTAKES: list[tuple[type[Any], str, str]] = [
    (OffByOne, "column_agrees_with_scalar", "filter on node"),
    (OtherReason, "column_agrees_with_scalar", "got UnschedulableAndUnresolvable 'node(s) had"),
    (OtherScore, "column_agrees_with_scalar", "raw on node"),
    (SortsTheRows, "column_agrees_with_scalar", "by column (rows ["),
    (
        NormalisesInPlace,
        "inputs_are_not_modified",
        f"normalize_score{line_of(NormalisesInPlace.normalize_score)} changed `scores`, which was",
    ),
    (
        LabelsThePod,
        "inputs_are_not_modified",
        f"filter_column{line_of(LabelsThePod.filter_column)} changed pod 'default/q0': "
        "metadata.labels.seen was nothing, is 'yes'",
    ),
    (
        CountsItselfIn,
        "inputs_are_not_modified",
        f"filter_column{line_of(CountsItselfIn.filter_column)} changed the node table: pod count",
    ),
    (
        ReordersPods,
        "inputs_are_not_modified",
        f"score{line_of(ReordersPods.score)} changed the node table: info of",
    ),
    (
        LendsAColumn,
        "returned_columns_are_owned",
        f"score_column{line_of(LendsAColumn.score_column)} returns a view",
    ),
    (ScoresTooHigh, "scores_are_in_range", "expected 0..100"),
    (ScoresTooLow, "scores_are_in_range", "expected 0..100"),
    (ScoresFractions, "column_agrees_with_scalar", "normalize_score of pod"),
    (PrefersLowRows, "row_order_does_not_matter", "with the nodes on other rows"),
    (CountsQuestions, "calls_are_repeatable", "on the second call"),
    (BestIsMaximum, "empty_cluster_is_accepted", "normalize_score of pod"),
    (RemembersNodes, "pods_are_independent", "after pod"),
    (RemembersTheCluster, "pods_are_independent", "after pod"),
    (SignsTooLittle, "equal_signatures_mean_equal_answers", "of the same signature"),
    (SignsWithAList, "equal_signatures_mean_equal_answers", "expected a hashable"),
    (SortsEquals, "queue_order_is_strict", "each is less than the other"),
    (SortsInCircles, "queue_order_is_strict", "`less` is not transitive"),
    (SortsByKeyBackwards, "queue_order_is_strict", "sort_key sorts the other way"),
    (
        ForgetsToAdd,
        "add_and_remove_pod_agree_with_filter",
        "added: got Success; expected Unschedulable",
    ),
    (
        CountsOnTheSharedState,
        "add_and_remove_pod_agree_with_filter",
        "on clones of the state, not as before",
    ),
    (KeepsTheBooking, "unreserve_undoes_reserve", "after reserve and unreserve of pod"),
    (UnreservesWithoutLooking, "unreserve_undoes_reserve", "raised KeyError"),
    (WaitsForNoTime, "permit_results_are_valid", "gave PermitWait(0); expected seconds"),
    (WaitsByStatus, "permit_results_are_valid", "expected Success, a refusal"),
    (
        DoesNotHearOfDepartures,
        "events_to_register_are_complete",
        "AssignedPodDelete is not registered",
    ),
    (HintsTheOtherWay, "events_to_register_are_complete", "or its hint is Skip"),
    (RegistersNonsense, "events_to_register_are_complete", "names the unknown resource 'Node/Add'"),
    (RegistersNames, "events_to_register_are_complete", "gave 'Pod'; expected on("),
]
"""A wrong plugin, the check that is to notice it, and what that says."""


@pytest.mark.parametrize(
    ("plugin", "check", "message"), MISTAKES, ids=[plugin.__name__ for plugin, _, _ in MISTAKES]
)
def test_a_mistake_is_noticed(plugin: type[Any], check: str, message: str) -> None:
    listed = {each.name: each for each in checks(plugin)}
    with pytest.raises(CheckFailed) as caught:
        listed[check]()
    failure = caught.value
    assert message in str(failure)
    assert (failure.plugin, failure.check) == (plugin.name, check)
    assert f"plugin {plugin.name!r}: {check} (seed {failure.seed}): " in str(failure)
    assert "(test_check_plugin.py:" in str(failure)


def test_every_check_notices_something() -> None:
    noticed = {check for _, check, _ in (*MISTAKES, *PLACEMENT_MISTAKES)}
    assert noticed == set(CHECKS)


def test_the_seed_of_a_failure_shows_it_again() -> None:
    failure = broken_contract(OffByOne)
    with pytest.raises(CheckFailed) as again:
        check_plugin(OffByOne, seeds=[failure.seed])
    assert str(again.value) == str(failure)


# What the engine itself refuses comes out as a failed check too.


class Raises(Emptier):
    def score(self, node: NodeInfo) -> int:
        raise KeyError(node.name)


class ReturnsNone(Emptier):
    def filter(self, node: NodeInfo) -> None:
        return None


class WrongSize(FewPods):
    def filter_column(self, nodes: NodeTable) -> Bools:  # type: ignore[override]
        return np.ones(nodes.n_nodes + 1, dtype=np.bool_)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Raises, "on node 'n0' raised KeyError: 'n0'"),
        (ReturnsNone, "gave None; expected a Status"),
        (WrongSize, "filter_column of pod"),
    ],
)
def test_a_broken_contract_is_a_failed_check(plugin: type[Any], message: str) -> None:
    assert message in str(broken_contract(plugin))
