"""Label selectors of the objects of one kind, to find those that may adopt a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from stowplan.controller_runtime.object_fields import parse_label_selector, selector_matches
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.store import WatchEvent


def spec_selector(tree: Tree) -> Tree | None:
    """`spec.selector`, a label selector."""
    selector: Tree | None = (tree.get("spec") or {}).get("selector")
    return selector


class SelectorIndex:
    """Label selectors by namespace and name."""

    def __init__(self, selector_of: Callable[[Tree], Tree | None] = spec_selector) -> None:
        """selector_of: the label selector of an object."""
        self._selector_of = selector_of
        self._selectors: dict[str, dict[str, LabelSelector | None]] = {}

    def observe(self, change: WatchEvent) -> None:
        """Apply a change of an object with a selector."""
        namespace, name = split_key(change)
        known = self._selectors.setdefault(namespace, {})
        if change.type == "DELETED":
            known.pop(name, None)
        else:
            tree = msgspec.json.decode(change.value)
            known[name] = parse_label_selector(self._selector_of(tree))

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[Key]:
        """The objects whose selector matches these labels."""
        known = self._selectors.get(namespace, {}).items()
        return [(namespace, name) for name, each in known if selector_matches(each, labels)]

    def claimants(self, pod: PodFacts) -> list[Key]:
        """The objects that may adopt a pod; none if it has an owner or is terminating."""
        if pod.owner or pod.deleting or not pod.labels:
            return []
        return self.matching(pod.key[0], pod.labels)
