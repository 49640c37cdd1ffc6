"""Pod classes: which pods are identical to every rule, and which have no class."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.columns.pods.podterms import TermRole, terms_of
from stowplan.cycle.engine.classes import KEPT_CELLS_MAX, KEPT_MAX, PodClassIndex
from stowplan.framework import Framework
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import (
    ContainerStatus,
    Pod,
    PodResourceClaim,
    PodStatus,
    ResourceRequirements,
)
from stowplan.objects.volume import EphemeralVolumeSource, Volume
from stowplan.testing import affinity, pod, term
from tests.cycle.engine_and_walk import framework_for

FRAMEWORK = framework_for()
WEB = pod("web", labels={"app": "web"}, cpu="1")


def same(one: Pod, other: Pod, framework: Framework = FRAMEWORK) -> bool:
    """Whether two pods are of one class, and of any."""
    index = PodClassIndex()
    first = index.find(one, FRAMEWORK)
    return first is not None and index.find(other, framework) is first


def test_pods_of_one_template_are_alike_whatever_they_are_called() -> None:
    other = replace(
        WEB, metadata=replace(WEB.metadata, name="other", uid="u", annotations={"a": "b"})
    )
    assert same(WEB, other)


def test_pods_that_are_decoded_one_by_one_are_found_by_content() -> None:
    assert same(WEB, pod("other", labels={"app": "web"}, cpu="1"))
    assert same(
        pod("a", node_selector={"x": "1", "y": "2"}), pod("b", node_selector={"y": "2", "x": "1"})
    )


@pytest.mark.parametrize(
    "other",
    [
        pod("web", labels={"app": "web"}, cpu="2"),
        pod("web", labels={"app": "db"}, cpu="1"),
        pod("web", labels={"app": "web"}, cpu="1", namespace="prod"),
        pod("web", labels={"app": "web"}, cpu="1", priority=3),
        replace(
            WEB, metadata=replace(WEB.metadata, owner_references=(OwnerReference(kind="Job"),))
        ),
    ],
    ids=["request", "label", "namespace", "priority", "owner"],
)
def test_pods_differ_by_what_rules_may_read(other: Pod) -> None:
    assert not same(WEB, other)


def test_profiles_have_classes_of_their_own() -> None:
    assert not same(WEB, WEB, framework_for())


RUNNING = ResourceRequirements(requests={"cpu": "2"})


@pytest.mark.parametrize(
    "changes",
    [
        {"status": PodStatus(nominated_node_name="n1")},
        {"status": PodStatus(container_statuses=(ContainerStatus("main", RUNNING),))},
        {"status": PodStatus(resources=RUNNING)},
        {"status": PodStatus(allocated_resources={"cpu": "2"})},
        {"spec": replace(WEB.spec, volumes=(Volume(name="v", ephemeral=EphemeralVolumeSource()),))},
        {"spec": replace(WEB.spec, resource_claims=(PodResourceClaim(name="card"),))},
    ],
    ids=["nominated", "resizing", "resized", "allocated", "own volume", "own device"],
)
def test_pods_that_are_decided_alone_have_no_class(changes: dict[str, Any]) -> None:
    assert PodClassIndex().find(replace(WEB, **changes), FRAMEWORK) is None


def test_a_term_is_new_once() -> None:
    index = PodClassIndex()
    loner = pod("loner", affinity=affinity(apart=[term("app=web", "rack")]))
    index.find(WEB, FRAMEWORK)
    assert not index.has_new_terms
    index.find(loner, FRAMEWORK)
    assert index.has_new_terms
    index.has_new_terms = False
    index.find(replace(loner, metadata=replace(loner.metadata, labels={"a": "b"})), FRAMEWORK)
    index.learn(terms_of(loner).all)
    assert not index.has_new_terms
    assert index.peers.terms(TermRole.REQUIRED_ANTI_AFFINITY, WEB) == list(terms_of(loner).all)
    assert index.peers.terms(TermRole.PREFERRED, WEB) == []


def test_forgotten_classes_are_created_again() -> None:
    index = PodClassIndex()
    before = index.find(WEB, FRAMEWORK)
    assert before is not None
    before.number = 3
    index.forget_all()
    assert before.number == -1
    assert index.find(WEB, FRAMEWORK) is not before


def forgotten(n_classes: int, n_nodes: int, *more: Pod) -> bool:
    """Whether classes of which no pod has come for two periods are forgotten."""
    index = PodClassIndex()
    pods = [*(pod(f"p{i}", cpu=f"{i + 1}m") for i in range(n_classes)), *more]
    found = [index.find(one, FRAMEWORK) for one in pods]
    over = [index.forget_idle(n_nodes) for _ in range(3)]
    assert over[0] is False
    are_known = [index.find(one, FRAMEWORK) is was for one, was in zip(pods, found, strict=True)]
    assert all(are_known) != any(over)
    return any(over)


def test_idle_classes_are_kept_while_they_are_few() -> None:
    assert not forgotten(20, 100)
    assert forgotten(KEPT_MAX + 1, 100)
    assert forgotten(20, KEPT_CELLS_MAX // 20 + 1)


def test_idle_classes_with_terms_are_forgotten() -> None:
    assert forgotten(20, 100, pod("loner", affinity=affinity(apart=[term("app=web", "rack")])))


def test_classes_in_use_outlive_those_that_are_forgotten() -> None:
    index = PodClassIndex()
    first = index.find(WEB, FRAMEWORK)
    for i in range(KEPT_MAX):
        index.find(pod(f"p{i}", cpu=f"{i + 1}m"), FRAMEWORK)
    index.forget_idle(1)
    index.find(WEB, FRAMEWORK)
    assert index.forget_idle(1)
    assert index.all == [first]
