"""GpuShare with devices that nodes register: Volcano vGPU, HAMi, Aliyun gpushare, KAI."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.client.binding.binding_times import BindingTimes
from stowplan.framework import ConfigError
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.node_lock import HAMI_LOCK, VOLCANO_LOCK, NodeLock
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions import hami, kai_fractions, volcano_vgpu
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    DeviceShare,
    NodeDevices,
)
from stowplan.plugins.gpu_share.conventions.share_texts import parse_shares
from stowplan.testing import node, pod
from tests.plugins.gpu_share.device_plugins import HamiDevicePlugin, VolcanoDevicePlugin
from tests.plugins.gpu_share.gpu_cases import configuration
from tests.soak import examples

IGNORED = {
    "name": "NodeResourcesFit",
    "args": {
        "ignoredResourceGroups": ["volcano.sh"],
        "ignoredResources": [
            "nvidia.com/gpumem",
            "nvidia.com/gpumem-percentage",
            "nvidia.com/gpucores",
        ],
    },
}


def noted(made: Any, **annotations: str) -> Any:
    notes = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return replace(made, metadata=replace(made.metadata, annotations=notes))


def with_notes(made: Any, annotations: dict[str, str]) -> Any:
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


def volcano_node(name: str, *cards: tuple[str, int], slots: int = 10, health: str = "true") -> Node:
    text = "".join(f"{uuid},{slots},{mib},NVIDIA-A100,{health},hami-core:" for uuid, mib in cards)
    offered = {
        volcano_vgpu.NUMBER: str(slots * len(cards)),
        volcano_vgpu.MEMORY: str(sum(mib for _, mib in cards)),
        volcano_vgpu.CORES: str(100 * len(cards)),
    }
    made = node(name, cpu="64", resources=offered)
    return with_notes(made, {volcano_vgpu.REGISTER: text})  # type: ignore[no-any-return]


def hami_node(name: str, *cards: tuple[str, int], slots: int = 10, json_form: bool = True) -> Node:
    entries = [
        {"id": uuid, "index": i, "count": slots, "devmem": mib, "devcore": 100,
         "type": "NVIDIA-A100", "health": True, "mode": "hami-core"}
        for i, (uuid, mib) in enumerate(cards)
    ]  # fmt: skip
    text = json.dumps(entries)
    if not json_form:
        text = "".join(f"{uuid},{slots},{mib},100,NVIDIA-A100,0,true:" for uuid, mib in cards)
    made = node(name, cpu="64", resources={hami.NUMBER: str(slots * len(cards))})
    return with_notes(made, {hami.REGISTER: text})  # type: ignore[no-any-return]


def gpu_pod(name: str, limits: dict[str, object], notes: dict[str, str] | None = None) -> Pod:
    made = pod(name, cpu="1")
    container = made.spec.containers[0]
    amounts = {key: str(value) for key, value in limits.items()}
    requests = {**container.resources.requests, **amounts}
    resources = replace(container.resources, requests=requests, limits=amounts)
    spec = replace(made.spec, containers=(replace(container, resources=resources),))
    return with_notes(replace(made, spec=spec), notes or {})  # type: ignore[no-any-return]


def vgpu_pod(name: str, number: int = 1, memory: int = 0, cores: int = 0, **notes: str) -> Pod:
    limits: dict[str, object] = {volcano_vgpu.NUMBER: number}
    if memory:
        limits[volcano_vgpu.MEMORY] = memory
    if cores:
        limits[volcano_vgpu.CORES] = cores
    made = gpu_pod(name, limits)
    return noted(made, **notes)  # type: ignore[no-any-return]


class Cluster:
    """A scheduler with GpuShare; the API server stores what it binds."""

    def __init__(self, *nodes: Node, **args: Any) -> None:
        tree = json.loads(configuration(**args))
        tree["profiles"][0]["pluginConfig"].append(IGNORED)
        self.scheduler = scheduler_for(*configuration_of(json.dumps(tree), "test"))
        self.times = BindingTimes()
        self.reasons: dict[str, str] = {}
        self.notes: dict[str, dict[str, str]] = {}
        self.nodes: dict[str, str] = {}
        self.pods: dict[str, Pod] = {}
        self.handle(*(happened.NodeAdded(one) for one in nodes))

    def handle(self, *events: Event, now_s: int = 1000) -> list[to_do.Effect]:
        effects = self.scheduler.handle(events, now_s * 10**9)
        self.scheduler.validate()
        answers: list[Event] = []
        for effect in effects:
            match effect:
                case to_do.PatchStatus():
                    self.reasons[effect.name] = effect.message
                case to_do.Bind():
                    answers += self._bound(effect, now_s)
        return effects + (self.handle(*answers, now_s=now_s) if answers else [])

    def _bound(self, effect: to_do.Bind, now_s: int) -> list[Event]:
        added = self.times.annotations(effect, now_s * 10**9)
        before = self.pods[effect.name]
        notes = {**before.metadata.annotations, **added}
        after = with_notes(replace(before, spec=replace(before.spec, node_name=effect.node)), notes)
        self.pods[effect.name] = after
        self.nodes[effect.name], self.notes[effect.name] = effect.node, notes
        return [happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(after)]

    def place(self, *pods: Pod, now_s: int = 1000) -> list[str]:
        """The node of each pod, "" where it is placed nowhere."""
        self.pods |= {one.name: one for one in pods}
        self.handle(*map(happened.PodAdded, pods), now_s=now_s)
        return [self.nodes.get(one.name, "") for one in pods]

    def cards(self, name: str) -> list[str]:
        text = self.notes[name].get(volcano_vgpu.IDS) or self.notes[name].get(hami.ALLOCATED, "")
        found = parse_shares(text)
        assert found is not None
        return [share.id for container in found for share in container]


# What each convention reads and writes.


def test_volcano_writes_what_its_device_plugin_reads() -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000), ("GPU-1", 16000)))
    assert cluster.place(vgpu_pod("a", 1, 4000, 30)) == ["n"]
    notes = cluster.notes["a"]
    assert notes == {
        "volcano.sh/vgpu-node": "n",
        "volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,4000,30:",
        "volcano.sh/devices-to-allocate": "GPU-0,NVIDIA,4000,30:",
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/vgpu-time": "1000",
        "volcano.sh/bind-time": "1000",
    }
    # The card with the least left that suffices; two parts are on two cards.
    assert cluster.place(vgpu_pod("b", 2, 4000)) == ["n"]
    assert (
        cluster.notes["b"]["volcano.sh/vgpu-ids-new"] == "GPU-0,NVIDIA,4000,0:GPU-1,NVIDIA,4000,0:"
    )


def test_hami_has_a_place_for_every_container() -> None:
    cluster = Cluster(hami_node("n", ("GPU-0", 16000)))
    made = gpu_pod("a", {hami.NUMBER: 1, hami.MEMORY: 3000, hami.CORES: 30})
    plain = replace(
        made.spec.containers[0], name="side", resources=pod("x").spec.containers[0].resources
    )
    spec = replace(made.spec, containers=(plain, *made.spec.containers))
    assert cluster.place(replace(made, spec=spec)) == ["n"]
    assert cluster.notes["a"]["hami.io/vgpu-devices-allocated"] == ";GPU-0,NVIDIA,3000,30:;"
    assert cluster.notes["a"]["hami.io/bind-phase"] == "allocating"


def test_aliyun_gives_the_index_and_the_sizes() -> None:
    offered = {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
    cluster = Cluster(node("n", cpu="8", resources=offered))
    pods = [gpu_pod(name, {"aliyun.com/gpu-mem": 10}) for name in "abc"]
    assert cluster.place(*pods) == ["n", "n", ""]
    found = cluster.notes["a"]
    assert found.pop("ALIYUN_COM_GPU_MEM_ASSUME_TIME") == str(1000 * 10**9)
    assert found == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "10",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    }
    assert cluster.notes["b"]["ALIYUN_COM_GPU_MEM_IDX"] == "1"
    assert "too little left on their GPUs" in cluster.reasons["c"]


def test_kai_shares_cards_with_whole_devices() -> None:
    one = node(
        "n", cpu="8", resources={"nvidia.com/gpu": "2"}, labels={"nvidia.com/gpu.memory": "1000"}
    )
    cluster = Cluster(one, conventions=["kai"])
    half = [with_notes(pod(name), {"gpu-fraction": "0.5"}) for name in "ab"]
    third = with_notes(pod("c"), {"gpu-memory": "300"})
    assert cluster.place(*half, third) == ["n", "n", "n"]
    assert [cluster.notes[name]["stowplan.dev/gpu-cards"] for name in "abc"] == [
        "0:500",
        "0:500",
        "1:300",
    ]
    # A whole device needs an idle one.
    assert cluster.place(gpu_pod("d", {"nvidia.com/gpu": 1})) == [""]


@pytest.mark.parametrize("json_form", [True, False])
def test_both_forms_of_hamis_registration(json_form: bool) -> None:
    found = hami.report(hami_node("n", ("GPU-0", 16000), json_form=json_form))
    assert found is not None
    (device,) = found.devices
    assert (device.id, device.memory, device.slots, device.is_healthy) == ("GPU-0", 16000, 10, True)


def test_memory_that_is_not_named_is_all_of_it() -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000)))
    assert cluster.place(vgpu_pod("a", 1), vgpu_pod("b", 1, 1)) == ["n", ""]
    cluster = Cluster(hami_node("n", ("GPU-0", 16000)))
    half = gpu_pod("a", {hami.NUMBER: 1, hami.PERCENTAGE: 50})
    other = gpu_pod("b", {hami.PERCENTAGE: 50})
    assert cluster.place(half, other, gpu_pod("c", {hami.MEMORY: 1})) == ["n", "n", ""]


def test_cores_and_slots() -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000), slots=3))
    pods = [vgpu_pod("a", 1, 1, 60), vgpu_pod("b", 1, 1, 50), vgpu_pod("c", 1, 1, 40)]
    assert cluster.place(*pods) == ["n", "", "n"]
    # All cores are used: a pod without cores does not get in either.
    assert cluster.place(vgpu_pod("d", 1, 1)) == [""]
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000), slots=2))
    assert cluster.place(*(vgpu_pod(name, 1, 1) for name in "abc")) == ["n", "n", ""]
    # All cores of a card that is in use are not given.
    assert Cluster(volcano_node("n", ("GPU-0", 16000))).place(
        vgpu_pod("a", 1, 1), vgpu_pod("b", 1, 1, 100)
    ) == ["n", ""]


@pytest.mark.parametrize(
    ("node", "pod", "lock"),
    [
        (volcano_node("n", ("GPU-0", 1000)), vgpu_pod("a"), VOLCANO_LOCK),
        (hami_node("n", ("GPU-0", 1000)), gpu_pod("a", {hami.MEMORY: 400}), HAMI_LOCK),
    ],
)
def test_locks_are_taken_where_arguments_say_so(node: Node, pod: Pod, lock: NodeLock) -> None:
    for args, expected in (({}, None), ({"nodeLocks": True}, lock)):
        cluster = Cluster(node, **args)
        cluster.pods[pod.name] = pod
        effects = cluster.handle(happened.PodAdded(pod))
        assert [one.lock for one in effects if isinstance(one, to_do.Bind)] == [expected]


def test_types_ids_and_groups() -> None:
    nodes = volcano_node("n1", ("GPU-0", 16000), ("GPU-1", 16000))
    cluster = Cluster(nodes)
    pods = [
        with_notes(vgpu_pod("a", 1, 1), {"nvidia.com/use-gputype": "v100"}),
        with_notes(vgpu_pod("b", 1, 1), {"nvidia.com/use-gputype": "V100,a100"}),
        with_notes(vgpu_pod("c", 1, 1), {"nvidia.com/nouse-gputype": "A100"}),
        with_notes(vgpu_pod("d", 1, 1), {"volcano.sh/vgpu-use-gpuuuid": "GPU-1"}),
        with_notes(vgpu_pod("e", 1, 1), {"volcano.sh/vgpu-nouse-gpuuuid": "GPU-1"}),
    ]
    assert cluster.place(*pods) == ["", "n1", "", "n1", "n1"]
    assert cluster.cards("d") == ["GPU-1"]
    assert cluster.cards("e") == ["GPU-0"]
    assert "too few GPUs that the pod accepts" in cluster.reasons["a"]
    group = {"volcano.sh/vgpu-podgroup-policy": "spread", "scheduling.volcano.sh/group-name": "g"}
    members = [with_notes(vgpu_pod(name, 1, 1), group) for name in ("m1", "m2", "m3")]
    assert cluster.place(*members) == ["n1", "n1", ""]
    assert cluster.cards("m1") != cluster.cards("m2")


# What is wrong, and what cannot be known.


@pytest.mark.parametrize(
    ("annotation", "text", "reason"),
    [
        ("volcano.sh/node-vgpu-register", "G,ten,9,A,true,hami-core:", "has an invalid entry"),
        ("volcano.sh/node-vgpu-register", "GPU-0,10:", "has an invalid entry"),
        ("volcano.sh/node-vgpu-register", "G,5,1,A,true,hami-core:" * 2, "twice"),
        ("volcano.sh/node-vgpu-register", "G,5,9,A,true,hami-core:", "has 5 slices, allocatable"),
        ("volcano.sh/node-vgpu-register", "GPU-0,10,16000,A100,true,mig:", "has MIG devices"),
        ("hami.io/node-nvidia-register", "[", "not valid JSON"),
        ("hami.io/node-nvidia-register", '[{"id": 3}]', "has an invalid entry"),
        ("hami.io/node-nvidia-register", '[{"id": "a", "count": "1"}]', "has an invalid entry"),
        ("hami.io/node-nvidia-register", "[" * 100_000, "not valid JSON"),
        ("hami.io/node-nvidia-register", "GPU-0,10,16000", "has an invalid entry"),
    ],
)  # fmt: skip
def test_registrations_that_make_no_sense(annotation: str, text: str, reason: str) -> None:
    is_volcano = annotation.startswith("volcano")
    made = volcano_node("n", ("GPU-0", 16000)) if is_volcano else hami_node("n", ("GPU-0", 16000))
    broken = with_notes(made, {annotation: text})
    found = (volcano_vgpu if is_volcano else hami).report(broken)
    assert found is not None
    assert reason in found.problem
    cluster = Cluster(broken)
    asks = vgpu_pod("a", 1, 1) if is_volcano else gpu_pod("a", {hami.NUMBER: 1, hami.MEMORY: 1})
    assert cluster.place(asks, pod("b")) == ["", "n"]
    assert "node(s) had an invalid registration of GPUs" in cluster.reasons["a"]


@pytest.mark.parametrize(
    ("notes", "limits", "reason"),
    [
        ({"gpu-fraction": "1.5"}, {}, "wanted more than 0 and less than 1"),
        ({"gpu-fraction": "0"}, {}, "wanted more than 0 and less than 1"),
        ({"gpu-fraction": "0.5", "gpu-memory": "3"}, {}, "exclude each other"),
        ({"gpu-fraction": "0.5"}, {"nvidia.com/gpu": 1}, "exclude nvidia.com/gpu"),
        ({"gpu-memory": "-3"}, {}, "a whole number of at least 1"),
        ({"gpu-fraction": ".5", "gpu-fraction-num-devices": "x"}, {}, "gpu-fraction-num-devices"),
        (
            {"gpu-fraction": ".5", "gpu-fraction-container-name": "x"},
            {},
            "no container has the name",
        ),
        ({}, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"}, "wanted a whole number"),
        ({}, {"volcano.sh/vgpu-number": "1500m"}, "wanted a whole number"),
        ({"gpu-fraction": "0.5"}, {"volcano.sh/vgpu-number": 1}, "Volcano vGPU and by KAI"),
        ({"alibabacloud.com/gpu-milli": "5"}, {"volcano.sh/vgpu-number": 1}, "one is allowed"),
    ],
)
def test_requests_that_make_no_sense(
    notes: dict[str, str], limits: dict[str, object], reason: str
) -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000)), conventions=["volcano", "hami", "kai"])
    assert cluster.place(gpu_pod("a", limits, notes)) == [""]
    assert reason in cluster.reasons["a"]


def test_an_unknown_convention() -> None:
    with pytest.raises(ConfigError, match=r"conventions\[0\].*'run.ai'.*volcano, hami"):
        Cluster(conventions=["run.ai"])


@pytest.mark.parametrize("register", [volcano_vgpu.REGISTER, hami.REGISTER])
def test_cards_that_are_registered_and_counted_by_milli_are_not_given(register: str) -> None:
    is_volcano = register == volcano_vgpu.REGISTER
    made = volcano_node("n", ("GPU-0", 16000)) if is_volcano else hami_node("n", ("GPU-0", 16000))
    offered = {**made.status.allocatable, "alibabacloud.com/gpu-count": "1"}
    mixed = replace(made, status=replace(made.status, allocatable=offered))
    cluster = Cluster(mixed)
    by_milli = {"alibabacloud.com/gpu-milli": "500", "alibabacloud.com/gpu-count": "1"}
    part = vgpu_pod("a", 1, 1) if is_volcano else gpu_pod("a", {hami.NUMBER: 1, hami.MEMORY: 1})
    assert cluster.place(part, with_notes(pod("b"), by_milli), pod("c")) == ["", "", "n"]
    for name in "ab":
        assert "had the same GPUs registered by several conventions" in cluster.reasons[name]
    # With one of the two it is clear what counts.
    cluster.handle(happened.NodeUpdated(made))
    assert cluster.nodes["a"] == "n"


def test_slices_beside_whole_devices_of_another_plugin_are_not_given() -> None:
    made = volcano_node("n", ("GPU-0", 16000))
    offered = {**made.status.allocatable, "nvidia.com/gpu": "1"}
    cluster = Cluster(replace(made, status=replace(made.status, allocatable=offered)))
    assert cluster.place(vgpu_pod("a", 1, 1)) == [""]
    assert "invalid registration of GPUs" in cluster.reasons["a"]


def test_the_same_cards_registered_twice_are_not_given() -> None:
    both = volcano_node("n", ("GPU-0", 16000))
    notes = {**both.metadata.annotations, **hami_node("n", ("GPU-0", 16000)).metadata.annotations}
    cluster = Cluster(with_notes(both, notes))
    assert cluster.place(vgpu_pod("a", 1, 1)) == [""]
    assert "registered by several conventions" in cluster.reasons["a"]


def test_counted_gpus_stay_with_the_kubelet() -> None:
    plain = node("n1", cpu="8", resources={"nvidia.com/gpu": "2"})
    sliced = node(
        "n2",
        cpu="8",
        resources={"nvidia.com/gpu": "8"},
        labels={"nvidia.com/gpu.sharing-strategy": "mps"},
    )
    cluster = Cluster(plain)
    assert cluster.place(gpu_pod("a", {"nvidia.com/gpu": 1})) == ["n1"]
    assert not cluster.notes["a"]
    # They are counted as any resource.
    assert cluster.place(gpu_pod("many", {"nvidia.com/gpu": 2})) == [""]
    assert "Insufficient nvidia.com/gpu" in cluster.reasons["many"]
    # A part of a card needs to know the card.
    assert cluster.place(gpu_pod("b", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10})) == [""]
    assert "no GPUs of the convention" in cluster.reasons["b"]
    report = kai_fractions.report(sliced)
    assert report is not None
    assert "cards are not known" in report.problem


def test_cards_that_vanish_and_cordoned_ones() -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000), ("GPU-1", 16000)))
    assert cluster.place(vgpu_pod("a", 1, 9000)) == ["n"]
    cluster.handle(happened.NodeUpdated(volcano_node("n", ("GPU-1", 16000))))
    assert cluster.place(vgpu_pod("b", 1, 9000), vgpu_pod("c", 1, 9000)) == ["n", ""]
    assert cluster.cards("b") == ["GPU-1"]
    # The card is back, and the pod is still on it.
    cluster.handle(happened.NodeUpdated(volcano_node("n", ("GPU-0", 16000), ("GPU-1", 16000))))
    assert cluster.place(vgpu_pod("d", 1, 9000)) == [""]
    made = hami_node("n", ("GPU-0", 16000))
    cordoned = with_notes(made, {**made.metadata.annotations, "hami.io/device-cordon": " GPU-0 "})
    assert Cluster(cordoned).place(gpu_pod("a", {hami.NUMBER: 1})) == [""]


# Bookkeeping.


def test_a_refused_binding_gives_the_devices_back() -> None:
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000)))
    now = 1000 * 10**9
    effects = cluster.scheduler.handle([happened.PodAdded(vgpu_pod("a", 1, 16000))], now)
    (effect,) = [one for one in effects if isinstance(one, to_do.Bind)]
    cluster.scheduler.handle([happened.BindFailed(effect.effect, effect.uid, 403)], now)
    assert cluster.place(vgpu_pod("c", 1, 16000)) == ["n"]


PARTS = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from([1, 3000, 5000, 8000, 16000]),
        st.sampled_from([0, 0, 30, 50, 100]),
    ),
    min_size=1,
    max_size=9,
)  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(PARTS, st.booleans(), st.data())
def test_no_card_is_over_its_amounts_and_a_restart_finds_the_same(
    parts: list[tuple[int, int, int]], is_hami: bool, data: st.DataObject
) -> None:
    cards = (("GPU-0", 16000), ("GPU-1", 10000))
    make = hami_node if is_hami else volcano_node
    nodes = [make(name, *[(f"{name}-{card}", mib) for card, mib in cards]) for name in ("n1", "n2")]
    sizes = {f"{name}-{card}": mib for name in ("n1", "n2") for card, mib in cards}
    names = (hami.NUMBER, hami.MEMORY, hami.CORES)
    if not is_hami:
        names = (volcano_vgpu.NUMBER, volcano_vgpu.MEMORY, volcano_vgpu.CORES)
    policy = data.draw(st.sampled_from(["BestFit", "GpuPacking", "DotProd"]))
    cluster = Cluster(*nodes, policy=policy)
    for index, part in enumerate(parts):
        cluster.place(gpu_pod(f"p{index}", dict(zip(names, part, strict=True))))
        if cluster.nodes and data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(cluster.nodes)))
            del cluster.nodes[gone], cluster.notes[gone]
            cluster.handle(happened.PodDeleted(cluster.pods.pop(gone)))
    memory: dict[str, int] = {}
    cores: dict[str, int] = {}
    for name in cluster.nodes:
        for container in _given(cluster, name):
            for share in container:
                memory[share.id] = memory.get(share.id, 0) + share.memory
                cores[share.id] = cores.get(share.id, 0) + share.cores
    assert all(used <= sizes[card] for card, used in memory.items())
    assert all(used <= 100 for used in cores.values())
    # A new scheduler that reads the bound pods decides the next one as this one does.
    again = Cluster(*nodes, policy=policy)
    bound = [cluster.pods[name] for name in cluster.nodes]
    again.handle(*map(happened.PodAdded, bound))
    last = gpu_pod("last", dict(zip(names, data.draw(PARTS)[0], strict=True)))
    assert again.place(last) == cluster.place(last)
    if again.nodes.get("last"):
        assert _given(again, "last") == _given(cluster, "last")


def _given(cluster: Cluster, name: str) -> tuple[tuple[DeviceShare, ...], ...]:
    text = cluster.notes[name].get(volcano_vgpu.IDS) or cluster.notes[name].get(hami.ALLOCATED, "")
    found = parse_shares(text)
    assert found is not None
    return found


def test_shares_that_are_not_counted_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: without what pods have, cards are over their amounts."""
    monkeypatch.setattr(NodeDevices, "add", lambda self, shares, group="", tenant="": None)
    cluster = Cluster(volcano_node("n", ("GPU-0", 16000)))
    assert cluster.place(vgpu_pod("a", 1, 9000), vgpu_pod("b", 1, 9000)) == ["n", "n"]
    assert sum(share.memory for name in "ab" for (share,) in _given(cluster, name)) > 16000


