"""ReplicaSet controller: keeps the wanted number of active pods of a template.

Source: kube-controller-manager v1.36, pkg/controller/replicaset.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.controller_ref_manager import claim_pods
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    find_condition,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time
from stowplan.controller_runtime.resource_paths import PODS, REPLICA_SETS
from stowplan.controller_runtime.selector_index import SelectorIndex, spec_selector
from stowplan.controllers.workloads.pod_control import deletion_order, pod_from_template
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "replicaset-controller"
_PODS_PER_SYNC_MAX = 100
"""Pods created or deleted in one sync; the original uses 500, concurrently."""


class ReplicaSetController(Controller):
    """Creates and deletes pods of ReplicaSets, and updates their status."""

    name = "replicaset"
    path = REPLICA_SETS
    kind = "ReplicaSet"
    api_version = "apps/v1"
    component = COMPONENT

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._selectors = SelectorIndex(self.selector_of)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed ReplicaSet, that of a changed pod, and those that may adopt an orphan."""
        key = split_key(change)
        if change.path == self.path:
            self.queue.add(key)
            self._selectors.observe(change)
        elif change.path == PODS:
            now = self.index.pods.get(key)
            for pod in (before, now):
                if pod is not None and pod.owner_kind == self.kind:
                    self.queue.add((key[0], pod.owner_name))
            if now is not None:
                for claimant in self._selectors.claimants(now):
                    self.queue.add(claimant)

    def sync(self, key: Key) -> None:
        """Claim pods, create or delete the difference, write the status."""
        found = self.api.get(self.path, *key)
        if found is None:
            return
        found["spec"]["selector"] = self.selector_of(found)
        owner_ref = controller_reference(found, self.kind, self.api_version)
        pods = claim_pods(self.api, self.index, found, owner_ref)
        active = [pod for pod in pods if pod.is_active]
        problem: ApiError | None = None
        if not is_deleting(found):
            problem = self._manage(found, owner_ref, active)
            pods = self.index.of_owner(found["metadata"]["uid"])
        self._write_status(key, pods, problem)
        if problem is not None:
            raise problem

    def selector_of(self, owner: Tree) -> Tree | None:
        """The label selector of the pods."""
        return spec_selector(owner)

    def status_fields(self, status: Tree) -> Tree:
        """The fields of a computed status that the kind has."""
        return status

    def _manage(self, owner: Tree, owner_ref: Tree, active: list[PodFacts]) -> ApiError | None:
        """Create missing or delete excess pods; returns the first error, if any."""
        diff = len(active) - _replicas(owner)
        if diff < 0:
            return self._create(owner, owner_ref, min(-diff, _PODS_PER_SYNC_MAX))
        if diff > 0:
            related = self._related(owner)
            chosen = deletion_order(active, related, self.api.now)[: min(diff, _PODS_PER_SYNC_MAX)]
            return self._delete(owner, chosen)
        return None

    def _create(self, owner: Tree, owner_ref: Tree, count: int) -> ApiError | None:
        for _ in range(count):
            pod = pod_from_template(owner["spec"]["template"], owner, owner_ref)
            try:
                made = self.api.create(PODS, pod)
            except ApiError as error:
                if _is_namespace_terminating(error):
                    return None
                self._record(owner, "FailedCreate", f"Error creating: {error.message}", "Warning")
                return error
            self._record(owner, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return None

    def _delete(self, owner: Tree, chosen: list[PodFacts]) -> ApiError | None:
        for pod in chosen:
            try:
                self.api.delete(PODS, *pod.key)
            except ApiError as error:
                if error.code == 404:
                    continue
                self._record(owner, "FailedDelete", f"Error deleting: {error.message}", "Warning")
                return error
            self._record(owner, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}")
        return None

    def _related(self, owner: Tree) -> list[PodFacts]:
        """Active pods of all ReplicaSets with the same controller as this one."""
        above = controller_of(owner)
        if above is None:
            sets = [owner["metadata"]["uid"]]
        else:
            found = (self.api.get(*item) for item in self.index.dependents(above["uid"]))
            sets = [each["metadata"]["uid"] for each in found if each is not None]
        return [pod for uid in sets for pod in self.index.of_owner(uid) if pod.is_active]

    def _write_status(self, key: Key, pods: list[PodFacts], problem: ApiError | None) -> None:
        found = self.api.get(self.path, *key)
        if found is None:
            return
        old = found.get("status") or {}
        new, look_again = replica_set_status(found, pods, problem, self.api.now)
        if look_again:
            self.queue.add(key, look_again)
        new["observedGeneration"] = found["metadata"].get("generation", 0)
        new = self.status_fields(new)
        if _is_same_status(old, new):
            return
        found["status"] = new
        self.api.update_status(self.path, found)

    def _record(self, about: Tree, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(about, self.component, reason, message, type=type_)


def replica_set_status(
    owner: Tree, pods: list[PodFacts], problem: ApiError | None, now: float
) -> tuple[Tree, float]:
    """Status of a ReplicaSet, and when to sync again because a pod becomes available."""
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    wait = owner["spec"].get("minReadySeconds", 0)
    active = [pod for pod in pods if pod.is_active]
    ready = [pod for pod in active if pod.ready]
    available = [pod for pod in ready if not wait or pod.ready_since + wait <= now]
    status: Tree = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels.items() <= pod.labels.items() for pod in active),
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
        "terminatingReplicas": sum(bool(pod.deleting) and not pod.is_finished for pod in pods),
    }
    conditions = _conditions(owner, len(active), problem, now)
    if conditions:
        status["conditions"] = conditions
    waiting = [pod.ready_since + wait for pod in ready if wait and pod.ready_since + wait > now]
    return status, min(waiting, default=0.0)


def _conditions(owner: Tree, active: int, problem: ApiError | None, now: float) -> list[Tree]:
    conditions = list((owner.get("status") or {}).get("conditions") or ())
    failure = find_condition(conditions, "ReplicaFailure")
    if problem is not None and failure is None:
        missing = active < _replicas(owner)
        conditions.append(
            {
                "type": "ReplicaFailure",
                "status": "True",
                "lastTransitionTime": format_time(now),
                "reason": "FailedCreate" if missing else "FailedDelete",
                "message": problem.message,
            }
        )
    elif problem is None and failure is not None:
        conditions.remove(failure)
    return conditions


def _replicas(owner: Tree) -> int:
    count = owner["spec"].get("replicas", 1)
    return count if isinstance(count, int) else 1


def _is_same_status(old: Tree, new: Tree) -> bool:
    """True for equal statuses; a count of 0 equals an absent one (except terminating)."""
    names = {*old, *new}
    is_written = "observedGeneration" in old and old.keys() >= new.keys() & {"terminatingReplicas"}
    return is_written and all((old.get(name) or 0) == (new.get(name) or 0) for name in names)


def _is_namespace_terminating(error: ApiError) -> bool:
    causes = (error.details or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
