"""Object index: pods in short, and dependents by owner.

Updated inside each write of the store, so that it is never stale. A pod is kept as the dozen fields
that controllers read, not as a tree: a ReplicaSet of ten thousand pods is counted without decoding
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stowplan.apis.core.pod_deletion_cost import deletion_cost
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import (
    CONTROLLER_REVISIONS,
    NODES,
    PODS,
    REPLICA_SETS,
)
from stowplan.objects.store import WatchEvent

Key = tuple[str, str]
"""Namespace and name."""
_ADOPTABLE = frozenset({REPLICA_SETS, CONTROLLER_REVISIONS})
"""Kinds beside pods that a controller adopts when they have no owner."""


class _IndexedOwner(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _IndexedMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_IndexedOwner] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class _IndexedCondition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _IndexedRestarts(msgspec.Struct, rename="camel"):
    restart_count: int = 0


class _IndexedPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _IndexedPodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: list[_IndexedCondition] | None = None
    container_statuses: list[_IndexedRestarts] | None = None
    init_container_statuses: list[_IndexedRestarts] | None = None


class _IndexedObject(msgspec.Struct):
    metadata: _IndexedMeta


class _IndexedPod(msgspec.Struct):
    metadata: _IndexedMeta
    spec: _IndexedPodSpec = _IndexedPodSpec()
    status: _IndexedPodStatus = _IndexedPodStatus()


_OBJECT_DECODER = msgspec.json.Decoder(_IndexedObject)
_POD_DECODER = msgspec.json.Decoder(_IndexedPod)
_MANAGED_FIELDS = b',"managedFields":['
_NO_LABELS: dict[str, str] = {}
_NOTHING: dict[Any, None] = {}


def _indexed_pod(value: bytes) -> _IndexedPod:
    """A stored pod, read without its managedFields: to skip them takes longer than to cut them."""
    start = value.find(_MANAGED_FIELDS)
    if start >= 0:
        end = value.find(b"]", start) + 1
        try:
            return _POD_DECODER.decode(value[:start] + value[end:])
        except msgspec.DecodeError:
            # The bracket is within a text. What is left then is no JSON: the quotes that end this
            # text are escaped, or end it and begin another one.
            pass
    return _POD_DECODER.decode(value)


class PodFacts(msgspec.Struct, frozen=True, gc=False):
    """One pod as controllers see it.

    owner: uid of its controller, "" for none. ready_since, deleting, created: Unix seconds,
    0.0 for none. restarts: highest of any container (for ranking), restarts_sum: of all.
    """

    key: Key
    uid: str
    labels: dict[str, str]
    owner: str
    owner_kind: str
    owner_name: str
    node: str
    phase: str
    ready: bool
    ready_since: float
    created: float
    deleting: float
    cost: int
    restarts: int
    restarts_sum: int
    finalizers: tuple[str, ...]

    @property
    def is_finished(self) -> bool:
        """True for a Succeeded or Failed pod."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        """True for a pod that counts as a replica: neither finished nor terminating."""
        return not self.deleting and not self.is_finished


class ObjectIndex:
    """Pods by key, by owner and by node; all objects with owners, by owner."""

    def __init__(self) -> None:
        self.pods: dict[Key, PodFacts] = {}
        self._of_owner: dict[str, dict[Key, None]] = {}
        self._on_node: dict[str, dict[Key, None]] = {}
        self._in_namespace: dict[str, dict[Key, None]] = {}
        self._orphans: dict[_LabelSet, dict[Key, None]] = {}
        self._orphan_groups: dict[tuple[str, str, str], dict[_LabelSet, None]] = {}
        self._dependents: dict[str, dict[tuple[str, str, str], None]] = {}
        self._loose: dict[tuple[str, str], dict[tuple[str, str, str], None]] = {}
        self._owners: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._labels: dict[frozenset[tuple[str, str]], dict[str, str]] = {}
        self.nodes: dict[str, None] = {}
        self.owners_lost: tuple[str, ...] = ()
        """Owners (uids) that the object of the last change had before, if its owners changed."""
        self.owners_changed = False
        """True if the last change gave its object other owners than it had."""

    def observe(self, change: WatchEvent) -> PodFacts | None:
        """Apply a change; returns the facts of a pod before it (None if it is new or no pod)."""
        self.owners_changed = False
        path = change.path
        if path == PODS:
            return self._observe_pod(change)
        namespace, name = split_key(change)
        if path == NODES:
            if change.type == "DELETED":
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = None
        self._relate((path, namespace, name), change)
        return None

    def of_owner(self, uid: str) -> list[PodFacts]:
        """The pods that this controller owns, in no particular order."""
        return [self.pods[key] for key in self._of_owner.get(uid, ())]

    def on_node(self, node: str) -> list[PodFacts]:
        """The pods bound to a node."""
        return [self.pods[key] for key in self._on_node.get(node, ())]

    def in_namespace(self, namespace: str) -> list[PodFacts]:
        """The pods of a namespace."""
        return [self.pods[key] for key in self._in_namespace.get(namespace, ())]

    def orphans(self, namespace: str, labels: Mapping[str, str]) -> list[PodFacts]:
        """The pods of a namespace without a controller that have all these labels.

        Looked up by the first label: a namespace may hold thousands of such pods.
        """
        label = next(iter(labels.items()), ("", ""))
        wanted = labels.items()
        return [
            self.pods[key]
            for group in self._orphan_groups.get((namespace, *label), ())
            if wanted <= group[1]
            for key in self._orphans[group]
        ]

    def without_owner(self, path: str, namespace: str) -> list[tuple[str, str, str]]:
        """The ReplicaSets or ControllerRevisions (by path) of a namespace without an owner."""
        return list(self._loose.get((path, namespace), ()))

    def owners_of(self, path: str, namespace: str, name: str) -> tuple[str, ...]:
        """The uids of the owners of an object; () for none."""
        return self._owners.get((path, namespace, name), ())

    def dependents(self, uid: str) -> list[tuple[str, str, str]]:
        """Path, namespace and name of all objects with an owner of this uid."""
        return list(self._dependents.get(uid, ()))

    def _observe_pod(self, change: WatchEvent) -> PodFacts | None:
        namespace, name = key = split_key(change)
        old = self.pods.pop(key, None)
        tree = _indexed_pod(change.value)
        facts = None if change.type == "DELETED" else self._facts(key, tree)
        if old is not None and facts is not None and self._renew(old, facts):
            self._set_owners((PODS, namespace, name), tree.metadata.owner_references or ())
            return old
        if old is not None:
            _discard(self._of_owner, old.owner, key)
            _discard(self._on_node, old.node, key)
            _discard(self._in_namespace, namespace, key)
            if not old.owner:
                self._forget_orphan(old)
        if facts is not None:
            self.pods[key] = facts
            if facts.owner:
                self._of_owner.setdefault(facts.owner, {})[key] = None
            else:
                self._keep_orphan(facts)
            if facts.node:
                self._on_node.setdefault(facts.node, {})[key] = None
            self._in_namespace.setdefault(namespace, {})[key] = None
        self._set_owners(
            (PODS, namespace, name),
            () if change.type == "DELETED" else tree.metadata.owner_references or (),
        )
        return old

    def _renew(self, old: PodFacts, facts: PodFacts) -> bool:
        """Replace a pod that stays in its groups, each of which has others; False: nothing done.

        It becomes the last of each group, as one that is taken out and put in.
        """
        if old.owner != facts.owner or old.labels is not facts.labels:
            return False
        if old.node and old.node != facts.node:
            return False
        key = facts.key
        if facts.owner:
            siblings = self._of_owner.get(facts.owner, _NOTHING)
        else:
            siblings = self._orphans.get((key[0], frozenset(facts.labels.items())), _NOTHING)
        here = self._in_namespace.get(key[0], _NOTHING)
        there = self._on_node.get(old.node, _NOTHING) if old.node else None
        groups = (siblings, here) if there is None else (siblings, here, there)
        if any(len(group) < 2 for group in groups):
            return False
        self.pods[key] = facts
        for group in groups:
            del group[key]
            group[key] = None
        if there is None and facts.node:
            self._on_node.setdefault(facts.node, {})[key] = None
        return True

    def _keep_orphan(self, pod: PodFacts) -> None:
        group = (pod.key[0], frozenset(pod.labels.items()))
        keys = self._orphans.get(group)
        if keys is None:
            keys = self._orphans[group] = {}
            for place in _places(group):
                self._orphan_groups.setdefault(place, {})[group] = None
        keys[pod.key] = None

    def _forget_orphan(self, pod: PodFacts) -> None:
        group = (pod.key[0], frozenset(pod.labels.items()))
        _discard(self._orphans, group, pod.key)
        if group not in self._orphans:
            for place in _places(group):
                _discard(self._orphan_groups, place, group)

    def _relate(self, item: tuple[str, str, str], change: WatchEvent) -> None:
        if item[0] in _ADOPTABLE:
            self._sort_adoptable(item, change)
        if change.type == "DELETED":
            self._set_owners(item, ())
        elif item in self._owners or b'"ownerReferences"' in change.value:
            self._set_owners(
                item, _OBJECT_DECODER.decode(change.value).metadata.owner_references or ()
            )

    def _sort_adoptable(self, item: tuple[str, str, str], change: WatchEvent) -> None:
        if change.type == "DELETED" or b'"ownerReferences"' in change.value:
            _discard(self._loose, item[:2], item)
        else:
            self._loose.setdefault(item[:2], {})[item] = None

    def _set_owners(
        self, item: tuple[str, str, str], owners: list[_IndexedOwner] | tuple[()]
    ) -> None:
        uids = tuple(owner.uid for owner in owners)
        known = self._owners.get(item, ())
        if known == uids:
            return
        self.owners_changed = True
        self.owners_lost = known
        for uid in known:
            _discard(self._dependents, uid, item)
        for uid in uids:
            self._dependents.setdefault(uid, {})[item] = None
        if uids:
            self._owners[item] = uids
        else:
            self._owners.pop(item, None)

    def _facts(self, key: Key, pod: _IndexedPod) -> PodFacts:
        meta, status = pod.metadata, pod.status
        owner = next((o for o in meta.owner_references or () if o.controller), None)
        ready = next((c for c in status.conditions or () if c.type == "Ready"), None)
        is_ready = ready is not None and ready.status == "True"
        started = *(status.container_statuses or ()), *(status.init_container_statuses or ())
        counts = [each.restart_count for each in started]
        return PodFacts(
            key=key,
            uid=meta.uid,
            labels=self._shared_labels(meta.labels),
            owner=owner.uid if owner else "",
            owner_kind=owner.kind if owner else "",
            owner_name=owner.name if owner else "",
            node=pod.spec.node_name,
            phase=status.phase,
            ready=is_ready,
            ready_since=unix_seconds(ready.last_transition_time) if ready and is_ready else 0.0,
            created=unix_seconds(meta.creation_timestamp),
            deleting=unix_seconds(meta.deletion_timestamp),
            cost=(deletion_cost(meta.annotations) or 0) if meta.annotations else 0,
            restarts=max(counts) if counts else 0,
            restarts_sum=sum(counts) if counts else 0,
            finalizers=tuple(meta.finalizers or ()),
        )

    def _shared_labels(self, labels: dict[str, str] | None) -> dict[str, str]:
        """One dict for all pods with these labels; pods of a template have the same."""
        if not labels:
            return _NO_LABELS
        content = frozenset(labels.items())
        shared = self._labels.get(content)
        if shared is None:
            if len(self._labels) > 50_000:
                self._labels.clear()
            shared = self._labels[content] = labels
        return shared


_LabelSet = tuple[str, frozenset[tuple[str, str]]]
"""A namespace, and the labels that some pods in it have."""


def _places(group: _LabelSet) -> list[tuple[str, str, str]]:
    """Index keys of pods with the same labels: one without label, and one per label."""
    namespace, labels = group
    return [(namespace, "", ""), *((namespace, *label) for label in sorted(labels))]


def split_key(change: WatchEvent) -> Key:
    """Namespace and name of a changed object."""
    return change.namespace, change.name


def _discard(table: dict[Any, dict[Any, None]], key: object, item: object) -> None:
    items = table.get(key)
    if items is not None:
        items.pop(item, None)
        if not items:
            del table[key]
