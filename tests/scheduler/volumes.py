"""Claims and volumes of the fake cluster, and their controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.volume_claims import (
    SELECTED_NODE_ANNOTATION,
    is_fully_bound,
    volume_uses_of,
)
from stowplan.testing.generators.choices import chance, pick
from tests.scenarios import storage_commands

if TYPE_CHECKING:
    from tests.scheduler.fake_cluster import FakeCluster

CLAIMS = ("c0", "c1", "c2", "c3")
VOLUMES = ("v0", "v1", "v2")
MADE = "made"

Kind = type[PersistentVolume | PersistentVolumeClaim]


class Volumes:
    """Objects of the API server, by kind and key."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.objects: dict[tuple[type[Object], str], Object] = {}
        self._born = 0
        self.put(storage_commands.storage_class("local", "", {}))
        self.put(storage_commands.storage_class(MADE, "", {"provisioner": "csi.example.com"}))

    # The API.

    def put(self, value: Any) -> str:
        """Write an object; returns its version, unchanged if the object is."""
        where = type(value), key_of(value)
        before = self.objects.get(where)
        if before is not None and content(before) == content(value):
            return before.metadata.resource_version
        version = self.cluster.next_version()
        meta = replace(value.metadata, resource_version=version)
        self.objects[where] = value = replace(value, metadata=meta)
        is_new = before is None
        self.cluster.watch.append(
            happened.ObjectAdded(value) if is_new else happened.ObjectUpdated(value)
        )
        return version

    def drop(self, value: Object) -> None:
        del self.objects[type(value), key_of(value)]
        self.cluster.watch.append(happened.ObjectDeleted(value))

    def claim(self, name: str) -> PersistentVolumeClaim | None:
        found: Any = self.objects.get((PersistentVolumeClaim, f"default/{name}"))
        return found

    def volume(self, name: str) -> PersistentVolume | None:
        found: Any = self.objects.get((PersistentVolume, name))
        return found

    def all(self, kind: Kind) -> list[Any]:
        return [value for (each, _), value in self.objects.items() if each is kind]

    def carry_out(self, effect: to_do.Write) -> tuple[int, str]:
        """Apply a change; returns the HTTP status, 200 on success, and the version."""
        now = self.objects.get((type(effect.value), key_of(effect.value)))
        if now is None:
            return 404, ""
        if now.metadata.resource_version != effect.value.metadata.resource_version:
            return 409, ""
        return 200, self.put(effect.value)

    def observed_again(self, known: Any) -> Iterator[Event]:
        """All objects, as when a watch restarts; known: the scheduler's object store."""
        for kind in (PersistentVolume, PersistentVolumeClaim):
            for value in list(known.all(kind)):
                if (kind, key_of(value)) not in self.objects:
                    yield happened.ObjectDeleted(value)
        yield from map(happened.ObjectAdded, self.objects.values())

    # Needs of pods.

    def are_bound(self, pod: Pod, node: str) -> bool:
        """True if every claim of a pod has a volume that the node reaches."""
        for name in volume_uses_of(pod.spec).named_claims:
            claim = self.claim(name)
            volume = None if claim is None else self.volume(claim.spec.volume_name)
            if claim is None or not is_fully_bound(claim) or volume is None:
                return False
            if not reaches(volume, node):
                return False
        return True

    def may_go_to(self, pod: Pod, node: str) -> bool:
        """True if the volumes of a pending pod could be bound on a node."""
        return all(self._is_to_be_had(name, node) for name in volume_uses_of(pod.spec).named_claims)

    def _is_to_be_had(self, name: str, node: str) -> bool:
        claim = self.claim(name)
        if claim is None:
            return False
        if claim.spec.volume_name:
            volume = self.volume(claim.spec.volume_name)
            return volume is not None and reaches(volume, node)
        selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
        if selected is not None or claim.spec.storage_class_name == MADE:
            return selected in (None, node)
        return any(
            volume.spec.claim_ref is None and reaches(volume, node)
            for volume in self.all(PersistentVolume)
        )

    # Actions.

    def claim_comes(self, name: str) -> None:
        """A claim is created."""
        if self.claim(name) is None:
            self._born += 1
            kind = pick(self.cluster.rng, ("local", MADE))
            made = storage_commands.claim(name, "", {"class": kind})
            self.put(replace(made, metadata=replace(made.metadata, uid=f"{name}-{self._born}")))

    def claim_goes(self, name: str) -> None:
        """A claim that no pod uses is deleted."""
        used = {
            c for pod in self.cluster.pods.values() for c in volume_uses_of(pod.spec).named_claims
        }
        claim = self.claim(name)
        if claim is not None and name not in used:
            self.drop(claim)

    def volume_comes(self, name: str, node: str) -> None:
        """A volume is added on a node, or an existing one is modified."""
        volume = self.volume(name)
        if volume is None:
            self.put(storage_commands.volume(name, "", {"node": node}))
        else:
            labels = {"seen": str(len(volume.labels.get("seen", "")) % 3)}
            self.put(replace(volume, metadata=replace(volume.metadata, labels=labels)))

    def control(self, *, everything: bool = False) -> None:
        """The volume controller processes all claims and volumes, or some of them."""
        for claim in self.all(PersistentVolumeClaim):
            if not is_fully_bound(claim) and (everything or chance(self.cluster.rng, 2)):
                self._serve(claim, without_effect=not everything and chance(self.cluster.rng, 4))
        for volume in self.all(PersistentVolume):
            self._release(volume)

    def _serve(self, claim: PersistentVolumeClaim, *, without_effect: bool) -> None:
        for volume in self.all(PersistentVolume):
            ref = volume.spec.claim_ref
            if ref is not None and ref.uid == claim.metadata.uid:
                self._bind(claim, volume.name)
                return
        annotations = claim.metadata.annotations
        node = annotations.get(SELECTED_NODE_ANNOTATION)
        if node is None:
            return
        if without_effect:
            left = {
                key: text for key, text in annotations.items() if key != SELECTED_NODE_ANNOTATION
            }
            self.put(replace(claim, metadata=replace(claim.metadata, annotations=left)))
            return
        settings = {"class": MADE, "node": node, "claim": claim.name}
        made = storage_commands.volume(f"pvc-{claim.metadata.uid}", "", settings)
        ref = replace(storage_commands.reference(claim.name), uid=claim.metadata.uid)
        self.put(replace(made, spec=replace(made.spec, claim_ref=ref)))
        self._bind(claim, made.name)

    def _bind(self, claim: PersistentVolumeClaim, volume: str) -> None:
        bound = storage_commands.claim(claim.name, "", {"volume": volume})
        annotations = claim.metadata.annotations | bound.metadata.annotations
        self.put(
            replace(
                claim,
                metadata=replace(claim.metadata, annotations=annotations),
                spec=replace(claim.spec, volume_name=volume),
                status=bound.status,
            )
        )

    def _release(self, volume: PersistentVolume) -> None:
        """A volume whose claim was deleted becomes available or is deleted."""
        ref = volume.spec.claim_ref
        if ref is None:
            return
        claim = self.claim(ref.name)
        if claim is not None and claim.metadata.uid == ref.uid:
            return
        if volume.spec.storage_class_name == MADE:
            self.drop(volume)
        else:
            free = storage_commands.volume(volume.name, "", {})
            spec = replace(volume.spec, claim_ref=None)
            self.put(replace(volume, spec=spec, status=free.status))


def content(value: Any) -> Any:
    """An object without its version."""
    return replace(value, metadata=replace(value.metadata, resource_version=""))


def reaches(volume: PersistentVolume, node: str) -> bool:
    """True for a test volume that can be used on a node."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    (term,) = affinity.required.node_selector_terms
    return term.match_expressions[0].values == (node,)
