"""Priorities, volume claims and namespaces of expanded workloads."""

from typing import Any

import pytest

from stowplan.inputs.object_defaults import NAMESPACE_LABEL
from stowplan.inputs.workloads.volume_claims import BETA_CLASS
from stowplan.inputs.workloads.workload_expansion import ExpandedCluster
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.objects.workload import Namespace
from tests.inputs.test_workload_expansion import (
    Tree,
    error_text,
    population,
    thing,
    workload,
)

# Priorities.


def priority_class(name: str, value: int, **fields: Any) -> Tree:
    return thing("PriorityClass", name, value=value, **fields)


@pytest.mark.parametrize(
    ("spec", "classes", "wanted"),
    [
        ({}, [], (0, "", None)),
        ({"priorityClassName": "hi"}, [priority_class("hi", 7)], (7, "hi", None)),
        ({"priority": 3, "priorityClassName": "gone"}, [], (3, "gone", None)),
        (
            {"priorityClassName": "system-node-critical"},
            [],
            (2000001000, "system-node-critical", None),
        ),
        (
            {"priorityClassName": "system-cluster-critical"},
            [],
            (2000000000, "system-cluster-critical", None),
        ),
        ({}, [priority_class("std", 5, globalDefault=True)], (5, "std", None)),
        ({"priority": 0}, [priority_class("std", 5, globalDefault=True)], (0, "", None)),
        (
            {},
            [
                priority_class("b", 5, globalDefault=True),
                priority_class("a", 4, globalDefault=True),
            ],
            (4, "a", None),
        ),
        (
            {"priorityClassName": "hi"},
            [priority_class("hi", 7, preemptionPolicy="Never")],
            (7, "hi", "Never"),
        ),
    ],
)
def test_priorities_come_from_classes(
    spec: Tree, classes: list[Tree], wanted: tuple[int, str, str | None]
) -> None:
    bare, made = population(
        thing("Pod", "p", spec=spec), workload("ReplicaSet", "rs", template=spec), *classes
    ).pods
    for pod in (bare, made):
        found = pod.priority, pod.spec.priority_class_name, pod.spec.preemption_policy
        assert found == wanted


def test_the_pods_of_a_template_share_the_spec_with_the_priority() -> None:
    tree = workload("ReplicaSet", "rs", replicas=3, template={"priorityClassName": "hi"})
    pods = population(tree, priority_class("hi", 7)).pods
    assert len({id(pod.spec) for pod in pods}) == 1


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        (thing("Pod", "p", spec={"priorityClassName": "gold"}), "Pod default/p: spec"),
        (
            workload("Job", "j", template={"priorityClassName": "gold"}),
            "Job default/j: spec.template.spec",
        ),
    ],
)
def test_an_unknown_priority_class_is_refused(tree: Tree, where: str) -> None:
    assert error_text(priority_class("hi", 7), tree) == (
        f"f.yaml: document 2: {where}.priorityClassName: Invalid value: 'gold': "
        "expected a PriorityClass: system-cluster-critical, system-node-critical, hi"
    )


# Claims and namespaces.


def claims(found: ExpandedCluster) -> dict[str, str | None]:
    kind = PersistentVolumeClaim
    return {o.key: o.spec.storage_class_name for o in found.objects if isinstance(o, kind)}


def storage_class(name: str, *, default: bool = True, created: str = "") -> Tree:
    meta: Tree = {
        "annotations": {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    }
    if created:
        meta["creationTimestamp"] = created
    return thing("StorageClass", name, metadata=meta)


def test_a_stateful_sets_claims_are_made_with_its_pods() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
    there = thing("PersistentVolumeClaim", "data-db-0", spec={"storageClassName": "slow"})
    tree = workload("StatefulSet", "db", replicas=2, volumeClaimTemplates=[template])
    found = population(tree, there)
    assert claims(found) == {"default/data-db-0": "slow", "default/data-db-1": "fast"}
    used = [v.persistent_volume_claim for pod in found.pods for v in pod.spec.volumes]
    assert [use.claim_name for use in used if use] == ["data-db-0", "data-db-1"]


def test_claims_of_ephemeral_volumes_are_made_and_owned_by_the_pod() -> None:
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    found = population(thing("Pod", "p", spec={"volumes": [volume]}))
    (claim,) = (o for o in found.objects if isinstance(o, PersistentVolumeClaim))
    assert claim.key == "default/p-tmp"
    assert claim.controller is not None
    assert claim.controller.uid == found.pods[0].uid


@pytest.mark.parametrize(
    ("classes", "wanted"),
    [
        ([], None),
        ([storage_class("a", default=False)], None),
        ([storage_class("b"), storage_class("a")], "a"),
        ([storage_class("b", created="2026-01-01T00:00:00Z"), storage_class("a")], "b"),
    ],
)
def test_claims_without_a_class_get_the_default_one(
    classes: list[Tree], wanted: str | None
) -> None:
    found = population(
        thing("PersistentVolumeClaim", "c"),
        thing("PersistentVolumeClaim", "none", spec={"storageClassName": ""}),
        thing("PersistentVolumeClaim", "bound", spec={"volumeName": "v"}),
        thing("PersistentVolumeClaim", "old", metadata={"annotations": {BETA_CLASS: "x"}}),
        *classes,
    )
    others = {"default/none": "", "default/bound": None, "default/old": None}
    assert claims(found) == {"default/c": wanted, **others}


def test_missing_namespaces_are_created() -> None:
    here = thing("Namespace", "a", metadata={"labels": {"x": "y"}})
    pods = [thing("Pod", "p", metadata={"namespace": name}) for name in ("a", "b")]
    found = population(here, *pods)
    labels = {o.name: o.labels for o in found.objects if isinstance(o, Namespace)}
    assert labels == {"a": {"x": "y", NAMESPACE_LABEL: "a"}, "b": {NAMESPACE_LABEL: "b"}}
