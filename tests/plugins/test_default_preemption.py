"""DefaultPreemption: who may preempt, which node is chosen, who goes, and what users read.

Source: kube-scheduler v1.36, plugins/defaultpreemption and framework/preemption.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.columns.nodetable import table_of
from stowplan.cycle import filter_pod
from stowplan.cycle.decision import run_post_filters
from stowplan.framework import (
    OK,
    NodeInfo,
    NodeTable,
    Nominations,
    ObjectStore,
    PostFilterResult,
    Rows,
    Snapshot,
    Status,
    unschedulable,
)
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodCondition
from stowplan.plugins.preemption import default_preemption, dry_run_cache
from stowplan.plugins.preemption.default_preemption import DefaultPreemptionArgs, PreemptionReport
from stowplan.plugins.preemption.dry_run_cache import DryRunCache
from stowplan.plugins.preemption.vector_dry_run import VectorDryRun
from stowplan.plugins.preemption.victim_selector import VictimSelector
from stowplan.testing import node
from tests.plugins.preemption_walk import framework, made_budget, made_pod

HIGH = made_pod("high", {"cpu": "2"}, priority=100)
FIT = "Insufficient cpu"


@pytest.fixture(params=["kept, many", "kept, few", "anew"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How dry runs are done."""
    monkeypatch.setattr(
        default_preemption, "VECTOR_DRY_RUN_MIN", 1 if request.param == "kept, many" else 10**9
    )
    found: str = request.param
    return found


def low(name: str, on: str, cpu: str = "1", *, app: str = "", **parts: Any) -> Pod:
    return made_pod(name, {"cpu": cpu}, on=on, labels={"app": app} if app else {}, **parts)


def nodes(names: str, cpu: str = "2", **parts: Any) -> list[Node]:
    return [node(name, cpu=cpu, **parts) for name in names.split()]


class Outcome:
    """What PostFilter made of a pod. text: "" where it found a way."""

    def __init__(self, result: PostFilterResult, report: PreemptionReport | None) -> None:
        self.result = result
        self.report = report
        # DynamicResources has a word to say before it.
        self.text = result.status.reasons[-1] if result.status.reasons else ""
        self.node = result.nominated_node
        self.victims = [info.uid for info in result.victims]


def preempts(
    way: str,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    pod: Pod = HIGH,
    *,
    budgets: Iterable[Any] = (),
    nominated: dict[str, Pod] | None = None,
    args: DefaultPreemptionArgs | None = None,
    plugins: tuple[Any, ...] = (),
) -> Outcome:
    nominations = Nominations()
    for name, other in (nominated or {}).items():
        nominations.add(other, name)
    snapshot = Snapshot(table_of(nodes, pods), ObjectStore(budgets), nominations)
    asked = framework(columns=way != "anew", args=args, plugins=plugins)
    attempt = filter_pod(pod, snapshot, asked)
    result = run_post_filters(attempt)
    assert result is not None, "the profile has no PostFilter"
    return Outcome(result, attempt.state.find("DefaultPreemption"))


# Which node.


def test_fewest_budgets_are_broken(way: str) -> None:
    pods = [low("a1", "a", "2", app="x"), low("b1", "b", "2", priority=9)]
    assert preempts(way, nodes("a b"), pods).node == "a"
    budget = made_budget("one", "x", 0, ())
    assert preempts(way, nodes("a b"), pods, budgets=[budget]).node == "b"


def test_then_the_highest_victim_counts(way: str) -> None:
    pods = [low("a1", "a", "2", priority=5), low("b1", "b", priority=4), low("b2", "b", priority=4)]
    assert preempts(way, nodes("a b"), pods).node == "b"


def test_then_the_sum_of_priorities(way: str) -> None:
    pods = [low("a1", "a", priority=5), low("a2", "a", priority=3)]
    pods += [low("b1", "b", priority=5), low("b2", "b", priority=2)]
    assert preempts(way, nodes("a b"), pods).node == "b"


