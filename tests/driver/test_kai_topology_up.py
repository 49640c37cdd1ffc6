"""`stowplan up` with KAI's configuration: KAI's guides on topology for sub-groups and segments, and
on claims of devices, restated with their outcome.

Sources: KAI-Scheduler, docs/topology/multilevel.md, docs/topology/segments.md and docs/dra.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from tests.driver.embedded import PATHS, Tree
from tests.driver.test_kai_guides_up import (
    GROUPS,
    RACK,
    TOPOLOGIES,
    TORCH_JOBS,
    ZONE,
    cards,
    follow,
    node,
    placed,
    refused,
)
from tests.driver.test_kai_up import PODS, QUEUES, alone, on_nodes, pod, queue
from tests.driver.test_volcano_up import create, listed, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

SPINE = "example.com/spine"
NODES = PATHS["Node"]


def domains(zones: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[Tree]:
    """Nodes with one card each. zones: zone -> spine -> nodes of each of its racks; a node has the
    name of its rack and a number."""
    for zone, spines in zones.items():
        for spine, sizes in spines.items():
            for number, size in enumerate(sizes):
                rack = f"{spine}-{number}"
                labels = {ZONE: zone, SPINE: spine, RACK: rack}
                yield from (node(f"{rack}-{i}", 1, **labels) for i in range(size))


def rack_of(name: str) -> str:
    return name.rpartition("-")[0]


async def create_topology(api: ApiClient) -> None:
    levels = [{"nodeLabel": label} for label in (ZONE, SPINE, RACK, "kubernetes.io/hostname")]
    tree = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "cluster-topology"},
        "spec": {"levels": levels},
    }
    await create(api, TOPOLOGIES, tree)


# Sub-groups.


def within(level: str) -> Tree:
    return {"topology": "cluster-topology", "requiredTopologyLevel": level}


def sub_group(name: str, **spec: Any) -> Tree:
    return {"name": name, "topologyConstraint": within(RACK), **spec}


async def create_group(api: ApiClient, **spec: Any) -> None:
    # Pods of the class are not preempted, and stay within the quota of their queue.
    await create(api, QUEUES, queue("test", "", -1, -1))
    tree = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": {
            "queue": "test",
            "priorityClassName": "inference",
            "minSubGroup": 2,
            **spec,
        },
    }
    await create(api, GROUPS, tree)


async def create_members(api: ApiClient, of: str, number: int) -> None:
    for i in range(number):
        labels = {"kai.scheduler/subgroup-name": f"subgroup-{of}"}
        tree = cards(f"pod-{of}{i}", 1, **labels)
        tree["metadata"]["annotations"] |= {"pod-group-name": "sample"}
        await create(api, PODS, tree)


def racks_of(pods: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Letter of the sub-group -> rack -> pods there."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, on in placed(pods).items():
        found[name[len("pod-")]][rack_of(on)] += 1
    return {letter: dict(racks) for letter, racks in found.items()}


async def independent(api: ApiClient) -> None:
    await create_topology(api)
    both = [sub_group("subgroup-a", minMember=2), sub_group("subgroup-b", minMember=3)]
    await create_group(api, subGroups=both)
    await create_members(api, "a", 2)
    # Both are required. Another pod shows that sessions have run since.
    await create(api, PODS, cards("other", 0))
    await until(api, PODS, on_nodes("other"))
    await api.send(ApiRequest("DELETE", f"{PODS}/other"))
    await create_members(api, "b", 3)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 5)
    # Each on a rack of its own, the smallest that holds it.
    assert racks_of(pods) == {"a": {"left-1": 2}, "b": {"left-2": 3}}


def test_each_sub_group_is_on_one_rack(tmp_path: Path) -> None:
    follow(tmp_path, [*domains({"one": {"left": (1, 2, 3)}})], independent)


async def hierarchical(api: ApiClient) -> None:
    await create_topology(api)
    await create_group(
        api,
        topologyConstraint=within(ZONE),
        subGroups=[
            {"name": "subgroup-ab", "minSubGroup": 2, "topologyConstraint": within(SPINE)},
            sub_group("subgroup-a", minMember=1, parent="subgroup-ab"),
            sub_group("subgroup-b", minMember=2, parent="subgroup-ab"),
            sub_group("subgroup-c", minMember=3),
        ],
    )
    for letter, number in (("a", 1), ("b", 2), ("c", 3)):
        await create_members(api, letter, number)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 6)
    # In zone `one` a spine has room for `a` and `b`, but no rack for `c`.
    assert racks_of(pods) == {"a": {"left-0": 1}, "b": {"left-1": 2}, "c": {"right-0": 3}}


def test_sub_groups_of_one_zone_share_a_spine_and_have_racks(tmp_path: Path) -> None:
    zones = {
        "one": {"low": (2, 1), "high": (2, 1)},
        "two": {"left": (1, 2), "right": (4,)},
    }
    follow(tmp_path, [*domains(zones)], hierarchical)


# Segments.

DEFINITIONS = PATHS["CustomResourceDefinition"]
SEGMENT_NOTES = {
    "kai.scheduler/segment-size": "4",
    "kai.scheduler/segment-topology-required-placement": RACK,
}
OF_TOPOLOGY = {"kai.scheduler/topology": "cluster-topology"}


async def create_job(api: ApiClient, group: str, version: str, kind: str, tree: Tree) -> Tree:
    """Define a kind of any content, and create an object of it; the reference to its owner."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [served]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }
    await create(api, DEFINITIONS, definition)
    path = f"/apis/{group}/{version}/namespaces/default/{plural}"
    made = {"apiVersion": f"{group}/{version}", "kind": kind, **tree}
    body = json.dumps(made).encode()
    while (answer := await api.send(ApiRequest("POST", path, (), body, JSON))).status == 404:
        await asyncio.sleep(0.1)
    assert answer.status == 201, answer.body
    meta = json.loads(answer.body)["metadata"]
    return {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


async def create_replica(
    api: ApiClient, owner: Tree, name: str, n_cards: int, notes: Tree, **labels: str
) -> None:
    """A pod that the operator of a workload makes."""
    tree = cards(name, n_cards, **labels)
    tree["metadata"]["annotations"] |= notes
    tree["metadata"]["ownerReferences"] = [owner]
    await create(api, PODS, tree)


def template(notes: Tree) -> Tree:
    tree = pod("default-queue")
    tree["metadata"]["annotations"] |= notes
    return tree


async def create_pytorch_job(
    api: ApiClient,
    n_workers: int,
    notes: Tree,
    of_workers: Tree,
    least: int | None = None,
) -> None:
    """A PyTorchJob. least: pods with which it may start, None: all."""
    policy = {} if least is None else {"schedulingPolicy": {"minAvailable": least}}
    master = template({})
    # The master needs no card, so that it takes none from a segment.
    master["spec"]["containers"][0]["resources"] = {}
    spec = {
        "runPolicy": policy,
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": master},
            "Worker": {"replicas": n_workers, "template": template(of_workers)},
        },
    }
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    meta = {"name": "train", "annotations": notes}
    await create(api, TORCH_JOBS, {**head, "metadata": meta, "spec": spec})


