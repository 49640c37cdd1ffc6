"""Nodes whose GPUs are given in several ways, cards that vanish, and device plugins that serve two
pods at once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, frameworks_for
from stowplan.columns.nodetable import table_of
from stowplan.framework import CycleState, ObjectStore, Snapshot
from stowplan.insight.gpu_fragmentation import CardFragmentationMeter, has_cards, typical_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_admission import CardAdmission
from stowplan.plugins.gpu_share.conventions import CONVENTIONS, hami, volcano_vgpu
from stowplan.plugins.yoda.yoda import Yoda
from stowplan.testing import node, pod
from tests.plugins import gpus
from tests.plugins.gpu_share import gpu_cases
from tests.plugins.gpu_share.device_plugins import HamiDevicePlugin
from tests.plugins.gpu_share.gpu_cases import gpu_node
from tests.plugins.gpu_share.test_device_sharing import (
    Cluster,
    gpu_pod,
    hami_node,
    vgpu_pod,
    volcano_node,
    with_notes,
)

COUNT, ALIYUN, WHOLE = "alibabacloud.com/gpu-count", "aliyun.com/gpu-mem", "nvidia.com/gpu"
SEVERAL = "had the same GPUs registered by several conventions"
KAI_ONLY = (CONVENTIONS["kai"],)
INVALID = "had an invalid registration of GPUs"


def on(made: Pod, name: str = "n") -> Pod:
    return replace(made, spec=replace(made.spec, node_name=name))


PLAIN = node("n", cpu="64")
BY_MILLI = gpu_cases.gpu_pod("a", 1, 900)
COUNTED = gpu_pod("a", {WHOLE: 1})
FRACTION = with_notes(gpu_pod("a", {}), {"gpu-fraction": "0.9"})


def whole(made: Node, count: str = "1") -> Node:
    allocatable = {**made.status.allocatable, WHOLE: count}
    return replace(made, status=replace(made.status, allocatable=allocatable))


def by_milli(made: Node) -> Node:
    allocatable = {**made.status.allocatable, COUNT: "1"}
    return replace(made, status=replace(made.status, allocatable=allocatable))


ALIYUN_NODE = node("n", cpu="64", resources={ALIYUN: "16", "aliyun.com/gpu-count": "1"})
HAMI_NODE = hami_node("n", ("GPU-0", 16000))


@pytest.mark.parametrize(
    ("target", "conventions", "asks", "reason"),
    [
        (whole(gpu_node("n", 1)), None, BY_MILLI, ""),
        (whole(gpu_node("n", 1)), None, COUNTED, "given by milli, not by count"),
        (whole(gpu_node("n", 1)), [], COUNTED, "given by milli, not by count"),
        (whole(gpu_node("n", 1)), ["kai"], FRACTION, SEVERAL),
        (whole(gpu_node("n", 1)), ["kai"], COUNTED, "given by milli, not by count"),
        (whole(ALIYUN_NODE), None, gpu_pod("a", {ALIYUN: 10}), INVALID),
        (whole(ALIYUN_NODE), None, COUNTED, ""),
        (by_milli(HAMI_NODE), ["volcano"], BY_MILLI, SEVERAL),
        (by_milli(ALIYUN_NODE), [], BY_MILLI, SEVERAL),
        (by_milli(HAMI_NODE), None, gpu_pod("a", {hami.NUMBER: 1, hami.MEMORY: 1}), SEVERAL),
        (whole(PLAIN), ["kai"], FRACTION, ""),
    ],
)
def test_what_mixes(target: Node, conventions: list[str] | None, asks: Pod, reason: str) -> None:
    cluster = Cluster(target, **({} if conventions is None else {"conventions": conventions}))
    assert cluster.place(asks) == ["" if reason else "n"]
    assert reason in cluster.reasons.get("a", "")


def test_pods_by_milli_wait_for_those_on_unknown_cards() -> None:
    """Another scheduler has bound a pod with a whole GPU; which one is not known."""
    cluster = Cluster(whole(gpu_node("n", 2), "2"))
    other = on(gpu_pod("other", {WHOLE: 1}))
    cluster.handle(happened.PodAdded(other))
    assert cluster.place(BY_MILLI) == [""]
    assert "had pods on GPUs that the kubelet has chosen" in cluster.reasons["a"]
    cluster.handle(happened.PodDeleted(other), now_s=2000)
    cluster.handle(now_s=3000)
    assert cluster.nodes["a"] == "n"


def test_pods_with_both_requests_know_their_cards() -> None:
    """As pods of the OpenB trace, which request whole GPUs by count and by milli."""
    cluster = Cluster(whole(gpu_node("n", 2), "2"))
    pods = []
    for name in "ab":
        notes = gpu_cases.gpu_pod(name, 1, 1000).metadata.annotations
        pods.append(with_notes(gpu_pod(name, {WHOLE: 1}), dict(notes)))
    assert cluster.place(*pods) == ["n", "n"]
    assert {cluster.notes[name]["alibabacloud.com/gpu-index"] for name in "ab"} == {"0", "1"}


# Simulated kubelets.


def test_a_card_named_twice_is_given_once() -> None:
    cards = CardAdmission()
    twice = on(gpu_cases.gpu_pod("a", 2, 600, cards="0-0"))
    assert "card 0. Requested: 600, Available: 400" in cards.refusal(twice, gpu_node("n", 2))


@pytest.mark.parametrize("asks", ["volcano", "hami", "milli"])
def test_nodes_registered_twice_admit_no_parts(asks: str) -> None:
    both = volcano_node("n", ("GPU-0", 16000))
    notes = {**both.metadata.annotations, **HAMI_NODE.metadata.annotations}
    target = with_notes(both, notes)
    given = {
        "volcano": with_notes(
            vgpu_pod("a", 1, 1),
            {"volcano.sh/vgpu-node": "n", volcano_vgpu.IDS: "GPU-0,NVIDIA,1,0:"},
        ),
        "hami": with_notes(
            gpu_pod("a", {hami.NUMBER: 1, hami.MEMORY: 1}),
            {"hami.io/vgpu-node": "n", hami.ALLOCATED: "GPU-0,NVIDIA,1,0:;"},
        ),
        "milli": gpu_cases.gpu_pod("a", 1, 1, cards="0"),
    }
    found = CardAdmission().refusal(on(given[asks]), target)
    assert "registered by Volcano vGPU and registered by HAMi" in found
    assert not CardAdmission().refusal(on(gpu_pod("b", {})), target)


@pytest.mark.parametrize("text", ["", ":", ";", "GPU-0,NVIDIA,16000,0:GPU-1,NVIDIA,1,0:"])
def test_other_devices_than_requested_are_not_served(text: str) -> None:
    target = volcano_node("n", ("GPU-0", 16000), ("GPU-1", 16000))
    notes = {"volcano.sh/vgpu-node": "n", volcano_vgpu.IDS: text}
    found = CardAdmission().refusal(on(with_notes(vgpu_pod("a", 1, 16000), notes)), target)
    assert "no annotation of Volcano vGPU names devices" in found


@pytest.mark.parametrize("text", ["", ":", ";;"])
def test_a_list_without_devices_is_no_list(text: str) -> None:
    """A pod that is bound with an empty list counts on a card all the same."""
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000)))
    cluster.handle(
        happened.PodAdded(on(with_notes(vgpu_pod("other", 1, 16000), {volcano_vgpu.IDS: text})))
    )
    assert cluster.place(vgpu_pod("a", 1, 16000)) == [""]
    assert "too little left on their GPUs" in cluster.reasons["a"]


# Cards that vanish under pods.


def warnings_of(effects: list[to_do.Effect]) -> list[tuple[str, str, str]]:
    return [
        (one.name, one.type, one.note)
        for one in effects
        if isinstance(one, to_do.RecordEvent) and one.reason == "GPUCardMissing"
    ]


def test_vanished_cards_are_an_event_of_their_pods() -> None:
    cluster = Cluster(gpu_node("n", 2))
    assert cluster.place(*(gpu_cases.gpu_pod(name, 1, 900) for name in "ab")) == ["n", "n"]
    (lost,) = (n for n in "ab" if cluster.notes[n]["alibabacloud.com/gpu-index"] == "1")
    text = "GPU card 1 of the pod is missing on node n: it has 1 of 2 cards left"
    effects = cluster.handle(happened.NodeUpdated(gpu_node("n", 1)))
    assert warnings_of(effects) == [(lost, "Warning", text)]
    # Once, and the card counts again when it is back.
    assert not warnings_of(cluster.handle(happened.NodeUpdated(gpu_node("n", 1, cpu="32"))))
    assert not warnings_of(cluster.handle(happened.NodeUpdated(gpu_node("n", 2))))
    assert cluster.place(gpu_cases.gpu_pod("c", 1, 900)) == [""]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (volcano_node("n", ("GPU-1", 16000)), "it is not registered"),
        (volcano_node("n", ("GPU-0", 16000), ("GPU-1", 16000), health="false"), "not healthy"),
        (with_notes(volcano_node("n", ("GPU-1", 1)), {volcano_vgpu.REGISTER: "GPU-0"}),
         "has an invalid entry 'GPU-0'"),
        (node("n", cpu="64"), "Volcano vGPU registers no GPUs"),
    ],
)  # fmt: skip
def test_vanished_devices_too(after: Node, why: str) -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000), ("GPU-1", 16000)))
    assert cluster.place(vgpu_pod("a", 1, 16000)) == ["n"]
    assert cluster.cards("a") == ["GPU-0"]
    ((name, _, note),) = warnings_of(cluster.handle(happened.NodeUpdated(after)))
    assert name == "a"
    assert note.startswith("GPU card GPU-0 of the pod is missing on node n: ")
    assert why in note


# HAMi's device plugin.


class LockingCluster(Cluster):
    """An API server on which the binding takes the lock of the node. lock: its text, "" for
    none."""

    lock = ""

    def _bound(self, effect: to_do.Bind, now_s: int) -> list[Event]:
        if effect.lock is not None:
            if self.lock:
                text = f"node {effect.node} is locked: {self.lock}"
                return [happened.BindFailed(effect.effect, effect.uid, 409, text)]
            self.lock = effect.lock.text("2026-01-01T00:00:00Z", effect.namespace, effect.name)
        return super()._bound(effect, now_s)


@pytest.mark.parametrize("locks", [True, False])
def test_hamis_device_plugin_with_two_pods_at_once(locks: bool) -> None:
    """By the lock it finds the pod that was bound; without one it takes the wrong one here, as the
    documentation says: the second case shows that the first can fail."""
    cluster = LockingCluster(hami_node("n", ("GPU-0", 16000), ("GPU-1", 16000)), nodeLocks=locks)
    pods = [gpu_pod(name, {hami.NUMBER: 1, hami.MEMORY: 9000}) for name in "ab"]
    assert cluster.place(*pods) == (["n", ""] if locks else ["n", "n"])
    plugin = HamiDevicePlugin("n", cluster.notes)
    plugin.lock = cluster.lock
    served, devices = plugin.allocate(1)
    if not locks:
        assert (served, devices[0][0]) != ("a", cluster.cards("a")[0])
        return
    assert (served, devices) == ("a", [(cluster.cards("a")[0], 9000, 0)])
    # The plugin removes the lock, and the other pod is bound after its backoff.
    cluster.lock = ""
    second = pods[1]
    for now_s in (1010, 1020):
        cluster.handle(happened.PodRead(0, second.uid, second), now_s=now_s)
        cluster.handle(now_s=now_s + 5)
    assert cluster.nodes["b"] == "n"
    plugin.lock = cluster.lock
    assert plugin.allocate(1) == ("b", [(cluster.cards("b")[0], 9000, 0)])
    assert cluster.cards("a") != cluster.cards("b")


# Fragmentation.


def test_kais_cards_are_measured_where_the_profile_has_kai() -> None:
    target = whole(PLAIN, "2")
    bound = on(
        with_notes(gpu_pod("a", {}), {"gpu-fraction": "0.9", "stowplan.dev/gpu-cards": "1:90000"})
    )
    typical = typical_of([bound], [target], KAI_ONLY)
    table = table_of([target], [bound])
    assert not has_cards([target])
    assert has_cards([target], KAI_ONLY)
    found = CardFragmentationMeter(typical, KAI_ONLY).measure(table)
    assert found is not None
    assert (found.cards, found.idle_milli) == (2, 1100)
    assert found.by_cause["gpu_short"] == 100
    assert CardFragmentationMeter(typical).measure(table) is None


def test_cards_that_are_counted_twice_are_measured_once() -> None:
    found = CardFragmentationMeter([]).measure(table_of([by_milli(HAMI_NODE)], []))
    assert found is not None
    assert found.cards == 1


# Yoda.


@pytest.mark.parametrize(
    ("target", "is_shared"),
    [(PLAIN, False), (whole(PLAIN), False), (HAMI_NODE, True), (gpu_node("n", 1), True)],
)
@pytest.mark.parametrize("compat", [False, True])
def test_yoda_leaves_nodes_alone_that_give_parts_in_another_way(
    target: Node, is_shared: bool, compat: bool
) -> None:
    configured, full = configuration_of(gpus.configuration(compat=compat, weight=1), "test")
    (made,) = frameworks_for(configured, full).values()
    seen = Snapshot(table_of([target], []), ObjectStore([gpus.scv("n", "0=9/9")]))
    asks, state = pod("a", labels={"scv/number": "1"}), CycleState()
    made.run_pre_filter(asks, seen, state)
    status = made.filter_node(asks, seen.nodes.info(0), state)
    refused = is_shared and not compat
    assert status.message == (Yoda.SHARED_OTHERWISE.message if refused else "")
    assert made.run_filters(asks, seen, state).at(0) == status
