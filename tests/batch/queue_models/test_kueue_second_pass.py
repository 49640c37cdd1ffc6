"""Second passes of Kueue's admission: places after checks, and other nodes for failed ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stowplan.batch.queue_models.kueue.admission_workload import AdmissionWorkload
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission, KueueObjects
from stowplan.batch.queue_models.kueue.kueue_objects import (
    KueueClusterQueue,
    KueueNamespace,
    LocalQueue,
    PodSet,
    PodSetUpdate,
    ResourceFlavor,
    Topology,
    Workload,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions, enabled_gates
from stowplan.batch.queue_models.kueue.topology_requests import updated_pod_set
from stowplan.objects.node import Node

RACK, HOST = "rack", "kubernetes.io/hostname"
QUEUE: dict[str, Any] = {
    "resourceGroups": [{
        "coveredResources": ["cpu"],
        "flavors": [{"name": "tas", "resources": [{"name": "cpu", "nominalQuota": 9}]}],
    }],
    "namespaceSelector": {},
}  # fmt: skip


def node(name: str, rack: str, cpu: int = 1) -> Node:
    status = {
        "allocatable": {"cpu": cpu, "pods": 10},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    labels = {RACK: rack, HOST: name}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def held(places: dict[str, int], failed: str, **request: Any) -> Workload:
    """An admitted workload of pods of 1 CPU. places: host -> pods."""
    count = sum(places.values())
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}
    slices = [
        {
            "domainCount": 1,
            "podCounts": {"universal": n},
            "valuesPerLevel": [{"universal": host}],
        }
        for host, n in places.items()
    ]
    admitted = {
        "name": "main",
        "count": count,
        "flavors": {"cpu": "tas"},
        "resourceUsage": {"cpu": count},
        "topologyAssignment": {"levels": [HOST], "slices": slices},
    }
    tree = {
        "metadata": {"name": "job", "namespace": "default", "uid": "job"},
        "spec": {
            "queueName": "q",
            "podSets": [
                {"count": count, "template": {"spec": pod}, "topologyRequest": request},
            ],
        },
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": [admitted]},
            "conditions": [
                {"type": kind, "status": "True", "reason": kind}
                for kind in ("QuotaReserved", "Admitted")
            ],
            "unhealthyNodes": [{"name": failed}],
        },
    }
    return msgspec.convert(tree, Workload)


def admission(workload: Workload, nodes: list[Node], **gates: bool) -> KueueAdmission:
    topology = {
        "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]},
    }
    objects = KueueObjects(
        cluster_queues=[
            msgspec.convert({"metadata": {"name": "q"}, "spec": QUEUE}, KueueClusterQueue)
        ],
        local_queues=[
            msgspec.convert(
                {"metadata": {"name": "q", "namespace": "default"}, "spec": {"clusterQueue": "q"}},
                LocalQueue,
            )
        ],
        resource_flavors=[
            msgspec.convert(
                {"metadata": {"name": "tas"}, "spec": {"topologyName": "t"}}, ResourceFlavor
            )
        ],
        topologies=[msgspec.convert(topology, Topology)],
        namespaces=[msgspec.convert({"metadata": {"name": "default"}}, KueueNamespace)],
        workloads=[workload],
        nodes=nodes,
    )
    return KueueAdmission(objects, KueueOptions(gates=enabled_gates(gates)))


def places_of(state: KueueAdmission) -> dict[str, int]:
    (workload,) = state.workloads.values()
    places = workload.demands[0].places
    return {values[-1]: n for values, n in places.domains} if places is not None else {}


def used(state: KueueAdmission) -> int:
    return state.tree.queues["q"].usage["tas", "cpu"]


def test_a_required_rack_is_kept() -> None:
    nodes = [node("a1", "a"), node("a2", "a"), node("a3", "a"), node("b1", "b")]
    state = admission(held({"a1": 1, "a2": 1}, "a1", required=RACK), nodes[1:])
    outcome = state.run_cycle()
    assert outcome is not None
    assert list(outcome.admitted) == ["default/job"]
    assert places_of(state) == {"a2": 1, "a3": 1}
    assert used(state) == 2000
    # Its nodes are healthy again.
    assert state.run_cycle() is None


def test_a_preferred_rack_is_not() -> None:
    nodes = [node("a2", "a"), node("b1", "b")]
    state = admission(held({"a1": 1, "a2": 1}, "a1", preferred=RACK), nodes)
    assert state.run_cycle() is not None
    assert places_of(state) == {"a2": 1, "b1": 1}


def test_pods_of_other_nodes_keep_their_places() -> None:
    """The rest of a slice decides where the others go."""
    nodes = [node("a2", "a", 9), node("b1", "b", 9), node("b2", "b", 9)]
    request = {
        "preferred": RACK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2,
    }  # fmt: skip
    state = admission(held({"a2": 2, "b1": 1, "b3": 1}, "b3", **request), nodes)
    assert state.run_cycle() is not None
    assert places_of(state) == {"a2": 2, "b1": 2}


@pytest.mark.parametrize("fails_fast", [True, False])
def test_without_another_node_it_is_evicted_or_tried_again(fails_fast: bool) -> None:
    workload = held({"a1": 1, "a2": 1}, "a1", required=RACK)
    state = admission(
        workload, [node("a2", "a"), node("b1", "b")], TASFailedNodeReplacementFailFast=fails_fast
    )
    outcome = state.run_cycle()
    assert outcome is not None
    assert not outcome.admitted
    assert outcome.evicted == ({"default/job": "NodeFailures"} if fails_fast else {})
    assert used(state) == 2000
    (one,) = state.workloads.values()
    assert one.is_evicted is fails_fast
    if fails_fast:
        state.between_cycles()
        assert used(state) == 0
        return
    # After 1 s, then 2 s.
    assert state.run_cycle() is None
    tried = []
    for _ in range(6):
        state.between_cycles()
        tried.append(state.run_cycle() is not None)
    assert tried == [True, False, True, False, False, False]


def test_a_node_that_is_gone_too_leaves_no_place() -> None:
    state = admission(held({"a1": 1, "a2": 1}, "a1", preferred=RACK), [node("b1", "b", 9)])
    outcome = state.run_cycle()
    assert outcome is not None
    assert outcome.evicted


def test_a_workload_that_is_not_admitted_has_no_failed_places() -> None:
    workload = held({"a1": 1}, "a1", required=RACK)
    conditions = tuple(one for one in workload.status.conditions if one.type != "Admitted")
    status = msgspec.structs.replace(workload.status, conditions=conditions)
    one = AdmissionWorkload(msgspec.structs.replace(workload, status=status), KueueOptions())
    assert not one.has_failed_places
    assert admission(one.workload, [node("a2", "a")]).run_cycle() is None


def test_checks_add_selectors_and_tolerations() -> None:
    spec = {"nodeSelector": {"pool": "x"}, "tolerations": [{"key": "gpu"}]}
    pod_set = msgspec.convert({"template": {"spec": spec}}, PodSet)

    def updated(**added: Any) -> PodSet | None:
        return updated_pod_set(pod_set, [msgspec.convert({"name": "main", **added}, PodSetUpdate)])

    assert updated() is pod_set
    assert updated(nodeSelector={"pool": "y"}) is None
    found = updated(nodeSelector={"zone": "z"}, tolerations=[{"key": "gpu"}, {"key": "new"}])
    assert found is not None
    assert found.template.spec.node_selector == {"pool": "x", "zone": "z"}
    assert [one.key for one in found.template.spec.tolerations] == ["gpu", "new"]
