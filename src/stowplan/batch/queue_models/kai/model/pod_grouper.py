"""PodGrouper: which group pods have that name none, by their owners.

Source: KAI-Scheduler, pkg/podgrouper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from stowplan.objects.kai.grouping.owner_pod_group import (
    PodOwners,
    group_name,
    owner_reference,
    owners_of,
    pod_group_of,
    sub_group_of,
)
from stowplan.objects.kai.grouping.workload_owners import (
    OWNER_KINDS,
    GroupingError,
    KaiOwner,
    Owner,
    RayJobOwner,
    owner_of_object,
    owner_of_pod,
)
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION, KaiPodGroupObject
from stowplan.objects.meta import Object, OwnerReference
from stowplan.objects.pod import Pod

OwnerKey = tuple[type[Object], str]
OWNER_TYPES: tuple[type[Object], ...] = (*OWNER_KINDS.values(),)


class PodGrouper:
    """Groups of pods by their owners. Pods are read again when an owner has changed.

    refusals: by uid, why a pod that names no group has none.
    """

    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}
        self._objects: Mapping[type[Object], Mapping[str, Object]] = {}
        self._pods: Mapping[str, Pod] = {}
        self._owners: dict[str, PodOwners] = {}
        # Owners that were looked for, with what was found, and the pods for which they were.
        self._found: dict[OwnerKey, Object | None] = {}
        self._dependents: dict[OwnerKey, dict[str, None]] = {}
        self._looked_for: dict[str, tuple[OwnerKey, ...]] = {}
        self._uid = ""

    def follow(
        self, objects: Mapping[type[Object], Mapping[str, Object]], pods: Mapping[str, Pod]
    ) -> None:
        """Read from these objects from now on. pods: by uid."""
        self._objects, self._pods = objects, pods

    def place(self, pod: Pod) -> tuple[str, str]:
        """(key of a pod's group, sub-group or "" for what its label says)."""
        uid = pod.uid
        self.forget(uid)
        stated = stated_group(pod)
        if stated:
            return f"{pod.namespace}/{stated}", ""
        self._uid = uid
        try:
            owners = owners_of(pod, self._find)
            name, sub_group = group_name(pod, owners), sub_group_of(pod, owners)
        except GroupingError as problem:
            self.refusals[uid] = str(problem)
            return f"{pod.namespace}/pod/{pod.name}", ""
        self._owners[uid] = owners
        return f"{pod.namespace}/{name}", sub_group

    def makes_group_of(self, pod: Pod) -> bool:
        """Whether the group that a pod names is that which is made from its owners."""
        self._uid = pod.uid
        try:
            return group_name(pod, owners_of(pod, self._find)) == stated_group(pod)
        except GroupingError:
            return False

    def forget(self, uid: str) -> None:
        """A pod is gone, or is read again."""
        self.refusals.pop(uid, None)
        self._owners.pop(uid, None)
        for key in self._looked_for.pop(uid, ()):
            dependents = self._dependents[key]
            dependents.pop(uid, None)
            if not dependents:
                del self._dependents[key], self._found[key]

    def outdated(self, changed: Iterable[tuple[type[Object], str]]) -> Iterator[str]:
        """Uids of the pods whose owners have changed in what counts."""
        for key in changed:
            if key not in self._dependents:
                continue
            kind, name = key
            now = self._objects.get(kind, {}).get(name)
            before = self._found[key]
            self._found[key] = now
            if _facts(now) != _facts(before):
                yield from tuple(self._dependents[key])

    def group(self, pods: Sequence[Pod], classes: Collection[str]) -> KaiPodGroupObject | None:
        """The group of pods that name none and have the same key; None where the pod-grouper makes
        none, for which `refusals` has the reason. classes: names of the priority classes."""
        owners = self._owners.get(pods[0].uid)
        if owners is None:
            return None
        try:
            return pod_group_of(pods, owners, classes)
        except GroupingError as problem:
            self.refusals[pods[0].uid] = str(problem)
            return None

    def owner_of(self, pod: Pod) -> OwnerReference | None:
        """The owner of the group of a pod that names none, the top one as KAI's rules see it; None
        where the pod has no group."""
        owners = self._owners.get(pod.uid)
        return None if owners is None else owner_reference(pod, owners)

    def _find(self, reference: OwnerReference, namespace: str) -> Owner | None:
        group = reference.api_version.rpartition("/")[0]
        if (group, reference.kind) == ("", "Pod"):
            pod = self._pods.get(reference.uid)
            return None if pod is None else owner_of_pod(pod)
        kind = OWNER_KINDS.get((group, reference.kind))
        if kind is None:
            return None
        key = kind, f"{namespace}/{reference.name}"
        if self._uid not in self._dependents.setdefault(key, {}):
            self._dependents[key][self._uid] = None
            self._looked_for[self._uid] = (*self._looked_for.get(self._uid, ()), key)
        found = self._found[key] = self._objects.get(kind, {}).get(key[1])
        return None if found is None else owner_of_object(found, reference)


def stated_group(pod: Pod) -> str:
    """The group that a pod names, "" for none."""
    return pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, "")


def _facts(value: Object | None) -> tuple[object, ...] | None:
    """What the rules read of an owner."""
    if value is None:
        return None
    meta = value.metadata
    spec = value.spec if isinstance(value, KaiOwner) else None
    status = value.status if isinstance(value, RayJobOwner) else None
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, spec, status
