"""Profiles that ask every filter: a refusal carries the reasons of all that refuse."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stowplan.columns import NodeInfo
from stowplan.framework import (
    OK,
    CycleState,
    FeatureGates,
    Framework,
    PluginUse,
    Profile,
    Registry,
    error,
    unresolvable,
    unschedulable,
)
from tests.framework.stage import POD, Sort, framework_of, plugin, snapshot

SNAPSHOT = snapshot()


def refusing(name: str, answer: Any, *nodes: str) -> type[Any]:
    def filter_(self: Any, node: NodeInfo) -> Any:
        return answer if node.name in nodes else OK

    return plugin(name, filter=filter_)


def verdicts(*plugins: type[Any]) -> Any:
    once = framework_of(*plugins)
    full = Registry()
    for one in (Sort, *plugins):
        full.register(one)
    profile = replace(once.profile, checks_all_filters=True)
    framework = Framework(profile, full, FeatureGates())
    return framework.run_filters(POD, SNAPSHOT, CycleState())


def test_reasons_are_joined_in_order() -> None:
    found = verdicts(
        refusing("A", unschedulable("a", "b"), "n1", "n2"),
        refusing("B", unresolvable("a"), "n2", "n3"),
        refusing("C", unschedulable("c"), "n1"),
    )
    given = [found.status_of(row) for row in range(3)]
    assert [status.reasons for status in given] == [("a", "b", "c"), ("a", "b", "a"), ("a",)]
    assert [status.plugin for status in given] == ["A", "A", "B"]
    titles = ["Unschedulable", *["UnschedulableAndUnresolvable"] * 2]
    assert [status.code.title for status in given] == titles
    assert found.passed().tolist() == []


def test_nodes_that_pass_stay_as_they_are() -> None:
    found = verdicts(refusing("A", unschedulable("a"), "n2"))
    assert found.passed().tolist() == [0, 2]
    assert found.status_of(0) is OK


def test_an_error_behind_a_refusal_counts() -> None:
    found = verdicts(refusing("A", unschedulable("a"), "n1"), refusing("B", error("x"), "n1"))
    assert [status.message for status in found.errors] == ['running "B" filter plugin: x']


def test_a_plugin_may_have_another_name_in_a_profile() -> None:
    refuses = refusing("A", unschedulable("a"), "n1")
    full = Registry()
    for one in (Sort, refuses):
        full.register(one)
    uses = (PluginUse("First"), PluginUse("Second"))
    points = {"queueSort": (PluginUse("Sort"),), "filter": uses}
    profile = Profile("test", points, aliases={"First": "A", "Second": "A"})
    framework = Framework(profile, full, FeatureGates())
    found = framework.run_filters(POD, SNAPSHOT, CycleState())
    assert found.status_of(0).plugin == "First"
    assert list(framework.members) == ["Sort", "First", "Second"]
