"""NUMA zones of nodes in KAI-Scheduler's model, outside recorded cases: from NodeResourceTopology
objects, in bind requests and annotations, and from one session to the next."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory
from stowplan.batch.queue_models.kai.model.node_zones import is_guaranteed_by_spec
from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARDS,
    CPU,
    MEMORY,
    ResourceIndex,
)
from stowplan.batch.queue_models.kai.state.numa_zones import (
    NumaPolicy,
    NumaScope,
    ZoneRules,
)
from stowplan.batch.queue_models.kai.zone_reports import policy_and_scope, zones_of_object
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.framework.deciders.session_decider import NodeAssignment, SessionResult
from stowplan.objects.kai.bind_request import (
    KaiBindRequest,
    KaiBindRequestSpec,
    bind_request_tree,
    placed_as_requested,
)
from stowplan.objects.kai.node_topology import NodeResourceTopology
from stowplan.objects.kai.zone_placement import (
    OBSERVED_ANNOTATION,
    PREDICTED_ANNOTATION,
    KaiZonePlacement,
    decimal_text,
    read_zones,
    zones_text,
)
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Container, Pod, ResourceRequirements
from stowplan.objects.quantity import milli_value
from tests.batch.queue_models.test_kai_state import FollowedCluster, _pod

NIC, GPU = "example.com/nic", "nvidia.com/gpu"
Tree = dict[str, Any]


def report(
    node: str, *zones: Mapping[str, Any], policy: str = "single-numa-node", scope: str = "pod"
) -> NodeResourceTopology:
    """A node's object. zones: resource -> what the zone has of it; all of it is available."""
    tree = {
        "metadata": {"name": node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [
            {
                "name": f"node-{i}",
                "type": "Node",
                "costs": [{"name": f"node-{i}", "value": 10}],
                "resources": [
                    {"name": name, "capacity": q, "allocatable": q, "available": q}
                    for name, q in zone.items()
                ],
            }
            for i, zone in enumerate(zones)
        ],
    }
    return msgspec.convert(tree, NodeResourceTopology)


# Objects.


@pytest.mark.parametrize(
    ("policies", "attributes", "expected"),
    [
        ((), {}, (NumaPolicy.NONE, NumaScope.CONTAINER)),
        (("SingleNUMANodePodLevel",), {}, (NumaPolicy.SINGLE_NUMA_NODE, NumaScope.POD)),
        (("Restricted",), {}, (NumaPolicy.RESTRICTED, NumaScope.CONTAINER)),
        (("BestEffortPodLevel", "Restricted"), {}, (NumaPolicy.BEST_EFFORT, NumaScope.POD)),
        (("unknown",), {}, (NumaPolicy.NONE, NumaScope.CONTAINER)),
        # Attributes have replaced them.
        (
            ("SingleNUMANodePodLevel",),
            {"topologyManagerPolicy": "restricted"},
            (NumaPolicy.RESTRICTED, NumaScope.CONTAINER),
        ),
        (
            ("SingleNUMANodePodLevel",),
            {"topologyManagerScope": "container"},
            (NumaPolicy.SINGLE_NUMA_NODE, NumaScope.POD),
        ),
        (
            (),
            {"topologyManagerPolicy": "best-effort"},
            (NumaPolicy.BEST_EFFORT, NumaScope.CONTAINER),
        ),
        (
            (),
            {"topologyManagerPolicy": "none", "topologyManagerScope": "pod"},
            (NumaPolicy.NONE, NumaScope.POD),
        ),
    ],
)
def test_policy_and_scope_are_read_as_kai_reads_them(
    policies: Sequence[str], attributes: Mapping[str, str], expected: object
) -> None:
    tree = {
        "metadata": {"name": "n"},
        "topologyPolicies": [*policies],
        "attributes": [{"name": name, "value": text} for name, text in attributes.items()],
    }
    assert policy_and_scope(msgspec.convert(tree, NodeResourceTopology)) == expected


def test_zones_that_are_no_numa_nodes_do_not_count() -> None:
    index = ResourceIndex([NIC])
    found = report("n", {"cpu": "4"}, {"cpu": "4", NIC: "1", "unheard.of/it": "1"})
    socket = replace(found.zones[0], name="socket-0", type="Socket")
    zones = zones_of_object(replace(found, zones=(socket, *found.zones)), index, ZoneRules())
    assert zones is not None
    assert [zone.id for zone in zones.zones] == ["node-0", "node-1"]
    assert [zone.allocatable[CPU] for zone in zones.zones] == [4000, 4000]
    assert zones.aware == {CPU: "cpu", index.place_of(NIC): NIC}
    assert zones_of_object(replace(found, zones=(socket,)), index, ZoneRules()) is None


def test_an_object_that_cannot_be_read_counts_as_none() -> None:
    assert zones_of_object(report("n", {"cpu": "four"}), ResourceIndex(()), ZoneRules()) is None


def test_resources_that_the_kubelet_does_not_align_are_left_out() -> None:
    index = ResourceIndex([NIC])
    found = report("n", {"cpu": "4", "memory": "8Gi", NIC: "1"})
    zones = zones_of_object(found, index, ZoneRules(frozenset({"memory", NIC, "unheard.of/it"})))
    assert zones is not None
    assert zones.aware == {CPU: "cpu"}


# Records.


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (3, "3"), (4000, "4k"), (17179869184, "17179869184"), (8_000_000_000, "8G")],
)
def test_amounts_are_written_as_quantities_of_decimal_format(amount: int, text: str) -> None:
    assert decimal_text(amount) == text


