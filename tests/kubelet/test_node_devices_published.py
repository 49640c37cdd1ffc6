"""Slices of simulated nodes, and the preparation of claims on them."""

from __future__ import annotations

from tests.apiserver.small_cluster import START, SmallCluster, Tree, pod
from tests.controllers.test_resource_claims import CLAIMS, REQUESTS, allocate, only_claim

SLICES = "resource.k8s.io/resourceslices"
DEVICES = "stowplan.dev/devices"
CARDS = "gpu.example.com=2xH100"
USE = [{"name": "gpu", "resourceClaimName": "c"}]


def with_devices(here: SmallCluster, text: str) -> None:
    node = here.the("nodes", "node-1")
    node["metadata"].setdefault("annotations", {})[DEVICES] = text
    here.api.update("nodes", node)
    here.settle()


def pools(here: SmallCluster) -> list[tuple[str, int, int]]:
    """Name of each slice, generation, and number of devices."""
    return [
        (
            one["metadata"]["name"],
            one["spec"]["pool"]["generation"],
            len(one["spec"].get("devices") or ()),
        )
        for one in here.list(SLICES)
    ]


def test_slices_follow_the_annotation() -> None:
    here = SmallCluster(1)
    with_devices(here, CARDS)
    first = ("node-1-gpu.example.com-0", 1, 2)
    assert pools(here) == [first]
    with_devices(here, f"{CARDS}; net.example.com=1xNIC")
    assert pools(here) == [first, ("node-1-net.example.com-0", 1, 1)]
    with_devices(here, "gpu.example.com=1xH100,partitions=2")
    assert pools(here) == [
        ("node-1-gpu.example.com-0", 2, 3),
        ("node-1-gpu.example.com-1", 2, 0),
    ]
    with_devices(here, CARDS)
    assert pools(here) == [("node-1-gpu.example.com-0", 3, 2)]
    with_devices(here, "")
    assert pools(here) == []


def test_a_deleted_slice_is_published_again() -> None:
    here = SmallCluster(1)
    with_devices(here, CARDS)
    here.delete(SLICES, "node-1-gpu.example.com-0")
    here.settle()
    assert pools(here) == [("node-1-gpu.example.com-0", 1, 2)]


def test_slices_are_deleted_with_their_node() -> None:
    here = SmallCluster(1)
    with_devices(here, CARDS)
    here.delete("nodes", "node-1")
    here.run(60)
    assert pools(here) == []


def test_a_stopped_kubelet_publishes_nothing() -> None:
    here = SmallCluster(1)
    node = here.the("nodes", "node-1")
    node["metadata"]["annotations"] = {DEVICES: CARDS, "stowplan.dev/kubelet": "off"}
    here.api.update("nodes", node)
    here.settle()
    assert pools(here) == []
    node = here.the("nodes", "node-1")
    del node["metadata"]["annotations"]["stowplan.dev/kubelet"]
    here.api.update("nodes", node)
    here.settle()
    assert len(pools(here)) == 1


def test_devices_that_cannot_be_read_are_an_event() -> None:
    here = SmallCluster(1)
    with_devices(here, "gpu.example.com=many")
    assert pools(here) == []
    (event,) = [one for one in here.list("events") if one["reason"] == "UnreadAnnotation"]
    assert event["message"].startswith(f'{DEVICES}: Invalid value: "gpu.example.com=many": must be')


# Claims.


def bound(notes: dict[str, str] | None = None, **spec: object) -> SmallCluster:
    """A pod on `node-1` whose claim is not allocated yet."""
    here = SmallCluster(1, schedules=False)
    here.create(CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    made = pod("p", notes=notes)
    made["spec"] |= {"resourceClaims": USE, "nodeName": "node-1", **spec}
    here.create("pods", made)
    return here


def state(here: SmallCluster) -> str:
    return str(here.the("pods", "p")["status"]["phase"])


def events(here: SmallCluster) -> list[Tree]:
    return [one for one in here.list("events") if one["reason"] == "FailedPrepareDynamicResources"]


def test_a_pod_waits_for_its_claim() -> None:
    here = bound()
    here.run(5)
    assert state(here) == "Pending"
    (event,) = events(here)
    text = "Failed to prepare dynamic resources: resource claim default/c is not allocated"
    assert event["message"] == text
    allocate(here, only_claim(here), here.the("pods", "p"))
    here.run(20)
    assert state(here) == "Running"


def test_a_pod_may_not_use_what_is_reserved_for_others() -> None:
    here = bound()
    other = here.create("pods", pod("other"))
    # The controller does not reserve it for a pod beyond the limit.
    claim = only_claim(here)
    allocate(here, claim, other)
    stored = only_claim(here)
    stored["status"]["reservedFor"] = stored["status"]["reservedFor"][:1]
    here.cluster.controller_manager.parts = [
        part for part in here.cluster.controller_manager.parts if part.name != "resource-claim"
    ]
    here.run(3)
    (event,) = events(here)
    text = "pod default/p is not allowed to use resource claim default/c"
    assert event["message"] == f"Failed to prepare dynamic resources: {text}"


def moments(here: SmallCluster, seconds: float) -> dict[str, float]:
    """Phase of the pod, "" once it is gone -> seconds after the start."""
    found: dict[str, float] = {}

    def watch(_: SmallCluster) -> None:
        one = here.get("pods", "p")
        phase = "" if one is None else str(one["status"].get("phase"))
        found.setdefault(phase, here.now - START)

    here.run(seconds, watch)
    return found


def test_preparation_takes_time_and_fails() -> None:
    notes = {"stowplan.dev/prepare-seconds": "3", "stowplan.dev/prepare-failures": "2"}
    here = bound(notes)
    allocate(here, only_claim(here), here.the("pods", "p"))
    # Two attempts of 3 s and 10 s until the next one, then 3 s, and 1 s to the start.
    assert moments(here, 100)["Running"] == 2 * (3 + 10) + 3 + 1
    assert [one["count"] for one in events(here)] == [2]


def test_an_end_is_reported_when_devices_are_given_back() -> None:
    notes = {
        "stowplan.dev/run-seconds": "5",
        "stowplan.dev/unprepare-seconds": "4",
        "stowplan.dev/unprepare-failures": "1",
    }
    here = bound(notes, restartPolicy="Never")
    allocate(here, only_claim(here), here.the("pods", "p"))
    assert moments(here, 100)["Succeeded"] == 1 + 5 + 4 + 10
    assert only_claim(here)["status"] == {}


def test_a_deleted_pod_stays_until_devices_are_given_back() -> None:
    notes = {"stowplan.dev/stop-seconds": "2", "stowplan.dev/unprepare-seconds": "4"}
    here = bound(notes)
    allocate(here, only_claim(here), here.the("pods", "p"))
    here.run(10)
    here.delete("pods", "p")
    assert moments(here, 30)[""] == 10 + 2 + 4


def test_annotations_that_cannot_be_read() -> None:
    here = bound({"stowplan.dev/prepare-failures": "often"})
    here.settle()
    texts = [one["message"] for one in here.list("events") if one["reason"] == "UnreadAnnotation"]
    assert texts == ['stowplan.dev/prepare-failures: Invalid value: "often": must be 0 to 255']