# Links between devices.


def linked_node(scores: dict[tuple[int, int], int], n_cards: int) -> Node:
    made = hami_node("n", *[(f"G{i}", 1000) for i in range(n_cards)])
    entries = [
        {"uuid": f"G{one}", "score": {f"G{other}": scores[one, other]}} for one, other in scores
    ]
    notes = {**made.metadata.annotations, hami.LINKS: json.dumps(entries)}
    return with_notes(made, notes)  # type: ignore[no-any-return]


def test_several_whole_cards_are_the_closest_ones() -> None:
    # Two NVLink pairs, 0-2 and 1-3.
    pairs = {(i, j): 100 if j == i + 2 else 10 for i in range(4) for j in range(i + 1, 4)}
    cluster = Cluster(linked_node(pairs, 4))
    assert (
        cluster.place(gpu_pod("a", {hami.NUMBER: 2}), gpu_pod("b", {hami.NUMBER: 2})) == ["n"] * 2
    )
    assert [cluster.cards("a"), cluster.cards("b")] == [["G0", "G2"], ["G1", "G3"]]


# The device plugins' matching.


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from([1000, 2000, 3000])), min_size=2, max_size=4
    )
)
def test_device_plugins_find_the_cards_that_were_decided(parts: list[tuple[int, int]]) -> None:
    """Pods that are bound at once, and started by the kubelet in the order of their bindings."""
    cards = [(f"GPU-{i}", 16000) for i in range(3)]
    cluster = Cluster(volcano_node("n", *cards))
    pods = [vgpu_pod(f"p{i}", number, memory) for i, (number, memory) in enumerate(parts)]
    assert cluster.place(*pods) == ["n"] * len(pods)
    times = [cluster.notes[one.name][volcano_vgpu.TIME] for one in pods]
    assert len(set(times)) == len(times)
    plugin = VolcanoDevicePlugin("n", cluster.notes)
    for one, (number, _) in zip(pods, parts, strict=True):
        name, devices = plugin.allocate(number)
        assert name == one.name
        assert [card for card, _, _ in devices] == cluster.cards(name)


def test_hamis_device_plugin() -> None:
    cluster = Cluster(hami_node("n", ("GPU-0", 16000), ("GPU-1", 16000)))
    for name in "ab":
        assert cluster.place(gpu_pod(name, {hami.NUMBER: 1, hami.MEMORY: 9000})) == ["n"]
        plugin = HamiDevicePlugin("n", {name: cluster.notes[name]})
        assert plugin.allocate(1) == (name, [(cluster.cards(name)[0], 9000, 0)])
    assert cluster.cards("a") != cluster.cards("b")


def test_times_of_one_node_differ() -> None:
    times = BindingTimes()

    def at(node: str, wall_ns: int) -> dict[str, str]:
        effect = to_do.Bind(1, 1, "u", "d", "p", node, {"k": "v"}, {"t": "s", "n": "ns"})
        return times.annotations(effect, wall_ns)

    assert at("a", 5_000_000_007) == {"k": "v", "t": "5", "n": "5000000007"}
    assert at("a", 5_900_000_000)["t"] == "6"
    assert at("b", 5_900_000_000)["t"] == "5"
    assert at("a", 9_000_000_000)["t"] == "9"