def test_a_placement_is_recorded_by_zone_and_resource() -> None:
    index = ResourceIndex([NIC])
    rich = {"cpu": "8", "memory": "16Gi", GPU: "4", NIC: "2"}
    zones = zones_of_object(report("n", rich, rich), index, ZoneRules())
    assert zones is not None
    amount = index.read({"cpu": "1500m", "memory": "1Gi", GPU: "2", NIC: "1"})
    record = zones.record(((1, tuple(amount)),), index)
    assert zones_text(record) == (
        '[{"zone":"node-1","amount":'
        '{"cpu":"1500m","example.com/nic":"1","memory":"1073741824","nvidia.com/gpu":"2"}}]'
    )
    pod = _pod("p", 0, 1, **{PREDICTED_ANNOTATION: zones_text(record)})
    assert zones.read_placement(pod, index) == ((1, tuple(amount)),)
    assert (amount[CPU], amount[MEMORY], amount[CARDS]) == (1500, 2**30, 2)


def zone(number: int, cpu: str) -> KaiZonePlacement:
    return KaiZonePlacement(f"node-{number}", {"cpu": cpu})


def test_the_observed_zones_count_before_those_of_the_request_and_the_predicted_ones() -> None:
    index = ResourceIndex(())
    zones = zones_of_object(report("n0", *[{"cpu": "8"}] * 3), index, ZoneRules())
    assert zones is not None
    spec = KaiBindRequestSpec("p", "n0", "Regular", predicted_numa_zones=(zone(1, "2"),))
    request = KaiBindRequest(ObjectMeta(name="p", namespace="ns"), spec=spec)
    notes = {
        OBSERVED_ANNOTATION: zones_text([zone(0, "2")]),
        PREDICTED_ANNOTATION: zones_text([zone(2, "2")]),
    }

    def chosen(pod: Pod) -> list[int]:
        return [number for number, _ in zones.read_placement(pod, index)]

    pod = _pod("p", 0, 1, **notes)
    assert chosen(placed_as_requested(pod, request)) == [0]
    # What cannot be read counts as none,
    for text in ("", "[]", "{", '[{"zone":"node-0","amount":{"cpu":"x"}}]'):
        pod = _pod("p", 0, 1, **{**notes, OBSERVED_ANNOTATION: text})
        assert chosen(placed_as_requested(pod, request)) == [1]
        assert chosen(pod) == [2]
    # and a zone that the node does not have makes the record unknown.
    pod = _pod("p", 0, 1, **{**notes, OBSERVED_ANNOTATION: zones_text([zone(7, "2")])})
    assert chosen(placed_as_requested(pod, request)) == []


