"""A workload of the OpenB trace, and the order in which a run of the published experiment has it.

Source: hkust-adsl/kubernetes-scheduler-simulator, experiments (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeVar

from stowplan.columns import PodInfo
from stowplan.experiments.gpu_sharing.go_random import GoRandom
from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError
from stowplan.inputs.openb import OpenBReader
from stowplan.objects.devices.gpu_cards import CARD_MILLI, COUNT_KEY, GpuShareRequest
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import gpu_request_of

NodeOrPod = TypeVar("NodeOrPod", Node, Pod)

NODES_FILE = "openb_node_list_gpu_node.csv"
PODS_FILES = "openb_pod_list_{}.csv"
WORKLOADS = (
    "default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80",
    "gpushare100", "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30",
    "multigpu40", "multigpu50",
)  # fmt: skip
"""Those of the paper."""

TARGET_PERCENT = 130
"""Requested milli of all pods that arrive, in percent of the cluster's."""
N_IGNORED = 10
"""Numbers that the original's watches draw before the nodes are ordered."""


class Arrivals(NamedTuple):
    """pods: indices into the workload's pods. rank: of each node; ties go to the smallest."""

    pods: list[int]
    rank: list[int]


class OpenBWorkload(NamedTuple):
    """Nodes and pods, each sorted by name, and what each pod requests."""

    name: str
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    requests: tuple[GpuShareRequest, ...]

    @property
    def n_cards(self) -> int:
        """Cards of all nodes."""
        return sum(int(node.status.allocatable.get(COUNT_KEY, 0)) for node in self.nodes)

    def arrivals(self, seed: int) -> Arrivals:
        """The order of a run: shuffled pods, clones or deletions up to the target, and the order of
        nodes."""
        generator = GoRandom(seed)
        generator.int63()
        order = list(range(len(self.pods)))
        generator.shuffle(order)
        totals = [request.total_milli for request in self.requests]
        target = self.n_cards * CARD_MILLI * TARGET_PERCENT / 100
        requested = sum(totals)
        if requested >= target or not any(totals):
            while requested > target:
                requested -= totals[order.pop(generator.below(len(order)))]
        else:
            # A pod of several cards may exceed the target: one more number is drawn all the same.
            index = generator.below(len(totals))
            while requested + self.requests[index].milli <= target:
                order.append(index)
                requested += totals[index]
                index = generator.below(len(totals))
        for _ in range(N_IGNORED):
            generator.int63()
        return Arrivals(order, generator.permutation(len(self.nodes)))


def read_workload(folder: str | Path, name: str) -> OpenBWorkload:
    """A workload from the folder with the published files; raises InputError."""
    files = Path(folder) / NODES_FILE, Path(folder) / PODS_FILES.format(name)
    return workload_of(name, *((read_bytes(path).decode(), str(path)) for path in files))


def workload_of(name: str, nodes: tuple[str, str], pods: tuple[str, str]) -> OpenBWorkload:
    """A workload of two texts in the published format, each with its source; raises InputError."""
    reader = OpenBReader()
    sorted_nodes, sorted_pods = _sorted(reader, *nodes, Node), _sorted(reader, *pods, Pod)
    requests = tuple(gpu_request_of(PodInfo.of(pod)) for pod in sorted_pods)
    return OpenBWorkload(name, sorted_nodes, sorted_pods, requests)


def _sorted(
    reader: OpenBReader, text: str, source: str, kind: type[NodeOrPod]
) -> tuple[NodeOrPod, ...]:
    found: list[NodeOrPod] = []
    for place, value in reader.objects(text, source):
        if not isinstance(value, kind):
            wanted = f"a file of {kind.__name__.lower()}s"
            raise InputError(source, place, type(value).__name__, wanted)
        found.append(value)
    return tuple(sorted(found, key=lambda one: one.metadata.name))
