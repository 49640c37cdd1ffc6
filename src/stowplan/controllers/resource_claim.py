"""Resource claim controller: claims from templates, reservations, deallocation and deletion.

A pod that names a ResourceClaimTemplate gets a claim of its own, named in its status. A claim that
was used and whose last pod has ended loses its allocation, so that its devices are free.

Differs: a missing template is not asked for again and again; the pod goes on when it is created.
Differs: no claims are created for PodGroups (DRAWorkloadResourceClaims, off by default).

Source: kube-controller-manager v1.36, pkg/controller/resourceclaim; dynamic-resource-allocation
resourceclaim.
"""

from __future__ import annotations

import msgspec

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import (
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from stowplan.objects.devices.device_claim import CLAIM_FINALIZER
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "resource_claim"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
RESERVED_FOR_MAX = 256
NAME_BASE_MAX = 57
"""Characters of a generated name before its random suffix."""
_POD, _CLAIM = "pod:", "claim:"
_MARKS = (b'"resourceClaims":', b'"extendedResourceClaimStatus":')


class _ClaimUse(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _UsingSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_claims: tuple[_ClaimUse, ...] = ()


class _UsingStatus(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_statuses: tuple[_ClaimUse, ...] | None = ()
    extended_resource_claim_status: _ClaimUse | None = None


class _UsingPod(msgspec.Struct, frozen=True):
    """The fields of a pod that are about its claims."""

    spec: _UsingSpec = _UsingSpec()
    status: _UsingStatus = _UsingStatus()

    def claim_names(self) -> tuple[str, ...]:
        """Names of the claims that are known."""
        made = {
            one.name: one.resource_claim_name for one in self.status.resource_claim_statuses or ()
        }
        names = [use.resource_claim_name or made.get(use.name) for use in self.spec.resource_claims]
        special = self.status.extended_resource_claim_status
        names.append(None if special is None else special.resource_claim_name)
        return tuple(name for name in names if name)

    def lacks_claim(self) -> bool:
        """True while a claim has to be created from its template."""
        made = {one.name for one in self.status.resource_claim_statuses or ()}
        return any(
            use.resource_claim_template_name is not None and use.name not in made
            for use in self.spec.resource_claims
        )


_USING_POD = msgspec.json.Decoder(_UsingPod)


class ResourceClaimController(Controller):
    """Keys: ("pod:NAMESPACE", name) and ("claim:NAMESPACE", name)."""

    name = "resource-claim"

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._claims_of: dict[Key, tuple[str, ...]] = {}
        self._pods_of: dict[Key, dict[Key, None]] = {}
        self._without_template: dict[Key, dict[Key, None]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed claim, the pods of one that is gone, a pod that lacks claims or is bound,
        and the claims of a pod that has ended."""
        path, key = change.path, split_key(change)
        if path == PODS:
            if any(mark in change.value for mark in _MARKS):
                self._observe_pod(change, key, before)
        elif path == RESOURCE_CLAIMS:
            if change.type == "DELETED":
                for pod in self._pods_of.get(key, ()):
                    self._queue(_POD, pod)
            else:
                self._queue(_CLAIM, key)
        elif path == RESOURCE_CLAIM_TEMPLATES and change.type == "ADDED":
            for pod in self._without_template.pop(key, ()):
                self._queue(_POD, pod)

    def _observe_pod(self, change: WatchEvent, key: Key, before: PodFacts | None) -> None:
        using = _USING_POD.decode(change.value)
        now = self.index.pods.get(key)
        self._index(key, using.claim_names() if now is not None else ())
        if now is None or _is_done(now):
            for name in using.claim_names():
                self._queue(_CLAIM, (key[0], name))
        elif not now.deleting:
            is_bound = bool(now.node) and (before is None or not before.node)
            if before is None or is_bound or using.lacks_claim():
                self._queue(_POD, key)

    def _index(self, pod: Key, names: tuple[str, ...]) -> None:
        """Note which claims a pod names."""
        held = self._claims_of.get(pod, ())
        if held == names:
            return
        for name in held:
            pods = self._pods_of[pod[0], name]
            pods.pop(pod, None)
            if not pods:
                del self._pods_of[pod[0], name]
        for name in names:
            self._pods_of.setdefault((pod[0], name), {})[pod] = None
        if names:
            self._claims_of[pod] = names
        else:
            self._claims_of.pop(pod, None)

    def _queue(self, kind: str, key: Key) -> None:
        self.queue.add((kind + key[0], key[1]))

    def object_of(self, key: Key) -> Tree | None:
        """A pod or a claim."""
        kind, _, namespace = key[0].partition(":")
        return self.api.get(PODS if kind == "pod" else RESOURCE_CLAIMS, namespace, key[1])

    def sync(self, key: Key) -> None:
        """Sync one pod or one claim."""
        found = self.object_of(key)
        if found is None:
            return
        if key[0].startswith(_CLAIM):
            self._sync_claim(found)
            return
        pod = self.index.pods.get((found["metadata"]["namespace"], key[1]))
        if pod is not None and not pod.deleting and not _is_done(pod):
            self._sync_pod(found)

    # Pods.

    def _sync_pod(self, pod: Tree) -> None:
        """Create the missing claims of a pod, then reserve those that it may use on its node."""
        uses, made = pod["spec"].get("resourceClaims") or (), {}
        for use in uses:
            try:
                name = self._created(pod, use)
            except ApiError as fault:
                text = f"PodResourceClaim {use['name']}: {fault.message}"
                reason = "FailedResourceClaimCreation"
                self.recorder.record(pod, COMPONENT, reason, text, type="Warning")
                raise
            if name:
                made[use["name"]] = name
        if made:
            status = pod.setdefault("status", {})
            kept = [
                one for one in status.get("resourceClaimStatuses") or () if one["name"] not in made
            ]
            added = [{"name": use, "resourceClaimName": name} for use, name in made.items()]
            status["resourceClaimStatuses"] = [*kept, *added]
            pod = self.api.update_status(PODS, pod)
        if pod["spec"].get("nodeName"):
            for use in uses:
                self._reserve(pod, use)

    def _created(self, pod: Tree, use: Tree) -> str:
        """Name of the claim that is to be noted in the pod's status; "" if there is nothing to
        note. Raises ApiError."""
        template = use.get("resourceClaimTemplateName")
        if template is None:
            return ""
        namespace = pod["metadata"]["namespace"]
        known = _status_of(pod, use)
        if known is not None:
            if not known.get("resourceClaimName"):
                # It was decided that no claim is needed.
                return ""
            found = self.api.get(RESOURCE_CLAIMS, namespace, known["resourceClaimName"])
            if found is not None and _is_for(found, pod):
                return ""
        return self._orphan_of(pod, use) or self._create(pod, use, template)

    def _orphan_of(self, pod: Tree, use: Tree) -> str:
        """A claim that was created for the pod and not yet noted; "" for none."""
        for path, namespace, name in self.index.dependents(pod["metadata"]["uid"]):
            if path != RESOURCE_CLAIMS:
                continue
            claim = self.api.get(path, namespace, name)
            if claim is not None and _is_for(claim, pod):
                notes = claim["metadata"].get("annotations") or {}
                if notes.get(POD_CLAIM_ANNOTATION) == use["name"]:
                    return name
        return ""

    def _create(self, pod: Tree, use: Tree, template_name: str) -> str:
        namespace = pod["metadata"]["namespace"]
        template = self.api.get(RESOURCE_CLAIM_TEMPLATES, namespace, template_name)
        if template is None:
            waiting = self._without_template.setdefault((namespace, template_name), {})
            waiting[namespace, pod["metadata"]["name"]] = None
            missing = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            text = f'resource claim template "{template_name}": {missing}'
            raise ApiError(404, "NotFound", text)
        given = template["spec"].get("metadata") or {}
        annotations = {**(given.get("annotations") or {}), POD_CLAIM_ANNOTATION: use["name"]}
        meta: Tree = {
            "generateName": generate_name(pod["metadata"]["name"], use["name"]),
            "namespace": namespace,
            "annotations": annotations,
            "ownerReferences": [controller_reference(pod, "Pod", "v1")],
        }
        if given.get("labels"):
            meta["labels"] = given["labels"]
        claim = {"metadata": meta, "spec": template["spec"]["spec"]}
        return str(self.api.create(RESOURCE_CLAIMS, claim)["metadata"]["name"])

    def _reserve(self, pod: Tree, use: Tree) -> None:
        """Reserve an allocated claim for a pod that was bound without the scheduler."""
        name = use.get("resourceClaimName") or (_status_of(pod, use) or {}).get("resourceClaimName")
        meta = pod["metadata"]
        claim = self.api.get(RESOURCE_CLAIMS, meta["namespace"], name) if name else None
        if claim is None or ("resourceClaimName" not in use and not _is_for(claim, pod)):
            return
        status = claim.get("status") or {}
        users = status.get("reservedFor") or []
        is_reserved = any(one["uid"] == meta["uid"] for one in users)
        if "allocation" not in status or is_reserved or len(users) >= RESERVED_FOR_MAX:
            return
        own = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        claim["status"] = {**status, "reservedFor": [*users, own]}
        self.api.update_status(RESOURCE_CLAIMS, claim)

    # Claims.

    def _sync_claim(self, claim: Tree) -> None:
        """Take out pods that have ended; without any left, deallocate, and delete what was made for
        a pod that has ended."""
        status = claim.get("status") or {}
        users = status.get("reservedFor") or []
        namespace = claim["metadata"]["namespace"]
        left = [one for one in users if self._needs(namespace, one)]
        if len(left) < len(users):
            status = {**status, "reservedFor": left}
            if not left:
                status = _deallocated(status)
            claim["status"] = status
            claim = self.api.update_status(RESOURCE_CLAIMS, claim)
            if "allocation" not in (claim.get("status") or {}):
                self._unprotect(claim)
        elif not left and is_deleting(claim):
            if "allocation" in status:
                claim["status"] = _deallocated(status)
                claim = self.api.update_status(RESOURCE_CLAIMS, claim)
            self._unprotect(claim)
        if not left:
            self._delete_unused(claim)

    def _needs(self, namespace: str, consumer: Tree) -> bool:
        """False for a consumer that is gone or will not run any more."""
        kind = consumer.get("apiGroup") or "", consumer.get("resource")
        if kind == ("", "pods"):
            pod = self.index.pods.get((namespace, consumer["name"]))
            return pod is not None and pod.uid == consumer["uid"] and not _is_done(pod)
        if kind == ("scheduling.k8s.io", "podgroups"):
            group = self.api.get("scheduling.k8s.io/podgroups", namespace, consumer["name"])
            return group is not None and group["metadata"]["uid"] == consumer["uid"]
        raise ApiError(422, "Invalid", f"unsupported ReservedFor entry: {consumer}")

    def _unprotect(self, claim: Tree) -> None:
        """Remove the finalizer that keeps an allocated claim."""
        held = claim["metadata"].get("finalizers") or []
        if CLAIM_FINALIZER in held:
            claim["metadata"]["finalizers"] = [one for one in held if one != CLAIM_FINALIZER]
            self.api.update(RESOURCE_CLAIMS, claim)

    def _delete_unused(self, claim: Tree) -> None:
        """Delete a claim whose pod is known to have ended. One whose pod is gone is deleted by
        garbage collection."""
        owner = controller_of(claim)
        if owner is None or owner["kind"] != "Pod" or owner["apiVersion"] != "v1":
            return
        meta = claim["metadata"]
        pod = self.index.pods.get((meta["namespace"], owner["name"]))
        if (
            pod is not None
            and (pod.uid != owner["uid"] or _is_done(pod))
            and not is_deleting(claim)
        ):
            self.api.delete(RESOURCE_CLAIMS, meta["namespace"], meta["name"])


def generate_name(pod: str, use: str) -> str:
    """`POD-CLAIM-`, both shortened alike where that is too long."""
    whole = f"{pod}-{use}-"
    if len(whole) <= NAME_BASE_MAX:
        return whole
    first = pod[: len(pod) * NAME_BASE_MAX // len(whole)]
    return f"{first}-{use[: len(use) * NAME_BASE_MAX // len(whole)]}"


def _is_done(pod: PodFacts) -> bool:
    """True if no container runs or will run."""
    return pod.is_finished or (bool(pod.deleting) and not pod.node)


def _is_for(claim: Tree, pod: Tree) -> bool:
    owner = controller_of(claim)
    return owner is not None and bool(owner["uid"] == pod["metadata"]["uid"])


def _status_of(pod: Tree, use: Tree) -> Tree | None:
    known = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return next((one for one in known if one["name"] == use["name"]), None)


def _deallocated(status: Tree) -> Tree:
    return {
        key: value
        for key, value in status.items()
        if key not in ("allocation", "devices", "reservedFor")
    }
