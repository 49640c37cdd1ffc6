"""NUMA zones: where the kubelet's Topology Manager would put a pod, by policy and scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from stowplan.batch.queue_models.kai.state.kai_amount import CPU, MEMORY, ResourceIndex
from stowplan.batch.queue_models.kai.state.numa_zones import (
    NumaPolicy,
    NumaScope,
    NumaTopology,
    NumaZone,
    Placement,
    numa_requests,
)
from stowplan.objects.pod import Pod

NIC = "example.com/nic"
INDEX = ResourceIndex([NIC])
AWARE = {CPU: "cpu", MEMORY: "memory", INDEX.place_of(NIC): NIC}


def zones(*cpus: int, nics: Sequence[int] = ()) -> list[NumaZone]:
    """Zones with so many CPUs, and devices."""
    made = []
    for i, cpu in enumerate(cpus):
        amount = INDEX.empty()
        amount[CPU], amount[MEMORY] = cpu * 1000.0, 1e12
        amount[INDEX.place_of(NIC)] = float(nics[i]) * 1000 if nics else 0.0
        made.append(NumaZone(f"node-{i}", list(amount), list(amount)))
    return made


def pod(*requests: Mapping[str, str], init: Sequence[Mapping[str, str]] = (), qos: str = "") -> Pod:
    def containers(all_requests: Sequence[Mapping[str, str]]) -> list[dict[str, object]]:
        return [
            {"name": f"c{i}", "resources": {"requests": dict(one)}}
            for i, one in enumerate(all_requests)
        ]

    spec = {"containers": containers(requests), "initContainers": containers(init)}
    status = {"qosClass": qos or "Guaranteed"}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)


def placed(placement: Placement | None) -> dict[int, float] | None:
    """CPUs by zone."""
    return None if placement is None else {zone: amount[CPU] / 1000 for zone, amount in placement}


SINGLE, RESTRICTED, BEST = (
    NumaPolicy.SINGLE_NUMA_NODE,
    NumaPolicy.RESTRICTED,
    NumaPolicy.BEST_EFFORT,
)


@pytest.mark.parametrize(
    ("policy", "cpus", "request_cpu", "expected"),
    [
        (SINGLE, (4, 4), "3", {0: 3}),
        (SINGLE, (2, 4), "3", {1: 3}),
        (SINGLE, (4, 4), "6", None),
        (RESTRICTED, (4, 4), "6", {0: 4, 1: 2}),
        (RESTRICTED, (4, 4, 4), "8", {0: 4, 1: 4}),
        (RESTRICTED, (4, 4), "9", None),
        (BEST, (2, 4), "5", {1: 4, 0: 1}),
        (BEST, (2, 4), "7", None),
        # A part of a CPU comes from the shared pool of the node, whatever the zones have.
        (SINGLE, (1, 1), "1500m", {}),
    ],
)
def test_the_zones_of_a_pod(
    policy: NumaPolicy, cpus: tuple[int, ...], request_cpu: str, expected: dict[int, float] | None
) -> None:
    topology = NumaTopology(policy, NumaScope.POD, zones(*cpus), AWARE)
    assert placed(topology.place(numa_requests(pod({"cpu": request_cpu}), INDEX))) == expected


def test_restricted_zones_are_as_few_as_the_node_could_give() -> None:
    topology = NumaTopology(RESTRICTED, NumaScope.POD, zones(4, 4), AWARE)
    topology.charge(((0, (3000.0, *INDEX.empty()[1:])), (1, (3000.0, *INDEX.empty()[1:]))))
    # Two CPUs would fit on two zones together, but one zone suffices on the empty node.
    assert topology.place(numa_requests(pod({"cpu": "2"}), INDEX)) is None
    topology.charge(((1, (3000.0, *INDEX.empty()[1:])),), -1)
    assert placed(topology.place(numa_requests(pod({"cpu": "2"}), INDEX))) == {1: 2}


def test_containers_are_aligned_one_by_one_in_their_scope() -> None:
    two = pod({"cpu": "3"}, {"cpu": "3"})
    whole = NumaTopology(SINGLE, NumaScope.POD, zones(4, 4), AWARE)
    assert whole.place(numa_requests(two, INDEX)) is None
    apart = NumaTopology(SINGLE, NumaScope.CONTAINER, zones(4, 4), AWARE)
    assert placed(apart.place(numa_requests(two, INDEX))) == {0: 3, 1: 3}
    assert apart.place(numa_requests(pod({"cpu": "3"}, {"cpu": "3"}, {"cpu": "3"}), INDEX)) is None


def test_init_containers_give_back_what_they_had() -> None:
    topology = NumaTopology(SINGLE, NumaScope.CONTAINER, zones(4), AWARE)
    assert placed(topology.place(numa_requests(pod({"cpu": "3"}, init=[{"cpu": "4"}]), INDEX))) == {
        0: 3
    }
    assert topology.place(numa_requests(pod({"cpu": "3"}, init=[{"cpu": "5"}]), INDEX)) is None


def test_other_pods_are_aligned_by_their_devices_only() -> None:
    topology = NumaTopology(SINGLE, NumaScope.POD, zones(4, 4, nics=(0, 1)), AWARE)
    burstable = pod({"cpu": "6", NIC: "1"}, qos="Burstable")
    request = INDEX.read({"cpu": "6", NIC: "1"})
    assert topology.is_aligned(burstable, request)
    placement = topology.place(numa_requests(burstable, INDEX))
    assert placement is not None
    assert [zone for zone, _ in placement] == [1]
    assert not topology.is_aligned(pod({"cpu": "6"}, qos="Burstable"), INDEX.read({"cpu": "6"}))


def test_zones_are_in_the_order_of_their_numbers() -> None:
    made = [NumaZone(name, INDEX.empty(), INDEX.empty()) for name in ("node-10", "node-9", "misc")]
    topology = NumaTopology(SINGLE, NumaScope.POD, made, AWARE)
    assert [zone.id for zone in topology.zones] == ["node-9", "node-10", "misc"]
