"""Default selector of a pod: the selectors of its services and of its controller.

Source: kube-scheduler v1.36, plugins/helper spread.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from stowplan.columns.pods.podcounts import LabelIndex
from stowplan.framework import ObjectStore
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import LabelSelectorRequirement, SelectorError
from stowplan.objects.workload import ReplicaSet, ReplicationController, Service, StatefulSet

Pairs = tuple[tuple[str, str], ...]
Requirements = tuple[LabelSelectorRequirement, ...]


SELECTOR_KINDS: tuple[type[Object], ...] = (Service, ReplicationController, ReplicaSet, StatefulSet)
"""The kinds that a default selector is read from."""


class ServiceIndex:
    """The selectors of the services in an object store, by namespace and first label."""

    def __init__(self, object_store: ObjectStore) -> None:
        self.version = object_store.version_of((Service,))
        self._by_namespace: dict[str, LabelIndex[Pairs]] = {}
        for service in object_store.all(Service):
            # A service without a selector selects nothing, and an empty one adds nothing.
            if service.spec.selector:
                pairs = tuple(service.spec.selector.items())
                index = self._by_namespace.setdefault(service.namespace, LabelIndex())
                index.add(pairs, pairs[:1])

    def labels_for(self, pod: Pod) -> dict[str, str]:
        """The selectors of all services that select `pod`, merged; they cannot contradict each
        other."""
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


_INDEX: WeakKeyDictionary[ObjectStore, ServiceIndex] = WeakKeyDictionary()


def service_index_of(object_store: ObjectStore) -> ServiceIndex:
    """The index of the current object store."""
    index = _INDEX.get(object_store)
    if index is None or index.version != object_store.version_of((Service,)):
        index = _INDEX[object_store] = ServiceIndex(object_store)
    return index


def default_requirements(pod: Pod, object_store: ObjectStore) -> Requirements:
    """Requirements of the services and the controller of `pod`; empty without any.

    Of controllers only ReplicationControllers, ReplicaSets and StatefulSets count. A selector that
    cannot be parsed adds nothing.
    """
    labels = service_index_of(object_store).labels_for(pod)
    owner = pod.controller
    if owner is None:
        return _label_requirements(labels) if labels else ()
    kind, key = (owner.api_version, owner.kind), f"{pod.namespace}/{owner.name}"
    if kind == ("v1", "ReplicationController"):
        controller = object_store.find(ReplicationController, key)
        return _label_requirements(
            labels if controller is None else {**labels, **controller.spec.selector}
        )
    found: ReplicaSet | StatefulSet | None = None
    if kind == ("apps/v1", "ReplicaSet"):
        found = object_store.find(ReplicaSet, key)
    elif kind == ("apps/v1", "StatefulSet"):
        found = object_store.find(StatefulSet, key)
    return _label_requirements(labels) + _selector_of_owner(found)


def _label_requirements(labels: dict[str, str]) -> Requirements:
    return tuple(
        LabelSelectorRequirement(key, "In", (value,)) for key, value in sorted(labels.items())
    )


def _selector_of_owner(owner: ReplicaSet | StatefulSet | None) -> Requirements:
    if owner is None or owner.spec.selector is None:
        return ()
    try:
        return owner.spec.selector.requirements
    except SelectorError:
        return ()
