"""HyperNodes of a session from their objects: which nodes are below each.

Source: volcano master of 2026-08-20, pkg/scheduler/api/hyper_node_info.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import re2

from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode, resolved
from stowplan.objects.node import Node
from stowplan.objects.selectors import label_selector_matches
from stowplan.objects.volcano.hyper_node import MemberSelector, VolcanoHyperNode


def hyper_nodes_of(
    objects: Iterable[VolcanoHyperNode], nodes: Mapping[str, Node]
) -> list[HyperNode]:
    """HyperNodes with the nodes below them. nodes: by name."""
    by_name = {one.name: one for one in objects}
    children: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    own: dict[str, set[str]] = {}
    for name, one in by_name.items():
        own[name] = set()
        for member in one.spec.members:
            if member.type == "HyperNode":
                found = _selected(member.selector, {n: {} for n in by_name if n != name})
                children.setdefault(name, []).extend(found)
                parents.update(dict.fromkeys(found, name))
            else:
                labels = {n: node.labels for n, node in nodes.items()}
                own[name].update(_selected(member.selector, labels))
    below = {name: _below(name, own, children, frozenset()) for name in by_name}
    tiers = {name: one.spec.tier for name, one in by_name.items()}
    titles = {name: one.spec.tier_name for name, one in by_name.items() if one.spec.tier_name}
    return resolved(tiers, below, parents, titles, by_name)


def _below(
    name: str,
    own: Mapping[str, set[str]],
    children: Mapping[str, list[str]],
    above: frozenset[str],
) -> set[str]:
    """Nodes of a HyperNode and of those below it; a cycle ends where it begins."""
    found = set(own[name])
    for child in children.get(name, ()):
        if child not in above and child != name:
            found |= _below(child, own, children, above | {name})
    return found


def _selected(selector: MemberSelector, candidates: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Names that a selector matches. candidates: name -> labels."""
    if selector.exact_match is not None:
        name = selector.exact_match.name
        return [name] if name in candidates else []
    if selector.regex_match is not None:
        try:
            pattern = re2.compile(selector.regex_match.pattern)
        except re2.error:
            return []
        return [name for name in candidates if pattern.search(name)]
    if selector.label_match is not None:
        wanted = selector.label_match
        return [n for n, labels in candidates.items() if label_selector_matches(wanted, labels)]
    return []
