"""NodeResourcesBalancedAllocation: prefer nodes whose resources are used evenly with the pod.

Source: kube-scheduler v1.36, plugins/noderesources/balanced_allocation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import force_setattr

from stowplan.columns.array_types import Floats, Ints
from stowplan.columns.pods.podinfo import reports_resources
from stowplan.framework import OK, SCORE_MAX, SKIP, NodeInfo, NodeTable, Problem, Rows, Status
from stowplan.framework.deciders.kernel_terms import BalancedAllocation, KernelTerm
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import balanced_requests
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import divide_truncated
from stowplan.plugins.resources.resource_allocation import (
    DEFAULT_RESOURCES,
    NodeResourceReader,
    ResourceReader,
    ResourceSpec,
    ResourceUtilization,
    RowsResourceReader,
    resource_utilizations,
    score_resources,
    scored_requests,
)

_KEPT = "NodeResourcesBalancedAllocation"


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """resources: those whose use is balanced; none means cpu and memory."""

    resources: tuple[ResourceSpec, ...] = ()

    def __post_init__(self) -> None:
        if not self.resources:
            force_setattr(self, "resources", DEFAULT_RESOURCES)

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments. path: their place in the configuration."""
        seen: set[str] = set()
        for i, resource in enumerate(self.resources):
            at = f"{path}.resources[{i}]"
            if resource.name in seen:
                yield Problem(f"{at}.name", f"{resource.name!r} again", "each resource once")
            seen.add(resource.name)
            if resource.weight != 1:
                yield Problem(f"{at}.weight", str(resource.weight), "1")


class NodeResourcesBalancedAllocation:
    """Score by how much the pod balances the use of a node's resources."""

    name = "NodeResourcesBalancedAllocation"
    declaration = Plugin(name=name, reads=(), row_local=True, scores_by_amounts=True)
    Args = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self.args = args
        self._names = tuple(resource.name for resource in args.resources)

    def pre_score(self, pod: Pod) -> Status:
        """Skip for a pod without requests: all nodes that are not full would score the same."""
        return OK if any(self.requests(pod).values()) else SKIP

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """75 where the balance is unchanged, up to 100 where it improves, down to 50."""
        return int(self._scores(pod, NodeResourceReader(node))[0])

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return self._scores(pod, RowsResourceReader(nodes, rows))

    def requests(self, pod: Pod) -> dict[str, int]:
        """Requests of the pod for the scored resources, in base units, resizes included."""
        if reports_resources(pod):
            return self._counted(pod)
        kept: dict[tuple[str, ...], dict[str, int]] = pod.spec.__dict__.setdefault(_KEPT, {})
        if self._names not in kept:
            kept[self._names] = self._counted(pod)
        return kept[self._names]

    def _counted(self, pod: Pod) -> dict[str, int]:
        amounts = balanced_requests(pod, self._names)
        return {name: amounts[name] for name in self._names if name in amounts}

    def kernel_terms(self, pod: Pod) -> tuple[KernelTerm, ...] | None:
        """The resources to balance; none for a pod that requests none of them."""
        requests = self.requests(pod)
        if not any(requests.values()):
            return ()
        held = scored_requests(self.args.resources, requests)
        return (BalancedAllocation(tuple((resource.name, request) for resource, request in held)),)

    def resource_kind(self, resource: str) -> object:
        """Equal for resources that kernel terms treat alike; see `PluginPoints`."""
        return resource if resource in self._names else None

    def _scores(self, pod: Pod, source: ResourceReader) -> Ints:
        requests = self.requests(pod)
        if not any(requests.values()):
            return np.zeros(source.n_rows, dtype=np.int64)
        held = resource_utilizations(source, self.args.resources, requests, fill_in=False)
        return score_resources(held, source.n_rows, balanced_allocation_score)

    def signature(self, pod: Pod) -> object:
        """Requests for the scored resources."""
        return frozenset(self.requests(pod).items())


def balanced_allocation_score(held: Sequence[ResourceUtilization], n_rows: int) -> Ints:
    """int64 (n_rows,): 75, plus half of what the pod adds to the balance."""
    wholes = [stock.allocatable.astype(np.float64) for stock in held]
    after = balanced_fraction_score([stock.taken() for stock in held], wholes, n_rows)
    before = balanced_fraction_score([stock.before for stock in held], wholes, n_rows)
    half = SCORE_MAX // 2
    return half + divide_truncated(half + after - before, 2)


def balanced_fraction_score(taken: Sequence[Ints], wholes: Sequence[Floats], n_rows: int) -> Ints:
    """int64 (n_rows,): 100 where every resource is used to the same fraction, less elsewhere."""
    fractions = [
        np.minimum(amount.astype(np.float64) / whole, 1.0)
        for amount, whole in zip(taken, wholes, strict=True)
    ]
    scores: Ints = ((1 - standard_deviation(fractions, n_rows)) * SCORE_MAX).astype(np.int64)
    return scores


def standard_deviation(fractions: Sequence[Floats], n_rows: int) -> Floats:
    """float64 (n_rows,): the standard deviation of the fractions of each row."""
    n_fractions = len(fractions)
    if n_fractions < 2:
        return np.zeros(n_rows)
    if n_fractions == 2:
        # Algebraically the same as below, but not to the last bit.
        first, second = fractions
        return np.abs((first - second) / 2)
    # Added one by one: NumPy's sums use another order.
    total, squares = np.zeros(n_rows), np.zeros(n_rows)
    for fraction in fractions:
        total = total + fraction
    mean = total / n_fractions
    for fraction in fractions:
        squares = squares + (fraction - mean) * (fraction - mean)
    return np.sqrt(squares / n_fractions)
