"""Creation, correction and deletion of the pods and claims of one StatefulSet.

Source: kube-controller-manager v1.36, pkg/controller/statefulset/stateful_pod_control.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import ObjectIndex, PodFacts
from stowplan.controller_runtime.resource_paths import CLAIMS, PODS
from stowplan.controllers.workloads.stateful_set.claim_retention import (
    ClaimOwners,
    are_up_to_date,
    claim_owners,
    has_unexpected_controller,
    is_stale,
    retention_policy,
    updated_references,
)
from stowplan.controllers.workloads.stateful_set.pod_identity import (
    claim_names,
    claims_of,
    identity_matches,
    is_in_range,
    pod_name,
    set_identity,
    set_storage,
    storage_matches,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

COMPONENT = "statefulset-controller"


class StatefulPodControl:
    """Pods and claims of `owner`, a StatefulSet, by ordinal.

    storage_seen: uids of pods whose volumes are known to be right; volumes are immutable.
    """

    def __init__(
        self,
        api: Store,
        index: ObjectIndex,
        recorder: EventRecorder,
        owner: Tree,
        storage_seen: set[str],
    ) -> None:
        self.api = api
        self.index = index
        self.recorder = recorder
        self.owner = owner
        self._namespace: str = owner["metadata"]["namespace"]
        self._storage_seen = storage_seen
        self._has_claims = bool(owner["spec"].get("volumeClaimTemplates"))

    def create(self, pod: Tree, ordinal: int) -> None:
        """Create a pod, its claims first."""
        name = pod["metadata"]["name"]
        try:
            self._create_claims(ordinal)
        except ApiError as error:
            self._record_pod("create", name, error)
            raise
        problem: ApiError | None = None
        try:
            self.api.create(PODS, pod)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                raise
            problem = error
        self._update_claim_owners(ordinal, "")
        self._record_pod("create", name, problem)
        if problem is not None:
            raise problem

    def delete(self, name: str) -> None:
        """Delete a pod; one that does not exist is deleted already."""
        try:
            self.api.delete(PODS, self._namespace, name)
        except ApiError as error:
            if error.code != 404:
                self._record_pod("delete", name, error)
                raise
        self._record_pod("delete", name)

    def matches(self, pod: PodFacts, ordinal: int) -> bool:
        """True when a pod has its identity, its volumes, and claims with the right owners."""
        if not identity_matches(self.owner, pod.key[1], pod.labels):
            return False
        return self._storage_matches(pod, ordinal) and self.claims_match(pod, ordinal)

    def update(self, pod: PodFacts, ordinal: int) -> None:
        """Correct a pod for which `matches` is False."""
        found = self.api.get(PODS, *pod.key)
        if found is None:
            return
        if not identity_matches(self.owner, pod.key[1], pod.labels):
            set_identity(found, self.owner, ordinal)
        try:
            if not storage_matches(self.owner, found, ordinal):
                set_storage(found, self.owner, ordinal)
                self._create_claims(ordinal)
            if not self.claims_match(pod, ordinal):
                self._update_claims(ordinal, pod.uid)
            self.api.update(PODS, found)
        except ApiError as error:
            self._record_pod("update", pod.key[1], error)
            raise
        self._record_pod("update", pod.key[1])

    def create_missing_claims(self, ordinal: int, uid: str) -> None:
        """Create the missing claims of a pending pod."""
        if self._has_claims:
            self._create_claims(ordinal)
            self._update_claim_owners(ordinal, uid)

    def claims_match(self, pod: PodFacts, ordinal: int) -> bool:
        """True when the owners of a pod's claims follow the retention policy."""
        if not self._has_claims:
            return True
        owners = self._owners(ordinal, pod.uid)
        return all(
            self._are_owners_right(name, owners)
            for name in claim_names(self.owner, ordinal).values()
        )

    def update_claims(self, pod: PodFacts, ordinal: int) -> None:
        """Set the owners of a pod's claims by the retention policy."""
        self._update_claims(ordinal, pod.uid)

    def is_claim_stale(self, ordinal: int) -> bool:
        """True when a claim of a pod that is to be created goes away with a former pod."""
        if not retention_policy(self.owner)[1]:
            return False
        owners = self._owners(ordinal, "")
        found = (self._claim(name) for name in claim_names(self.owner, ordinal).values())
        return any(is_stale(_references(each), owners.pod) for each in found if each is not None)

    def _storage_matches(self, pod: PodFacts, ordinal: int) -> bool:
        if not self._has_claims or pod.uid in self._storage_seen:
            return True
        found = self.api.get(PODS, *pod.key)
        if found is not None and not storage_matches(self.owner, found, ordinal):
            return False
        self._storage_seen.add(pod.uid)
        return True

    def _are_owners_right(self, name: str, owners: ClaimOwners) -> bool:
        uids = self.index.owners_of(CLAIMS, self._namespace, name)
        if owners.retains:
            # Without decoding the claim: the common policy.
            return owners.set["uid"] not in uids and owners.pod["uid"] not in uids
        claim = self._claim(name)
        return claim is None or are_up_to_date(_references(claim), owners)

    def _update_claim_owners(self, ordinal: int, uid: str) -> None:
        try:
            self._update_claims(ordinal, uid)
        except ApiError as error:
            self._record_pod("update", pod_name(self.owner, ordinal), error)
            raise

    def _update_claims(self, ordinal: int, uid: str) -> None:
        owners = self._owners(ordinal, uid)
        for name in claim_names(self.owner, ordinal).values():
            claim = self._claim(name)
            if claim is None:
                continue
            references = _references(claim)
            if has_unexpected_controller(references, owners):
                text = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as "
                    "a manging controller, the retention policy is ignored for this claim"
                )
                self._record("ConflictingController", text, "Warning")
            if not are_up_to_date(references, owners):
                claim["metadata"]["ownerReferences"] = updated_references(references, owners)
                self.api.update(CLAIMS, claim)

    def _create_claims(self, ordinal: int) -> None:
        """Create the missing claims; raises the first error after all were tried."""
        problem: ApiError | None = None
        for claim in claims_of(self.owner, ordinal):
            name = claim["metadata"]["name"]
            found = self._claim(name)
            if found is None:
                error = self._create_claim(claim, ordinal)
            elif is_deleting(found):
                error = ApiError(409, "Conflict", f"pvc {name} is being deleted")
            else:
                error = None
            problem = problem or error
        if problem is not None:
            raise problem

    def _create_claim(self, claim: Tree, ordinal: int) -> ApiError | None:
        name = claim["metadata"]["name"]
        where = f"Pod {pod_name(self.owner, ordinal)} in StatefulSet {self._set_name}"
        try:
            self.api.create(CLAIMS, claim)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                text = f"Create Claim {name} for {where} failed error: {error.message}"
                self._record("FailedCreate", text, "Warning")
            return ApiError(
                error.code, error.reason, f"failed to create PVC {name}: {error.message}"
            )
        self._record("SuccessfulCreate", f"Create Claim {name} {where} success")
        return None

    def _claim(self, name: str) -> Tree | None:
        return self.api.get(CLAIMS, self._namespace, name)

    def _owners(self, ordinal: int, uid: str) -> ClaimOwners:
        name = pod_name(self.owner, ordinal)
        return claim_owners(self.owner, name, uid, is_in_range(self.owner, ordinal))

    @property
    def _set_name(self) -> str:
        return str(self.owner["metadata"]["name"])

    def _record_pod(self, verb: str, name: str, error: ApiError | None = None) -> None:
        title = verb.capitalize()
        about = f"{title} Pod {name} in StatefulSet {self._set_name}"
        if error is None:
            self._record(f"Successful{title}", f"{about} successful")
        else:
            text = f"{about} failed error: {error.message}"
            self._record(f"Failed{title}", text, "Warning")

    def _record(self, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(self.owner, COMPONENT, reason, message, type=type_)


def _references(claim: Tree) -> list[Tree]:
    return claim["metadata"].get("ownerReferences") or []