def segments(pods: Sequence[Any]) -> list[tuple[str, ...]]:
    """Racks of workers 0 to 3, 4 to 7 and so on."""
    found: dict[int, set[str]] = defaultdict(set)
    for name, on in placed(pods).items():
        of, _, number = name.rpartition("-")
        if of == "train-worker":
            found[int(number) // 4].add(rack_of(on))
    return [tuple(sorted(found[i])) for i in sorted(found)]


async def segmented(api: ApiClient) -> None:
    await create_topology(api)
    await create_pytorch_job(api, 16, {}, OF_TOPOLOGY | SEGMENT_NOTES)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 17)
    racks = segments(pods)
    assert sorted(racks) == [(f"left-{i}",) for i in (0, 2, 3, 5)]


def test_each_segment_of_a_pytorch_job_is_on_one_rack(tmp_path: Path) -> None:
    follow(tmp_path, [*domains({"one": {"left": (4, 3, 4, 4, 3, 4)}})], segmented)


async def zoned(api: ApiClient) -> None:
    await create_topology(api)
    notes = OF_TOPOLOGY | {"kai.scheduler/topology-required-placement": ZONE}
    await create_pytorch_job(api, 16, notes, SEGMENT_NOTES)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 17)
    # Zone `one` has fewer cards free, but racks for three segments only.
    assert sorted(segments(pods)) == [(f"right-{i}",) for i in range(4)]


def test_a_pytorch_job_is_in_one_zone_and_its_segments_on_racks(tmp_path: Path) -> None:
    zones = {"one": {"left": (4, 4, 4, 3, 3)}, "two": {"right": (4, 4, 4, 4, 3)}}
    follow(tmp_path, [*domains(zones)], zoned)


async def elastic(api: ApiClient) -> None:
    await create_topology(api)
    # Three segments of five have to be there; and the master.
    await create_pytorch_job(api, 20, {}, OF_TOPOLOGY | SEGMENT_NOTES, 13)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 13)
    assert sorted(segments(pods)) == [(f"left-{i}",) for i in range(3)]
    # The others start where each can be on one rack: here one worker of each.
    for tree in domains({"one": {"right": (1, 1, 1, 1)}}):
        await create(api, NODES, tree)
    await until(api, PODS, lambda pods: len(placed(pods)) == 15)
    # Another pod shows that sessions have run since.
    await create(api, PODS, cards("other", 1))
    pods = await until(api, PODS, lambda pods: "other" in placed(pods))
    assert len(placed(pods)) == 16
    assert [len(racks) for racks in segments(pods)] == [1] * 5


