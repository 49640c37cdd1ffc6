"""NodeResourcesFit: filter on free resources, score by utilization.

Source: kube-scheduler v1.36, plugins/noderesources/fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    Code,
    Handle,
    NodeInfo,
    NodeTable,
    Problem,
    Rows,
    Status,
    unresolvable,
)
from stowplan.framework.clusterevents import RegisteredEvents
from stowplan.framework.deciders.kernel_terms import (
    KernelTerm,
    ResourceFit,
    ResourceScore,
    ScoredResource,
    ScoringStrategyType,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.devices.device import DeviceClass
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests, fit_score_requests, is_extended
from stowplan.objects.quantity import format_quantity
from stowplan.objects.selectors import label_key_errors
from stowplan.plugins.resources.hints import fit_events
from stowplan.plugins.resources.resource_allocation import (
    NONZERO_RESOURCES,
    NodeResourceReader,
    ResourceReader,
    RowsResourceReader,
    resource_utilizations,
    score_resources,
    scored_requests,
)
from stowplan.plugins.resources.scoring_strategy import LEAST, RATIO, ScoringStrategy
from stowplan.plugins.utilization_shape import piecewise_linear_scores

_KEPT = "NodeResourcesFit"
_KEPT_FOR_SCORE = "NodeResourcesFit.score"

# A verdict is a sum of these bits, and one bit per resource that is short.
_TOO_MANY_PODS = 1
_UNRESOLVABLE = 2
_FIRST_RESOURCE_BIT = 4
_RESOURCE_BITS = 60

RequestedResources = tuple[tuple[str, int], ...]
"""(resource, amount in base units) of a pod's requests, every amount above 0."""


class NodeResourcesFitArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Arguments of NodeResourcesFit: extended resources that Filter ignores, and the scoring
    strategy.

    ignored_resources: full names. ignored_resource_groups: the part before the slash.
    """

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type=LEAST)

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments. path: their place in the configuration."""
        for i, name in enumerate(self.ignored_resources):
            for fault in label_key_errors(name):
                yield Problem(f"{path}.ignoredResources[{i}]", repr(name), fault)
        for i, group in enumerate(self.ignored_resource_groups):
            at = f"{path}.ignoredResourceGroups[{i}]"
            faults = label_key_errors(group)
            if "/" in group:
                faults = ("the part before the slash only", *faults)
            yield from (Problem(at, repr(group), fault) for fault in faults)
        yield from self.scoring_strategy.problems(f"{path}.scoringStrategy")


