"""Manifests as objects: kinds, lists, defaults, and error messages."""

from typing import Any

import pytest

from stowplan.inputs.manifests import KINDS, ManifestInventory, items
from stowplan.inputs.object_defaults import NAMESPACE_LABEL
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolumeClaim, StorageClass
from stowplan.objects.workload import Deployment, Namespace, PriorityClass, Service

Tree = dict[str, Any]


def inventory(*trees: Any) -> ManifestInventory:
    found = ManifestInventory()
    for number, tree in enumerate(trees, start=1):
        for item, path in items(tree):
            found.add_item(item, path, f"f.yaml: document {number}")
    return found


def node(name: str = "n1", **status: Any) -> Tree:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str = "p1", /, **spec: Any) -> Tree:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def container(**fields: Any) -> Tree:
    return {"name": "main", **fields}


def resources(requests: Tree | None = None, limits: Tree | None = None) -> Tree:
    return container(resources={"requests": requests or {}, "limits": limits or {}})


def only_pod(tree: Tree) -> Pod:
    (found,) = inventory(tree).all(Pod)
    return found


def error_text(*trees: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        inventory(*trees)
    return str(caught.value)


# Kinds.


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_in_its_groups_and_no_other(kind: str) -> None:
    for group in KINDS[kind].groups:
        version = f"{group}/v1" if group else "v1"
        found = inventory({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}})
        assert [type(entry.value) for entry in found.entries] == [KINDS[kind].value]
        assert not found.ignored
    elsewhere = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}}
    found = inventory(elsewhere)
    assert not found.entries
    assert found.ignored == {f"{kind}.example.com": 1}


def test_kinds_that_scheduling_does_not_read_are_counted() -> None:
    found = inventory(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 5}, "data": []},
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"},
    )
    assert not found.entries
    assert found.ignored == {"ConfigMap": 2, "Ingress.networking.k8s.io": 1}


def test_unknown_fields_and_nulls_are_passed_over() -> None:
    tree = pod(containers=[container(image=None, tty=True)], shareProcessNamespace=True)
    tree["metadata"]["labels"] = None
    found = only_pod(tree)
    assert found.labels == {}
    assert found.spec.containers[0].image == ""


def test_lists_hold_objects_one_after_the_other() -> None:
    mixed = {"apiVersion": "v1", "kind": "List", "items": [node(), pod()]}
    nested = {"apiVersion": "v1", "kind": "List", "items": [mixed, pod("p2")]}
    found = inventory(nested)
    assert [entry.value.name for entry in found.entries] == ["n1", "p1", "p2"]


def test_objects_of_a_typed_list_need_not_say_what_they_are() -> None:
    bare = {"metadata": {"name": "d"}, "spec": {"replicas": 2}}
    found = inventory({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [bare]})
    (deployment,) = found.all(Deployment)
    assert deployment.spec.replicas == 2


def test_empty_lists_hold_nothing() -> None:
    assert not inventory({"apiVersion": "v1", "kind": "List"}).entries
    assert not inventory({"apiVersion": "v1", "kind": "PodList", "items": []}).entries


def test_objects_are_found_by_kind_and_key() -> None:
    found = inventory(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "a"}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "hi"}},
    )
    assert found.find(Service, "a/web") is not None
    assert found.find(Service, "default/web") is None
    assert found.find(PriorityClass, "hi") is not None


def test_a_generated_name_is_completed() -> None:
    trees = [pod(), pod()]
    for tree in trees:
        tree["metadata"] = {"generateName": "run-"}
    names = [found.name for found in inventory(*trees).all(Pod)]
    assert len(set(names)) == 2
    assert all(name.startswith("run-") and name != "run-" for name in names)


def test_equal_waiting_pods_share_their_spec() -> None:
    spec = {"containers": [resources({"cpu": "1"})]}
    found = inventory(pod("a", **spec), pod("b", **spec), pod("c", containers=[container()]))
    first, second, third = (p.spec for p in found.all(Pod))
    assert first is second
    assert first != third


# Defaults.


