"""Generated workload: a mixed GPU and CPU cluster in three zones, with pending pods.

The shapes follow published clusters: a few machine sizes, GPU pools behind taints, services with
many small replicas, batch jobs in bursts, training runs on whole machines. The cluster is slightly
too small, and some pods request what no node has, so that there are failures to look at. Groups of
pods arrive over a day; pods that are not services end.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.node import HOSTNAME_LABEL, Node
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.workload import Namespace, ReplicaSet, Service, ServiceSpec, WorkloadSpec

ZONES = ("zone-a", "zone-b", "zone-c")
ZONE_LABEL = "topology.kubernetes.io/zone"
POOL_LABEL = "stowplan.dev/pool"
GPU = "nvidia.com/gpu"
GPU_MODEL = "nvidia.com/gpu.product"
MIB = 2**20
DAY_S = 86_400
RUN_S = 2_400
"""Median run time of pods that are not services, in seconds."""
FIRST_ARRIVAL = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

Tree = dict[str, Any]


class NodePool(NamedTuple):
    """Nodes of one size. share: of all nodes. taint: its key; the value is `true`."""

    name: str
    share: float
    cpu: int
    memory_gib: int
    cards: int = 0
    model: str = ""
    taint: str = ""
    effect: str = "NoSchedule"


POOLS = (
    NodePool("small", 0.37, 16, 64),
    NodePool("large", 0.21, 64, 256),
    NodePool("memory", 0.10, 32, 512),
    NodePool("spot", 0.12, 32, 128, taint="stowplan.dev/spot", effect="PreferNoSchedule"),
    NodePool("edge", 0.02, 8, 32, taint="stowplan.dev/edge"),
    NodePool("t4", 0.10, 48, 192, cards=4, model="T4", taint=GPU),
    NodePool("a100", 0.08, 96, 1024, cards=8, model="A100", taint=GPU),
)

IMAGES = {
    "registry.example/base": 180,
    "registry.example/jvm": 640,
    "registry.example/python": 420,
    "registry.example/proxy": 90,
    "registry.example/cuda": 4200,
    "registry.example/notebook": 2600,
}
"""Image -> MiB."""


class WorkloadTemplate(NamedTuple):
    """Template of a group of pods.

    weight: relative frequency. size: mean number of pods in a group. pod: the rest of the spec.
    """

    name: str
    weight: float
    size: int
    cpu_milli: int
    memory_mib: int
    image: str
    pod: Mapping[str, Any] = {}
    cards: int = 0
    is_service: bool = False
    ports: Sequence[int] = ()


def generate_workload(n_nodes: int = 1000, n_pods: int = 5000, seed: int = 0) -> Cluster:
    """A cluster of `n_nodes` empty nodes and `n_pods` pending pods, determined by the seed."""
    rng = np.random.default_rng(seed)
    nodes = list(_nodes(n_nodes, rng))
    pods, objects = _pods(n_pods, rng)
    pods = list(_timed(pods, np.random.default_rng([seed, 1])))
    notes = [
        f"generated workload: {count_of(n_nodes, 'node')}, {count_of(n_pods, 'pod')}, seed {seed}"
    ]
    return Cluster(nodes=nodes, pods=pods, objects=objects, notes=notes)


# Nodes.


def _nodes(n_nodes: int, rng: np.random.Generator) -> Iterator[Node]:
    pools = [pool for pool in POOLS for _ in range(round(pool.share * n_nodes))]
    # Rounding differences are made up with small nodes.
    pools = ([POOLS[0]] * max(n_nodes - len(pools), 0) + pools)[-n_nodes:] if n_nodes else []
    for index, pool in enumerate(pools):
        yield convert(_node(f"{pool.name}-{index:04d}", pool, ZONES[index % len(ZONES)], rng), Node)


def _node(name: str, pool: NodePool, zone: str, rng: np.random.Generator) -> Tree:
    # A share is reserved for kubelet and system.
    offers = {
        "cpu": f"{pool.cpu * 1000 - 200}m",
        "memory": f"{pool.memory_gib * 1024 * 95 // 100}Mi",
        "pods": "110",
    }
    labels = {HOSTNAME_LABEL: name, ZONE_LABEL: zone, POOL_LABEL: pool.name}
    taints = []
    if pool.cards:
        offers[GPU] = str(pool.cards)
        labels[GPU_MODEL] = pool.model
    if pool.taint:
        taints.append({"key": pool.taint, "value": "true", "effect": pool.effect})
    pulled = [image for image in IMAGES if rng.random() < 0.4]
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "allocatable": offers,
            "images": [{"names": [i], "sizeBytes": IMAGES[i] * MIB} for i in pulled],
        },
    }


# Pods.


def _tolerates(*keys: str) -> Tree:
    return {"tolerations": [{"key": key, "operator": "Exists"} for key in keys]}


def _requires(key: str, *values: str) -> Tree:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _prefers(weight: int, key: str, *values: str) -> Tree:
    rule = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    preferred = [{"weight": weight, "preference": rule}]
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    }


_URGENT = {"priority": 100_000}
_BATCH = {"priority": -10, "preemptionPolicy": "Never"}
_GPU = _tolerates(GPU)
_SPOT = _tolerates("stowplan.dev/spot")
_BASE, _JVM, _PYTHON, _PROXY, _CUDA, _NOTEBOOK = IMAGES

TEMPLATES = (
    # Services: many small replicas.
    WorkloadTemplate("front", 9, 12, 1000, 1024, _PROXY, is_service=True),
    WorkloadTemplate("front-large", 3, 8, 4000, 4096, _PROXY, is_service=True),
    WorkloadTemplate("api", 9, 8, 2000, 4096, _JVM, is_service=True),
    WorkloadTemplate("api-urgent", 4, 6, 3000, 6144, _JVM, _URGENT, is_service=True),
    WorkloadTemplate(
        "checkout",
        3,
        6,
        2000,
        4096,
        _JVM,
        {**_URGENT, **_prefers(50, POOL_LABEL, "large")},
        is_service=True,
    ),
    WorkloadTemplate(
        "search", 3, 10, 4000, 24_576, _JVM, _prefers(80, POOL_LABEL, "memory"), is_service=True
    ),
    WorkloadTemplate(
        "cache", 3, 6, 1000, 49_152, _BASE, _requires(POOL_LABEL, "memory"), is_service=True
    ),
    WorkloadTemplate(
        "queue", 2, 3, 2000, 8192, _JVM, _requires(ZONE_LABEL, "zone-a", "zone-b"), is_service=True
    ),
    WorkloadTemplate(
        "store",
        2,
        3,
        8000,
        65_536,
        _BASE,
        _requires(POOL_LABEL, "memory", "large"),
        is_service=True,
    ),
    WorkloadTemplate("metrics", 2, 2, 1000, 4096, _BASE),
    WorkloadTemplate("cron", 4, 2, 100, 128, _PYTHON),
    WorkloadTemplate("best-effort", 3, 4, 0, 0, _BASE),
    # Batch: bursts that tolerate spot nodes.
    WorkloadTemplate("etl", 6, 25, 6000, 24_576, _PYTHON, {**_BATCH, **_SPOT}),
    WorkloadTemplate("etl-wide", 5, 15, 14_000, 32_768, _PYTHON, {**_BATCH, **_SPOT}),
    WorkloadTemplate(
        "render",
        2,
        20,
        16_000,
        32_768,
        _BASE,
        {**_BATCH, **_SPOT, **_prefers(60, POOL_LABEL, "spot")},
    ),
    WorkloadTemplate("report", 3, 5, 1000, 12_288, _PYTHON, _BATCH),
    WorkloadTemplate("ci", 5, 10, 8000, 16_384, _BASE, _SPOT),
    WorkloadTemplate("backup", 1, 6, 500, 512, _BASE, _requires(ZONE_LABEL, "zone-c")),
    # GPUs: parts of nodes, whole nodes, and specific models.
    WorkloadTemplate(
        "infer-t4",
        5,
        8,
        4000,
        16_384,
        _CUDA,
        {**_GPU, **_requires(GPU_MODEL, "T4")},
        cards=1,
        is_service=True,
    ),
    WorkloadTemplate("infer-any", 3, 6, 6000, 24_576, _CUDA, _GPU, cards=1, is_service=True),
    WorkloadTemplate(
        "tune", 4, 5, 16_000, 131_072, _CUDA, {**_GPU, **_requires(GPU_MODEL, "A100")}, cards=2
    ),
    WorkloadTemplate(
        "train", 1.2, 4, 80_000, 786_432, _CUDA, {**_GPU, **_requires(GPU_MODEL, "A100")}, cards=8
    ),
    WorkloadTemplate("notebook", 3, 4, 4000, 32_768, _NOTEBOOK, _GPU, cards=1),
    # Host ports, and a dedicated pool.
    WorkloadTemplate(
        "ingress",
        1,
        12,
        1000,
        1024,
        _PROXY,
        {**_tolerates("stowplan.dev/edge"), **_requires(POOL_LABEL, "edge")},
        ports=(80, 443),
    ),
    WorkloadTemplate("node-cache", 1, 10, 200, 512, _PROXY, {"hostNetwork": True}, ports=(9100,)),
    # Pods that fit on no node.
    WorkloadTemplate("oversized", 0.7, 3, 128_000, 65_536, _JVM),
    WorkloadTemplate(
        "train-h100",
        0.7,
        4,
        16_000,
        65_536,
        _CUDA,
        {**_GPU, **_requires(GPU_MODEL, "H100")},
        cards=4,
    ),
    WorkloadTemplate(
        "forgot-toleration", 0.7, 4, 4000, 16_384, _CUDA, _requires(GPU_MODEL, "T4"), cards=1
    ),
    WorkloadTemplate(
        "waiting-for-approval",
        0.4,
        3,
        1000,
        2048,
        _PYTHON,
        {"schedulingGates": [{"name": "stowplan.dev/approval"}]},
    ),
)


def _pods(n_pods: int, rng: np.random.Generator) -> tuple[list[Pod], list[Object]]:
    """Pods in arrival order, with their namespaces, owners and services."""
    namespaces = ("apps", "batch", "research")
    objects: list[Object] = [Namespace(metadata=ObjectMeta(name=name)) for name in namespaces]
    weights = np.array([template.weight for template in TEMPLATES])
    specs = {template.name: _spec(template) for template in TEMPLATES}
    pods: list[Pod] = []
    group = 0
    while len(pods) < n_pods:
        template = TEMPLATES[int(rng.choice(len(TEMPLATES), p=weights / weights.sum()))]
        size = int(min(1 + rng.geometric(1 / template.size), n_pods - len(pods)))
        place = namespaces[2 if template.cards else 0 if template.is_service else 1]
        name = f"{template.name}-{group}"
        labels = {"app": name}
        made = _group(name, place, labels, size)
        objects.append(made)
        if template.is_service:
            meta = ObjectMeta(name=name, namespace=place)
            objects.append(Service(metadata=meta, spec=ServiceSpec(selector=labels)))
        pods += _replicas(made, specs[template.name], size)
        group += 1
    return pods, objects


def _timed(pods: list[Pod], rng: np.random.Generator) -> Iterator[Pod]:
    """The pods with arrival times, and run times unless they belong to services."""
    services = {template.name for template in TEMPLATES if template.is_service}
    groups = [pod.name.rpartition("-")[0] for pod in pods]
    gap_s = DAY_S / max(len(set(groups)), 1)
    at_s, last = 0.0, ""
    for pod, group in zip(pods, groups, strict=True):
        if group != last:
            at_s += rng.exponential(gap_s)
            last = group
        created = FIRST_ARRIVAL + datetime.timedelta(seconds=round(at_s))
        annotations = {}
        runs_s = round(rng.lognormal(math.log(RUN_S), 1.0))
        if group.rpartition("-")[0] not in services:
            annotations[RUN_ANNOTATION] = str(runs_s)
        meta = replace(pod.metadata, creation_timestamp=created, annotations=annotations)
        yield replace(pod, metadata=meta)


def _group(name: str, namespace: str, labels: dict[str, str], size: int) -> ReplicaSet:
    return ReplicaSet(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=name, labels=labels),
        spec=WorkloadSpec(replicas=size, selector=LabelSelector(match_labels=labels)),
    )


def _replicas(owner: ReplicaSet, spec: PodSpec, size: int) -> Iterator[Pod]:
    reference = OwnerReference("apps/v1", "ReplicaSet", owner.name, owner.metadata.uid, True)
    for index in range(size):
        meta = ObjectMeta(
            name=f"{owner.name}-{index}",
            namespace=owner.namespace,
            labels=owner.labels,
            owner_references=(reference,),
        )
        yield Pod(metadata=meta, spec=spec)


def _spec(template: WorkloadTemplate) -> PodSpec:
    asks: Tree = {}
    if template.cpu_milli:
        asks = {"cpu": f"{template.cpu_milli}m", "memory": f"{template.memory_mib}Mi"}
    if template.cards:
        asks[GPU] = str(template.cards)
    ports = [{"containerPort": port, "hostPort": port} for port in template.ports]
    container = {
        "name": "main",
        "image": template.image,
        "resources": {"requests": asks},
        "ports": ports,
    }
    return convert({"containers": [container], **template.pod}, PodSpec)
