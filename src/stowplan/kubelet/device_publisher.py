"""Drivers of simulated nodes: they publish the ResourceSlices of the node's devices.

The devices are written in an annotation of the node (`apis.resource.node_devices`). A changed
annotation is a driver that has restarted with other devices: all slices of its pool are written
with the next generation. Slices that others write are left alone.

Source: dynamic-resource-allocation v1.36, resourceslice/resourceslicecontroller.go.
"""

from __future__ import annotations

import msgspec

from stowplan.apis.core.pod_lifecycle import is_kubelet_off
from stowplan.apis.resource.node_devices import (
    DEVICES,
    PUBLISHED,
    DeviceGroup,
    NodeDevicesError,
    parse_devices,
    slices_of,
)
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts
from stowplan.controller_runtime.resource_paths import NODES, RESOURCE_SLICES
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

_MARK, _PUBLISHED_MARK = DEVICES.encode(), PUBLISHED.encode()


class DevicePublisher(Controller):
    """Keys are nodes."""

    name = "hollow-devices"
    path = NODES
    observed = (NODES, RESOURCE_SLICES)

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._texts: dict[str, str] = {}
        self._slices: dict[str, dict[str, None]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a node whose devices are written anew, or one that has lost a slice."""
        if change.path == NODES:
            self._observe_node(change)
        elif change.path == RESOURCE_SLICES and _PUBLISHED_MARK in change.value:
            node = (self.decoded(change.value) or {}).get("spec", {}).get("nodeName", "")
            if change.type != "DELETED":
                self._slices.setdefault(node, {})[change.name] = None
                return
            self._slices.get(node, {}).pop(change.name, None)
            if node in self._texts:
                self.queue.add(("", node))

    def _observe_node(self, change: WatchEvent) -> None:
        name = change.name
        text = ""
        if change.type != "DELETED" and _MARK in change.value:
            node: Tree = msgspec.json.decode(change.value)
            if is_kubelet_off(node):
                return
            text = (node["metadata"].get("annotations") or {}).get(DEVICES, "")
        if self._texts.get(name, "") == text:
            return
        if text:
            self._texts[name] = text
        else:
            del self._texts[name]
        if change.type != "DELETED":
            self.queue.add(("", name))

    def sync(self, key: Key) -> None:
        """Write the slices of one node."""
        node = self.api.get(NODES, *key)
        if node is None:
            return
        text = (node["metadata"].get("annotations") or {}).get(DEVICES, "")
        try:
            groups = parse_devices(text)
        except NodeDevicesError as fault:
            self.recorder.record(
                node, "kubelet", "UnreadAnnotation", f"{DEVICES}: {fault}", type="Warning",
                host=key[1], object_kind="Node", api_version="v1",
            )  # fmt: skip
            return
        published = self._published(key[1])
        for group in groups:
            self._publish(node, group, published.pop(group.driver, {}))
        for slices in published.values():
            for name in slices:
                self.api.delete(RESOURCE_SLICES, "", name)

    def _published(self, node: str) -> dict[str, dict[str, Tree]]:
        """Slices that were published for a node, by driver and name."""
        found: dict[str, dict[str, Tree]] = {}
        for name in self._slices.get(node, ()):
            one = self.api.get(RESOURCE_SLICES, "", name)
            if one is not None:
                found.setdefault(one["spec"]["driver"], {})[name] = one
        return found

    def _publish(self, node: Tree, group: DeviceGroup, held: dict[str, Tree]) -> None:
        """Create, update and delete the slices of one driver."""
        specs = slices_of(node["metadata"]["name"], group)
        names = [f"{node['metadata']['name']}-{group.driver}-{at}" for at in range(len(specs))]
        is_same = all(
            one["metadata"]["annotations"][PUBLISHED] == group.text for one in held.values()
        ) and sorted(held) == sorted(names)
        if is_same:
            return
        generations = (one["spec"]["pool"]["generation"] for one in held.values())
        generation = 1 + max(generations, default=0)
        for name, spec in zip(names, specs, strict=True):
            spec["pool"]["generation"] = generation
            known = held.pop(name, None)
            if known is None:
                meta = {
                    "name": name,
                    "annotations": {PUBLISHED: group.text},
                    "ownerReferences": [_reference(node)],
                }
                self.api.create(RESOURCE_SLICES, {"metadata": meta, "spec": spec})
            else:
                known["metadata"]["annotations"][PUBLISHED] = group.text
                self.api.update(RESOURCE_SLICES, {**known, "spec": spec})
        for name in held:
            self.api.delete(RESOURCE_SLICES, "", name)


def _reference(node: Tree) -> Tree:
    meta = node["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
