"""Claims from template to device and back, with the controllers, kubelets and scheduler of `up`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stowplan.simulation.workload_replay import WorkloadReplay
from tests.simulation.test_workload_replay import Tree, deployment, node, replay_of, run

DEVICE = "resource.k8s.io/v1"
CLAIMS = "resource.k8s.io/resourceclaims"
RESOURCE = "example.com/gpu"
DRIVER = "gpu.example.com"
UNTIL_S = 200


def node_with(name: str, devices: str, **more: str) -> Tree:
    made = node(name)
    made["metadata"] |= {"annotations": {"stowplan.dev/devices": devices}, "labels": {"name": name}}
    made["status"]["capacity"] |= more
    made["status"]["allocatable"] |= more
    return made


def device_class(**spec: Any) -> Tree:
    found = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": found}}], **spec}
    return {"apiVersion": DEVICE, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec}


def claim_template(**request: Any) -> Tree:
    exactly = {"deviceClassName": "gpu", **request}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return {
        "apiVersion": DEVICE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"},
        "spec": {"spec": {"devices": devices}},
    }


def users(n_pods: int, notes: dict[str, str] | None = None, **use: str) -> Tree:
    """A Deployment whose pods have a claim."""
    made = deployment(n_pods, notes or {})
    pods = made["spec"]["template"]["spec"]
    use = use or {"resourceClaimTemplateName": "one"}
    pods["resourceClaims"] = [{"name": "gpu", **use}]
    pods["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
    return made


def asking(n_pods: int, amount: str = "1") -> Tree:
    """A Deployment whose pods request the extended resource."""
    made = deployment(n_pods)
    resources = made["spec"]["template"]["spec"]["containers"][0].setdefault("resources", {})
    resources.setdefault("requests", {})[RESOURCE] = amount
    resources["limits"] = {RESOURCE: amount}
    return made


def stored(replay: WorkloadReplay, path: str) -> list[Tree]:
    server = replay._api.server
    resource = server.registry.by_path(path)
    assert resource is not None
    return list(server.list(resource))


def devices_of(replay: WorkloadReplay) -> list[tuple[str, str]]:
    """Pool and device of every allocation."""
    return [
        (result["pool"], result["device"])
        for claim in stored(replay, CLAIMS)
        for result in claim["status"].get("allocation", {}).get("devices", {}).get("results", ())
    ]


def phases(replay: WorkloadReplay) -> list[str]:
    return sorted(pod["status"].get("phase", "") for pod in stored(replay, "pods"))


def replayed(folder: Path, *objects: Tree) -> WorkloadReplay:
    return run(replay_of(folder, *objects, until_s=UNTIL_S))


CARDS = f"{DRIVER}=2xH100"
NODES = (node_with("n1", CARDS), node_with("n2", CARDS))


def test_pods_run_with_a_device_each(tmp_path: Path) -> None:
    replay = replayed(tmp_path, *NODES, device_class(), claim_template(), users(5))
    assert phases(replay) == ["Pending"] + 4 * ["Running"]
    cards = [(name, f"gpu-{at}") for name in ("n1", "n2") for at in range(2)]
    assert sorted(devices_of(replay)) == cards
    # The fifth has its claim, and no device.
    assert len(stored(replay, CLAIMS)) == 5


def test_fewer_pods_leave_their_devices(tmp_path: Path) -> None:
    scaled = users(4, {"stowplan.dev/replica-changes": "60=1"})
    replay = replayed(tmp_path, *NODES, device_class(), claim_template(), scaled)
    (claim,) = stored(replay, CLAIMS)
    (pod,) = stored(replay, "pods")
    assert [one["uid"] for one in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    assert len(devices_of(replay)) == 1


def test_partitions_do_not_overdraw_their_card(tmp_path: Path) -> None:
    parts = node_with("n1", f"{DRIVER}=1xA100,partitions=3")
    selector = f'device.attributes["{DRIVER}"].type == "partition"'
    some = claim_template(selectors=[{"cel": {"expression": selector}}])
    replay = replayed(tmp_path, parts, device_class(), some, users(4))
    assert phases(replay) == ["Pending"] + 3 * ["Running"]
    assert sorted(devices_of(replay)) == [("n1", f"gpu-0-part-{at}") for at in range(3)]


def test_tainted_devices_are_left_out(tmp_path: Path) -> None:
    tainted = node_with("n1", f"{CARDS},taint=old=yes:NoSchedule")
    replay = replayed(tmp_path, tainted, device_class(), claim_template(), users(1))
    assert phases(replay) == ["Pending"]
    tolerations = [{"key": "old", "operator": "Exists"}]
    some = claim_template(tolerations=tolerations)
    assert phases(replayed(tmp_path, tainted, device_class(), some, users(1))) == ["Running"]


def test_a_claim_is_shared(tmp_path: Path) -> None:
    spec = claim_template()["spec"]["spec"]
    shared = {"apiVersion": DEVICE, "kind": "ResourceClaim", "metadata": {"name": "shared"}}
    pods = users(3, resourceClaimName="shared")
    replay = replayed(tmp_path, *NODES, device_class(), shared | {"spec": spec}, pods)
    assert phases(replay) == 3 * ["Running"]
    ((pool, _),) = devices_of(replay)
    assert {pod["spec"]["nodeName"] for pod in stored(replay, "pods")} == {pool}


def test_an_unused_claim_is_allocated_anew_where_its_pod_can_run(tmp_path: Path) -> None:
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    held = {
        "apiVersion": DEVICE,
        "kind": "ResourceClaim",
        "metadata": {"name": "held", "finalizers": ["resource.kubernetes.io/delete-protection"]},
        "spec": claim_template()["spec"]["spec"],
        "status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}},
    }
    pods = users(1, resourceClaimName="held")
    pods["spec"]["template"]["spec"]["nodeSelector"] = {"name": "n2"}
    replay = replayed(tmp_path, *NODES, device_class(), held, pods)
    assert phases(replay) == ["Running"]
    assert devices_of(replay) == [("n2", "gpu-0")]


# Extended resources.

MAPPED = device_class(extendedResourceName=RESOURCE)


def test_an_extended_resource_becomes_a_claim(tmp_path: Path) -> None:
    replay = replayed(tmp_path, *NODES, MAPPED, asking(5))
    assert phases(replay) == ["Pending"] + 4 * ["Running"]
    claims = {claim["metadata"]["name"]: claim for claim in stored(replay, CLAIMS)}
    assert len(claims) == len(set(devices_of(replay))) == 4
    for pod in stored(replay, "pods"):
        noted = pod["status"].get("extendedResourceClaimStatus")
        if pod["status"]["phase"] == "Pending":
            assert noted is None
            continue
        claim = claims.pop(noted["resourceClaimName"])
        (mapping,) = noted["requestMappings"]
        assert mapping["resourceName"] == RESOURCE
        assert mapping["requestName"] == "container-0-request-1"
        meta = claim["metadata"]
        assert meta["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert meta["name"].startswith(f"{pod['metadata']['name']}-extended-resources-"[:58])
        assert [one["uid"] for one in meta["ownerReferences"]] == [pod["metadata"]["uid"]]
        assert claim["status"]["reservedFor"][0]["uid"] == pod["metadata"]["uid"]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == pod["spec"]["nodeName"]


def test_device_plugins_and_drivers_in_one_cluster(tmp_path: Path) -> None:
    plugin = node_with("n1", "", **{RESOURCE: "2"})
    replay = replayed(tmp_path, plugin, node_with("n2", CARDS), MAPPED, asking(5))
    assert phases(replay) == ["Pending"] + 4 * ["Running"]
    assert sorted(devices_of(replay)) == [("n2", "gpu-0"), ("n2", "gpu-1")]


def test_a_left_over_claim_is_deleted_and_made_anew(tmp_path: Path) -> None:
    made = asking(1)["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "uid-of-p"},
        "spec": made["spec"],
    }
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-p", "controller": True,
    }  # fmt: skip
    old = {
        "apiVersion": DEVICE,
        "kind": "ResourceClaim",
        "metadata": {
            "name": "old",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "ownerReferences": [owner],
        },
        "spec": claim_template()["spec"]["spec"],
    }
    replay = replayed(tmp_path, *NODES, MAPPED, pod, old)
    (stored_pod,) = stored(replay, "pods")
    assert stored_pod["status"]["phase"] == "Running"
    (claim,) = stored(replay, CLAIMS)
    assert claim["metadata"]["name"].startswith("p-extended-resources-")
