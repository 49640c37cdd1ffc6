"""Objects of a simulation that measures need beside its placements."""

from __future__ import annotations

import msgspec

from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class SimulatedObjects(msgspec.Struct):
    """Nodes and pods as they were simulated.

    pods: in the order of the placements. bound: pods that were bound before the start. objects:
    other kinds, PodGroups and Queues among them.
    """

    nodes: list[Node]
    pods: list[Pod]
    bound: list[Pod] = []
    objects: list[Object] = []
