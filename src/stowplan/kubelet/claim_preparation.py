"""Devices of a pod on its node: prepared by their drivers before it starts, given back afterwards.

Which annotations of a pod control it is in `pod_lifecycle`. A claim that is missing, not allocated
or not reserved for the pod fails the preparation, which is tried again.

Source: kubelet v1.36, pkg/kubelet/cm/dra/manager.go, pkg/kubelet/kubelet.go (SyncPod).
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core.pod_lifecycle import PodLifecycle
from stowplan.controller_runtime.resource_paths import RESOURCE_CLAIMS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

RETRY_SECONDS = 10.0
"""From a failed attempt to the next one."""
REASON = "FailedPrepareDynamicResources"


def has_claims(pod: Tree) -> bool:
    """True for a pod that devices are prepared for."""
    status = pod.get("status") or {}
    return bool(pod["spec"].get("resourceClaims") or status.get("extendedResourceClaimStatus"))


def unprepare_seconds(pod: Tree, plan: PodLifecycle) -> float:
    """From the end of the containers to devices that are given back, failed attempts included."""
    if not has_claims(pod):
        return 0.0
    return plan.unprepare_s + plan.unprepare_failures * RETRY_SECONDS


def preparation_fault(api: Store, pod: Tree, plan: PodLifecycle, attempt: int) -> str:
    """Why an attempt to prepare the claims of a pod fails, "" if it does not. attempt: from 0."""
    meta = pod["metadata"]
    who = f"{meta['namespace']}/{meta['name']}"
    last = ""
    for name in _claim_names(pod):
        if not name:
            return f"pod {who}: ResourceClaim not created yet"
        claim = api.get(RESOURCE_CLAIMS, meta["namespace"], name)
        if claim is None:
            missing = f'resourceclaims.resource.k8s.io "{name}" not found'
            which = f"ResourceClaim {name} referenced by pod {meta['name']}"
            return f"failed to fetch {which}: {missing}"
        status = claim.get("status") or {}
        if "allocation" not in status:
            return f"resource claim {meta['namespace']}/{name} is not allocated"
        users = status.get("reservedFor") or ()
        if not any(_is_user(one, pod) for one in users):
            return f"pod {who} is not allowed to use resource claim {meta['namespace']}/{name}"
        last = name
    if attempt < plan.prepare_failures:
        return f"NodePrepareResources failed for ResourceClaim {last}: simulated failure"
    return ""


def _claim_names(pod: Tree) -> Iterator[str]:
    """Names of the claims that the pod needs, "" for one that is not created yet."""
    status = pod.get("status") or {}
    made = {one["name"]: one for one in status.get("resourceClaimStatuses") or ()}
    for use in pod["spec"].get("resourceClaims") or ():
        if use.get("resourceClaimName"):
            yield use["resourceClaimName"]
        elif use["name"] not in made:
            yield ""
        elif made[use["name"]].get("resourceClaimName"):
            yield made[use["name"]]["resourceClaimName"]
    special = status.get("extendedResourceClaimStatus")
    if special:
        yield special["resourceClaimName"]


def _is_user(consumer: Tree, pod: Tree) -> bool:
    if consumer["uid"] == pod["metadata"]["uid"]:
        return True
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return bool(group) and consumer.get("resource") == "podgroups" and consumer["name"] == group
