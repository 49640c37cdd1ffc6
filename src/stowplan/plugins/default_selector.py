"""The pods that belong together with a pod: those of its services and of its controller.

Source: kube-scheduler v1.36, plugins/helper spread.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from stowplan.columns.podcounts import LabelIndex
from stowplan.framework import World
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import LabelSelectorRequirement, SelectorError
from stowplan.objects.workload import ReplicaSet, ReplicationController, Service, StatefulSet

Pairs = tuple[tuple[str, str], ...]
Requirements = tuple[LabelSelectorRequirement, ...]


READS: tuple[type[Object], ...] = (Service, ReplicationController, ReplicaSet, StatefulSet)
"""The kinds of objects that are looked at here."""


class ServiceIndex:
    """The selectors of a world's services, by namespace and first label."""

    def __init__(self, world: World) -> None:
        self.version = world.version_of((Service,))
        self._by_namespace: dict[str, LabelIndex[Pairs]] = {}
        for service in world.all(Service):
            # A service without a selector selects nothing, and an empty one adds nothing.
            if service.spec.selector:
                pairs = tuple(service.spec.selector.items())
                index = self._by_namespace.setdefault(service.namespace, LabelIndex())
                index.add(pairs, pairs[:1])

    def labels_for(self, pod: Pod) -> dict[str, str]:
        """The selectors of all services that select `pod`, merged; they cannot contradict."""
        index = self._by_namespace.get(pod.namespace)
        if index is None:
            return {}
        labels = pod.labels
        return {
            key: value
            for pairs in index.found_by(labels.items())
            if all(labels.get(key) == value for key, value in pairs)
            for key, value in pairs
        }


_INDEX: WeakKeyDictionary[World, ServiceIndex] = WeakKeyDictionary()


def services_of(world: World) -> ServiceIndex:
    """The index of a world as it is now."""
    index = _INDEX.get(world)
    if index is None or index.version != world.version_of((Service,)):
        index = _INDEX[world] = ServiceIndex(world)
    return index


def default_requirements(pod: Pod, world: World) -> Requirements:
    """What the services and the controller of `pod` select by; empty when there is nothing.

    Of controllers only ReplicationControllers, ReplicaSets and StatefulSets count. A selector
    that cannot be read adds nothing.
    """
    labels = services_of(world).labels_for(pod)
    owner = pod.controller
    if owner is None:
        return _wanted(labels) if labels else ()
    kind, key = (owner.api_version, owner.kind), f"{pod.namespace}/{owner.name}"
    if kind == ("v1", "ReplicationController"):
        controller = world.find(ReplicationController, key)
        return _wanted(labels if controller is None else {**labels, **controller.spec.selector})
    found: ReplicaSet | StatefulSet | None = None
    if kind == ("apps/v1", "ReplicaSet"):
        found = world.find(ReplicaSet, key)
    elif kind == ("apps/v1", "StatefulSet"):
        found = world.find(StatefulSet, key)
    return _wanted(labels) + _selected_by(found)


def _wanted(labels: dict[str, str]) -> Requirements:
    return tuple(
        LabelSelectorRequirement(key, "In", (value,)) for key, value in sorted(labels.items())
    )


def _selected_by(owner: ReplicaSet | StatefulSet | None) -> Requirements:
    if owner is None or owner.spec.selector is None:
        return ()
    try:
        return owner.spec.selector.requirements
    except SelectorError:
        return ()
