"""A preemption takes pods of a gang above what the gang needs, or all of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, frameworks_for
from stowplan.columns.nodetable import table_of
from stowplan.cycle import CycleDecider
from stowplan.framework import ObjectStore, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec
from stowplan.plugins.preemption.pod_groups import PreemptedPodGroups, pod_group_key
from stowplan.testing import node, pod
from tests.soak import examples


def member(name: str, on: str, group: str = "", **settings_: object) -> Pod:
    made = pod(name, on=on, cpu="1", **settings_)  # type: ignore[arg-type]
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


def group(name: str, least: int) -> PodGroup:
    meta = ObjectMeta(name=name, namespace="default", uid=name)
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=least))


def decided(pods: list[Pod], groups: list[PodGroup], cpu: str = "1", nodes: int = 2) -> Decision:
    """What becomes of a pod of high priority on nodes of two CPUs each."""
    configuration, registry = configuration_of(None, "test")
    (framework,) = frameworks_for(configuration, registry).values()
    table = table_of([node(f"n{i}", cpu="2") for i in range(1, nodes + 1)], pods)
    snapshot = Snapshot(table, ObjectStore(groups))
    return CycleDecider().decide(pod("vip", cpu=cpu, priority=100), snapshot, framework, None)


def victims(decision: Decision) -> list[str]:
    return sorted(info.pod.name for info in decision.victims)


def test_those_above_what_a_gang_needs_may_go() -> None:
    gang = [member("a", "n1", "g"), member("b", "n1", "g"), member("c", "n2", "g")]
    taken = decided([*gang, member("x", "n2", priority=200)], [group("g", 2)])
    assert len(victims(taken)) == 1


def test_a_pod_of_no_gang_goes_in_place_of_one_that_is_needed() -> None:
    pods = [
        member("a", "n1", "g"),
        member("b", "n2", "g"),
        member("x", "n1", priority=50),
        member("y", "n2", priority=60),
    ]
    assert victims(decided(pods, [])) in (["a"], ["b"])
    assert victims(decided(pods, [group("g", 2)])) == ["x"]


def test_where_nothing_else_helps_the_whole_gang_goes() -> None:
    pods = [
        member("a", "n1", "g"),
        member("b", "n2", "g"),
        member("x", "n1", priority=200),
        member("y", "n2", priority=200),
    ]
    taken = decided(pods, [group("g", 2)])
    assert victims(taken) == ["a", "b"]
    assert taken.victims[-1].pod.node_name == taken.nominated_node


def test_a_gang_with_a_pod_of_higher_priority_stays() -> None:
    pods = [
        member("a", "n1", "g"),
        member("b", "n2", "g", priority=200),
        member("x", "n1", priority=200),
        member("y", "n2", priority=200),
    ]
    refused = decided(pods, [group("g", 2)])
    assert not refused.victims
    assert "needed by their gangs" in refused.message


clusters = st.lists(
    st.tuples(
        st.sampled_from(("n1", "n2", "n3")),
        st.sampled_from(("", "g", "g", "h")),
        st.sampled_from((0, 1, 2, 200)),
    ),
    max_size=6,
)


def check(generated: list[tuple[str, str, int]], least: int) -> None:
    room = {"n1": 2, "n2": 2, "n3": 2}
    pods = []
    for number, (on, name, priority) in enumerate(generated):
        room[on] -= 1
        if room[on] >= 0:
            pods.append(member(f"p{number}", on, name, priority=priority))
    needs = {"default/g": least, "default/h": 1}
    taken = decided(pods, [group("g", least), group("h", 1)], cpu="2", nodes=3)
    gone = {info.uid for info in taken.victims}
    for key, need in needs.items():
        members = [one for one in pods if pod_group_key(one) == key]
        left = sum(one.uid not in gone for one in members)
        whole = left == len(members)
        assert whole or left >= need or left == 0, f"{key}: {left} left of {len(members)}"


@given(clusters, st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_a_gang_is_left_whole_enough_or_goes_whole(
    generated: list[tuple[str, str, int]], least: int
) -> None:
    check(generated, least)


def test_wrong_any_pod_of_lower_priority_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: as kube-scheduler, which does not know of gangs."""
    monkeypatch.setattr(PreemptedPodGroups, "__bool__", lambda self: False)
    wall = [("n2", "", 200), ("n3", "", 200)]
    with pytest.raises(AssertionError, match="left of"):
        check([("n1", "g", 0), ("n1", "g", 0), ("n2", "g", 0), *wall], 3)