def test_a_request_has_the_zones_as_the_api_has_them() -> None:
    spec = KaiBindRequestSpec("p", "n0", "Regular", predicted_numa_zones=(zone(1, "2"),))
    tree = bind_request_tree(spec, "ns", "uid")
    expected = [{"zone": "node-1", "amount": {"cpu": "2"}}]
    assert tree["spec"]["predictedNUMAZones"] == expected
    assert msgspec.convert(tree, KaiBindRequest).spec == spec
    assert (
        "predictedNUMAZones"
        not in bind_request_tree(KaiBindRequestSpec("p", "n0"), "ns", "uid")["spec"]
    )


def sized(name: str, cpu: str, limit: str | None, memory: str = "1Gi") -> Pod:
    """A pod with a container of which limit is the limit of cpu, "" for none at all."""
    pod = _pod(name, 0, 1)
    requests = {"cpu": cpu, "memory": memory}
    limits = {} if limit == "" else {"cpu": limit or cpu, "memory": memory}
    container = Container(name="c", resources=ResourceRequirements(requests, limits))
    return replace(pod, spec=replace(pod.spec, containers=(container,)))


def test_pods_of_files_have_their_qos_class_by_their_spec() -> None:
    assert is_guaranteed_by_spec(sized("p", "2", "2000m"))
    assert not is_guaranteed_by_spec(sized("p", "2", "3"))
    assert not is_guaranteed_by_spec(sized("p", "2", ""))
    assert not is_guaranteed_by_spec(sized("p", "0", "0"))
    assert not is_guaranteed_by_spec(sized("p", "two", "two"))
    both = sized("p", "2", None)
    beside = replace(both.spec, init_containers=sized("q", "1", "2").spec.containers)
    assert not is_guaranteed_by_spec(replace(both, spec=beside))
    level = ResourceRequirements({"cpu": "4", "memory": "4Gi"}, {"cpu": "4", "memory": "4Gi"})
    assert is_guaranteed_by_spec(replace(both, spec=replace(beside, resources=level)))


# Sessions.

CONFIG = """
scheduler: kai
tiers:
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: nodeavailability}
  - {name: nodeplacement, arguments: {cpu: binpack, gpu: binpack}}
  - {name: numa, arguments: {%s}}
"""


class ZonedCluster(FollowedCluster):
    """The same with zones, and KAI's binder. arguments: of the plugin; None: it is off."""

    def __init__(self, n_nodes: int, arguments: str | None = "") -> None:
        self.text = "scheduler: kai" if arguments is None else CONFIG % arguments
        super().__init__([8] * n_nodes, {"red": (100, -1)})

    def follower(self) -> ModelDecider:
        decider = deciders_of([ConfigText(self.text, "kai")]).session_decider()
        assert isinstance(decider, ModelDecider)
        decider.attach(decider.framework.shared, self._snapshot)
        for one in self.objects:
            decider.object_updated(one)
        for pod in self.pods.values():
            decider.pod_updated(pod)
        return decider

    def bound(self) -> dict[str, list[str]]:
        """Run a session and carry it out as KAI's binder does; zones by pod."""
        result = self.session(self.kept)
        self.carry_out(result)
        return {place.pod.name: _zones(place) for place in result.binds}

    def carry_out(self, result: SessionResult) -> None:
        super().carry_out(result)
        for place in result.binds:
            pod = self.pods[place.pod.uid]
            notes = {} if place.request is None else place.request.predicted_annotation
            meta = replace(pod.metadata, annotations={**pod.metadata.annotations, **notes})
            self.show(replace(pod, metadata=meta))


def _zones(place: NodeAssignment) -> list[str]:
    request = place.request
    return [] if request is None else [one.zone for one in request.predicted_numa_zones]


def test_placements_book_zones_and_requests_carry_them() -> None:
    cluster = ZonedCluster(1)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "4"}))
    for number in range(3):
        cluster.show(sized(f"p{number}", "3", None))
    result = cluster.session(cluster.kept)
    made = {place.pod.name: place.request for place in result.binds}
    assert [*made] == ["p0", "p1"]
    assert made["p0"] is not None
    assert made["p0"] == KaiBindRequestSpec(
        "p0", "n0", "Regular",
        received_gpu=made["p0"].received_gpu,
        predicted_numa_zones=(zone(0, "3"),),
    )  # fmt: skip
    assert made["p1"] is not None
    assert made["p1"].predicted_numa_zones == (zone(1, "3"),)
    # Until the watch shows what the binder wrote, what was decided counts.
    assert not cluster.session(cluster.kept).binds
    cluster.carry_out(result)
    assert json.loads(cluster.pods["p1"].metadata.annotations[PREDICTED_ANNOTATION]) == [
        {"zone": "node-1", "amount": {"cpu": "3"}}
    ]
    assert not cluster.bound()
    # A process that begins now reads the same from the pods.
    assert not cluster.session(cluster.follower()).binds
    cluster.delete("p1")
    assert cluster.bound() == {"p2": ["node-1"]}