def test_a_pytorch_job_starts_without_the_segments_that_it_does_not_need(tmp_path: Path) -> None:
    follow(tmp_path, [*domains({"one": {"left": (4, 4, 4)}})], elastic)


async def led(api: ApiClient) -> None:
    await create_topology(api)
    notes = OF_TOPOLOGY | {"kai.scheduler/segment-topology-required-placement": RACK}
    spec = {
        "replicas": 1,
        "leaderWorkerTemplate": {
            "size": 5,
            "subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": "LeaderWorker"},
            "leaderTemplate": template({}),
            "workerTemplate": template(notes),
        },
    }
    tree = {"metadata": {"name": "serve"}, "spec": spec}
    owner = await create_job(api, "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", tree)
    label = "leaderworkerset.sigs.k8s.io/"
    for i in range(5):
        labels = {
            f"{label}name": "serve",
            f"{label}group-index": "0",
            f"{label}worker-index": str(i),
        }
        await create_replica(api, owner, f"pod-{i}", 1, notes if i else {}, **labels)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 5)
    # The leader is with the first two workers.
    assert {name: rack_of(on) for name, on in placed(pods).items()} == {
        **{f"pod-{i}": "left-1" for i in range(3)},
        **{f"pod-{i}": "left-0" for i in (3, 4)},
    }


def test_the_leader_of_a_set_is_in_its_first_segment(tmp_path: Path) -> None:
    follow(tmp_path, [*domains({"one": {"left": (2, 3)}})], led)


# Claims of devices.

DEVICES = "/apis/resource.k8s.io/v1"
DRIVER = "compute-domain.nvidia.com"
CLAIMS = f"{DEVICES}/namespaces/default/resourceclaims"
CHANNEL_CONFIG = {
    "opaque": {
        "driver": DRIVER,
        "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainChannelConfig",
            "domainID": "83479f70",
        },
    },
    "requests": ["channel"],
}


async def create_channel(api: ApiClient) -> None:
    """What NVIDIA's driver publishes for a node, and makes of a ComputeDomain."""
    class_name = "compute-domain-default-channel.nvidia.com"
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'channel'"
    trees: dict[str, Tree] = {
        f"{DEVICES}/deviceclasses": {
            "kind": "DeviceClass",
            "metadata": {"name": class_name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        },
        f"{DEVICES}/resourceslices": {
            "kind": "ResourceSlice",
            "metadata": {"name": "with-channel"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "with-channel",
                "pool": {"name": "with-channel", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "channel-0", "attributes": {"type": {"string": "channel"}}}],
            },
        },
        f"{DEVICES}/namespaces/default/resourceclaimtemplates": {
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "imex-channel-0"},
            "spec": {
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": "channel", "exactly": {"deviceClassName": class_name}}
                        ],
                        "config": [CHANNEL_CONFIG],
                    }
                }
            },
        },
    }
    for path, tree in trees.items():
        await create(api, path, {"apiVersion": "resource.k8s.io/v1", **tree})


def with_channel(name: str) -> Tree:
    tree = alone(name, pod("default-queue"))
    claim = {"name": "imex-channel-0", "resourceClaimTemplateName": "imex-channel-0"}
    tree["spec"]["resourceClaims"] = [claim]
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "imex-channel-0"}]
    return tree


async def claims(api: ApiClient) -> None:
    await create_channel(api)
    await create(api, PODS, with_channel("imex-pod"))
    pods = await until(api, PODS, lambda pods: bool(placed(pods)))
    # Of two nodes with a card, one has a channel.
    assert placed(pods) == {"imex-pod": "with-channel"}
    (claim,) = await listed(api, CLAIMS)
    of_node = {"key": "metadata.name", "operator": "In", "values": ["with-channel"]}
    device = {
        "request": "channel",
        "driver": DRIVER,
        "pool": "with-channel",
        "device": "channel-0",
    }
    allocation = claim["status"]["allocation"]
    # What KAI writes to the BindRequest of the pod, from which its binder writes it to the claim.
    assert allocation["devices"] == {
        "results": [device],
        "config": [{"source": "FromClaim", **CHANNEL_CONFIG}],
    }
    assert allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [of_node]}]}
    assert [one["name"] for one in claim["status"]["reservedFor"]] == ["imex-pod"]
    # The channel is taken while the pod runs.
    await create(api, PODS, with_channel("second"))
    await until(api, PODS, lambda pods: "second" in refused(pods))
    await api.send(ApiRequest("DELETE", f"{PODS}/imex-pod"))
    await until(api, PODS, lambda pods: placed(pods) == {"second": "with-channel"})


def test_a_pod_with_a_claim_gets_a_channel_of_its_node(tmp_path: Path) -> None:
    follow(tmp_path, [node("without", 1), node("with-channel", 1)], claims)
