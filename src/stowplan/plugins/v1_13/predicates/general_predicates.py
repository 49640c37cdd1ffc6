"""HostName, PodFitsHostPorts, and GeneralPredicates: resources, host name, host ports and node
selector in one, all reasons named.

Source: Kubernetes v1.13, predicates.PodFitsHost, PodFitsHostPorts and GeneralPredicates.
"""

from __future__ import annotations

from stowplan.columns.array_types import Ints
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.plugin import Plugin
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.plugins.node_name import NodeNameFilter
from stowplan.plugins.node_ports import HostPortsFilter
from stowplan.plugins.v1_13.predicates.match_node_selector import MatchNodeSelector
from stowplan.plugins.v1_13.predicates.pod_fits_resources import (
    PodFitsResources,
    PodFitsResourcesArgs,
)

# A verdict is a sum of these bits; the bits above are those of PodFitsResources.
_BITS = 3


class HostName(NodeNameFilter):
    """Filter on `spec.nodeName`."""

    name = "HostName"
    declaration = Plugin(name=name, reads=())
    REJECTED = unresolvable("node(s) didn't match the requested hostname")


class PodFitsHostPorts(HostPortsFilter):
    """Filter on host ports.

    Differs: the host ports of sidecars, which 1.13 does not know, count too.
    """

    name = "PodFitsHostPorts"
    row_local = True
    reads: tuple[type[Object], ...] = ()


class PodFitsPorts(PodFitsHostPorts):
    """The old name of PodFitsHostPorts. In a Policy file it has no effect, as in the original."""

    name = "PodFitsPorts"


class GeneralPredicates:
    """Filter as PodFitsResources, HostName, PodFitsHostPorts and MatchNodeSelector together."""

    name = "GeneralPredicates"
    declaration = Plugin(name=name, reads=(), row_local=True)
    Args = PodFitsResourcesArgs

    def __init__(self, args: PodFitsResourcesArgs) -> None:
        self._resources = PodFitsResources(args)
        self._others: tuple[HostName | PodFitsHostPorts | MatchNodeSelector, ...] = (
            HostName(),
            PodFitsHostPorts(),
            MatchNodeSelector(),
        )

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where all four succeed."""
        answers = [rule.filter(pod, node) for rule in (self._resources, *self._others)]
        refusals = [answer for answer in answers if not answer.is_success]
        return _joined_status(refusals) if refusals else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        codes = self._resources.filter_column(pod, nodes, rows) << _BITS
        for place, rule in enumerate(self._others):
            refused = ~rule.filter_column(pod, nodes, rows)
            if refused.any():
                codes[refused] |= 1 << place
        return codes

    def filter_status(self, code: int, pod: Pod) -> Status:
        """The refusal of a code: the reasons of all four, in their order."""
        short = code >> _BITS
        refusals = [self._resources.filter_status(short, pod)] if short else []
        refusals += [
            rule.REJECTED for place, rule in enumerate(self._others) if code & (1 << place)
        ]
        return _joined_status(refusals)

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """Request and free amount of every resource that is short."""
        return self._resources.explain(pod, node)

    def signature(self, pod: Pod) -> object:
        """What the four read."""
        others = tuple(rule.signature(pod) for rule in self._others)
        return self._resources.signature(pod), others


def _joined_status(refusals: list[Status]) -> Status:
    """One refusal for several; unresolvable, the higher code, where one of them is."""
    reasons = tuple(reason for refusal in refusals for reason in refusal.reasons)
    return Status(max(refusal.code for refusal in refusals), reasons)
