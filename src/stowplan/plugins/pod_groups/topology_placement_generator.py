"""TopologyPlacementGenerator: the topology domains that a group may be placed in.

Source: kube-scheduler v1.36, plugins/topologyaware.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Ints
from stowplan.framework import Status, error
from stowplan.framework.plugin import Plugin
from stowplan.framework.pod_groups.placements import (
    GroupPlacement,
    PlacementGeneratePlugin,
    PodGroupCycle,
)
from stowplan.objects.scheduling_group import SchedulingGroup

CANNOT_DETERMINE = "cannot determine domain for already scheduled pods: "


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    """A placement for each value of the label that the group's topology constraint names."""

    name = "TopologyPlacementGenerator"
    declaration = Plugin(name=name, reads=(SchedulingGroup,))

    def __init__(self) -> None:
        self._kept: dict[str, Sequence[GroupPlacement]] = {}
        self._kept_for: tuple[int, int] = (0, -1)
        self._rows: Ints | None = None

    def generate_placements(
        self, group: SchedulingGroup | None, rows: Ints, cycle: PodGroupCycle
    ) -> Sequence[GroupPlacement] | Status:
        """All nodes without a constraint; else the domains, in the order of their first nodes. A
        group that has pods on nodes stays in their domain."""
        if group is None:
            return error(f'podgroup.scheduling.k8s.io "{cycle.name}" not found')
        key = group.topology_key
        if key is None:
            return (GroupPlacement("", rows),)
        required = _domain_of_scheduled(key, cycle)
        if isinstance(required, Status):
            return required
        found = self._domains(key, rows, cycle.snapshot.nodes)
        return [one for one in found if required in (None, one.name)]

    def _domains(self, key: str, rows: Ints, nodes: NodeTable) -> Sequence[GroupPlacement]:
        """A placement for each value of the label, kept while the nodes are as they are."""
        state = id(nodes), nodes.shape
        if state != self._kept_for or rows is not self._rows:
            self._kept, self._kept_for, self._rows = {}, state, rows
        found = self._kept.get(key)
        if found is None:
            domains: dict[str, list[int]] = {}
            for row in rows.tolist():
                value = nodes.nodes[row].labels.get(key)
                if value is not None:
                    domains.setdefault(value, []).append(row)
            found = [GroupPlacement(name, np.array(own)) for name, own in domains.items()]
            self._kept[key] = found
        return found


def _domain_of_scheduled(key: str, cycle: PodGroupCycle) -> str | Status | None:
    """The domain of the pods that have a node; None where there are none.

    Differs: in the original the pod that is named is a random one.
    """
    nodes = cycle.snapshot.nodes
    domain: str | None = None
    for pod, node in cycle.state.scheduled_nodes():
        row = nodes.row(node)
        if row < 0:
            return error(
                f"{CANNOT_DETERMINE}getting node for pod {pod.key}: "
                f'nodeinfo not found for node name "{node}"'
            )
        value = nodes.nodes[row].labels.get(key)
        if value is None:
            return error(f"{CANNOT_DETERMINE}no topology domain found for pod {pod.key}")
        if domain and domain != value:
            return error(
                f"{CANNOT_DETERMINE}more than 1 domain found for pod group: {domain}, {value}"
            )
        domain = value
    return domain
