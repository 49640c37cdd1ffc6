"""Claims that a controller makes for pods from ResourceClaimTemplates, and the slices that drivers
of simulated nodes publish.

Differs: names of claims have no random part. Claims of a PodGroup are not made.

Source: kube-controller-manager v1.36, pkg/controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from stowplan.apis.resource.node_devices import (
    DEVICES,
    PUBLISHED,
    NodeDevicesError,
    parse_devices,
    slices_of,
)
from stowplan.inputs.manifests import ManifestInventory, title
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim, ResourceClaimTemplate
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from stowplan.objects.scheduling_group import SchedulingGroup

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


def with_claims(pod: Pod, inventory: ManifestInventory) -> tuple[Pod, list[ResourceClaim]]:
    """A pending pod whose claims exist, and those that were made for it; a claim whose template is
    not there is left out."""
    made: list[ResourceClaim] = []
    if not pod.spec.resource_claims or pod.node_name or pod.is_finished:
        return pod, made
    known = {one.name for one in pod.status.resource_claim_statuses}
    added: list[PodResourceClaimStatus] = []
    for use in pod.spec.resource_claims:
        name = use.resource_claim_template_name
        if name is None or use.name in known or _is_shared(pod, use, inventory):
            continue
        template = inventory.find(ResourceClaimTemplate, f"{pod.namespace}/{name}")
        if template is not None:
            made.append(_claim_of(pod, use.name, template, inventory))
            added.append(PodResourceClaimStatus(use.name, made[-1].name))
    if not added:
        return pod, made
    statuses = (*pod.status.resource_claim_statuses, *added)
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses)), made


def _is_shared(pod: Pod, use: PodResourceClaim, inventory: ManifestInventory) -> bool:
    """True for an entry that the pod's group has, too: the claim is made for the group."""
    named = pod.spec.scheduling_group
    if named is None:
        return False
    group = inventory.find(SchedulingGroup, f"{pod.namespace}/{named.pod_group_name}")
    return group is not None and use in group.spec.resource_claims


def _claim_of(
    pod: Pod, use: str, template: ResourceClaimTemplate, inventory: ManifestInventory
) -> ResourceClaim:
    base = name = f"{pod.name}-{use}"
    number = 1
    while inventory.find(ResourceClaim, f"{pod.namespace}/{name}") is not None:
        name = f"{base}-{number}"
        number += 1
    given = template.spec.metadata
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=f"{pod.namespace}/{name}",
        labels=given.labels,
        annotations={**given.annotations, POD_CLAIM_ANNOTATION: use},
        creation_timestamp=pod.metadata.creation_timestamp,
        owner_references=(OwnerReference("v1", "Pod", pod.name, pod.uid, True),),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def published_slices(
    nodes: Iterable[Node], slices: Iterable[ResourceSlice]
) -> Iterator[ResourceSlice]:
    """What drivers publish of the devices that are written at nodes, but for drivers of which a
    node has slices. Raises DecodeError."""
    known = {(one.spec.node_name, one.spec.driver) for one in slices}
    for node in nodes:
        text = node.metadata.annotations.get(DEVICES, "")
        try:
            groups = parse_devices(text) if text else ()
        except NodeDevicesError as fault:
            path = f"{title(node)}: metadata.annotations[{DEVICES}]"
            raise DecodeError(str(fault), path) from None
        for group in groups:
            if (node.name, group.driver) in known:
                continue
            for at, spec in enumerate(slices_of(node.name, group)):
                meta = {
                    "name": f"{node.name}-{group.driver}-{at}",
                    "annotations": {PUBLISHED: group.text},
                }
                yield convert({"metadata": meta, "spec": spec}, ResourceSlice)