def test_of_negative_priorities_fewer_are_better(way: str) -> None:
    pods = [low("a1", "a", priority=-5), low("a2", "a", priority=-9)]
    pods += [low("b1", "b", "2", priority=-5)]
    assert preempts(way, nodes("a b"), pods).node == "b"


def test_then_the_latest_start_of_the_highest(way: str) -> None:
    pods = [low("a1", "a", "2", started=5), low("b1", "b", "2", started=7)]
    assert preempts(way, nodes("a b"), pods).node == "b"
    assert preempts(way, nodes("a b c"), [*pods, low("c1", "c", "2")]).node == "c"


def test_then_the_first_of_the_snapshot(way: str) -> None:
    pods = [low("a1", "a", "2"), low("b1", "b", "2")]
    chosen = preempts(way, nodes("b a"), pods)
    assert chosen.node == "b"
    assert chosen.report is not None
    assert [candidate.node_name for candidate in chosen.report.best] == ["b", "a"]


def test_as_many_candidates_as_are_wanted(way: str) -> None:
    pods = [low(f"{name}1", name, "2", priority=9 - i) for i, name in enumerate("abcd")]
    for args, n_found in (
        (None, 4),
        (DefaultPreemptionArgs(0, 2), 2),
        (DefaultPreemptionArgs(50, 1), 2),
    ):
        report = preempts(way, nodes("a b c d"), pods, args=args).report
        assert report is not None
        assert len(report.candidates) == n_found


# Who goes.


def test_the_least_important_go(way: str) -> None:
    pods = [low("old", "a", started=1), low("young", "a", started=2), low("not yet", "a")]
    pods.append(low("higher", "a", priority=1, started=9))
    assert preempts(way, nodes("a", "4"), pods).victims == ["young", "not yet"]


def test_pods_of_high_priority_are_not_evicted(way: str) -> None:
    pods = [low("equal", "a", priority=100), low("low", "a")]
    outcome = preempts(way, nodes("a"), pods)
    assert outcome.text == (f"preemption: 0/1 nodes are available: 1 {FIT}.")
    assert outcome.node == ""


def test_the_protected_come_back_first(way: str) -> None:
    budget = made_budget("one", "x", 0, ())
    pods = [low("free", "a", "2", priority=5), low("kept", "a", "2", app="x")]
    assert preempts(way, nodes("a", "4"), pods).victims == ["kept"]
    assert preempts(way, nodes("a", "4"), pods, budgets=[budget]).victims == ["free"]


def test_of_equally_important_victims_the_protected_stand_first(way: str) -> None:
    budget = made_budget("one", "x", 0, ())
    pods = [low("free", "a"), low("kept", "a", app="x")]
    outcome = preempts(way, nodes("a"), pods, budgets=[budget])
    assert outcome.victims == ["kept", "free"]
    assert outcome.report is not None
    assert outcome.report.best[0].pdb_violations == 1


def test_pods_without_requests_go_where_slots_are_short(way: str) -> None:
    pods = [made_pod(f"p{i}", {}, on="a", started=i) for i in range(3)]
    pod = made_pod("high", {}, priority=1)
    assert preempts(way, nodes("a", pods=3), pods, pod).victims == ["p2"]


def test_the_pod_with_the_port_goes(way: str) -> None:
    ports = [{"hostPort": 80}]
    pods = [low("a", "a", ports=ports), low("b", "a", started=9)]
    pod = made_pod("high", {"cpu": "1"}, priority=1, ports=ports)
    assert preempts(way, nodes("a", "4"), pods, pod).victims == ["a"]


def test_nominated_pods_count_as_placed(way: str) -> None:
    pods = [low("a1", "a", started=1), low("a2", "a", started=2), low("a3", "a", started=3)]
    equal = made_pod("equal", {"cpu": "1"}, priority=100)
    lower = made_pod("lower", {"cpu": "1"}, priority=99)
    assert preempts(way, nodes("a", "4"), pods).victims == ["a3"]
    assert preempts(way, nodes("a", "4"), pods, nominated={"a": lower}).victims == ["a3"]
    assert preempts(way, nodes("a", "4"), pods, nominated={"a": equal}).victims == ["a2", "a3"]
    assert preempts(way, nodes("a", "4"), pods, nominated={"a": HIGH}).victims == ["a3"]


