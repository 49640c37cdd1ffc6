"""The snapshot's order of nodes: zones in turn, nodes of a zone by arrival.

Source: kube-scheduler v1.36, backend/cache/node_tree and UpdateSnapshot.
"""

from __future__ import annotations

from itertools import zip_longest

from stowplan.objects.node import Node, zone_key

Zone = tuple[str, str]


class NodeOrder:
    """Nodes by zone, and the order of the last snapshot.

    The order is recomputed only when a node was added or removed since: a change of zone alone, or
    a node removed and added again in between, keeps it.
    """

    def __init__(self) -> None:
        self._zones: dict[Zone, dict[str, None]] = {}
        self._zone_of: dict[str, Zone] = {}
        self.names: list[str] = []
        self._taken: set[str] = set()
        self._changed = False

    def add(self, node: Node) -> None:
        """Add a node: last of its zone."""
        zone = zone_key(node)
        self._zones.setdefault(zone, {})[node.name] = None
        self._zone_of[node.name] = zone
        self._changed = True

    def update(self, node: Node) -> None:
        """Update a node: it moves to the end of its new zone if that differs."""
        if self._zone_of[node.name] != zone_key(node):
            changed = self._changed
            self.remove(node.name)
            self.add(node)
            self._changed = changed

    def remove(self, name: str) -> None:
        """Remove a node, and its zone when that is empty."""
        zone = self._zone_of.pop(name)
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]
        self._changed = True

    def arrivals(self) -> list[str]:
        """All nodes, zone by zone: added in this order they have the same order again."""
        return [name for zone in self._zones.values() for name in zone]

    def refresh(self) -> bool:
        """Recompute the order if nodes were added or removed; True when it was."""
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
