"""Simulated nodes give pods the cards that their annotations name, and no card twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from stowplan import simulate
from stowplan.forecast.cluster import Cluster
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_admission import CardAdmission
from stowplan.plugins.gpu_share.conventions import volcano_vgpu
from stowplan.simulation.replay import ReplayOptions
from stowplan.testing import node, pod
from tests.apiserver.small_cluster import SmallCluster, container
from tests.apiserver.small_cluster import pod as manifest
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.plugins.gpu_share.test_device_sharing import (
    IGNORED,
    hami_node,
    vgpu_pod,
    volcano_node,
    with_notes,
)
from tests.plugins.gpu_share.test_device_sharing import gpu_pod as limited_pod

CARDS = volcano_node("n", ("GPU-0", 1000), ("GPU-1", 1000), slots=2)
SICK = volcano_node("n", ("GPU-0", 1000), health="false")
NO_PLACE = "no annotation of Volcano vGPU names devices of this node for the pod"


def given(name: str, devices: str, on: str = "n") -> Pod:
    """A pod that Volcano's scheduler has given devices."""
    made = vgpu_pod(name, 1, 100)
    notes = {"volcano.sh/vgpu-ids-new": devices, "volcano.sh/vgpu-node": on}
    noted: Pod = with_notes(replace(made, spec=replace(made.spec, node_name="n")), notes)
    return noted


@pytest.mark.parametrize(
    ("target", "there", "asks", "why"),
    [
        (gpu_node("n", 2), ["1"], gpu_pod("b", 1, 500, cards="1", on="n"), ""),
        (
            gpu_node("n", 2),
            ["1"],
            gpu_pod("b", 1, 600, cards="1", on="n"),
            "alibabacloud.com/gpu-milli of card 1. Requested: 600, Available: 500",
        ),
        (
            gpu_node("n", 2),
            [],
            gpu_pod("b", 1, 600, cards="2", on="n"),
            "card 2. Requested: 600, Available: 0",
        ),
        # No card is named, and no device plugin reads the rest.
        (gpu_node("n", 2), ["0-1"], gpu_pod("b", 2, 900, on="n"), ""),
        (CARDS, ["GPU-0,NVIDIA,600,0:"], given("b", "GPU-1,NVIDIA,600,0:"), ""),
        (
            CARDS,
            ["GPU-0,NVIDIA,600,0:"],
            given("b", "GPU-0,NVIDIA,600,0:"),
            "MiB of GPU GPU-0. Requested: 600, Available: 400",
        ),
        (
            CARDS,
            ["GPU-0,NVIDIA,1,60:"],
            given("b", "GPU-0,NVIDIA,1,60:"),
            "cores of GPU GPU-0. Requested: 60, Available: 40",
        ),
        (
            CARDS,
            ["GPU-0,NVIDIA,1,0:", "GPU-0,NVIDIA,1,0:"],
            given("b", "GPU-0,NVIDIA,1,0:"),
            "slices of GPU GPU-0. Requested: 1, Available: 0",
        ),
        (CARDS, [], given("b", "GPU-7,NVIDIA,1,0:"), "GPU GPU-7. Requested: 1, Available: 0"),
        (SICK, [], given("b", "GPU-0,NVIDIA,1,0:"), "GPU GPU-0. Requested: 1, Available: 0"),
        (CARDS, [], given("b", "GPU-0,NVIDIA,1,0:", on="other"), NO_PLACE),
        (CARDS, [], vgpu_pod("b", 1, 100), NO_PLACE),
        (CARDS, [], pod("b"), ""),
        (with_notes(CARDS, {"volcano.sh/node-vgpu-register": "GPU-0"}), [], given("b", ":"),
         "has an invalid entry 'GPU-0'"),
        (hami_node("n", ("GPU-0", 1000)), [], limited_pod("b", {"nvidia.com/gpu": 1}),
         "no annotation of HAMi names devices"),
        # Whole devices of a node without a convention are the kubelet's affair.
        (node("n", resources={"nvidia.com/gpu": "1"}), [], limited_pod("b", {"nvidia.com/gpu": 1}),
         ""),
    ],
)  # fmt: skip
def test_refusals(target: Node, there: list[str], asks: Pod, why: str) -> None:
    cards = CardAdmission()
    is_counted = "alibabacloud.com/gpu-count" in target.status.allocatable
    for number, text in enumerate(there):
        name = f"a{number}"
        cards.admit(
            gpu_pod(name, len(text.split("-")), 500, cards=text, on="n")
            if is_counted
            else given(name, text)
        )
    found = cards.refusal(asks, target)
    assert why in found
    assert bool(found) == bool(why)


def test_cards_are_free_again() -> None:
    cards, first = CardAdmission(), gpu_pod("a", 1, 1000, cards="0", on="n")
    second = gpu_pod("b", 1, 1000, cards="0", on="n")
    cards.admit(first)
    assert cards.refusal(second, gpu_node("n", 1))
    # The same pod again, after a restart of its node, counts once.
    cards.admit(first)
    assert not cards.refusal(first, gpu_node("n", 1))
    cards.release("default/a", "n")
    assert not cards.refusal(second, gpu_node("n", 1))