# Who may.


def test_a_pod_that_never_preempts(way: str) -> None:
    spec = replace(HIGH.spec, preemption_policy="Never")
    outcome = preempts(way, nodes("a"), [low("a1", "a")], replace(HIGH, spec=spec))
    assert outcome.text == "preemption: not eligible due to preemptionPolicy=Never."
    assert outcome.node is None


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        (PodCondition("DisruptionTarget", "True", "PreemptionByScheduler"), True),
        (PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI"), False),
        (PodCondition("DisruptionTarget", "False", "PreemptionByScheduler"), False),
        (PodCondition("Ready", "True", "PreemptionByScheduler"), False),
    ],
)
def test_a_pod_whose_victims_are_ending_waits(
    way: str, condition: PodCondition, refused: bool
) -> None:
    victim = low("a1", "a", "2")
    going = replace(victim.metadata, deletion_timestamp=datetime.datetime.now(datetime.UTC))
    victim = replace(victim, metadata=going, status=replace(victim.status, conditions=(condition,)))
    pod = replace(HIGH, status=replace(HIGH.status, nominated_node_name="a"))
    text = preempts(way, nodes("a"), [victim], pod).text
    ending = "preemption: not eligible due to a terminating pod on the nominated node."
    assert (text == ending) is refused


# What users read.


