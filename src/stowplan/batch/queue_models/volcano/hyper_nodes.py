"""HyperNodeTree: the network topology of a cluster, as Volcano's HyperNodes describe it.

Source: volcano master of 2026-08-20, pkg/scheduler/api/hyper_node_info.go, framework/session.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

TOP = "<cluster-top-hypernode>"
"""The HyperNode above all others."""


class HyperNode(msgspec.Struct):
    """A HyperNode. nodes: names of the nodes below it, in the order of the cluster.

    has_object: False for one that is only known by its nodes and tier: jobs are not placed by it.
    """

    name: str
    tier: int
    nodes: tuple[str, ...] = ()
    parent: str = ""
    children: list[str] = []
    tier_name: str = ""
    has_object: bool = True


class HyperNodeTree:
    """HyperNodes by name, with TOP, whose tier is above all others."""

    def __init__(self, hyper_nodes: Iterable[HyperNode], nodes: Iterable[str]) -> None:
        """nodes: all of the cluster."""
        self.by_name = {one.name: one for one in hyper_nodes}
        order = {name: i for i, name in enumerate(nodes)}
        for one in self.by_name.values():
            known = {name for name in one.nodes if name in order}
            one.nodes = tuple(sorted(known, key=order.__getitem__))
        tier = max((one.tier + 1 for one in self.by_name.values()), default=1)
        top = HyperNode(TOP, max(tier, 1), tuple(order))
        for one in self.by_name.values():
            if not one.parent and one.has_object:
                one.parent = TOP
                top.children.append(one.name)
        self.by_name[TOP] = top
        self.tier_of_name = {
            one.tier_name: one.tier for one in self.by_name.values() if one.tier_name
        }
        self._sets = {one.name: frozenset(one.nodes) for one in self.by_name.values()}

    def __getitem__(self, name: str) -> HyperNode:
        return self.by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    @property
    def top(self) -> HyperNode:
        """The HyperNode above all others."""
        return self.by_name[TOP]

    @property
    def with_objects(self) -> list[HyperNode]:
        """HyperNodes with an object, and the top."""
        return [one for one in self.by_name.values() if one.has_object]

    @property
    def tiers(self) -> list[int]:
        """All tiers, ascending."""
        return sorted({one.tier for one in self.by_name.values()})

    def at_tier(self, tier: int) -> list[HyperNode]:
        """HyperNodes of a tier."""
        return [one for one in self.by_name.values() if one.tier == tier]

    def has_node(self, name: str, node: str) -> bool:
        """True if a node is below a HyperNode."""
        return node in self._sets.get(name, frozenset())

    def holders(self, node: str) -> list[HyperNode]:
        """HyperNodes with an object above a node."""
        return [one for one in self.with_objects if node in self._sets[one.name]]

    def leaf_of(self, node: str) -> str:
        """HyperNode of the lowest tier of all that a node is below; "" for none."""
        lowest = self.at_tier(self.tiers[0])
        return next((one.name for one in lowest if node in self._sets[one.name]), "")

    def ancestors(self, name: str) -> list[str]:
        """A HyperNode and those above it, the lowest first."""
        found = [name]
        while (one := self.by_name.get(found[-1])) is not None:
            if not one.parent or one.parent in found:
                break
            found.append(one.parent)
        return found

    def common_ancestor(self, first: str, second: str) -> str:
        """The lowest HyperNode above both; the other one if either is "", and "" for none."""
        if not first or not second:
            return first or second
        above = set(self.ancestors(first))
        return next((name for name in self.ancestors(second) if name in above), "")

    def lowest_above(self, nodes: Collection[str]) -> str:
        """HyperNode of the lowest tier above all of some nodes; "" for none."""
        found = [one for one in self.with_objects if self._sets[one.name].issuperset(nodes)]
        return min(found, key=lambda one: one.tier).name if found and nodes else ""


def resolved(
    tiers: Mapping[str, int],
    nodes: Mapping[str, Iterable[str]],
    parents: Mapping[str, str],
    tier_names: Mapping[str, str],
    objects: Collection[str],
) -> list[HyperNode]:
    """HyperNodes from maps by name. tier_names: HyperNode -> name of its tier. objects: those with
    an object."""
    found = {
        name: HyperNode(
            name,
            tier,
            tuple(nodes.get(name, ())),
            tier_name=tier_names.get(name, ""),
            has_object=name in objects,
        )
        for name, tier in tiers.items()
    }
    for child, parent in parents.items():
        if child in objects and child in found and parent in found:
            found[child].parent = parent
            found[parent].children.append(child)
    return list(found.values())