def test_a_kubelet_fails_a_pod_whose_card_is_in_use() -> None:
    capacity = {"alibabacloud.com/gpu-count": "1", "nvidia.com/gpu": "1"}
    cluster = SmallCluster(1, schedules=False, capacity=capacity)
    names = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-index": "0"}
    for name, milli in (("a", "600"), ("b", "500"), ("c", "400")):
        notes = {**names, "alibabacloud.com/gpu-milli": milli}
        made = cluster.create("pods", manifest(name, notes=notes))
        cluster.server.bind(made, "node-1", cluster.now)
        cluster.run(2)
    found = {name: cluster.the("pods", name)["status"] for name in "abc"}
    assert [found[name]["phase"] for name in "abc"] == ["Running", "Failed", "Running"]
    assert (found["b"]["reason"], found["b"]["message"]) == (
        "UnexpectedAdmissionError",
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
        "alibabacloud.com/gpu-milli of card 0. Requested: 500, Available: 400, which is unexpected",
    )
    # A card that a pod has left is given again.
    cluster.delete("pods", "a")
    cluster.run(40)
    notes = {**names, "alibabacloud.com/gpu-milli": "600"}
    cluster.server.bind(cluster.create("pods", manifest("d", notes=notes)), "node-1", cluster.now)
    cluster.run(2)
    assert cluster.the("pods", "d")["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("lock", "remains"),
    [
        ("2026-11-23T20:00:00Z", False),
        ("2026-11-23T20:00:00Z,default,a", False),
        ("2026-11-23T20:00:00Z,default,other", True),
    ],
)
@pytest.mark.parametrize("device", ["GPU-0", "GPU-9"])
def test_a_device_plugin_answers_on_the_pod_and_releases_its_lock(
    lock: str, remains: bool, device: str
) -> None:
    cluster = SmallCluster(1, schedules=False, capacity={"volcano.sh/vgpu-number": "2"})
    node = cluster.the("nodes", "node-1")
    notes = {
        volcano_vgpu.REGISTER: "GPU-0,2,1000,T4,true,hami-core:",
        "volcano.sh/mutex.lock": lock,
    }
    node["metadata"]["annotations"] = {**node["metadata"].get("annotations", {}), **notes}
    cluster.api.update("nodes", node)
    made = manifest("a", notes={
        volcano_vgpu.NODE: "node-1",
        volcano_vgpu.IDS: f"{device},NVIDIA,400,0:",
        volcano_vgpu.PHASE: "allocating",
    })  # fmt: skip
    limits = {volcano_vgpu.NUMBER: "1", volcano_vgpu.MEMORY: "400"}
    made["spec"]["containers"] = [container(resources={"limits": limits, "requests": limits})]
    cluster.server.bind(cluster.create("pods", made), "node-1", cluster.now)
    cluster.run(2)
    pod = cluster.the("pods", "a")
    is_served = device == "GPU-0"
    assert pod["status"]["phase"] == ("Running" if is_served else "Failed")
    phase = pod["metadata"]["annotations"][volcano_vgpu.PHASE]
    assert phase == ("success" if is_served else "failed")
    held = cluster.the("nodes", "node-1")["metadata"]["annotations"]
    assert ("volcano.sh/mutex.lock" in held) == remains


def test_device_plugins_of_a_simulation_release_locks_at_once(tmp_path: Path) -> None:
    tree = json.loads(configuration(nodeLocks=True))
    tree["profiles"][0]["pluginConfig"].append(IGNORED)
    (tmp_path / "config.json").write_text(json.dumps(tree))
    pods = [vgpu_pod(name, 1, 400) for name in "abc"]
    options = ReplayOptions()
    found = simulate(Cluster([CARDS], pods), config=tmp_path / "config.json", replay=options)
    assert (found.summary["placed"], found.summary["refusals"]) == (3, 0)


def test_a_kubelet_fails_a_pod_beyond_the_counted_devices() -> None:
    cluster = SmallCluster(1, capacity={"nvidia.com/gpu": "1"})
    for name in "ab":
        made = manifest(name)
        made["spec"]["containers"] = [container(resources={"limits": {"nvidia.com/gpu": "1"}})]
        cluster.create("pods", made)
        cluster.run(2)
    status = cluster.the("pods", "b")["status"]
    assert (status["reason"], status["message"]) == (
        "UnexpectedAdmissionError",
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
        "nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
    )


@pytest.mark.parametrize("knows_cards", [True, False])
def test_a_replay_rejects_pods_that_were_given_no_cards(knows_cards: bool, tmp_path: Path) -> None:
    pods = [vgpu_pod(name, 1, 400) for name in "abc"]
    config = tmp_path / "config.json"
    tree = json.loads(configuration())
    tree["profiles"][0]["pluginConfig"].append(IGNORED)
    if not knows_cards:
        tree["profiles"] = [{"pluginConfig": [IGNORED]}]
    config.write_text(json.dumps(tree))
    found = simulate(Cluster([CARDS], pods), config=config, replay=ReplayOptions())
    rejected = [note for note in found.summary["notes"] if "rejected by their nodes" in note]
    if knows_cards:
        assert not rejected
    else:
        assert (
            "3 pods rejected by their nodes, such as default/a: UnexpectedAdmissionError"
            in rejected[0]
        )
