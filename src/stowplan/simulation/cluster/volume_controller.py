"""Volume controller: binds and provisions volumes for claims that a scheduler has decided.

A volume with a claimRef is bound to that claim; a claim with a selected node gets a new volume on
that node. Both happen at once: the latency of drivers is not simulated.

Source: Kubernetes v1.36, controller/volume/persistentvolume, as far as schedulers see it.
"""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL
from stowplan.objects.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from stowplan.objects.storage import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    PVSpec,
    VolumeNodeAffinity,
)
from stowplan.plugins.volumes.volume_claims import (
    BIND_COMPLETED_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
)
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster


class VolumeController:
    """Binds and provisions volumes of a simulated cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.has_served = False
        cluster.on_written = self.serve

    def serve(self, written: Object) -> None:
        """React to a volume or claim that a scheduler has written."""
        if isinstance(written, PersistentVolume) and written.spec.claim_ref is not None:
            self._bind(written, written.spec.claim_ref)
        elif isinstance(written, PersistentVolumeClaim) and not written.spec.volume_name:
            node = written.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
            if node is not None and node in self._cluster.nodes:
                self._provision(written, node)

    def _provision(self, claim: PersistentVolumeClaim, node: str) -> None:
        """Create a volume with node affinity to this node, where it has the label of its name."""
        here = self._cluster.nodes[node].labels.get(HOSTNAME_LABEL)
        affinity = None
        if here is not None:
            required = NodeSelectorRequirement(HOSTNAME_LABEL, "In", (here,))
            term = NodeSelectorTerm(match_expressions=(required,))
            affinity = VolumeNodeAffinity(NodeSelector((term,)))
        volume = PersistentVolume(
            metadata=ObjectMeta(name=f"pvc-{claim.metadata.uid}", uid=f"pvc-{claim.metadata.uid}"),
            spec=PVSpec(
                capacity=claim.spec.resources.requests,
                access_modes=claim.spec.access_modes,
                claim_ref=claim_reference(claim),
                storage_class_name=claim.spec.storage_class_name or "",
                volume_mode=claim.spec.volume_mode,
                node_affinity=affinity,
            ),
        )
        self._cluster.put_object(volume)
        self._bind(volume, claim_reference(claim))

    def _bind(self, volume: PersistentVolume, named: ObjectReference) -> None:
        key = (PersistentVolumeClaim, f"{named.namespace}/{named.name}")
        claim = self._cluster.objects.get(key)
        if not isinstance(claim, PersistentVolumeClaim) or claim.spec.volume_name:
            return
        self.has_served = True
        self._cluster.put_object(replace(volume, status=PhaseStatus("Bound")))
        annotations = claim.metadata.annotations | {BIND_COMPLETED_ANNOTATION: "yes"}
        bound = replace(
            claim,
            metadata=replace(claim.metadata, annotations=annotations),
            spec=replace(claim.spec, volume_name=volume.name),
            status=PhaseStatus("Bound"),
        )
        self._cluster.put_object(bound)


def claim_reference(claim: PersistentVolumeClaim) -> ObjectReference:
    """The claimRef of a volume bound to the claim."""
    return ObjectReference(
        "v1", "PersistentVolumeClaim", claim.namespace, claim.name, claim.metadata.uid
    )
