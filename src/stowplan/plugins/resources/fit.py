"""NodeResourcesFit: filter on free resources, score by utilization.

Source: kube-scheduler v1.36, plugins/noderesources/fit; dynamic-resource-allocation
extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.nodeinfo import allocatable_amounts, wrapped
from stowplan.framework import (
    OK,
    Code,
    Handle,
    NodeInfo,
    NodeTable,
    ObjectStore,
    Problem,
    Rows,
    Status,
    unresolvable,
)
from stowplan.framework.clusterevents import (
    DEVICE_CLASS,
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.deciders.kernel_terms import (
    KernelTerm,
    ResourceFit,
    ResourceScore,
    ScoredResource,
    ScoringStrategyType,
)
from stowplan.framework.plugin import SCORE_MAX, Plugin
from stowplan.framework.pod_groups.placements import PodGroupCycle, ProposedPlacement
from stowplan.objects.devices.device import DEVICE_CLASS_PREFIX, DeviceClass
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import (
    fit_requests,
    fit_score_requests,
    is_extended,
    is_scalar,
    is_tracked,
    pod_requests,
    requested,
)
from stowplan.objects.quantity import format_quantity
from stowplan.objects.selectors import label_key_errors
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.devices.extended_resources import is_device_resource
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint
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


class NodeResourcesFitArgs(PluginArgs, frozen=True):
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

    Extended resources that a DeviceClass provides are left to DynamicResources on nodes that have
    none of their own.

    Differs: they are so in recorded questions only, see DynamicResources.
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
        self._scored = frozenset(one.name for one in args.scoring_strategy.resources)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._ignores_any = bool(self._ignored or self._ignored_groups)
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
            if offered <= 0 and self._is_left_to_devices(name):
                continue
            if amount > node.free(name):
                code |= _resource_bit(place) | (_UNRESOLVABLE if amount > offered else 0)
        return self.filter_status(code, pod) if code else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        codes = (nodes.pod_count[rows] + 1 > nodes.pod_limit[rows]).astype(np.int64)
        for place, (name, amount) in enumerate(self.wanted(pod)):
            offered = nodes.allocatable(name)[rows]
            short = amount > offered - nodes.requested(name)[rows]
            if self._is_left_to_devices(name):
                short &= offered > 0
            if short.any():
                codes[short] |= _resource_bit(place)
                codes[short & (amount > offered)] |= _UNRESOLVABLE
        return codes

    def code_of_row(
        self, wanted: RequestedResources, n_slots: int, amounts: Iterable[tuple[int, int]]
    ) -> int:
        """The code of one row, for a pod that leaves no resource to devices. wanted: see `wanted`.
        n_slots: free pod slots. amounts: of each resource what the node has, and what is free."""
        code = 0 if n_slots > 0 else _TOO_MANY_PODS
        for place, ((_, amount), (offered, free)) in enumerate(zip(wanted, amounts, strict=True)):
            if amount > free:
                code |= _resource_bit(place) | (_UNRESOLVABLE if amount > offered else 0)
        return code

    def may_leave_to_devices(self, wanted: RequestedResources) -> bool:
        """True where DynamicResources may provide one of these resources."""
        return self.handle.gates.dra_extended_resource and any(
            is_device_resource(name) for name, _ in wanted
        )

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
        allocatable, requested = node.allocatable, node.requested
        limit = allocatable.get("pods", 0)
        if len(node.pods) + 1 > limit:
            texts.append(f"pods: needs 1, {limit - len(node.pods)} free of {limit}")
        for name, amount in self.wanted(pod):
            whole = allocatable.get(name, 0)
            free = wrapped(whole - requested.get(name, 0))
            if amount > free:
                need, offered = _amount_text(name, amount), _amount_text(name, whole)
                texts.append(f"{name}: needs {need}, {format_amount(name, free)} free of {offered}")
        return texts

    def explain_column(self, pod: Pod, nodes: NodeTable, rows: Ints) -> list[list[str]]:
        """`explain` of each row."""
        texts: list[list[str]] = [[] for _ in range(rows.shape[0])]
        limits, counts = nodes.pod_limit[rows], nodes.pod_count[rows]
        for place in np.flatnonzero(counts + 1 > limits).tolist():
            limit = int(limits[place])
            texts[place].append(f"pods: needs 1, {limit - int(counts[place])} free of {limit}")
        for name, amount in self.wanted(pod):
            whole = nodes.allocatable(name)[rows]
            free = whole - nodes.requested(name)[rows]
            short = np.flatnonzero(free < amount)
            need = f"{name}: needs {_amount_text(name, amount)}, "
            left, offered = free[short].tolist(), whole[short].tolist()
            known: dict[tuple[int, int], str] = {}
            for place, some, size in zip(short.tolist(), left, offered, strict=True):
                text = known.get((some, size))
                if text is None:
                    text = f"{format_amount(name, some)} free of {_amount_text(name, size)}"
                    text = known[some, size] = need + text
                texts[place].append(text)
        return texts

    def wanted(self, pod: Pod) -> RequestedResources:
        """Requests of the pod, without the ignored resources."""
        wanted = _pod_requests(pod)
        if self._ignores_any:
            return tuple((name, amount) for name, amount in wanted if not self.ignores(name))
        return wanted

    def ignores(self, resource: str) -> bool:
        """True for an extended resource that the arguments name, itself or by its group."""
        if not self._ignores_any or not is_extended(resource):
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

    def score_placement(self, placement: ProposedPlacement, cycle: PodGroupCycle) -> int:
        """Utilization of all nodes of a placement together with the group's pods: the highest is
        the best, whatever the strategy says."""
        known = placement.scores.get(self.name)
        if known is None:
            known = placement.scores[self.name] = self._placement_score(placement, cycle)
        return known

    def _placement_score(self, placement: ProposedPlacement, cycle: PodGroupCycle) -> int:
        nodes, rows = cycle.snapshot.nodes, placement.placement.rows
        requests = [_score_requests(pod) for pod, _ in placement.assignments]
        score = weights = 0
        for one in self.args.scoring_strategy.resources:
            wanted = sum(amounts.get(one.name, 0) for amounts in requests)
            if not is_tracked(one.name) or (wanted == 0 and is_scalar(one.name)):
                continue
            offered = nodes.allocatable(one.name)[rows]
            fills_in = one.name in NONZERO_RESOURCES
            column = nodes.nonzero_requested if fills_in else nodes.requested
            whole = int(offered.sum())
            if whole:
                taken = wanted + int(column(one.name)[rows][offered != 0].sum())
                score += min(taken, whole) * SCORE_MAX // whole * one.weight
                weights += one.weight
        return score // weights if weights else 0

    def kernel_terms(self, pod: Pod) -> tuple[KernelTerm, ...] | None:
        """The fit and the utilization score of the pod, as kernel terms."""
        if self.pre_filter(pod) is not OK:
            return None
        return ResourceFit(self.wanted(pod)), self._use(pod)

    def resource_kind(self, resource: str) -> object:
        """Equal for resources that kernel terms treat alike; see `PluginPoints`."""
        if resource in self._scored or not is_extended(resource):
            return resource
        return self._ignores_any and self.ignores(resource)

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
        events = (
            on(POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, _after_pod_freed),
            on(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self._after_node),
        )
        if not self.handle.gates.dra_extended_resource:
            return events
        return (*events, on(DEVICE_CLASS, Action.ADD | Action.UPDATE, _after_device_class))

    def _after_node(self, pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        """The pod would fit on the empty node, and the node has more of what it requests."""
        wanted, offered = _pod_requests(pod), allocatable_amounts(new)
        if not _fits_empty_node(wanted, offered, self._is_delegated):
            return QUEUE_SKIP
        return queueing_hint(
            old is None
            or _has_more_allocatable(wanted, allocatable_amounts(old), offered, self._is_delegated)
        )

    def _is_left_to_devices(self, resource: str) -> bool:
        """True for a resource that DynamicResources provides where a node has none."""
        if not self.handle.gates.dra_extended_resource or not is_device_resource(resource):
            return False
        return (
            resource
            in ClusterDevices.of(self.handle.shared.object_store, self.handle.gates).by_resource
        )

    def _is_delegated(self, resource: str) -> bool:
        """True for an extended resource that a device class may provide."""
        if not (self.handle.gates.dra_extended_resource and is_scalar(resource)):
            return False
        return _has_class(resource, self.handle.shared.object_store)

    def signature(self, pod: Pod) -> object:
        """Requests as Filter and as Score count them.

        In order: a code of `filter_column` counts positions, so pods that share codes must have the
        same resource at each position.
        """
        return self.wanted(pod), frozenset(_score_requests(pod).items())


def format_amount(resource: str, amount: int) -> str:
    """An amount as text: CPU in milli-CPU throughout, so that request and free amount compare."""
    return f"{amount}m" if resource == "cpu" else format_quantity(resource, amount)


_amount_text = lru_cache(maxsize=1024)(format_amount)
"""For amounts of which there are few: requests of a pod, sizes of nodes."""


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


# Queueing hints.


def _after_pod_freed(pod: Pod, old: Pod, new: Pod | None) -> QueueingHint:
    """An assigned pod was deleted; a bound pod, or the pod itself, was scaled down."""
    if new is None:
        return queueing_hint(is_assigned_or_nominated(old))
    if new.uid == pod.uid:
        return QUEUE_POD
    if not new.node_name:
        return QUEUE_SKIP
    before, after = requested(old), requested(new)
    return queueing_hint(
        any(
            before.get(name, 0) > after.get(name, 0)
            for name, amount in requested(pod).items()
            if amount != 0
        )
    )


def _after_device_class(pod: Pod, old: DeviceClass | None, new: DeviceClass) -> QueueingHint:
    """A device class now provides an extended resource that the pod requests."""
    named = new.spec.extended_resource_name
    asked = pod_requests(pod, use_status=False)
    if old is None:
        if DEVICE_CLASS_PREFIX + new.name in asked:
            return QUEUE_POD
    elif (old.spec.extended_resource_name or "") == (named or ""):
        return QUEUE_SKIP
    return queueing_hint(named is not None and named in asked)


def _has_class(resource: str, object_store: ObjectStore) -> bool:
    """True when a device class provides the resource, by its name or its `extendedResourceName`."""
    if resource.startswith(DEVICE_CLASS_PREFIX):
        name = resource.removeprefix(DEVICE_CLASS_PREFIX)
        if object_store.find(DeviceClass, name) is not None:
            return True
    return any(one.spec.extended_resource_name == resource for one in object_store.all(DeviceClass))


def _fits_empty_node(
    wanted: RequestedResources, offered: dict[str, int], delegated: Callable[[str], bool]
) -> bool:
    """True when the pod would fit on the empty node."""
    return offered.get("pods", 0) >= 1 and all(
        amount <= offered.get(name, 0) or (offered.get(name, 0) <= 0 and delegated(name))
        for name, amount in wanted
    )


def _has_more_allocatable(
    wanted: RequestedResources,
    before: dict[str, int],
    after: dict[str, int],
    delegated: Callable[[str], bool],
) -> bool:
    """True when the node has more of a resource that the pod requests, or more pod slots."""
    return after.get("pods", 0) > before.get("pods", 0) or any(
        after.get(name, 0) > before.get(name, 0) or (after.get(name, 0) <= 0 and delegated(name))
        for name, _ in wanted
    )
