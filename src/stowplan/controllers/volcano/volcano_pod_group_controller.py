"""PodGroups of pods that name none: one for all pods of a controller, or one for a pod.

Source: volcano master of 2026-08-20, pkg/controllers/podgroup/pg_controller_handler.go.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import controller_of, controller_reference
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import PODS
from stowplan.controllers.volcano.volcano_job_expansion import GROUP_NAME
from stowplan.controllers.volcano.volcano_kinds import SCHEDULING_VERSION, VOLCANO_POD_GROUPS
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.podgroup import VOLCANO_QUEUE_ANNOTATION
from stowplan.objects.quantity import format_quantity
from stowplan.objects.store import WatchEvent
from stowplan.objects.volcano.job_defaults import DEFAULT_SCHEDULER

_MARK = f'"schedulerName":"{DEFAULT_SCHEDULER}"'.encode()
_ANNOTATIONS = (
    "volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable",
)  # fmt: skip
_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")


class VolcanoPodGroupController(Controller):
    """Keys are those of pods."""

    name = "vc-podgroup-controller"
    path = PODS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a new pod of Volcano without a group."""
        is_new = change.path == PODS and change.type == "ADDED"
        if is_new and _MARK in change.value and GROUP_NAME.encode() not in change.value:
            self.queue.add(split_key(change))

    def sync(self, key: Key) -> None:
        """Create the PodGroup of a pod, and name it on the pod."""
        pod = self.api.get(PODS, *key)
        if pod is None or GROUP_NAME in (pod["metadata"].get("annotations") or {}):
            return
        owner = controller_of(pod)
        name = f"podgroup-{(owner or pod['metadata'])['uid']}"
        if self.api.get(VOLCANO_POD_GROUPS, key[0], name) is None:
            self.api.create(VOLCANO_POD_GROUPS, _group(pod, owner, name))
        pod["metadata"].setdefault("annotations", {})[GROUP_NAME] = name
        self.api.update(PODS, pod)


def _group(pod: Tree, owner: Tree | None, name: str) -> Tree:
    meta = pod["metadata"]
    notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    amounts = requested(convert(pod, Pod)).items()
    spec: Tree = {
        "minMember": 1,
        "minResources": {n: format_quantity(n, amount) for n, amount in amounts} | {"pods": "1"},
    }
    if notes.get(VOLCANO_QUEUE_ANNOTATION):
        spec["queue"] = notes[VOLCANO_QUEUE_ANNOTATION]
    if pod["spec"].get("priorityClassName"):
        spec["priorityClassName"] = pod["spec"]["priorityClassName"]
    return {
        "apiVersion": SCHEDULING_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "annotations": {key: notes[key] for key in _ANNOTATIONS if key in notes},
            "labels": {key: labels[key] for key in _LABELS if key in labels},
            "ownerReferences": [owner or controller_reference(pod, "Pod", "v1")],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }
