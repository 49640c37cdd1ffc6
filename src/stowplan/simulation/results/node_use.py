"""Use of every node over a run, and what its pods request: `usage.json`.

A report draws it: the nodes over time, allocation against arrived load, shares of queues. Times are
few and shares coarse, so that the file stays small; `placements.jsonl` has every binding.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable
from stowplan.insight.pod_placement import Placement
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.simulation.event_queue import in_seconds
from stowplan.simulation.results.pod_queues import queues_of

SAMPLES_MAX = 240
"""Samples kept; above this every second one is dropped and the interval doubled."""
FILL_SAMPLES = 120
RESOURCES_MAX = 5
STEPS = 200
"""A share of 1 as a number; shares above `SHARE_MAX` count as that."""
SHARE_MAX = 254
ABSENT = 255
"""The node does not exist at that time, or does not have the resource."""

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


class NodeUse(msgspec.Struct, frozen=True):
    """Content of `usage.json`.

    axis: `time_s`, or `pods` (pods tried so far) of a placement run. at: value of it, by sample.
    resources: names. nodes: names. allocatable: int [n_nodes][n_resources], milli-CPU, bytes,
    counts. shares: uint8 (n_resources, n_nodes, n_samples): requested share of allocatable times
    200, assumed pods included, 255 where there is none, as run lengths (`encode_runs`). sizes: int
    [n_sizes][n_resources], distinct requests. pod_sizes: index in `sizes` by line of
    `placements.jsonl`. grouped_by: `queue`, or `namespace` where pods have no queues. groups:
    names. pod_groups: index in `groups` by line.
    """

    axis: str
    at: list[float]
    resources: list[str]
    nodes: list[str]
    allocatable: list[list[int]]
    shares: str
    sizes: list[list[int]]
    pod_sizes: list[int]
    grouped_by: str
    groups: list[str]
    pod_groups: list[int]


class RequestTable(msgspec.Struct, frozen=True):
    """Requests and groups of pods, as in `NodeUse`."""

    resources: list[str]
    sizes: list[list[int]]
    pod_sizes: list[int]
    grouped_by: str
    groups: list[str]
    pod_groups: list[int]


def resources_of(pods: Iterable[Pod]) -> list[str]:
    """The resources that these pods request, the first `RESOURCES_MAX` of them."""
    counts: Counter[str] = Counter()
    for spec_pod in {id(pod.spec): pod for pod in pods}.values():
        counts.update(name for name, amount in requested(spec_pod).items() if amount > 0)
    return ranked(counts)


def pod_table(
    pods: Sequence[Pod], objects: Iterable[Object], resources: list[str] | None = None
) -> RequestTable:
    """The table of these pods, in their order.

    objects: PodGroups and Queues among them. resources: None: those that the pods request.
    """
    names = resources_of(pods) if resources is None else resources
    by_spec: dict[int, dict[str, int]] = {}
    for pod in pods:
        if id(pod.spec) not in by_spec:
            by_spec[id(pod.spec)] = requested(pod)
    sizes: dict[tuple[int, ...], int] = {}
    pod_sizes = [
        sizes.setdefault(tuple(by_spec[id(pod.spec)].get(name, 0) for name in names), len(sizes))
        for pod in pods
    ]
    queues, by_namespace = queues_of(pods, objects)
    groups: dict[str, int] = {}
    pod_groups = [groups.setdefault(queue, len(groups)) for queue in queues]
    by = "namespace" if by_namespace else "queue"
    return RequestTable(
        names, [list(one) for one in sizes], pod_sizes, by, list(groups), pod_groups
    )


def ranked(counts: Counter[str]) -> list[str]:
    """At most `RESOURCES_MAX` resources: GPUs, CPU and memory first, then the most requested."""
    native = {"cpu": 1, "memory": 2}

    def rank(name: str) -> tuple[int, int, str]:
        return 0 if "gpu" in name else native.get(name, 3), -counts[name], name

    return sorted(counts, key=rank)[:RESOURCES_MAX]


class NodeUseSampler:
    """Samples of the nodes of a replay; thinned out above `SAMPLES_MAX`."""

    def __init__(self, resources: list[str]) -> None:
        self.resources = resources
        self._at: list[float] = []
        self._columns: list[Bytes] = []
        self._names: list[str] = []
        # Index of each node in the samples, in the order of first appearance.
        self._index: dict[str, int] = {}
        self._places: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._allocatable: dict[str, list[int]] = {}
        self._skip = 1
        self._taken = 0

    def take(self, now: int, nodes: NodeTable) -> None:
        """Take a sample, unless the interval is now longer."""
        self._taken += 1
        if (self._taken - 1) % self._skip:
            return
        if nodes.names != self._names:
            self._follow(nodes)
        column = np.full((len(self.resources), len(self._index)), ABSENT, dtype=np.uint8)
        for place, name in enumerate(self.resources):
            column[place, self._places] = as_steps(nodes.requested(name), nodes.allocatable(name))
        self._at.append(in_seconds(now))
        self._columns.append(column)
        if len(self._at) > SAMPLES_MAX:
            del self._at[1::2], self._columns[1::2]
            self._skip *= 2

    def _follow(self, nodes: NodeTable) -> None:
        self._names = list(nodes.names)
        places = [self._index.setdefault(name, len(self._index)) for name in self._names]
        self._places = np.array(places, dtype=np.intp)
        amounts = [nodes.allocatable(name).tolist() for name in self.resources]
        for row, name in enumerate(self._names):
            self._allocatable[name] = [column[row] for column in amounts]

    def result(self, counted: Sequence[Pod], objects: Iterable[Object]) -> NodeUse:
        """The samples, with the pods of `placements.jsonl` in their order."""
        pods = pod_table(counted, objects, self.resources)
        shape = len(self.resources), len(self._index), len(self._at)
        shares = np.full(shape, ABSENT, dtype=np.uint8)
        for k, column in enumerate(self._columns):
            shares[:, : column.shape[1], k] = column
        allocatable = [self._allocatable[name] for name in self._index]
        return node_use("time_s", self._at, list(self._index), allocatable, shares, pods)


def node_use(
    axis: str,
    at: list[float],
    nodes: list[str],
    allocatable: list[list[int]],
    shares: Bytes,
    pods: RequestTable,
) -> NodeUse:
    """The file's content; see `NodeUse`."""
    return NodeUse(
        axis,
        at,
        pods.resources,
        nodes,
        allocatable,
        encode_runs(shares),
        pods.sizes,
        pods.pod_sizes,
        pods.grouped_by,
        pods.groups,
        pods.pod_groups,
    )


