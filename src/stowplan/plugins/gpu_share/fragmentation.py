"""Fragmentation of a node's GPUs under typical pods, in seven categories.

GPU milli is a fragment where a typical pod cannot use it: its card has too little left, the node
too little CPU, or its model is not accepted. Typical pods without GPU count all of it.

Sums run over the typical pods in their order, then over the categories, in IEEE doubles, so that
figures are those of the original to the bit.

Source: hkust-adsl/kubernetes-scheduler-simulator, pkg/utils/frag.go (Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.objects.devices.gpu_cards import CardState, is_accessible

CATEGORIES = (
    "q1_lack_both",
    "q2_lack_gpu",
    "q3_satisfied",
    "q4_lack_cpu",
    "xl_satisfied",
    "xr_lack_cpu",
    "no_access",
)
Q1, Q2, Q3, Q4, XL, XR, NO_ACCESS = range(len(CATEGORIES))
FRAGMENTS = (Q1, Q2, Q4, XL, XR, NO_ACCESS)
"""The categories that count as fragments, in the order of their sum."""

CAUSES = {
    "cpu_short": (Q4, XR),
    "gpu_short": (Q2,),
    "both_short": (Q1,),
    "model": (NO_ACCESS,),
    "no_gpu_wanted": (XL,),
}
"""Why idle milli cannot be used -> the categories."""


class TypicalPod(msgspec.Struct, frozen=True):
    """A shape of pods and its share of the workload. milli: of each of `num` cards."""

    cpu_milli: int = 0
    num: int = 0
    milli: int = 0
    models: str = ""
    share: float = 0.0


# One node.


def category(state: CardState, typical: TypicalPod) -> int:
    """The category of a typical pod on a node, an index into CATEGORIES."""
    has_cpu = state.cpu_left >= typical.cpu_milli
    if typical.milli == 0:
        return XL if has_cpu else XR
    if not is_accessible(typical.models, state.model):
        return NO_ACCESS
    has_gpu = sum(left >= typical.milli for left in state.left) >= max(typical.num, 1)
    if has_gpu:
        return Q3 if has_cpu else Q4
    return Q2 if has_cpu else Q1


def milli_by_category(state: CardState, typical_pods: Sequence[TypicalPod]) -> list[float]:
    """Expected idle milli of a node in each category."""
    sums = [0.0] * len(CATEGORIES)
    total = state.total_left
    for typical in typical_pods:
        found = category(state, typical)
        if found == Q3:
            too_small = sum(left for left in state.left if left < typical.milli)
            sums[Q2] += typical.share * too_small
            sums[Q3] += typical.share * (total - too_small)
        else:
            sums[found] += typical.share * total
    return sums


def shares_by_category(state: CardState, typical_pods: Sequence[TypicalPod]) -> list[float]:
    """The share of the typical pods in each category."""
    sums = [0.0] * len(CATEGORIES)
    for typical in typical_pods:
        sums[category(state, typical)] += typical.share
    return sums


def fragment(milli: Sequence[float]) -> float:
    """The milli that are fragments, of the milli in each category."""
    amount = 0.0
    for one in FRAGMENTS:
        amount += milli[one]
    return amount


def fragment_of(state: CardState, typical_pods: Sequence[TypicalPod]) -> float:
    """The fragment of a node, in milli."""
    return fragment(milli_by_category(state, typical_pods))


# Many nodes, or many states of nodes.


class TypicalColumns:
    """Typical pods with their acceptance of each model.

    pods: in order. access: bool (n_typical, n_models).
    """

    def __init__(self, typical_pods: Sequence[TypicalPod], models: Sequence[str]) -> None:
        """models: those that rows refer to by index."""
        self.pods = tuple(typical_pods)
        self.access: Bools = np.array(
            [[is_accessible(pod.models, model) for model in models] for pod in self.pods],
            dtype=np.bool_,
        ).reshape(len(self.pods), len(models))


def milli_by_category_column(
    cpu_left: Ints, left: Ints, model: Ints, typical: TypicalColumns
) -> Floats:
    """float64 (n_rows, 7): `milli_by_category` of each row.

    cpu_left: int64 (n_rows,). left: int64 (n_rows, n_cards), negative where a row has no such card.
    model: int64 (n_rows,), index of the model.
    """
    n_rows = cpu_left.shape[0]
    sums = np.zeros((n_rows, len(CATEGORIES)))
    total = np.maximum(left, 0).sum(axis=1)
    row = np.arange(n_rows)
    for pod, access in zip(typical.pods, typical.access, strict=True):
        has_cpu = cpu_left >= pod.cpu_milli
        if pod.milli == 0:
            sums[row, np.where(has_cpu, XL, XR)] += pod.share * total
            continue
        suffices = left >= pod.milli
        has_gpu = suffices.sum(axis=1) >= max(pod.num, 1)
        found = np.where(has_gpu, np.where(has_cpu, Q3, Q4), np.where(has_cpu, Q2, Q1))
        found = np.where(access[model], found, NO_ACCESS)
        is_q3 = found == Q3
        too_small = np.where(is_q3, total - np.where(suffices, left, 0).sum(axis=1), 0)
        sums[:, Q2] += pod.share * too_small
        sums[row, found] += pod.share * (total - too_small)
    return sums


def fragment_column(milli: Floats) -> Floats:
    """float64 (n_rows,): `fragment` of each row of `milli_by_category_column`."""
    amount = np.zeros(milli.shape[0])
    for one in FRAGMENTS:
        amount += milli[:, one]
    return amount
