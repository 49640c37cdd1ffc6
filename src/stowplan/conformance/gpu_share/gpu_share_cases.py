"""Cases of shared GPUs: clusters, pods, policies, and the cluster of a case.

Source: hkust-adsl/kubernetes-scheduler-simulator (Weng et al., USENIX ATC 2023), whose answers are
recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.conformance.case_lines import case_reader
from stowplan.objects.devices.gpu_cards import (
    GpuShareRequest,
    card_indices,
)
from stowplan.plugins.gpu_share.card_choice import CardChoiceOptions, CardSelection
from stowplan.plugins.gpu_share.card_filter import fits_cards, fits_cards_column
from stowplan.plugins.gpu_share.card_table import CardTable
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.plugins.gpu_share.policies import GpuPolicy
from stowplan.plugins.gpu_share.scores.dot_product import DotProductExtension, DotProductNorm
from stowplan.plugins.gpu_share.typical_pods import TypicalPodsOptions

POD_CPU_DEFAULT = 100
"""CPU milli of a pod without CPU request, for policies."""
PODS_MAX = 1001
"""Pods of each node."""


class GpuCasePod(msgspec.Struct, frozen=True):
    """A pod. None: the request or the annotation is absent. cards: of a placed pod."""

    cpu_milli: int | None = None
    memory_mib: int | None = None
    num_gpu: int | None = None
    gpu_milli: int | None = None
    gpu_spec: str | None = None
    gpu_index: str | None = None
    cards: tuple[int, ...] = ()
    name: str = ""
    count: int = 1

    @property
    def request(self) -> GpuShareRequest:
        """The request as policies see it."""
        return GpuShareRequest(
            POD_CPU_DEFAULT if self.cpu_milli is None else self.cpu_milli,
            self.num_gpu or 0,
            self.gpu_milli or 0,
            self.gpu_spec or "",
            None if self.gpu_index is None else card_indices(self.gpu_index),
        )

    @property
    def cpu(self) -> int:
        """CPU milli as the node counts it."""
        return self.cpu_milli or 0

    @property
    def memory(self) -> int:
        """MiB."""
        return self.memory_mib or 0


class GpuCaseNode(msgspec.Struct, frozen=True):
    """A node. gpu: number of cards."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpu: int
    model: str = ""
    pods: tuple[GpuCasePod, ...] = ()


class GpuCaseTypicalPod(msgspec.Struct, frozen=True):
    """A typical pod."""

    cpu_milli: int = 0
    num_gpu: int = 0
    gpu_milli: int = 0
    gpu_spec: str = ""
    share: float = 0.0

    @classmethod
    def of(cls, typical: TypicalPod) -> GpuCaseTypicalPod:
        """The pod as a line has it."""
        return cls(typical.cpu_milli, typical.num, typical.milli, typical.models, typical.share)


class GpuCaseOptions(msgspec.Struct, frozen=True):
    """Options of a policy."""

    gpu_sel: CardSelection = CardSelection.BEST
    dim_ext: DotProductExtension = DotProductExtension.SHARE
    norm: DotProductNorm = DotProductNorm.MAX


class GpuCasePlacement(msgspec.Struct, frozen=True):
    """Where a pod goes; None: nowhere."""

    node: str | None = None
    cards: tuple[int, ...] = ()


class GpuShareCase(msgspec.Struct, frozen=True):
    """A case of any family; each family has its own of these fields."""

    id: str
    family: str
    note: str = ""
    nodes: tuple[GpuCaseNode, ...] = ()
    pod: GpuCasePod | None = None
    typical: tuple[GpuCaseTypicalPod, ...] | None = None
    policy: GpuPolicy | None = None
    options: GpuCaseOptions = GpuCaseOptions()
    workload: tuple[GpuCasePod, ...] = ()
    config: TypicalPodsOptions = TypicalPodsOptions()
    order: tuple[int, ...] = ()
    given: tuple[GpuCasePlacement, ...] | None = None
    desched: str = ""
    ratio: float = 0.0

    @property
    def typical_pods(self) -> tuple[TypicalPod, ...]:
        """The typical pods; none where the case has none."""
        return tuple(
            TypicalPod(one.cpu_milli, one.num_gpu, one.gpu_milli, one.gpu_spec, one.share)
            for one in self.typical or ()
        )

    @property
    def choice(self) -> CardChoiceOptions:
        """Options of the choice of cards."""
        options = self.options
        return CardChoiceOptions(options.gpu_sel, options.dim_ext, options.norm, self.typical_pods)


read_case = case_reader(GpuShareCase)


class GpuCaseCluster:
    """Nodes of a case with their pods, in order."""

    def __init__(self, nodes: Iterable[GpuCaseNode]) -> None:
        self.nodes = tuple(nodes)
        self.names = [node.name for node in self.nodes]
        self.pods: list[list[GpuCasePod]] = [[] for _ in self.nodes]
        self.table = CardTable()
        self._memory_used = [0] * len(self.nodes)
        self.table.add_rows(len(self.nodes))
        self.table.set_nodes(
            range(len(self.nodes)), [(node.cpu_milli, node.gpu, node.model) for node in self.nodes]
        )
        for row, node in enumerate(self.nodes):
            for pod in node.pods:
                self.add(row, pod, pod.cards)

    def add(self, row: int, pod: GpuCasePod, cards: Iterable[int]) -> None:
        """Place a pod on these cards of a node."""
        self._memory_used[row] += pod.memory
        placed = msgspec.structs.replace(pod, cards=tuple(cards))
        self.pods[row].append(placed)
        self.table.add_pod(row, pod.cpu, pod.request, placed.cards)

    def remove(self, row: int, pod: GpuCasePod) -> None:
        """Remove a placed pod."""
        self._memory_used[row] -= pod.memory
        self.pods[row].remove(pod)
        self.table.remove_pod(row, pod.cpu, pod.request, pod.cards)

    def insufficient(self, row: int, pod: GpuCasePod) -> list[str]:
        """Reasons of kube-scheduler 1.20's NodeResourcesFit."""
        reasons = ["Too many pods"] if len(self.pods[row]) + 1 > PODS_MAX else []
        if pod.cpu == 0 and pod.memory == 0:
            return reasons
        if pod.cpu > self.table.state(row).cpu_left:
            reasons.append("Insufficient cpu")
        if pod.memory > self.nodes[row].memory_mib - self._memory_used[row]:
            reasons.append("Insufficient memory")
        return reasons

    def feasible(self, pod: GpuCasePod, *, columns: bool) -> Bools:
        """bool (n_nodes,): nodes that pass all filters. columns: by column, else node by node."""
        request, rows = pod.request, range(len(self.nodes))
        if columns:
            fits = fits_cards_column(self.table.columns(), request)
        else:
            found = [fits_cards(self.table.state(row), request) for row in rows]
            fits = np.array(found, dtype=np.bool_)
        has_resources = [not self.insufficient(row, pod) for row in rows]
        feasible: Bools = fits & np.array(has_resources, dtype=np.bool_)
        return feasible
