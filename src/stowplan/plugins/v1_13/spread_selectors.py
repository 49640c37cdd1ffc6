"""Selectors of a pod in 1.13: of its services first, then of its controllers.

Source: Kubernetes v1.13, priorities/metadata.go (getSelectors, getFirstServiceSelector), client-go
listers and labels.SelectorFromSet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

from stowplan.columns.pods.podcounts import PodSelection, admits
from stowplan.framework import ObjectStore
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    SelectorError,
    label_key_errors,
    label_value_errors,
)
from stowplan.objects.workload import ReplicaSet, ReplicationController, Service, StatefulSet

Requirements = tuple[LabelSelectorRequirement, ...]

_NO_LABELS: Mapping[str, str] = {}


def selector_from_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels as a selector. If one of them is malformed the selector is empty: it selects all."""
    sound = not any(label_key_errors(k) or label_value_errors(v) for k, v in labels.items())
    return labels if sound else _NO_LABELS


def requirements_from_labels(labels: Mapping[str, str]) -> Requirements:
    """The labels as requirements that must all hold."""
    return tuple(LabelSelectorRequirement(key, "In", (v,)) for key, v in sorted(labels.items()))


class _SpreadSelector:
    """A selector as it finds its pods, and as it then counts them: malformed labels are compared
    nevertheless at first, and then select every pod."""

    __slots__ = ("counts", "finds")

    def __init__(self, finds: Requirements, counts: Requirements | None = None) -> None:
        self.finds = finds
        self.counts = finds if counts is None else counts


ByNamespace = dict[str, list[_SpreadSelector] | None]


class SpreadSelectors:
    """Selectors of an object store, by namespace, in order of arrival; rebuilt on changes.

    services: those with a selector, even an empty one. controllers, then sets: an empty selector
    selects nothing. A malformed selector of a set disables all sets of that kind in its namespace.
    """

    @classmethod
    def of(cls, object_store: ObjectStore) -> SpreadSelectors:
        """The selectors of the current object store."""
        kept = _KEPT.get(object_store)
        if kept is None or kept.version != object_store.version:
            kept = _KEPT[object_store] = cls(object_store)
        return kept

    def __init__(self, object_store: ObjectStore) -> None:
        self.version = object_store.version
        self._services = _plain(object_store.all(Service), empty_selects=True)
        self._controllers = _plain(object_store.all(ReplicationController), empty_selects=False)
        sets = (object_store.all(ReplicaSet), object_store.all(StatefulSet))
        self._sets = tuple(
            _labelled((one.namespace, one.spec.selector) for one in kind) for kind in sets
        )

    def services(self, pod: Pod) -> Iterator[Requirements]:
        """Selectors of the services that select the pod, in order of arrival."""
        for one in self._services.get(pod.namespace) or ():
            if admits(one.finds, pod.labels):
                yield one.counts

    def all(self, pod: Pod) -> tuple[Requirements, ...]:
        """Selectors of services, controllers and sets that select the pod, each once."""
        found = list(self.services(pod))
        if pod.labels:
            kinds = [self._controllers, *self._sets]
            owners = [one for kind in kinds for one in kind.get(pod.namespace) or ()]
            found += [one.counts for one in owners if admits(one.finds, pod.labels)]
        return tuple(dict.fromkeys(found))


_KEPT: WeakKeyDictionary[ObjectStore, SpreadSelectors] = WeakKeyDictionary()


def _plain(
    objects: Iterable[Service | ReplicationController], *, empty_selects: bool
) -> ByNamespace:
    found: dict[str, list[_SpreadSelector]] = {}
    for one in objects:
        selector = one.spec.selector
        if selector is not None and (selector or empty_selects):
            counts = requirements_from_labels(selector_from_labels(selector))
            selecting = _SpreadSelector(requirements_from_labels(selector), counts)
            found.setdefault(one.namespace, []).append(selecting)
    return {**found}


def _labelled(stated: Iterable[tuple[str, LabelSelector | None]]) -> ByNamespace:
    by_namespace: ByNamespace = {}
    for namespace, selector in stated:
        found = by_namespace.setdefault(namespace, [])
        if selector is None or found is None:
            continue
        try:
            requirements = selector.requirements
        except SelectorError:
            by_namespace[namespace] = None
            continue
        if requirements:
            found.append(_SpreadSelector(requirements))
    return by_namespace


def without_redundant_selectors(selectors: Iterable[Requirements]) -> list[Requirements]:
    """The selectors without those whose pods another one selects too."""
    kept: list[Requirements] = []
    for requirements in sorted(selectors, key=len):
        if not any(set(wider) <= set(requirements) for wider in kept):
            kept.append(requirements)
    return kept


def selected_pods(requirements: Requirements, namespace: str) -> PodSelection:
    """Pods of a namespace that a selector selects, without terminating ones."""
    return PodSelection(requirements, frozenset({namespace}), terminating=False)