class NodeResourcesFit:
    """Filter on free resources and pod slots, score by utilization.

    Differs: extended resources that a DeviceClass maps to devices are not left to DynamicResources,
    because device classes are not read yet.
    """

    name = "NodeResourcesFit"
    declaration = Plugin(
        name=name,
        reads=(DeviceClass,),
        row_local=True,
        by_amounts=True,
        scores_by_amounts=True,
        filters_resources=True,
        takes_ignored_resources=True,
    )
    Args = NodeResourcesFitArgs
    TOO_MANY_PODS = "Too many pods"
    SIDECARS_DISABLED = unresolvable(
        "Pod has a restartable init container and the SidecarContainers feature is disabled"
    )

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        self.args = args
        self.handle = handle
        self._sidecars_allowed = handle.gates.sidecar_containers
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._rule = args.scoring_strategy.rule()

    # Filter.

    def pre_filter(self, pod: Pod) -> Status:
        """Success, unless the pod has sidecars and their gate is off."""
        if not self._sidecars_allowed and any(c.is_sidecar for c in pod.spec.init_containers):
            return self.SIDECARS_DISABLED
        return OK

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where a pod slot and all requests of the pod are free.

        The refusal names every resource that is short. It is unresolvable if a request exceeds what
        the node has at all: then no eviction can help.
        """
        code = _TOO_MANY_PODS if len(node.pods) + 1 > node.pod_limit else 0
        for place, (name, amount) in enumerate(self.wanted(pod)):
            offered = node.allocatable.get(name, 0)
            if amount > node.free(name):
                code |= _resource_bit(place) | (_UNRESOLVABLE if amount > offered else 0)
        return self.filter_status(code, pod) if code else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        codes = (nodes.pod_count[rows] + 1 > nodes.pod_limit[rows]).astype(np.int64)
        for place, (name, amount) in enumerate(self.wanted(pod)):
            offered = nodes.allocatable(name)[rows]
            short = amount > offered - nodes.requested(name)[rows]
            if short.any():
                codes[short] |= _resource_bit(place)
                codes[short & (amount > offered)] |= _UNRESOLVABLE
        return codes

    def filter_status(self, code: int, pod: Pod) -> Status:
        """The refusal of a code: its reasons in the order slots, cpu, memory, others.

        Differs: for a pod with more than sixty resources, all of those after the sixtieth are named
        when one is short.
        """
        reasons = [self.TOO_MANY_PODS] if code & _TOO_MANY_PODS else []
        reasons += [
            f"Insufficient {name}"
            for place, (name, _) in enumerate(self.wanted(pod))
            if code & _resource_bit(place)
        ]
        hopeless = (
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE if code & _UNRESOLVABLE else Code.UNSCHEDULABLE
        )
        return Status(hopeless, tuple(reasons))

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """Request and free amount of every resource that is short."""
        texts = []
        if len(node.pods) + 1 > node.pod_limit:
            texts.append(
                f"pods: needs 1, {node.pod_limit - len(node.pods)} free of {node.pod_limit}"
            )
        for name, amount in self.wanted(pod):
            if amount > node.free(name):
                offered = node.allocatable.get(name, 0)
                need, free, whole = (
                    format_amount(name, a) for a in (amount, node.free(name), offered)
                )
                texts.append(f"{name}: needs {need}, {free} free of {whole}")
        return texts

    def wanted(self, pod: Pod) -> RequestedResources:
        """Requests of the pod, without the ignored resources."""
        wanted = _pod_requests(pod)
        if self._ignored or self._ignored_groups:
            return tuple((name, amount) for name, amount in wanted if not self.ignores(name))
        return wanted

    def ignores(self, resource: str) -> bool:
        """True for an extended resource that the arguments name, itself or by its group."""
        if not is_extended(resource):
            return False
        return resource in self._ignored or resource.split("/")[0] in self._ignored_groups

    # Score.

    def pre_score(self) -> Status:
        """Success: every pod is scored. Configurations may name PreScore of this plugin."""
        return OK

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """The score of the strategy for `node` with the pod on it."""
        return int(self._scores(pod, NodeResourceReader(node))[0])

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return self._scores(pod, RowsResourceReader(nodes, rows))

    def _scores(self, pod: Pod, source: ResourceReader) -> Ints:
        resources = self.args.scoring_strategy.resources
        held = resource_utilizations(source, resources, _score_requests(pod), fill_in=True)
        return score_resources(held, source.n_rows, self._rule)

    def parts(self, pod: Pod) -> tuple[KernelTerm, ...] | None:
        """The fit and the utilization score of the pod, as kernel terms."""
        if self.pre_filter(pod) is not OK:
            return None
        return ResourceFit(self.wanted(pod)), self._use(pod)

    def _use(self, pod: Pod) -> ResourceScore:
        strategy, requests = self.args.scoring_strategy, _score_requests(pod)
        resources = tuple(
            ScoredResource(one.name, one.weight, request, one.name in NONZERO_RESOURCES)
            for one, request in scored_requests(strategy.resources, requests)
        )
        ratio = strategy.requested_to_capacity_ratio
        if strategy.type != RATIO or ratio is None:
            kind = ScoringStrategyType.LEAST if strategy.type == LEAST else ScoringStrategyType.MOST
            return ResourceScore(kind, resources)
        return ResourceScore(
            ScoringStrategyType.RATIO,
            resources,
            tuple(piecewise_linear_scores(ratio.shape).tolist()),
        )

    def events_to_register(self) -> RegisteredEvents:
        """Resources are freed by a pod, a node or a device class."""
        shared, devices = self.handle.shared, self.handle.gates.dra_extended_resource
        return fit_events(_pod_requests, lambda: shared.object_store, devices=devices)

    def signature(self, pod: Pod) -> object:
        """Requests as Filter and as Score count them.

        In order: a code of `filter_column` counts positions, so pods that share codes must have the
        same resource at each position.
        """
        return self.wanted(pod), frozenset(_score_requests(pod).items())


def format_amount(resource: str, amount: int) -> str:
    """An amount as text: CPU in milli-CPU throughout, so that request and free amount compare."""
    return f"{amount}m" if resource == "cpu" else format_quantity(resource, amount)


def _resource_bit(place: int) -> int:
    return _FIRST_RESOURCE_BIT << min(place, _RESOURCE_BITS)


def _pod_requests(pod: Pod) -> RequestedResources:
    """Requests of the pod: cpu, memory, ephemeral storage, then the rest in the pod's order."""
    kept: RequestedResources | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        amounts = fit_requests(pod)
        first = ("cpu", "memory", "ephemeral-storage")
        names = [*first, *(name for name in amounts if name not in first)]
        kept = tuple((name, amounts[name]) for name in names if amounts.get(name, 0) > 0)
        pod.spec.__dict__[_KEPT] = kept
    return kept


def _score_requests(pod: Pod) -> dict[str, int]:
    kept: dict[str, int] | None = pod.spec.__dict__.get(_KEPT_FOR_SCORE)
    if kept is None:
        kept = pod.spec.__dict__[_KEPT_FOR_SCORE] = fit_score_requests(pod)
    return kept
