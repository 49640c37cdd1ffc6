"""Persistent volume controller: claims and volumes are matched, provisioned, bound, released and
reclaimed.

Provisioning is simulated: for each class whose provisioner is not `kubernetes.io/no-provisioner` a
volume of the requested size is created at once, or after the class parameter
`stowplan.dev/provision-seconds`. A class with WaitForFirstConsumer waits for the scheduler to
select the node; the volume is then restricted to that node's zone, if the node has one.

Source: kube-controller-manager v1.36, pkg/controller/volume/{persistentvolume,pvcprotection,
pvprotection}.
"""

from __future__ import annotations

from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import CLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUMES
from stowplan.controllers.claim_matching import find_best_match, is_reserved_for
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent

COMPONENT = "persistentvolume-controller"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
PROVISIONER_BETA = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
PROVISION_SECONDS = "stowplan.dev/provision-seconds"
ZONE = "topology.kubernetes.io/zone"


class PersistentVolumeController(Controller):
    """Binds claims to volumes. Keys: (namespace, claim), and ("", volume)."""

    name = "persistent-volume-binder"

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._open: dict[Key, None] = {}
        self._ending: dict[Key, None] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a claim, a volume, claims that wait for a class, and claims that a deleted pod
        used."""
        key = split_key(change)
        path = change.path
        if path == CLAIMS:
            self._observe_claim(change, key)
        elif path == VOLUMES:
            self.queue.add(key)
            tree = self.decoded(change.value) or {}
            claim = (tree.get("spec") or {}).get("claimRef")
            if claim:
                self.queue.add((claim.get("namespace", ""), claim.get("name", "")))
            else:
                self._queue_open()
        elif path == STORAGE_CLASSES:
            self._queue_open()
        elif path == PODS and self._ending:
            for claim_key in self._ending:
                if claim_key[0] == key[0]:
                    self.queue.add(claim_key)

    def object_of(self, key: Key) -> Tree | None:
        """A claim, or without a namespace a volume."""
        return self.api.get(CLAIMS if key[0] else VOLUMES, *key)

    def sync(self, key: Key) -> None:
        """Sync one claim or one volume."""
        if key[0]:
            claim = self.api.get(CLAIMS, *key)
            if claim is not None:
                self._sync_claim(key, claim)
        else:
            volume = self.api.get(VOLUMES, "", key[1])
            if volume is not None:
                self._sync_volume(volume)

    def _observe_claim(self, change: WatchEvent, key: Key) -> None:
        self.queue.add(key)
        tree = self.decoded(change.value) or {}
        if change.type == "DELETED":
            self._open.pop(key, None)
            self._ending.pop(key, None)
            name = (tree.get("spec") or {}).get("volumeName")
            if name:
                self.queue.add(("", name))
            return
        if (tree.get("status") or {}).get("phase") == "Bound":
            self._open.pop(key, None)
        else:
            self._open[key] = None
        if is_deleting(tree):
            self._ending[key] = None

    def _queue_open(self) -> None:
        for key in self._open:
            self.queue.add(key)

    def _sync_claim(self, key: Key, claim: Tree) -> None:
        if is_deleting(claim):
            self._unprotect_claim(key, claim)
            return
        name = claim["spec"].get("volumeName")
        if not name:
            self._find_volume(key, claim)
            return
        volume = self.api.get(VOLUMES, "", name)
        bound_before = BIND_COMPLETED in (claim["metadata"].get("annotations") or {})
        if volume is None:
            if bound_before:
                self._lose(claim)
        elif "claimRef" not in volume["spec"] or is_reserved_for(volume, claim):
            self._bind(claim, volume, by_controller=False)
        elif bound_before:
            self._lose(claim)

    def _find_volume(self, key: Key, claim: Tree) -> None:
        """Match or provision a volume, or record an event about the reason to wait."""
        class_name = claim["spec"].get("storageClassName") or ""
        found = self.api.get(STORAGE_CLASSES, "", class_name) if class_name else None
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        waits = (found or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
        volume = find_best_match(self.api.list(VOLUMES), claim)
        if volume is not None and (not waits or is_reserved_for(volume, claim)):
            self._bind(claim, volume, by_controller=True)
        elif waits and not node:
            text = "waiting for first consumer to be created before binding"
            self._record(claim, "WaitForFirstConsumer", text)
        elif found is not None and found.get("provisioner") != NO_PROVISIONER:
            self._provision(key, claim, found, node or "")
        elif not class_name:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._record(claim, "FailedBinding", text)
        elif found is None:
            text = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._record(claim, "ProvisioningFailed", text, "Warning")

    def _provision(self, key: Key, claim: Tree, class_: Tree, node: str) -> None:
        provisioner = class_["provisioner"]
        annotations = claim["metadata"].setdefault("annotations", {})
        if annotations.get(PROVISIONER) != provisioner:
            annotations[PROVISIONER_BETA] = annotations[PROVISIONER] = provisioner
            claim = self.api.update(CLAIMS, claim)
            text = (
                f"Waiting for a volume to be created either by the external provisioner "
                f"'{provisioner}' or manually by the system administrator. If volume creation is "
                "delayed, please verify that the provisioner is running and correctly registered."
            )
            self._record(claim, "ExternalProvisioning", text)
        wait = (class_.get("parameters") or {}).get(PROVISION_SECONDS, "0")
        created = unix_seconds(claim["metadata"].get("creationTimestamp"))
        due = created + (uint_or_none(wait, 32) or 0)
        if due > self.api.now:
            self.queue.add(key, due)
            return
        volume = self.api.create(VOLUMES, self._new_volume(claim, class_, node))
        name = volume["metadata"]["name"]
        self._record(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        self._bind(claim, volume, by_controller=True)

    def _new_volume(self, claim: Tree, class_: Tree, node: str) -> Tree:
        meta, asked = claim["metadata"], claim["spec"]
        name = f"pvc-{meta['uid']}"
        spec: Tree = {
            "capacity": dict((asked.get("resources") or {}).get("requests") or {"storage": "1Gi"}),
            "accessModes": list(asked.get("accessModes") or ["ReadWriteOnce"]),
            "claimRef": _reference(claim),
            "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy", "Delete"),
            "storageClassName": class_["metadata"]["name"],
            "volumeMode": asked.get("volumeMode", "Filesystem"),
            # A driver name must be a domain name; a provisioner may have any name.
            "csi": {
                "driver": class_["provisioner"].replace("/", ".").lower(),
                "volumeHandle": name,
            },
        }
        if class_.get("mountOptions"):
            spec["mountOptions"] = list(class_["mountOptions"])
        zone = self._zone_of(node)
        if zone:
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        annotations = {PROVISIONED_BY: class_["provisioner"]}
        return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}

    def _zone_of(self, node: str) -> str:
        found = self.api.get(NODES, "", node) if node else None
        return str(((found or {}).get("metadata", {}).get("labels") or {}).get(ZONE, ""))

    def _bind(self, claim: Tree, volume: Tree, by_controller: bool) -> None:
        """Make the missing ones of the four writes of a binding, in order."""
        wanted = _reference(claim)
        held = volume["spec"].get("claimRef") or {}
        if held.get("uid") != wanted["uid"]:
            if not held:
                notes = volume["metadata"].setdefault("annotations", {})
                notes[BOUND_BY_CONTROLLER] = "yes"
            volume["spec"]["claimRef"] = wanted
            volume = self.api.update(VOLUMES, volume)
        if (volume.get("status") or {}).get("phase") != "Bound":
            volume["status"] = {**(volume.get("status") or {}), "phase": "Bound"}
            volume = self.api.update_status(VOLUMES, volume)
        notes = claim["metadata"].setdefault("annotations", {})
        name = volume["metadata"]["name"]
        if claim["spec"].get("volumeName") != name or notes.get(BIND_COMPLETED) != "yes":
            if by_controller and not claim["spec"].get("volumeName"):
                notes[BOUND_BY_CONTROLLER] = "yes"
            claim["spec"]["volumeName"] = name
            notes[BIND_COMPLETED] = "yes"
            claim = self.api.update(CLAIMS, claim)
        status: Tree = {
            **(claim.get("status") or {}),
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes", []),
            "capacity": volume["spec"].get("capacity", {}),
        }
        if status != claim.get("status"):
            claim["status"] = status
            self.api.update_status(CLAIMS, claim)

    def _lose(self, claim: Tree) -> None:
        if (claim.get("status") or {}).get("phase") == "Lost":
            return
        claim["status"] = {"phase": "Lost"}
        stored = self.api.update_status(CLAIMS, claim)
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        self._record(stored, "ClaimLost", text, "Warning")

    def _sync_volume(self, volume: Tree) -> None:
        held = volume["spec"].get("claimRef")
        if not held:
            self._set_phase(volume, "Available")
        elif held.get("uid"):
            claim = self.api.get(CLAIMS, held.get("namespace", ""), held.get("name", ""))
            if claim is None or claim["metadata"]["uid"] != held["uid"]:
                volume = self._reclaim(volume)
        elif (volume.get("status") or {}).get("phase") in (None, "Pending"):
            self._set_phase(volume, "Available")
        fresh = self.api.get(VOLUMES, "", volume["metadata"]["name"])
        if fresh is None or not is_deleting(fresh):
            return
        if (fresh.get("status") or {}).get("phase") != "Bound":
            self._without(VOLUMES, fresh, VOLUME_PROTECTION)

    def _reclaim(self, volume: Tree) -> Tree:
        """Release a volume whose claim is deleted, and delete it if it was provisioned."""
        volume = self._set_phase(volume, "Released")
        policy = volume["spec"].get("persistentVolumeReclaimPolicy")
        made = PROVISIONED_BY in (volume["metadata"].get("annotations") or {})
        if policy == "Delete" and made and not is_deleting(volume):
            meta = volume["metadata"]
            self.api.delete(VOLUMES, "", meta["name"], DeleteOptions(uid=meta["uid"]))
        return volume

    def _set_phase(self, volume: Tree, phase: str) -> Tree:
        status = volume.get("status") or {}
        if status.get("phase") == phase:
            return volume
        volume["status"] = {**status, "phase": phase}
        return self.api.update_status(VOLUMES, volume)

    def _unprotect_claim(self, key: Key, claim: Tree) -> None:
        """Remove the protection finalizer of a deleted claim that no unfinished pod uses."""
        for facts in self.index.in_namespace(key[0]):
            pod = None if facts.is_finished else self.api.get(PODS, *facts.key)
            if pod is not None and key[1] in _claims_of(pod):
                return
        self._without(CLAIMS, claim, CLAIM_PROTECTION)

    def _without(self, path: str, obj: Tree, finalizer: str) -> None:
        held = obj["metadata"].get("finalizers") or []
        if finalizer in held:
            obj["metadata"]["finalizers"] = [each for each in held if each != finalizer]
            self.api.update(path, obj)

    def _record(self, about: Tree, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(
            about, COMPONENT, reason, message, type=type_,
            object_kind="PersistentVolumeClaim", api_version="v1",
        )  # fmt: skip


def _reference(claim: Tree) -> Tree:
    meta = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "v1",
        "resourceVersion": meta["resourceVersion"],
    }


def _claims_of(pod: Tree) -> set[str]:
    """Names of the claims that a pod uses, ephemeral ones included."""
    names = set()
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            names.add(volume["persistentVolumeClaim"].get("claimName", ""))
        elif "ephemeral" in volume:
            names.add(f"{pod['metadata']['name']}-{volume['name']}")
    return names
