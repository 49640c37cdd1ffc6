"""What a dry run compares: each decision of the cluster's scheduler, on the cluster as it was
then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.driver.live.decision_comparer import (
    AS_GOOD,
    KEPT_NS,
    OTHER,
    OURS_ONLY,
    QUIET_NS,
    REFUSED,
    SAME,
    THEIRS_ONLY,
    DecisionComparer,
    DecisionDifference,
    ReferenceScheduler,
)
from stowplan.messages.effects import Bind
from stowplan.messages.events import (
    BindDone,
    ConfigurationChanged,
    Event,
    NodeAdded,
    PodAdded,
    PodDeleted,
    PodUpdated,
)
from stowplan.objects.pod import Pod, PodCondition
from stowplan.testing import node, pod
from tests.driver.deciders import default_deciders
from tests.driver.small_api import SmallApi
from tests.driver.test_live import GANGS, scheduler

NODES = (node("small", cpu="1"), node("large", cpu="4"))


def comparer(*events: Event, reference: ReferenceScheduler | None = None) -> DecisionComparer:
    made = DecisionComparer(
        lambda event: None, reference or ReferenceScheduler(default_deciders("default-scheduler"))
    )
    made.seen([*map(NodeAdded, NODES), *events], 0)
    made.compare_all(0)
    return made


def bound(one: Pod, to: str) -> PodUpdated:
    spec = msgspec.structs.replace(one.spec, node_name=to)
    return PodUpdated(msgspec.structs.replace(one, spec=spec))


def refused(one: Pod, nominated: str = "") -> PodUpdated:
    condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable")
    status = msgspec.structs.replace(
        one.status, conditions=(condition,), nominated_node_name=nominated
    )
    return PodUpdated(msgspec.structs.replace(one, status=status))


def small(name: str) -> Pod:
    return pod(name, cpu="800m", memory="1Mi")


def test_pods_that_arrive_bound_are_compared() -> None:
    # As a quick scheduler's placements are shown: pending and bound in one go.
    one, two, three = small("one"), small("two"), pod("huge", cpu="3900m", memory="1Mi")
    found = comparer(
        *(PodAdded(one), bound(one, "large")),
        *(PodAdded(two), bound(two, "small")),
        *(PodAdded(three), bound(three, "large")),
    )
    assert found.counts == {SAME: 1, OTHER: 1, THEIRS_ONLY: 1}
    worse, impossible = found.differences
    assert (worse.pod, worse.ours, worse.theirs) == ("default/two", "large", "small")
    assert "points, there" in worse.why
    assert (impossible.ours, impossible.theirs) == ("", "large")
    assert impossible.why.startswith("0/2 nodes are available: 2 Insufficient cpu")


def test_each_decision_is_compared_on_the_cluster_as_it_was_then() -> None:
    # The second fits only where the first has not been put here, but there.
    one, two = pod("one", cpu="3", memory="1Mi"), pod("two", cpu="3", memory="1Mi")
    found = comparer(PodAdded(one), PodAdded(two), bound(one, "large"), PodDeleted(one))
    found.seen([bound(two, "large")], 1)
    found.compare_all(1)
    assert found.counts == {SAME: 2}


def test_the_comparer_does_not_see_own_decisions() -> None:
    one, two = pod("one", cpu="3", memory="1Mi"), pod("two", cpu="3", memory="1Mi")
    reported: list[Event] = []
    made = DecisionComparer(
        reported.append, ReferenceScheduler(default_deciders("default-scheduler"))
    )
    made.seen([*map(NodeAdded, NODES), PodAdded(one), PodAdded(two)], 0)
    assert made.take(Bind(1, 1, one.uid, "default", "one", "large"))
    assert reported == [BindDone(1, one.uid)]
    made.seen([*reported, bound(two, "large")], 1)
    made.compare_all(1)
    assert made.counts == {SAME: 1}
    assert [expected.key for expected in made.ours_only()] == ["default/one"]


def test_nodes_of_equal_score_agree() -> None:
    twins = [NodeAdded(node(name, cpu="4")) for name in ("a", "b")]
    one, two = small("one"), small("two")
    found = comparer(*twins, PodAdded(one), bound(one, "b"), PodAdded(two), bound(two, "b"))
    assert found.counts == {AS_GOOD: 1, OTHER: 1}


def test_bindings_out_of_order_are_compared_in_pod_order() -> None:
    nodes = [NodeAdded(node("a", cpu="4")), NodeAdded(node("b", cpu="3"))]
    one, two = small("one"), small("two")
    # Decided: one for a, the best while both are empty; two for b, the best after that.
    observed = [bound(two, "b"), PodUpdated(bound(two, "b").pod), bound(one, "a")]
    found, naive = (
        DecisionComparer(
            lambda event: None, ReferenceScheduler(default_deciders("default-scheduler"))
        )
        for _ in range(2)
    )
    found.seen([*nodes, PodAdded(one), PodAdded(two), *observed], 0)
    found.compare_all(0)
    assert found.counts == {SAME: 2}
    for event in (*nodes, PodAdded(one), PodAdded(two), *observed):
        naive.seen([event], 0)
        naive.compare_all(0)
    assert naive.counts == {OTHER: 1, SAME: 1}


def test_observed_events_are_kept_until_it_is_quiet_but_not_for_long() -> None:
    one, two = small("one"), small("two")
    found = comparer(PodAdded(one), PodAdded(two))
    found.seen([bound(one, "large")], 10)
    found.serve_due(10 + QUIET_NS - 1)
    assert found.counts == {}
    found.serve_due(10 + QUIET_NS)
    assert found.counts == {SAME: 1}
    now = 20 + QUIET_NS
    found.seen([bound(two, "large")], now)
    for _ in range(10):
        now += KEPT_NS // 10 - 1
        found.seen([NodeAdded(NODES[0])], now)
    assert found.counts == {SAME: 1}
    found.seen([NodeAdded(NODES[0])], now + 10)
    assert found.counts == {SAME: 2}


def test_refusals_are_compared_once() -> None:
    fits, huge = pod("fits", cpu="3"), pod("huge", cpu="40")
    found = comparer(
        *(PodAdded(fits), refused(fits), refused(fits)),
        *(PodAdded(huge), refused(huge), refused(huge)),
    )
    assert found.counts == {OURS_ONLY: 1, REFUSED: 1}
    assert found.differences == [DecisionDifference("default/fits", "large", "", "")]


def test_room_that_was_made_for_a_pod_is_where_it_belongs() -> None:
    one = small("one")
    cleared = refused(one, nominated="small")
    found = comparer(PodAdded(one), cleared, bound(cleared.pod, "small"))
    assert found.counts == {SAME: 1}


def test_pods_that_ran_before_and_pods_of_others_are_not_compared() -> None:
    old, foreign = pod("old", on="small"), pod("foreign", scheduler="somebody")
    found = comparer(PodAdded(old), PodUpdated(old), PodAdded(foreign), bound(foreign, "small"))
    assert found.counts == {}


def test_session_pods_are_compared_with_the_decision_at_arrival(
    tmp_path: Path,
) -> None:
    config = tmp_path / "gangs.yaml"
    config.write_text(GANGS)
    found = comparer(reference=ReferenceScheduler(read_configuration_files([str(config)])[0]))
    one, two = (pod(name, scheduler="kube-batch") for name in ("one", "two"))
    found.seen([PodAdded(one), PodAdded(two)], 1)
    found.take(Bind(1, 1, one.uid, "default", "one", "large"))
    found.seen([bound(one, "small"), bound(two, "small")], 2)
    found.compare_all(2)
    assert found.counts == {OTHER: 1}


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


def test_a_live_dry_run_writes_nothing_and_misses_nothing() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("small", cpu="1")
            api.node("large", cpu="4")
            async with scheduler(api, dry_run=True) as live:
                comparer = live.comparer
                assert comparer is not None
                await api.until(lambda: live.is_synced)
                for i in range(4):
                    api.pod(f"p{i}", cpu="700m")
                    tree = api.objects["pods", "default", f"p{i}"]
                    api.put("pods", tree | {"spec": tree["spec"] | {"nodeName": "large"}})
                await api.until(lambda: sum(comparer.counts.values()) == 4)
                assert comparer.counts[THEIRS_ONLY] == 0
            assert api.writes == []

    run(steps())


def test_a_changed_configuration_applies_to_what_is_compared() -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    text = f"{head}profiles:\n- schedulerName: default-scheduler\n- schedulerName: another\n"
    one = pod("a", cpu="2", scheduler="another")
    reference = ReferenceScheduler(default_deciders("default-scheduler"))
    found = comparer(PodAdded(one), bound(one, "large"), reference=reference)
    assert not found.counts
    changed = ConfigurationChanged(text, "f.yaml", has_profiles=True, has_sessions=False)
    found = comparer(changed, PodAdded(one), bound(one, "large"), reference=reference)
    assert found.counts == {SAME: 1}