def test_where_eviction_does_not_help(way: str) -> None:
    pods = [low("a1", "a"), low("b1", "b", "2", priority=100)]
    tainted = node("t", taints=["k=v:NoSchedule"])
    outcome = preempts(
        way, [*nodes("a", "2"), *nodes("b c", "2"), tainted], [*pods, low("c1", "c", priority=100)]
    )
    assert outcome.text == ""
    outcome = preempts(way, [*nodes("b c"), tainted], [pods[1], low("c1", "c", priority=100)])
    assert outcome.text == (
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


def test_a_report_is_not_read_late() -> None:
    table = table_of(nodes("a"), [low("a1", "a", "2")])
    attempt = filter_pod(HIGH, Snapshot(table), framework(columns=True))
    assert run_post_filters(attempt)
    report = attempt.state.find("DefaultPreemption")
    assert [c.node_name for c in report.candidates] == ["a"]
    table.remove_pod("a1")
    assert report.candidates, "what has been read stays"
    with pytest.raises(LookupError, match="after the cluster has changed"):
        _ = report.statuses


# What is kept.


class Few:
    """Somebody's rule: at most one pod that is called small on a node."""

    name = "Few"
    REJECTED = unschedulable("too many small pods")

    def filter(self, node: NodeInfo) -> Status:
        small = [info for info in node.pods if info.pod.name.startswith("small")]
        return OK if len(small) < 2 else self.REJECTED


class FewByRow(Few):
    """The same, which says that it looks at one row only."""

    row_local = True

    def filter_column(self, nodes: NodeTable, rows: Rows) -> Any:
        found = [self.filter(info).is_success for info in nodes.infos()]
        return np.array(found, dtype=np.bool_)[rows]

    def signature(self, pod: Pod) -> object:
        return ""


@pytest.mark.parametrize("plugin", [Few, FewByRow])
def test_the_rules_of_others_are_asked(way: str, plugin: type[Any]) -> None:
    pods = [low("small-1", "a", "0", started=1), low("small-2", "a", "0", started=2)]
    pods.append(low("last", "a", "0", started=3))
    assert preempts(way, nodes("a", "4"), pods).text.endswith("scheduling.")
    assert preempts(way, nodes("a", "4"), pods, plugins=(plugin,)).victims == ["small-2"]


class Asked:
    """Counts the dry runs that are done on one row, and the rows of those done on many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        at, select_resource_only, run = (
            VictimSelector.at,
            VictimSelector.select_resource_only,
            VectorDryRun.run,
        )

        def one(right: Any) -> Any:
            return lambda trial, row: (self.rows.append(row), right(trial, row))[1]

        def many(arithmetic: VectorDryRun, rows: Any, runs: Any) -> None:
            self.rows += rows.tolist()
            run(arithmetic, rows, runs)

        monkeypatch.setattr(VictimSelector, "at", one(at))
        monkeypatch.setattr(VictimSelector, "select_resource_only", one(select_resource_only))
        monkeypatch.setattr(VectorDryRun, "run", many)

    def take(self) -> list[int]:
        rows, self.rows = self.rows, []
        return rows


def test_only_what_has_changed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    names = [f"n{i}" for i in range(8)]
    table = table_of(nodes(" ".join(names)), [low(f"p-{n}", n, "2", app="x") for n in names])
    snapshot = Snapshot(table)
    keeping = framework(columns=True)

    def attempt(pod: Pod) -> list[int]:
        run_post_filters(filter_pod(pod, snapshot, keeping))
        return sorted(asked.take())

    assert attempt(HIGH) == list(range(8))
    assert attempt(made_pod("twin", {"cpu": "2"}, priority=100)) == []
    table.add_pod(low("more", "n3"))
    assert attempt(HIGH) == [3]
    snapshot.nominations.add(made_pod("other", {"cpu": "1"}, priority=100), "n5")
    assert attempt(HIGH) == [5]
    snapshot.object_store.put(made_budget("one", "x", 1, ()))
    assert attempt(HIGH) == list(range(8))
    snapshot.object_store.put(made_budget("two", "y", 1, ()))
    assert attempt(HIGH) == list(range(8))
    snapshot.object_store.put(made_budget("two", "y", 2, ()))
    assert attempt(HIGH) == []
    snapshot.object_store.put(made_budget("one", "x", 0, ()))
    assert attempt(HIGH) == list(range(8))
    assert attempt(made_pod("less", {"cpu": "2"}, priority=99)) == list(range(8))
    assert len(DryRunCache.of(table)._classes) == 2


def new_version(way: str) -> list[list[str]]:
    """The victims before and after a pod's status has changed, which makes it stand last."""
    table = table_of(
        nodes("a b c d e f g", "4"), [low(f"{n}{i}", n, "2") for n in "abcdefg" for i in (1, 2)]
    )
    asked, snapshot, found = framework(columns=way != "anew"), Snapshot(table), []
    for _ in range(2):
        result = run_post_filters(filter_pod(HIGH, snapshot, asked))
        assert result is not None
        found.append([info.uid for info in result.victims])
        info = table.pod("a1")
        assert info is not None
        table.update_pod(replace(info.pod, status=replace(info.pod.status, phase="Running")))
    return found


def test_of_equals_the_one_that_changed_last_goes(way: str) -> None:
    assert new_version(way) == [["a2"], ["a1"]]


@pytest.mark.parametrize("way", ["kept, few"], indirect=True)
def test_control_new_versions_without_notice(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run_cache, "TouchedRows", lambda *, of_pods: TouchedRows())
    assert new_version(way) == [["a2"], ["a2"]]


def test_where_a_filter_looks_beyond_the_row_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch)
    table = table_of(nodes("a"), [low("a1", "a", "2")])
    keeping = framework(columns=True, plugins=(Few,))
    for _ in range(2):
        run_post_filters(filter_pod(HIGH, Snapshot(table), keeping))
        assert asked.take() == [0]


def test_priorities_that_no_cluster_takes(way: str) -> None:
    pods = [low("a1", "a", priority=2**70), low("a2", "a", priority=2**71)]
    pods += [low("b1", "b", priority=2**72), low("b2", "b", priority=-(2**70))]
    pod = made_pod("high", {"cpu": "1"}, priority=2**73)
    outcome = preempts(way, nodes("a b"), pods, pod)
    assert (outcome.node, outcome.victims) == ("b", ["b2"])
