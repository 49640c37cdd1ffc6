"""KAI-Scheduler's pod-grouper: PodGroups of pods by their owners.

Source: KAI-Scheduler, pkg/podgrouper/pod_controller.go and podgroup/handler.go, updater.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller, RetrySync
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.kai.kai_kinds_served import KAI_POD_GROUPS, PRIORITY_CLASSES
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.grouping.owner_pod_group import (
    PodOwners,
    owner_reference,
    owners_of,
    pod_group_of,
    sub_group_of,
)
from stowplan.objects.kai.grouping.workload_owners import (
    GroupingError,
    GroupingSkipped,
    Owner,
)
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KAI_GROUP_API_VERSION,
    KAI_PRIORITY_CLASSES,
    SUB_GROUP_LABEL,
)
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.store import WatchEvent

SCHEDULER = "kai-scheduler"
WARNING = "PodGrouperWarning"
_MARK = f'"schedulerName":"{SCHEDULER}"'.encode()
_READ_AGAIN = (b"leaderworkerset.sigs.k8s.io/", b"training.kubeflow.org/job-role")
"""Labels of pods whose group depends on what pods of it exist, and where they are."""
_KEPT_FIELDS = ("markUnschedulable", "schedulingBackoff", "queue")
"""Fields of a group that others write."""


class KaiPodGrouper(Controller):
    """Keys are those of pods."""

    name = "pod-grouper"
    path = PODS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a new pod of KAI, and one that may change what its group needs."""
        if change.path != PODS or change.type == "DELETED" or _MARK not in change.value:
            return
        if change.type == "ADDED" or any(mark in change.value for mark in _READ_AGAIN):
            self.queue.add(split_key(change))

    def sync(self, key: Key) -> None:
        """Create or update the group of a pod, and name it on the pod."""
        tree = self.api.get(PODS, *key)
        if tree is None or tree["metadata"].get("deletionTimestamp"):
            return
        pod = convert(tree, Pod)
        if KAI_GROUP_ANNOTATION in pod.metadata.annotations and not pod.metadata.owner_references:
            return
        try:
            owners = owners_of(pod, self._find)
            made = pod_group_of(self._members(pod, owners), owners, self._classes())
            sub_group = sub_group_of(pod, owners)
            self._apply(pod, owners, convert_group(made))
            self._assign(tree, made.name, sub_group)
        except GroupingSkipped:
            return
        except (GroupingError, ApiError) as problem:
            if isinstance(problem, ApiError) and problem.code in (404, 409):
                raise
            # As an owner may change what is wrong without a change of its pods, they are tried
            # again.
            self.recorder.record(tree, self.name, WARNING, str(problem), type="Warning")
            raise RetrySync from problem

    def _members(self, pod: Pod, owners: PodOwners) -> tuple[Pod, ...]:
        """A pod, with the others of its owner where their number counts."""
        if owners.kind[1] not in ("MPIJob", "LeaderWorkerSet"):
            return (pod,)
        name = owner_reference(pod, owners).uid
        others = (
            convert(one, Pod)
            for one in self.api.list(PODS, pod.namespace)
            if any(
                reference.get("uid") == name
                for reference in one["metadata"].get("ownerReferences") or ()
            )
        )
        return (pod, *(one for one in others if one.name != pod.name))

    def _classes(self) -> set[str]:
        found = {one["metadata"]["name"] for one in self.api.list(PRIORITY_CLASSES)}
        return found | KAI_PRIORITY_CLASSES.keys()

    def _find(self, reference: OwnerReference, namespace: str) -> Owner | None:
        place = self.api.path_of(reference.api_version, reference.kind)
        if place is None:
            return None
        tree = self.api.get(place[0], namespace if place[1] else "", reference.name)
        if tree is None:
            return None
        meta = convert(tree["metadata"], ObjectMeta)
        spec, status = tree.get("spec") or {}, tree.get("status") or {}
        return Owner(reference.api_version, reference.kind, meta, spec, status)

    def _apply(self, pod: Pod, owners: PodOwners, made: Tree) -> None:
        top = owner_reference(pod, owners)
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": top.api_version, "kind": top.kind, "name": top.name, "uid": top.uid}
        ]
        meta = made["metadata"]
        known = self.api.get(KAI_POD_GROUPS, meta["namespace"], meta["name"])
        if known is None:
            self.api.create(KAI_POD_GROUPS, made)
            return
        spec = dict(made["spec"])
        spec |= {name: known["spec"][name] for name in _KEPT_FIELDS if name in known["spec"]}
        if not (spec.get("topologyConstraint") or {}).get("topology"):
            spec["topologyConstraint"] = known["spec"].get("topologyConstraint") or {}
        changed = {**known, "spec": spec, "metadata": {**known["metadata"]}}
        for field in ("labels", "annotations"):
            both = (known["metadata"].get(field) or {}) | (meta.get(field) or {})
            if both:
                changed["metadata"][field] = both
        if changed != known:
            self.api.update(KAI_POD_GROUPS, changed)

    def _assign(self, tree: Tree, name: str, sub_group: str) -> None:
        meta = tree["metadata"]
        labels = meta.get("labels") or {}
        notes = meta.get("annotations") or {}
        is_known = notes.get(KAI_GROUP_ANNOTATION) == name
        if is_known and labels.get(SUB_GROUP_LABEL, "") == sub_group:
            return
        meta["annotations"] = {**notes, KAI_GROUP_ANNOTATION: name}
        if sub_group:
            meta["labels"] = {**labels, SUB_GROUP_LABEL: sub_group}
        self.api.update(PODS, tree)


def convert_group(made: Any) -> Tree:
    """A group as a tree of JSON, without a time of creation."""
    tree: Tree = msgspec.json.decode(msgspec.json.encode(made))
    tree["apiVersion"], tree["kind"] = KAI_GROUP_API_VERSION, "PodGroup"
    tree["metadata"].pop("creationTimestamp", None)
    tree.setdefault("spec", {})
    tree["spec"].setdefault("topologyConstraint", {})
    return tree
