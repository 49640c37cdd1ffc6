"""Resource claim controller: claims from templates, reservations, deallocation and deletion.

A pod that names a ResourceClaimTemplate gets a claim of its own, named in its status. A claim that
was used and whose last pod has ended loses its allocation, so that its devices are free.

With the gate DRAWorkloadResourceClaims a PodGroup gets claims likewise, which its pods share: those
that have the same entry in `spec.resourceClaims`. They are in use as long as the group exists.

Differs: a missing template or group is not asked for again and again; the pod goes on when it is
created.

Source: kube-controller-manager v1.36, pkg/controller/resourceclaim; dynamic-resource-allocation
resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from stowplan.objects.devices.device_claim import CLAIM_FINALIZER
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "resource_claim"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
RESERVED_FOR_MAX = 256
SCHEDULING_GROUP = "scheduling.k8s.io"
NAME_BASE_MAX = 57
"""Characters of a generated name before its random suffix."""
_POD, _CLAIM, _GROUP = "pod:", "claim:", "group:"
_MARKS = (b'"resourceClaims":', b'"extendedResourceClaimStatus":')


class _ClaimUse(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _GroupOfPod(msgspec.Struct, frozen=True, rename="camel"):
    pod_group_name: str = ""


class _UsingSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_claims: tuple[_ClaimUse, ...] = ()
    scheduling_group: _GroupOfPod | None = None


class _UsingStatus(msgspec.Struct, frozen=True, rename="camel"):
    resource_claim_statuses: tuple[_ClaimUse, ...] | None = ()
    extended_resource_claim_status: _ClaimUse | None = None


class _UsingPod(msgspec.Struct, frozen=True):
    """The fields of a pod or a PodGroup that are about its claims."""

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

    @property
    def group(self) -> str:
        """The PodGroup of a pod, "" for none."""
        group = self.spec.scheduling_group
        return "" if group is None else group.pod_group_name

    def lacks_claim(self) -> bool:
        """True while a claim has to be created from its template."""
        made = {one.name for one in self.status.resource_claim_statuses or ()}
        return any(
            use.resource_claim_template_name is not None and use.name not in made
            for use in self.spec.resource_claims
        )


_USING_POD = msgspec.json.Decoder(_UsingPod)


class _UserKind(NamedTuple):
    """What has claims. key: how keys of it begin. use: its entries in events."""

    key: str
    path: str
    kind: str
    api_version: str
    use: str


_OF_POD = _UserKind(_POD, PODS, "Pod", "v1", "PodResourceClaim")
_OF_GROUP = _UserKind(
    _GROUP, POD_GROUPS, "PodGroup", SCHEDULING_API_VERSION, "PodGroupResourceClaim"
)
_PATHS = {"pod": PODS, "group": POD_GROUPS, "claim": RESOURCE_CLAIMS}


class ResourceClaimController(Controller):
    """Keys: ("pod:NAMESPACE", name), ("group:NAMESPACE", name) and ("claim:NAMESPACE", name).

    has_group_claims: whether PodGroups have claims.
    """

    name = "resource-claim"

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self.has_group_claims = False
        # Pods and groups by the keys with which they are queued.
        self._claims_of: dict[Key, tuple[str, ...]] = {}
        self._users_of: dict[Key, dict[Key, None]] = {}
        self._without_template: dict[Key, dict[Key, None]] = {}
        self._without_group: dict[Key, dict[Key, None]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed claim, the pods of one that is gone, a pod that lacks claims or is bound,
        and the claims of a pod that has ended."""
        path, key = change.path, split_key(change)
        if path == PODS:
            found = change.value.rfind  # Backwards takes half as long.
            if found(_MARKS[0]) >= 0 or found(_MARKS[1]) >= 0:
                self._observe_pod(change, key, before)
        elif path == RESOURCE_CLAIMS:
            if change.type == "DELETED":
                self._queue_all(self._users_of.get(key, ()))
            else:
                self._queue(_CLAIM, key)
        elif path == RESOURCE_CLAIM_TEMPLATES and change.type == "ADDED":
            self._queue_all(self._without_template.pop(key, ()))
        elif path == POD_GROUPS and self.has_group_claims:
            self._observe_group(change, key)

    def _observe_pod(self, change: WatchEvent, key: Key, before: PodFacts | None) -> None:
        using = _USING_POD.decode(change.value)
        now = self.index.pods.get(key)
        own: Key = (_POD + key[0], key[1])
        self._index(own, using.claim_names() if now is not None else ())
        if self.has_group_claims and using.group:
            held = self._without_group.setdefault((key[0], using.group), {})
            if now is not None and using.lacks_claim():
                held[own] = None
            else:
                held.pop(own, None)
            if not held:
                del self._without_group[key[0], using.group]
        if now is None or _is_done(now):
            for name in using.claim_names():
                self._queue(_CLAIM, (key[0], name))
        elif not now.deleting:
            is_bound = bool(now.node) and (before is None or not before.node)
            if before is None or is_bound or using.lacks_claim():
                self._queue(_POD, key)

    def _observe_group(self, change: WatchEvent, key: Key) -> None:
        """Queue a group that lacks claims, its pods that wait for them, and the claims of one that
        is gone."""
        using = _USING_POD.decode(change.value)
        own: Key = (_GROUP + key[0], key[1])
        is_gone = change.type == "DELETED"
        self._index(own, () if is_gone else using.claim_names())
        if is_gone:
            for name in using.claim_names():
                self._queue(_CLAIM, (key[0], name))
            return
        if using.lacks_claim():
            self.queue.add(own)
        self._queue_all(self._without_group.get(key, ()))

    def _index(self, user: Key, names: tuple[str, ...]) -> None:
        """Note which claims a pod or a group names."""
        held = self._claims_of.get(user, ())
        if held == names:
            return
        place = user[0].partition(":")[2]
        for name in held:
            users = self._users_of[place, name]
            users.pop(user, None)
            if not users:
                del self._users_of[place, name]
        for name in names:
            self._users_of.setdefault((place, name), {})[user] = None
        if names:
            self._claims_of[user] = names
        else:
            self._claims_of.pop(user, None)

    def _queue_all(self, users: Iterable[Key]) -> None:
        for user in users:
            self.queue.add(user)

    def _queue(self, kind: str, key: Key) -> None:
        self.queue.add((kind + key[0], key[1]))

    def object_of(self, key: Key) -> Tree | None:
        """A pod, a group or a claim."""
        kind, _, namespace = key[0].partition(":")
        return self.api.get(_PATHS[kind], namespace, key[1])

    def sync(self, key: Key) -> None:
        """Sync one pod, one group or one claim."""
        found = self.object_of(key)
        if found is None:
            return
        if key[0].startswith(_CLAIM):
            self._sync_claim(found)
            return
        if key[0].startswith(_GROUP):
            if not is_deleting(found):
                self._note_claims(found, _OF_GROUP, None)
            return
        pod = self.index.pods.get((found["metadata"]["namespace"], key[1]))
        if pod is not None and not pod.deleting and not _is_done(pod):
            self._sync_pod(found)

    # Pods and groups.

    def _sync_pod(self, pod: Tree) -> None:
        """Create the missing claims of a pod, then reserve those that it may use on its node."""
        group = None
        name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if name and self.has_group_claims:
            group = self.api.get(POD_GROUPS, pod["metadata"]["namespace"], name)
            if group is None:
                # It is queued again when the group is created.
                return
        pod = self._note_claims(pod, _OF_POD, group)
        if pod["spec"].get("nodeName"):
            for use in pod["spec"].get("resourceClaims") or ():
                self._reserve(pod, use, group)

    def _note_claims(self, user: Tree, kind: _UserKind, group: Tree | None) -> Tree:
        """Create the missing claims of a pod or a group, and name them in its status; returns it as
        stored. group: of a pod, whose claims it shares. Raises ApiError."""
        made = {}
        for use in user["spec"].get("resourceClaims") or ():
            try:
                name = self._created(user, use, kind, group)
            except ApiError as fault:
                text = f"{kind.use} {use['name']}: {fault.message}"
                reason = "FailedResourceClaimCreation"
                self.recorder.record(user, COMPONENT, reason, text, type="Warning")
                raise
            if name:
                made[use["name"]] = name
        if not made:
            return user
        status = user.setdefault("status", {})
        kept = [one for one in status.get("resourceClaimStatuses") or () if one["name"] not in made]
        added = [{"name": use, "resourceClaimName": name} for use, name in made.items()]
        status["resourceClaimStatuses"] = [*kept, *added]
        return self.api.update_status(kind.path, user)

    def _created(self, user: Tree, use: Tree, kind: _UserKind, group: Tree | None) -> str:
        """Name of the claim that is to be noted in the status of a pod or a group; "" if there is
        nothing to note. Raises ApiError."""
        template = use.get("resourceClaimTemplateName")
        if template is None:
            return ""
        namespace = user["metadata"]["namespace"]
        known = _status_of(user, use)
        if known is not None:
            if not known.get("resourceClaimName"):
                # It was decided that no claim is needed.
                return ""
            found = self.api.get(RESOURCE_CLAIMS, namespace, known["resourceClaimName"])
            if found is not None and _is_for(found, user, group):
                return ""
        if _is_shared(use, group):
            assert group is not None
            return self._made_for(group, use)
        return self._made_for(user, use) or self._create(user, use, kind)

    def _made_for(self, user: Tree, use: Tree) -> str:
        """The claim that was created for a pod or a group, noted or not; "" for none."""
        for path, namespace, name in self.index.dependents(user["metadata"]["uid"]):
            if path != RESOURCE_CLAIMS:
                continue
            claim = self.api.get(path, namespace, name)
            if claim is not None and _is_for(claim, user):
                notes = claim["metadata"].get("annotations") or {}
                if notes.get(POD_CLAIM_ANNOTATION) == use["name"]:
                    return name
        return ""

    def _create(self, user: Tree, use: Tree, kind: _UserKind) -> str:
        namespace, template_name = user["metadata"]["namespace"], use["resourceClaimTemplateName"]
        template = self.api.get(RESOURCE_CLAIM_TEMPLATES, namespace, template_name)
        if template is None:
            waiting = self._without_template.setdefault((namespace, template_name), {})
            waiting[kind.key + namespace, user["metadata"]["name"]] = None
            missing = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            text = f'resource claim template "{template_name}": {missing}'
            raise ApiError(404, "NotFound", text)
        given = template["spec"].get("metadata") or {}
        annotations = {**(given.get("annotations") or {}), POD_CLAIM_ANNOTATION: use["name"]}
        owner = controller_reference(user, kind.kind, kind.api_version)
        if kind is _OF_GROUP:
            del owner["blockOwnerDeletion"]
        meta: Tree = {
            "generateName": generate_name(user["metadata"]["name"], use["name"]),
            "namespace": namespace,
            "annotations": annotations,
            "ownerReferences": [owner],
        }
        if given.get("labels"):
            meta["labels"] = given["labels"]
        claim = {"metadata": meta, "spec": template["spec"]["spec"]}
        return str(self.api.create(RESOURCE_CLAIMS, claim)["metadata"]["name"])

    def _reserve(self, pod: Tree, use: Tree, group: Tree | None) -> None:
        """Reserve an allocated claim for a pod that was bound without the scheduler, or for its
        group."""
        name = use.get("resourceClaimName") or (_status_of(pod, use) or {}).get("resourceClaimName")
        meta = pod["metadata"]
        claim = self.api.get(RESOURCE_CLAIMS, meta["namespace"], name) if name else None
        if claim is None or ("resourceClaimName" not in use and not _is_for(claim, pod, group)):
            return
        status = claim.get("status") or {}
        users = status.get("reservedFor") or []
        is_reserved = any(one["uid"] == meta["uid"] or _is_group(one, group) for one in users)
        if "allocation" not in status or is_reserved or len(users) >= RESERVED_FOR_MAX:
            return
        own = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        if group is not None and _is_shared(use, group):
            whole = group["metadata"]
            own = {
                "apiGroup": SCHEDULING_GROUP,
                "resource": "podgroups",
                "name": whole["name"],
                "uid": whole["uid"],
            }
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
        if kind == (SCHEDULING_GROUP, "podgroups") and self.has_group_claims:
            group = self.api.get(POD_GROUPS, namespace, consumer["name"])
            return group is not None and group["metadata"]["uid"] == consumer["uid"]
        # One of a kind that is not known here stays.
        return True

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


def _is_for(claim: Tree, user: Tree, group: Tree | None = None) -> bool:
    """True for a claim that was created for the pod or the group, or for the group of the pod."""
    owner = controller_of(claim)
    if owner is None:
        return False
    return any(one is not None and owner["uid"] == one["metadata"]["uid"] for one in (user, group))


def _is_shared(use: Tree, group: Tree | None) -> bool:
    """True for an entry of a pod that its group has as well: the claim is the group's."""
    return group is not None and use in (group["spec"].get("resourceClaims") or ())


def _is_group(consumer: Tree, group: Tree | None) -> bool:
    """True for a consumer that is the group."""
    return (
        group is not None
        and (consumer.get("apiGroup"), consumer.get("resource")) == (SCHEDULING_GROUP, "podgroups")
        and bool(consumer["name"] == group["metadata"]["name"])
    )


def _status_of(user: Tree, use: Tree) -> Tree | None:
    known = (user.get("status") or {}).get("resourceClaimStatuses") or ()
    return next((one for one in known if one["name"] == use["name"]), None)


def _deallocated(status: Tree) -> Tree:
    return {
        key: value
        for key, value in status.items()
        if key not in ("allocation", "devices", "reservedFor")
    }