def test_requests_default_to_limits_per_resource() -> None:
    given = resources({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"})
    found = only_pod(pod(containers=[given], initContainers=[resources({}, {"cpu": "3"})]))
    assert found.spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
    assert found.spec.init_containers[0].resources.requests == {"cpu": "3"}


def test_requests_of_a_template_default_to_limits() -> None:
    template = {"spec": {"containers": [resources({}, {"cpu": "2"})]}}
    tree = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    (found,) = inventory(tree).all(Deployment)
    assert found.spec.template.spec.containers[0].resources.requests == {"cpu": "2"}


def test_requests_of_the_pod_level_default_to_limits_that_no_container_asks_of() -> None:
    limits = {"cpu": "4", "memory": "1Gi"}
    found = only_pod(pod(containers=[resources({"cpu": "1"})], resources={"limits": limits}))
    assert found.spec.resources is not None
    assert found.spec.resources.requests == {"memory": "1Gi"}


@pytest.mark.parametrize(("on_host", "port"), [(True, 80), (False, 0)])
def test_ports_on_the_host_network_are_host_ports(on_host: bool, port: int) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}]
    found = only_pod(pod(hostNetwork=on_host, containers=[container(ports=ports)]))
    assert [p.host_port for p in found.spec.containers[0].ports] == [port, 9]


def test_allocatable_defaults_to_capacity() -> None:
    bare, full = inventory(
        node("a", capacity={"cpu": "4"}), node("b", capacity={"cpu": "4"}, allocatable={"cpu": "3"})
    ).all(Node)
    assert bare.status.allocatable == {"cpu": "4"}
    assert full.status.allocatable == {"cpu": "3"}


def test_other_defaults_that_rules_read() -> None:
    found = inventory(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"x": "y"}}},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}},
    )
    assert [n.labels for n in found.all(Namespace)] == [{"x": "y", NAMESPACE_LABEL: "a"}]
    assert [s.volume_binding_mode for s in found.all(StorageClass)] == ["Immediate"]
    assert [c.spec.volume_mode for c in found.all(PersistentVolumeClaim)] == ["Filesystem"]


def test_what_the_api_server_has_stored_stays_as_it_is() -> None:
    tree = pod(
        hostNetwork=True,
        containers=[
            {
                **resources({"cpu": "1", "memory": "1Gi"}, {"cpu": "2"}),
                "ports": [{"containerPort": 80, "hostPort": 80}],
            }
        ],
    )
    once = only_pod(tree)
    assert once.spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
    assert once.spec.containers[0].ports[0].host_port == 80


# Error messages: object, path, value, what is expected.

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
BAD_QUANTITY = (
    "Invalid value: 'lots': "
    "expected a quantity: a decimal number, with or without one of the suffixes "
    "n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
)


