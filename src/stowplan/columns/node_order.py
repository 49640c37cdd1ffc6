"""The snapshot's order of nodes: zones visited in turn, nodes of a zone as they arrived.

Source: kube-scheduler v1.36, backend/cache/node_tree and UpdateSnapshot.
"""

from __future__ import annotations

from itertools import zip_longest

from stowplan.objects.node import Node, zone_key

Zone = tuple[str, str]


class NodeOrder:
    """Nodes by zone, and the order that the last snapshot took over.

    A new order is taken over only when a node has appeared or disappeared since the last one:
    a change of zone alone, or a node that left and came back in between, keeps the old order.
    """

    def __init__(self) -> None:
        self._zones: dict[Zone, dict[str, None]] = {}
        self._zone_of: dict[str, Zone] = {}
        self.names: list[str] = []
        self._taken: set[str] = set()
        self._changed = False

    def add(self, node: Node) -> None:
        """A node arrives: last of its zone."""
        zone = zone_key(node)
        self._zones.setdefault(zone, {})[node.name] = None
        self._zone_of[node.name] = zone
        self._changed = True

    def update(self, node: Node) -> None:
        """A node changes: it goes to the end of its new zone if that differs."""
        if self._zone_of[node.name] != zone_key(node):
            changed = self._changed
            self.remove(node.name)
            self.add(node)
            self._changed = changed

    def remove(self, name: str) -> None:
        """A node leaves; a zone without nodes is forgotten."""
        zone = self._zone_of.pop(name)
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]
        self._changed = True

    def refresh(self) -> bool:
        """Take over the current order if nodes came or went; True when it did."""
        if not self._changed:
            return False
        self._changed = False
        if self._taken == self._zone_of.keys():
            return False
        self.names = [
            name for rank in zip_longest(*self._zones.values()) for name in rank if name is not None
        ]
        self._taken = set(self.names)
        return True
