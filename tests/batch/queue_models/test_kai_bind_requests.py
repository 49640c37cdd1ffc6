"""Bind requests of KAI-Scheduler: their pods count as placed on the selected node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from stowplan.framework.deciders.session_decider import NodeAssignment
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.objects.kai.bind_request import (
    KaiBindRequest,
    KaiBindRequestSpec,
    KaiBindRequestStatus,
    KaiReceivedGpu,
    placed_as_requested,
)
from stowplan.objects.meta import ObjectMeta
from tests.batch.queue_models.test_kai_model import (
    Tree,
    group,
    node,
    nodes_of,
    pod,
    queue,
    simulated,
)
from tests.batch.queue_models.test_kai_state import FollowedCluster, _pod

RED = {"kai.scheduler/queue": "red"}


def bind_request(pod: str, node: str, status: Tree | None = None, **spec: Any) -> Tree:
    meta = {"name": pod, "labels": {"selected-node": node}}
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": meta,
        "spec": {"podName": pod, "selectedNode": node, "receivedResourceType": "Regular"} | spec,
        "status": status or {},
    }


def where(tmp_path: Path, *objects: Tree) -> dict[str, str]:
    """The node of each pod at last, in the words of a simulation: those that were bound before are
    no placements."""
    placed = nodes_of(simulated(tmp_path, *objects))
    before = read_cluster(tmp_path / "cluster.yaml").pods
    return placed | {one.name: one.node_name for one in before if one.node_name}


def test_what_is_requested_is_taken(tmp_path: Path) -> None:
    objects = (
        node("a", 2),
        queue("red", 2),
        *(pod(name, gpus=2, labels=RED) for name in ("first", "second")),
    )
    assert where(tmp_path, *objects) == {"first": "a"}
    # KAI has decided for the second.
    assert where(tmp_path, *objects, bind_request("second", "a")) == {"second": "a"}


@pytest.mark.parametrize(
    ("status", "limit", "counts"),
    [
        ({"phase": "Pending"}, None, True),
        ({"phase": "Succeeded"}, None, True),
        ({"phase": "Failed"}, None, False),
        ({"phase": "Failed", "failedAttempts": 2}, 3, True),
        ({"phase": "Failed", "failedAttempts": 3}, 3, False),
    ],
)
def test_a_request_that_was_given_up_does_not_count(
    tmp_path: Path, status: Tree, limit: int | None, counts: bool
) -> None:
    request = bind_request("p", "b", status)
    if limit is not None:
        request["spec"]["backoffLimit"] = limit
    objects = (node("a", 2), node("b", 1), queue("red", 2), pod("p", labels=RED), request)
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    assert [one.node_name for one in read_cluster(path).pods] == ["b" if counts else ""]
    assert where(tmp_path, *objects) == {"p": "b"} or not counts


def test_a_request_for_a_node_that_is_gone_does_not_count(tmp_path: Path) -> None:
    objects = (node("a", 2), queue("red", 2), pod("p", labels=RED), bind_request("p", "gone"))
    assert where(tmp_path, *objects) == {"p": "a"}


def test_a_part_of_a_card_is_on_the_card_that_was_selected(tmp_path: Path) -> None:
    def part(name: str, size: str) -> Tree:
        # Consolidation moves only what may be preempted.
        fixed = {**RED, "kai.scheduler/preemptibility": "non-preemptible"}
        return pod(name, gpus=0, annotations={"gpu-fraction": size}, labels=fixed)

    def requested(name: str, card: str) -> Tree:
        given = {"receivedResourceType": "Fraction", "selectedGPUGroups": [card]}
        return bind_request(name, "a", **given)

    objects = (
        node("a", 2),
        queue("red", 2),
        *(part(name, "0.4") for name in ("one", "two")),
        part("wide", "0.7"),
    )
    together = (requested("one", "x"), requested("two", "x"))
    assert set(where(tmp_path, *objects, *together)) == {"one", "two", "wide"}
    apart = (requested("one", "x"), requested("two", "y"))
    assert set(where(tmp_path, *objects, *apart)) == {"one", "two"}


def test_a_gang_whose_other_pods_are_being_bound_is_whole(tmp_path: Path) -> None:
    objects = (
        node("a", 2),
        queue("red", 2),
        group("g", "red", 2),
        *(pod(f"g-{i}", "g") for i in range(2)),
        bind_request("g-0", "a"),
        pod("other", labels=RED),
    )
    assert where(tmp_path, *objects) == {"g-0": "a", "g-1": "a"}


def request(pod: str, node: str, phase: str = "Pending") -> KaiBindRequest:
    meta = ObjectMeta(name=pod, namespace="ns", uid=f"request-{pod}")
    spec = KaiBindRequestSpec(pod, node, "Regular")
    return KaiBindRequest(meta, spec=spec, status=KaiBindRequestStatus(phase))


def test_requests_are_followed_on_a_live_cluster() -> None:
    cluster = FollowedCluster([1], {"red": (1, -1)})
    cluster.show(_pod("first", 1, 1))
    cluster.add(request("first", "n0"))
    cluster.show(_pod("second", 1, 2))
    result = cluster.session(cluster.kept)
    # It is bound by KAI's binder, not by us.
    assert not result.binds
    # The binder gives up: both wait, and the older one is placed.
    cluster.kept.object_updated(request("first", "n0", "Failed"))
    assert [place.pod.name for place in cluster.session(cluster.kept).binds] == ["first"]


def test_a_request_whose_node_comes_later_counts_from_then_on() -> None:
    cluster = FollowedCluster([1], {"red": (2, -1)})
    cluster.add(request("p", "n1"))
    cluster.show(_pod("p", 2, 1))
    assert not cluster.session(cluster.kept).binds
    cluster.kept.model.inspect()
    (first,) = cluster.nodes
    cluster.nodes.append(replace(first, metadata=replace(first.metadata, name="n1")))
    assert not cluster.session(cluster.kept).binds
    (red,) = cluster.kept.model.report().queues
    assert red.pods_placed == 1


def test_pods_with_parts_of_cards_are_bound_by_requests() -> None:
    cluster = FollowedCluster([2], {"red": (2, -1)})
    cluster.show(_pod("whole", 1, 1))
    for number, name in enumerate(("half", "quarter")):
        cluster.show(_pod(name, 0, 2 + number, **{"gpu-fraction": ("0.5", "0.25")[number]}))
    made = {place.pod.name: place.request for place in cluster.session(cluster.kept).binds}
    assert made["whole"] is None
    half, quarter = made["half"], made["quarter"]
    assert half is not None
    assert quarter is not None
    assert (half.pod_name, half.selected_node, half.received_resource_type) == (
        "half", "n0", "Fraction"
    )  # fmt: skip
    assert half.received_gpu == KaiReceivedGpu(1, "0.50")
    assert quarter.received_gpu == KaiReceivedGpu(1, "0.25")
    assert len(half.selected_gpu_groups) == 1
    assert half.selected_gpu_groups == quarter.selected_gpu_groups


def test_names_of_cards_do_not_come_again_after_a_restart() -> None:
    cluster = FollowedCluster([1, 1], {"red": (2, -1)})
    names = set()
    for number in range(2):
        cluster.show(_pod(f"p{number}", 0, number, **{"gpu-fraction": "0.9"}))
        # A process that begins with the second pod, whose first session is another one's second.
        (place,) = cluster.session(cluster.kept if not number else cluster.follower()).binds
        assert place.request is not None
        names |= {*place.request.selected_gpu_groups}
        cluster.n_sessions += 1
        cluster.show(placed_as_requested(place.pod, _request_of(place)))
    assert len(names) == 2


def test_after_a_restart_cards_are_known_by_labels() -> None:
    cluster = FollowedCluster([2], {"red": (2, -1)})
    cluster.show(_pod("first", 0, 1, **{"gpu-fraction": "0.5"}))
    (place,) = cluster.session(cluster.kept).binds
    cluster.show(placed_as_requested(place.pod, _request_of(place)))
    cluster.n_sessions += 1
    cluster.show(_pod("second", 0, 2, **{"gpu-fraction": "0.5"}))
    (other,) = cluster.session(cluster.follower()).binds
    assert other.request is not None
    assert place.request is not None
    assert other.request.selected_gpu_groups == place.request.selected_gpu_groups


def _request_of(place: NodeAssignment) -> KaiBindRequest:
    assert place.request is not None
    return KaiBindRequest(ObjectMeta(name=place.pod.name, namespace="ns"), spec=place.request)


@pytest.mark.parametrize(("app", "fits"), [("kai-resource-reservation", True), ("other", False)])
def test_a_pod_that_holds_a_card_has_none_of_its_own(tmp_path: Path, app: str, fits: bool) -> None:
    holder = pod("holder", node="a", labels={"app": app, "runai-gpu-group": "x"})
    holder["spec"]["schedulerName"] = "default-scheduler"
    labels = {**RED, "runai-gpu-group": "x"}
    half = pod("half", gpus=0, annotations={"gpu-fraction": "0.5"}, labels=labels, node="a")
    objects = (node("a", 2), queue("red", 2), holder, half, pod("whole", labels=RED))
    assert ("whole" in where(tmp_path, *objects)) == fits
