"""Changes of a claim reach the waiting pods that name it, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.framework.clusterevents import EventKeys
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.queue.unschedulable_pods import UnschedulablePods
from stowplan.testing import builders

LISTENERS = ("first", "second")
KEYS = {"second": EventKeys(lambda old, new: new, lambda pod: pod.metadata.labels.values())}


def entry(name: str, *refusers: str, label: str = "") -> PodRecord:
    made = PodRecord.of(labelled(name, label), 0)
    made.refused_by = frozenset(refusers)
    return made


def labelled(name: str, label: str) -> Pod:
    return builders.pod(name, labels={"app": label})


@pytest.fixture
def pods() -> UnschedulablePods:
    """Four pods, one of them refused by a plugin without keys."""
    made = UnschedulablePods()
    for one in (
        entry("a", "second", label="x"),
        entry("b", "second", label="y"),
        entry("c", "first", "second", label="y"),
        entry("d", "second", label="x"),
    ):
        made.put(one)
    return made


def concerned(pods: UnschedulablePods, key: Any) -> list[str]:
    found = pods.concerned(LISTENERS, KEYS, None, key)
    return [one.pod.name for one in found]


def test_only_pods_with_the_key_and_those_of_plugins_without_keys(pods: UnschedulablePods) -> None:
    assert concerned(pods, "x") == ["c", "a", "d"]
    assert concerned(pods, "z") == ["c"]
    assert concerned(pods, None) == ["c", "a", "b", "d"]


def test_pods_that_come_go_and_change_are_followed(pods: UnschedulablePods) -> None:
    assert concerned(pods, "y") == ["c", "b"]
    pods.take("default/b")
    changed = pods.get("default/a")
    assert changed is not None
    pods.pod_changed(changed, labelled("a", "y"))
    pods.put(entry("e", "second", label="y"))
    assert concerned(pods, "y") == ["c", "a", "e"]
    assert concerned(pods, "x") == ["c", "d"]
    pods.refuse_by(changed, frozenset({"other"}))
    assert concerned(pods, "y") == ["c", "e"]


def test_a_pod_that_waits_for_its_victims_comes_when_they_are_gone(
    pods: UnschedulablePods,
) -> None:
    waiting = entry("v", "second", label="x")
    pods.put(waiting, waits_for_victims=True)
    assert concerned(pods, "x") == ["c", "a", "d"]
    pods.victims_gone(waiting.uid)
    assert concerned(pods, "x") == ["c", "a", "d", "v"]


def test_a_version_without_the_key_leaves_the_index(pods: UnschedulablePods) -> None:
    concerned(pods, "x")
    one = pods.get("default/d")
    assert one is not None
    pods.pod_changed(one, replace(one.pod, metadata=replace(one.pod.metadata, labels={})))
    assert concerned(pods, "x") == ["c", "a"]
