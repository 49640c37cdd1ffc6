"""Ephemeral volume controller: creates the claims of generic ephemeral volumes, owned by their pod.

Source: kube-controller-manager v1.36, pkg/controller/volume/ephemeral.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import CLAIMS, PODS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

_MARK = b'"ephemeral":'


class EphemeralVolumeController(Controller):
    """Keys are those of pods with ephemeral volumes."""

    name = "ephemeral-volume"
    path = PODS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a new pod, or one whose claim was deleted."""
        path = change.path
        if path == PODS and change.type == "ADDED" and _MARK in (change.value or b""):
            self.queue.add(split_key(change))
        elif path == CLAIMS and change.type == "DELETED":
            tree = self.decoded(change.value) or {"metadata": {}}
            owner = controller_of(tree)
            if owner is not None and owner["kind"] == "Pod":
                self.queue.add((split_key(change)[0], owner["name"]))

    def sync(self, key: Key) -> None:
        """Create the missing claims of a pod."""
        pod = self.api.get(PODS, *key)
        if pod is None or is_deleting(pod):
            return
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if template is not None:
                self._make(pod, volume["name"], template)

    def _make(self, pod: Tree, volume: str, template: Tree) -> None:
        namespace, name = pod["metadata"]["namespace"], f"{pod['metadata']['name']}-{volume}"
        found = self.api.get(CLAIMS, namespace, name)
        if found is None:
            given = template.get("metadata") or {}
            meta: Tree = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
            meta |= {"name": name, "namespace": namespace}
            meta["ownerReferences"] = [controller_reference(pod, "Pod", "v1")]
            self.api.create(CLAIMS, {"metadata": meta, "spec": template["spec"]})
        elif (controller_of(found) or {}).get("uid") != pod["metadata"]["uid"]:
            whose = f"was not created for pod {namespace}/{pod['metadata']['name']}"
            text = f"PVC {namespace}/{name} {whose} (pod is not owner)"
            message = f"ephemeral volume {volume}: {text}"
            self.recorder.record(pod, "ephemeral_volume", "FailedBinding", message, type="Warning")
