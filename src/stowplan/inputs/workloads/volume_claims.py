"""Volume claims that controllers create for pods, and the default storage class.

Source: Kubernetes v1.36, controllers for StatefulSets and ephemeral volumes; admission of the
default storage class.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.storage import PersistentVolumeClaim, StorageClass
from stowplan.objects.volume import PVCTemplate

DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class ClaimBuilder:
    """Builds claims in a cluster with these storage classes."""

    def __init__(self, classes: Iterable[StorageClass] = ()) -> None:
        marked = [
            c
            for c in classes
            if any(c.metadata.annotations.get(key) == "true" for key in DEFAULT_CLASS)
        ]
        # Of several default classes the newest applies, then the first by name.
        newest = max(sorted(marked, key=lambda c: c.name), key=_created_s, default=None)
        self.default = None if newest is None else newest.name

    def classified(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """The claim with the default storage class, if it names none."""
        spec = claim.spec
        named = spec.storage_class_name is not None or BETA_CLASS in claim.metadata.annotations
        if self.default is None or named or spec.volume_name:
            return claim
        return replace(claim, spec=replace(spec, storage_class_name=self.default))

    def made(
        self, namespace: str, name: str, template: PVCTemplate, owner: OwnerReference | None = None
    ) -> PersistentVolumeClaim:
        """The claim built from a template."""
        meta = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"{namespace}/{name}",
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=() if owner is None else (owner,),
        )
        spec = replace(template.spec, volume_mode=template.spec.volume_mode or "Filesystem")
        return self.classified(PersistentVolumeClaim(metadata=meta, spec=spec))


def _created_s(found: Object) -> float:
    created = found.metadata.creation_timestamp
    return created.timestamp() if created else 0.0