ERRORS: list[tuple[Any, str]] = [
    (5, "Invalid value: 5: expected an object with apiVersion and kind"),
    ([pod()], "Invalid value: a list: expected an object with apiVersion and kind"),
    ({"apiVersion": "v1"}, "kind: Required value: expected a kind such as Pod"),
    ({"kind": ["Pod"]}, "kind: Invalid value: a list: expected a kind such as Pod"),
    ({"kind": "Pod"}, "apiVersion: Required value: expected a version such as v1"),
    (
        {"kind": "Pod", "apiVersion": 1},
        "apiVersion: Invalid value: 1: expected a version such as v1",
    ),
    ({"kind": "PodList", "items": 3}, "items: Invalid value: 3: expected a list"),
    (
        {"kind": "List", "items": [3]},
        "items[0]: Invalid value: 3: expected an object with apiVersion and kind",
    ),
    ({"apiVersion": "v1", "kind": "Pod"}, "Pod: metadata.name: Required value: expected a name"),
    (
        pod("p1", containers={}),
        "Pod default/p1: spec.containers: Invalid value: an empty mapping: expected a list",
    ),
    (
        pod("p1", hostNetwork="yes"),
        "Pod default/p1: spec.hostNetwork: Invalid value: 'yes': expected true or false",
    ),
    (
        pod("p1", priority=1.5),
        "Pod default/p1: spec.priority: Invalid value: 1.5: expected a whole number",
    ),
    (
        pod("p1", containers=[container(image=7)]),
        "Pod default/p1: spec.containers[0].image: Invalid value: 7: expected a string",
    ),
    (
        pod("p1", containers=[resources({"cpu": True})]),
        "Pod default/p1: spec.containers[0].resources.requests.cpu: Invalid value: true: "
        "expected a quantity",
    ),
    (
        pod("p1", nodeSelector={"ok": "yes", "example.com/a": 1}),
        "Pod default/p1: spec.nodeSelector['example.com/a']: Invalid value: 1: expected a string",
    ),
    (
        {**pod("p1"), "metadata": {"name": "p1", "creationTimestamp": "today"}},
        "Pod default/p1: metadata.creationTimestamp: Invalid value: 'today': "
        "expected a time such as "
        "2026-01-31T12:00:00Z",
    ),
    (
        {**pod("p1"), "metadata": []},
        "Pod: metadata: Invalid value: an empty list: expected a mapping",
    ),
    (
        {**DEPLOYMENT, "spec": {"replicas": "three"}},
        "Deployment default/d: spec.replicas: Invalid value: 'three': expected a whole number",
    ),
    (node(allocatable={"cpu": "lots"}), f"Node n1: status.allocatable.cpu: {BAD_QUANTITY}"),
    (
        node(allocatable={"nvidia.com/gpu": "-1"}),
        "Node n1: status.allocatable['nvidia.com/gpu']: Invalid value: '-1': "
        "expected a quantity of at least 0",
    ),
    (
        pod("p1", initContainers=[resources({}, {"memory": "lots"})]),
        f"Pod default/p1: spec.initContainers[0].resources.limits.memory: {BAD_QUANTITY}",
    ),
    (pod("p1", overhead={"cpu": "lots"}), f"Pod default/p1: spec.overhead.cpu: {BAD_QUANTITY}"),
    (
        {
            **DEPLOYMENT,
            "spec": {"template": {"spec": {"containers": [resources({"cpu": "lots"})]}}},
        },
        "Deployment default/d: spec.template.spec.containers[0].resources.requests.cpu: "
        + BAD_QUANTITY,
    ),
    (
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "s", "namespace": "a"},
            "spec": {
                "volumeClaimTemplates": [{"spec": {"resources": {"requests": {"storage": "lots"}}}}]
            },
        },
        "StatefulSet a/s: spec.volumeClaimTemplates[0].spec.resources.requests.storage: "
        + BAD_QUANTITY,
    ),
    (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {"capacity": {"storage": "lots"}},
        },
        f"PersistentVolume v: spec.capacity.storage: {BAD_QUANTITY}",
    ),
    (
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": "c"},
            "maximumVolumeSize": "lots",
        },
        f"CSIStorageCapacity default/c: maximumVolumeSize: {BAD_QUANTITY}",
    ),
]


@pytest.mark.parametrize(("tree", "wanted"), ERRORS)
def test_errors_name_the_object_the_path_and_both_values(tree: Any, wanted: str) -> None:
    assert error_text(tree).removeprefix(": ") == wanted


def test_quantities_in_a_status_are_checked_too() -> None:
    report = {"name": "main", "allocatedResources": {"cpu": "lots"}}
    tree = {**pod("p1"), "status": {"containerStatuses": [report]}}
    where = "Pod default/p1: status.containerStatuses[0].allocatedResources.cpu: "
    assert error_text(tree).startswith(where)


@pytest.mark.parametrize(("tree", "name"), [(node(), "Node n1"), (pod(), "Pod default/p1")])
def test_an_object_that_comes_twice_is_refused_with_the_first_place(tree: Tree, name: str) -> None:
    wanted = f"{name}: Duplicate value: first defined in f.yaml: document 1"
    assert error_text(tree, tree) == wanted


def test_the_same_name_in_another_namespace_or_kind_is_another_object() -> None:
    other = pod("n1")
    other["metadata"]["namespace"] = "a"
    assert len(inventory(node(), pod("n1"), other).entries) == 3
