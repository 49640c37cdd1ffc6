"""Volumes and claims: default storage class, protection finalizers, resizing.

Source: kube-apiserver v1.36, plugin/pkg/admission/storage.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    stored_objects,
    targets,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import QuantityError, nanos

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
STORAGE_CLASSES = "storage.k8s.io/storageclasses"
VOLUME_ATTRIBUTES_CLASSES = "storage.k8s.io/volumeattributesclasses"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
DEFAULT_CLASS_BETA = "storageclass.beta.kubernetes.io/is-default-class"
CLAIM_CLASS_BETA = "volume.beta.kubernetes.io/storage-class"
_PROTECTION = {
    CLAIMS: "kubernetes.io/pvc-protection",
    VOLUMES: "kubernetes.io/pv-protection",
    VOLUME_ATTRIBUTES_CLASSES: "kubernetes.io/vac-protection",
}


class DefaultStorageClassAdmission(AdmissionPluginBase):
    """Sets the default storage class of claims without one."""

    repeatable = True
    paths = (CLAIMS,)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """The newest default class counts, of equally new ones the first by name."""
        if obj is None or old is not None or not targets(call, CLAIMS):
            return
        spec = obj.setdefault("spec", {})
        annotations = obj["metadata"].get("annotations") or {}
        if spec.get("storageClassName") is not None or CLAIM_CLASS_BETA in annotations:
            return
        defaults = [each for each in stored_objects(call, STORAGE_CLASSES) if _is_default(each)]
        if defaults:
            newest = max(each["metadata"]["creationTimestamp"] for each in defaults)
            names = (
                each["metadata"]["name"]
                for each in defaults
                if each["metadata"]["creationTimestamp"] == newest
            )
            spec["storageClassName"] = min(names)


class StorageObjectInUseProtection(AdmissionPluginBase):
    """Adds a finalizer to new claims and volumes, which protects them while they are used."""

    repeatable = True
    paths = tuple(_PROTECTION)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Add the finalizer."""
        if obj is None or old is not None or call.subresource:
            return
        finalizer = _PROTECTION.get(call.resource.path)
        if finalizer is None:
            return
        held = obj["metadata"].setdefault("finalizers", [])
        if finalizer not in held:
            held.append(finalizer)


class PersistentVolumeClaimResize(AdmissionPluginBase):
    """Only bound claims of classes with allowVolumeExpansion can grow."""

    repeatable = True
    paths = (CLAIMS,)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Reject a larger request otherwise."""
        if obj is None or old is None or not targets(call, CLAIMS) or _size(obj) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise admission_forbidden(
                call, obj, "Only bound persistent volume claims can be expanded"
            )
        if not _may_grow(call, obj, old):
            why = (
                "only dynamically provisioned pvc can be resized and "
                "the storageclass that provisions the pvc must support resize"
            )
            raise admission_forbidden(call, obj, why)


def _may_grow(call: ApiCall, obj: Tree, old: Tree) -> bool:
    name = _class_of_claim(obj)
    if not name or name != _class_of_claim(old):
        return False
    found = stored_object(call, STORAGE_CLASSES, "", name)
    return bool(found is not None and found.get("allowVolumeExpansion"))


def _class_of_claim(claim: Tree) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(CLAIM_CLASS_BETA) or claim["spec"].get("storageClassName") or "")


def _is_default(class_: Tree) -> bool:
    annotations = class_["metadata"].get("annotations") or {}
    return "true" in (annotations.get(DEFAULT_CLASS), annotations.get(DEFAULT_CLASS_BETA))


def _size(claim: Tree) -> int:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    try:
        return nanos(requests.get("storage", "0"))
    except (QuantityError, ArithmeticError):
        return 0