def test_without_the_plugin_zones_do_not_count() -> None:
    cluster = ZonedCluster(1, None)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "4"}))
    cluster.show(sized("wide", "6", None))
    assert cluster.bound() == {"wide": []}
    assert NodeResourceTopology not in cluster.kept.model.reads


def test_a_pod_that_fits_a_node_and_no_zone_has_that_reason() -> None:
    cluster = ZonedCluster(2)
    for number in range(2):
        cluster.add(report(f"n{number}", {"cpu": "4"}, {"cpu": "4"}))
    cluster.show(sized("wide", "6", None))
    result = cluster.session(cluster.kept)
    assert not result.binds
    (why,) = result.pods
    assert why.message == (
        "0/2 nodes fit this pod: 2 node(s) cannot NUMA-align the pod's resources under their "
        "Topology Manager policy"
    )
    # A report that changes counts, and so does one that is gone.
    cluster.kept.object_updated(report("n1", {"cpu": "4"}, {"cpu": "8"}))
    assert cluster.bound() == {"wide": ["node-1"]}
    cluster.show(sized("wider", "12", None))
    assert not cluster.bound()
    cluster.kept.object_deleted(report("n0"))
    assert cluster.bound() == {"wider": []}


def test_best_effort_rejects_no_pod() -> None:
    cluster = ZonedCluster(1)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "4"}, policy="best-effort"))
    cluster.show(sized("wide", "6", None))
    assert cluster.bound() == {"wide": ["node-0", "node-1"]}
    # Zones do not hold it, so none are recorded.
    cluster.show(sized("wider", "7", None))
    assert cluster.bound() == {"wider": []}


def test_observed_zones_are_followed() -> None:
    cluster = ZonedCluster(1)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "8"}))
    cluster.show(sized("first", "4", None))
    assert cluster.bound() == {"first": ["node-0"]}
    # The kubelet has put it elsewhere.
    pod = cluster.pods["first"]
    notes = {**pod.metadata.annotations, OBSERVED_ANNOTATION: zones_text([zone(1, "4")])}
    cluster.show(replace(pod, metadata=replace(pod.metadata, annotations=notes)))
    cluster.show(sized("second", "4", None))
    cluster.show(sized("third", "8", None))
    assert cluster.bound() == {"second": ["node-0"]}


def test_requests_of_another_scheduler_take_zones() -> None:
    cluster = ZonedCluster(1)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "4"}))
    spec = KaiBindRequestSpec("first", "n0", "Regular", predicted_numa_zones=(zone(0, "4"),))
    cluster.add(KaiBindRequest(ObjectMeta(name="first", namespace="ns", uid="r"), spec=spec))
    cluster.show(sized("first", "4", None))
    cluster.show(sized("second", "4", None))
    assert cluster.bound() == {"second": ["node-1"]}


def test_reported_amounts_count_where_available_is_not_reconstructed() -> None:
    for text, expected in (("reconstructAvailable: 'false'", {}), ("", {"p": ["node-0"]})):
        cluster = ZonedCluster(1, text)
        found = report("n0", {"cpu": "4"})
        (own,) = found.zones[0].resources
        zones = (replace(found.zones[0], resources=(replace(own, available="1"),)),)
        cluster.add(replace(found, zones=zones))
        cluster.show(sized("p", "3", None))
        assert cluster.bound() == expected


def test_ignored_resources_do_not_count() -> None:
    for text, fits in (("ignoreList: 'memory, hugepages-2Mi'", True), ("", False)):
        cluster = ZonedCluster(1, text)
        cluster.add(report("n0", {"cpu": "4", "memory": "1Gi"}))
        cluster.show(sized("p", "3", None, memory="2Gi"))
        assert bool(cluster.bound()) == fits


