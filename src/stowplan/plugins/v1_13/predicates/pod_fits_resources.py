"""PodFitsResources: a pod slot and all requests of the pod.

Source: Kubernetes v1.13, predicates.PodFitsResources.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.nodeinfo import wrapped
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unschedulable
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_extended
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.resources.fit import format_amount
from stowplan.plugins.v1_13.resource_requests import (
    NATIVE_RESOURCES,
    RequestedByRow,
    requested_on,
    resource_requests_of,
)

ComparedResources = tuple[tuple[str, int], ...]

TOO_MANY_PODS = "Insufficient pods"

# A verdict is a sum of these bits: no pod slot, and one bit per resource that is short.
_TOO_MANY_PODS_BIT = 1
_FIRST_RESOURCE_BIT = 2
_RESOURCE_BITS = 56


class PodFitsResourcesArgs(PluginArgs, frozen=True):
    """ignored_resources: extended resources that an extender manages."""

    ignored_resources: tuple[str, ...] = ()


class PodFitsResources:
    """Filter on pod slots and requests.

    Differs: of resources after the fifty-sixth all are named when one is short; and the resources
    that an extender manages are ignored also when an affinity term is malformed.
    """

    name = "PodFitsResources"
    declaration = Plugin(name=name, reads=(), row_local=True)
    Args = PodFitsResourcesArgs

    def __init__(self, args: PodFitsResourcesArgs) -> None:
        self._ignored = frozenset(args.ignored_resources)

    def wanted(self, pod: Pod) -> ComparedResources:
        """The resources to compare, in the order of the reasons: none for a pod without requests.

        For a pod with any request, resources that it does not request may not be overcommitted
        either.
        """
        amounts = resource_requests_of(pod).wanted
        scalars = sorted(name for name in amounts if name not in NATIVE_RESOURCES)
        if not scalars and not any(amounts.get(name) for name in NATIVE_RESOURCES):
            return ()
        looked_after = [n for n in scalars if not (is_extended(n) and n in self._ignored)]
        return tuple((name, amounts.get(name, 0)) for name in (*NATIVE_RESOURCES, *looked_after))

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where a pod slot and all requests of the pod are free."""
        code = _TOO_MANY_PODS_BIT if len(node.pods) + 1 > node.pod_limit else 0
        for place, (name, asked) in enumerate(self.wanted(pod)):
            if node.allocatable.get(name, 0) < wrapped(asked + requested_on(node, name)):
                code |= _resource_bit(place)
        return self.filter_status(code, pod) if code else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        codes = (nodes.pod_count[rows] + 1 > nodes.pod_limit[rows]).astype(np.int64)
        wanted = self.wanted(pod)
        if wanted:
            amounts = RequestedByRow.of(nodes)
            for place, (name, asked) in enumerate(wanted):
                short = nodes.allocatable(name)[rows] < amounts.requested(name)[rows] + asked
                if short.any():
                    codes[short] |= _resource_bit(place)
        return codes

    def filter_status(self, code: int, pod: Pod) -> Status:
        """The refusal of a code: slots, cpu, memory, ephemeral storage, then by name."""
        return unschedulable(*self.reasons(code, pod))

    def reasons(self, code: int, pod: Pod) -> list[str]:
        """The resources that are short, in the original's words."""
        short = [
            name for place, (name, _) in enumerate(self.wanted(pod)) if code & _resource_bit(place)
        ]
        slots = [TOO_MANY_PODS] if code & _TOO_MANY_PODS_BIT else []
        return slots + [f"Insufficient {name}" for name in short]

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """Request and free amount of every resource that is short."""
        texts = []
        if len(node.pods) + 1 > node.pod_limit:
            free = node.pod_limit - len(node.pods)
            texts.append(f"pods: needs 1, {free} free of {node.pod_limit}")
        for name, asked in self.wanted(pod):
            whole = node.allocatable.get(name, 0)
            free = whole - requested_on(node, name)
            if free < asked:
                need, left, all_of_it = (format_amount(name, a) for a in (asked, free, whole))
                texts.append(f"{name}: needs {need}, {left} free of {all_of_it}")
        return texts

    def signature(self, pod: Pod) -> object:
        """The resources to compare, in order, as codes count positions."""
        return self.wanted(pod)


def _resource_bit(place: int) -> int:
    return _FIRST_RESOURCE_BIT << min(place, _RESOURCE_BITS)