def use_of_fill(placements: Sequence[Placement], pods: RequestTable, nodes: NodeTable) -> NodeUse:
    """The use during a placement run, from its end: no pod leaves. nodes: at the end."""
    n_pods, n_nodes, n_resources = len(placements), nodes.n_nodes, len(pods.resources)
    at = sorted({round(n_pods * k / FILL_SAMPLES) for k in range(FILL_SAMPLES + 1)})
    bucket = np.searchsorted(at, np.arange(1, n_pods + 1))
    rows = {name: row for row, name in enumerate(nodes.names)}
    home = np.array([rows.get(one.node, -1) for one in placements], dtype=np.intp)
    sizes = np.array(pods.sizes, dtype=np.int64).reshape(len(pods.sizes), n_resources)
    asks = sizes[np.array(pods.pod_sizes, dtype=np.intp)]
    added = np.zeros((len(at), n_nodes, n_resources), dtype=np.int64)
    placed = home >= 0
    np.add.at(added, (bucket[placed], home[placed]), asks[placed])
    grown = added.cumsum(axis=0)
    shares = np.empty((n_resources, n_nodes, len(at)), dtype=np.uint8)
    for place, name in enumerate(pods.resources):
        before = nodes.requested(name) - grown[-1, :, place]
        used = (before + grown[:, :, place]).T
        shares[place] = as_steps(used, nodes.allocatable(name)[:, None])
    amounts = [nodes.allocatable(name).tolist() for name in pods.resources]
    allocatable = [[column[row] for column in amounts] for row in range(n_nodes)]
    return node_use(
        "pods", [float(one) for one in at], list(nodes.names), allocatable, shares, pods
    )


def as_steps(used: Ints, offered: Ints) -> Bytes:
    """uint8: share of `offered` that is used, in 200ths; `ABSENT` where nothing is offered."""
    share = np.full(np.broadcast_shapes(used.shape, offered.shape), float(ABSENT))
    np.divide(used * float(STEPS), offered, out=share, where=offered > 0)
    return np.where(offered > 0, np.clip(np.rint(share), 0, SHARE_MAX), ABSENT).astype(np.uint8)


def encode_runs(values: Bytes) -> str:
    """Base64 of pairs (value, length - 1) of runs along the last axis, in C order."""
    flat = values.reshape(-1)
    if not flat.size:
        return ""
    width = values.shape[-1]
    position = np.arange(flat.size)
    starts = np.flatnonzero(
        (position % width % 256 == 0) | np.concatenate(([True], flat[1:] != flat[:-1]))
    )
    lengths = np.diff(np.append(starts, flat.size))
    pairs = np.stack([flat[starts], (lengths - 1).astype(np.uint8)], axis=1)
    return base64.b64encode(pairs.astype(np.uint8).tobytes()).decode()


def decode_runs(text: str, shape: tuple[int, ...]) -> Bytes:
    """uint8 of this shape: the values of `encode_runs`; raises ValueError for another size."""
    pairs = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8).reshape(-1, 2)
    return np.repeat(pairs[:, 0], pairs[:, 1].astype(np.intp) + 1).reshape(shape)