def test_nodes_with_fewer_zones_for_a_pod_are_preferred() -> None:
    cluster = ZonedCluster(2)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "4"}, policy="best-effort"))
    cluster.add(report("n1", {"cpu": "8"}, {"cpu": "8"}, policy="best-effort"))
    cluster.show(sized("p", "6", None))
    assert cluster.bound() == {"p": ["node-0"]}
    assert cluster.pods["p"].node_name == "n1"


def test_to_turn_the_plugin_on_takes_a_restart() -> None:
    cluster = ZonedCluster(1, None)
    problem = cluster.kept.reload(CONFIG % "", "kai.yaml")
    assert problem == "kai.yaml: NodeResourceTopology cannot be read before a restart"
    cluster = ZonedCluster(1)
    cluster.add(report("n0", {"cpu": "4"}, {"cpu": "4"}))
    cluster.show(sized("wide", "6", None))
    assert not cluster.bound()
    assert not cluster.kept.reload("scheduler: kai", "kai.yaml")
    assert cluster.bound() == {"wide": []}


# Zones are never overbooked.

POLICIES = ("single-numa-node", "restricted", "best-effort")
N_ROUNDS = 12


def overbooked(cluster: ZonedCluster, reports: Mapping[str, NodeResourceTopology]) -> Iterator[str]:
    """Zones of which pods have more than there is, by what is recorded of the pods."""
    used: dict[tuple[str, str, str], int] = defaultdict(int)
    for pod in cluster.pods.values():
        for one in read_zones(pod.metadata.annotations.get(PREDICTED_ANNOTATION, "")):
            for name, amount in one.amount.items():
                used[pod.node_name, one.zone, name] += milli_value(amount)
    for (node, name, resource), amount in used.items():
        (own,) = (one for one in reports[node].zones if one.name == name)
        (given,) = (one for one in own.resources if one.name == resource)
        if amount > milli_value(given.allocatable):
            yield f"{node} {name} {resource}"


def run_sessions(seed: int) -> int:
    """Random pods that come and go; what they have is compared after each session. The number of
    placements in zones."""
    rng = random.Random(seed)
    cluster = ZonedCluster(2)
    reports = {}
    for name in ("n0", "n1"):
        size = [{"cpu": rng.randint(2, 6), "memory": "8Gi", GPU: 2} for _ in range(2)]
        reports[name] = report(
            name, *size, policy=rng.choice(POLICIES), scope=rng.choice(("pod", "container"))
        )
        cluster.add(reports[name])
    n_placed = 0
    for round_ in range(N_ROUNDS):
        for number in range(rng.randint(1, 3)):
            pod = sized(f"p{round_}-{number}", str(rng.randint(1, 5)), None)
            if rng.random() < 0.3:
                (own,) = pod.spec.containers
                asked = {**own.resources.requests, GPU: rng.randint(1, 2)}
                limits = own.resources.limits if rng.random() < 0.5 else {}
                own = replace(own, resources=ResourceRequirements(asked, limits))
                pod = replace(pod, spec=replace(pod.spec, containers=(own,) * rng.randint(1, 2)))
            cluster.show(pod)
        placed = [uid for uid, pod in cluster.pods.items() if pod.node_name]
        for uid in rng.sample(placed, min(len(placed), rng.randint(0, 2))):
            cluster.delete(uid)
        # What is decided counts in the next session, too, before the watch shows it.
        results = [cluster.session(cluster.kept) for _ in range(rng.randint(1, 2))]
        for result in results:
            n_placed += sum(bool(_zones(place)) for place in result.binds)
            cluster.carry_out(result)
        assert [*overbooked(cluster, reports)] == []
    return n_placed


@pytest.mark.parametrize("seed", range(12))
def test_zones_are_never_overbooked(seed: int) -> None:
    assert run_sessions(seed) > 5


def test_a_model_that_forgets_the_zones_it_gave_overbooks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KaiMemory, "_note_zones", lambda *_: None)

    def run_all() -> None:
        for seed in range(12):
            run_sessions(seed)

    with pytest.raises(AssertionError):
        run_all()
