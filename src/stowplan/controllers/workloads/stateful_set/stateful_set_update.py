"""One update of a StatefulSet: creates, deletes and replaces its pods in order of their ordinals.

Source: kube-controller-manager v1.36, pkg/controller/statefulset/stateful_set_control.go, with
the feature gate MaxUnavailableStatefulSet off, its default: `maxUnavailable` has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controllers.workloads.controller_revisions import HASH_LABEL, template_of
from stowplan.controllers.workloads.stateful_set.pod_identity import (
    is_in_range,
    new_pod,
    parent_and_ordinal,
    pod_name,
    replica_count,
    start_ordinal,
)
from stowplan.controllers.workloads.stateful_set.stateful_pod_control import StatefulPodControl
from stowplan.objects.encoding.tree import Tree

_BATCH_MAX = 500
"""Pods that a StatefulSet with parallel pod management changes between two looks at errors."""
_CREATIONS_PER_SYNC_MAX = 100
"""Pods created in one sync; the original creates all, concurrently."""


@dataclass(frozen=True, slots=True)
class StatefulSetRevisions:
    """current: the revision of pods that are not yet updated; update: that of the template.

    collisions: `status.collisionCount`.
    """

    current: Tree
    update: Tree
    collisions: int

    @property
    def current_name(self) -> str:
        """Name of the current revision, a label of its pods."""
        return str(self.current["metadata"]["name"])

    @property
    def update_name(self) -> str:
        """Name of the update revision, a label of its pods."""
        return str(self.update["metadata"]["name"])


@dataclass(slots=True)
class _Replica:
    """A wanted or superfluous pod. pod: None before it is created. revision: its hash label."""

    ordinal: int
    name: str
    pod: PodFacts | None
    revision: str

    @property
    def is_terminating(self) -> bool:
        return self.pod is not None and bool(self.pod.deleting)

    @property
    def is_running_and_ready(self) -> bool:
        return self.pod is not None and self.pod.phase == "Running" and self.pod.ready


class StatefulSetUpdate:
    """Compares a StatefulSet with its pods, and makes the next step.

    status: the new status; it is valid also after `run` has raised.
    """

    def __init__(
        self,
        control: StatefulPodControl,
        owner_ref: Tree,
        pods: Sequence[PodFacts],
        revisions: StatefulSetRevisions,
    ) -> None:
        self.control = control
        self.owner = control.owner
        self.revisions = revisions
        self._owner_ref = owner_ref
        self._now = control.api.now
        self._wait_s: int = self.owner["spec"].get("minReadySeconds", 0)
        self._is_ordered = self.owner["spec"].get("podManagementPolicy") != "Parallel"
        self._created = 0
        self._is_full = False
        """True when this sync may create no more pods; those that it created cause the next."""
        self._is_whole = True
        self._replicas, self._condemned = self._sort_pods(pods)
        self.status = self._counted(pods)

    def run(self) -> None:
        """Make the next step. Raises ApiError."""
        first = self._first_unavailable()
        if self._run_for_all(self._replicas, self._process_replica):
            return
        if self._run_for_all(self._condemned, self._correct_claims):
            return
        if self._run_for_all(self._condemned, lambda each: self._process_condemned(each, first)):
            return
        if self.owner["spec"]["updateStrategy"]["type"] != "OnDelete":
            self._replace_outdated()

    def is_available(self, replica: _Replica) -> bool:
        """True for a pod that has been ready for `minReadySeconds`."""
        pod = replica.pod
        return pod is not None and is_available(pod, self._wait_s, self._now)

    def _sort_pods(self, pods: Sequence[PodFacts]) -> tuple[list[_Replica], list[_Replica]]:
        """The wanted replicas by ordinal, and the superfluous ones, highest ordinal first."""
        by_ordinal = {parent_and_ordinal(pod.key[1])[1]: pod for pod in pods}
        wanted = self._wanted_ordinals(by_ordinal)
        replicas = [self._replica(ordinal, by_ordinal.get(ordinal)) for ordinal in wanted]
        others = sorted(
            (o for o in by_ordinal if o >= 0 and not is_in_range(self.owner, o)), reverse=True
        )
        return replicas, [self._replica(ordinal, by_ordinal[ordinal]) for ordinal in others]

    def _wanted_ordinals(self, existing: Container[int]) -> list[int]:
        """The wanted ordinals up to the last that this sync can come to, ascending.

        `spec.replicas` may be two thousand million: ordinals after more missing pods than one sync
        creates are left out, and `_is_whole` is False.
        """
        start = start_ordinal(self.owner)
        found: list[int] = []
        n_missing = 0
        for ordinal in range(start, start + replica_count(self.owner)):
            if n_missing > _CREATIONS_PER_SYNC_MAX:
                self._is_whole = False
                break
            n_missing += ordinal not in existing
            found.append(ordinal)
        return found

    def _replica(self, ordinal: int, pod: PodFacts | None) -> _Replica:
        if pod is not None:
            return _Replica(ordinal, pod.key[1], pod, pod.labels.get(HASH_LABEL, ""))
        name = pod_name(self.owner, ordinal)
        current = self._is_of_current(ordinal)
        revision = self.revisions.current_name if current else self.revisions.update_name
        return _Replica(ordinal, name, None, revision)

    def _is_of_current(self, ordinal: int) -> bool:
        """Whether a new pod with this ordinal gets the current revision, not the update one."""
        strategy = self.owner["spec"]["updateStrategy"]
        rolling = strategy.get("rollingUpdate")
        start = start_ordinal(self.owner)
        if rolling is not None:
            return ordinal < start + int(rolling.get("partition", 0))
        old = (self.owner.get("status") or {}).get("currentReplicas", 0)
        return bool(strategy["type"] == "RollingUpdate" and ordinal < start + old)

    def _counted(self, pods: Sequence[PodFacts]) -> Tree:
        ready = [pod for pod in pods if pod.phase == "Running" and pod.ready]
        alive = [pod.labels.get(HASH_LABEL) for pod in pods if not pod.deleting]
        return {
            "observedGeneration": self.owner["metadata"].get("generation", 0),
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": sum(is_available(pod, self._wait_s, self._now) for pod in ready),
            "currentReplicas": alive.count(self.revisions.current_name),
            "updatedReplicas": alive.count(self.revisions.update_name),
            "currentRevision": self.revisions.current_name,
            "updateRevision": self.revisions.update_name,
            "collisionCount": self.revisions.collisions,
        }

    def _first_unavailable(self) -> _Replica | None:
        """The unavailable replica with the lowest ordinal, wanted ones first."""
        inspected = (*self._replicas, *reversed(self._condemned))
        found = (each for each in inspected if each.is_terminating or not self.is_available(each))
        return next(found, None)

    def _run_for_all(self, replicas: Sequence[_Replica], step: Callable[[_Replica], bool]) -> bool:
        """Make a step for each replica; True if the sync ends here.

        Ordered: until one must be waited for. Parallel: in batches, up to one with an error.
        """
        if self._is_ordered:
            return any(step(each) for each in replicas)
        done, size = 0, 1
        while done < len(replicas) and not self._is_full:
            errors = [self._attempted(step, each) for each in replicas[done : done + size]]
            for error in errors:
                if error is not None:
                    raise error
            done, size = done + size, min(2 * size, _BATCH_MAX)
        return self._is_full

    def _attempted(self, step: Callable[[_Replica], bool], each: _Replica) -> ApiError | None:
        try:
            step(each)
        except ApiError as error:
            return error
        return None

    def _process_replica(self, replica: _Replica) -> bool:
        """Create, restart or correct one replica; True to wait for it, if ordered."""
        pod = replica.pod
        if pod is not None and pod.is_finished:
            # Its successor is created when it is deleted.
            if not pod.deleting:
                self.control.delete(replica.name)
            return True
        if pod is None:
            return self._create(replica)
        if pod.phase == "Pending":
            self.control.create_missing_claims(replica.ordinal, pod.uid)
        if self._is_ordered and (
            replica.is_terminating
            or not replica.is_running_and_ready
            or not self.is_available(replica)
        ):
            return True
        if not self.control.matches(pod, replica.ordinal):
            self.control.update(pod, replica.ordinal)
        return False

    def _create(self, replica: _Replica) -> bool:
        if self._created >= _CREATIONS_PER_SYNC_MAX:
            self._is_full = True
            return True
        if self.control.is_claim_stale(replica.ordinal):
            return True
        revisions = self.revisions
        is_current = replica.revision == revisions.current_name
        revision = revisions.current if is_current else revisions.update
        made = new_pod(
            self.owner, self._owner_ref, template_of(revision), replica.revision, replica.ordinal
        )
        self._created += 1
        self.control.create(made, replica.ordinal)
        return True

    def _correct_claims(self, replica: _Replica) -> bool:
        if replica.pod is not None and not self.control.claims_match(replica.pod, replica.ordinal):
            self.control.update_claims(replica.pod, replica.ordinal)
        return False

    def _process_condemned(self, replica: _Replica, first: _Replica | None) -> bool:
        """Delete one superfluous replica; True to wait, if ordered."""
        if replica.is_terminating:
            return True
        ready = replica.is_running_and_ready and self.is_available(replica)
        if self._is_ordered and not ready and replica is not first:
            return True
        self.control.delete(replica.name)
        return True

    def _replace_outdated(self) -> None:
        """Delete the outdated replica with the highest ordinal, unless one above is awaited."""
        if not self._is_whole:
            return
        rolling = self.owner["spec"]["updateStrategy"].get("rollingUpdate") or {}
        for replica in reversed(self._replicas[int(rolling.get("partition", 0)) :]):
            outdated = replica.revision != self.revisions.update_name
            if outdated and not replica.is_terminating:
                self.control.delete(replica.name)
                # Differs: not below 0, which the API server refuses; the original then tries again.
                self.status["currentReplicas"] = max(self.status["currentReplicas"] - 1, 0)
                return
            if replica.is_terminating or not self.is_available(replica):
                return


def is_available(pod: PodFacts, wait_s: int, now: float) -> bool:
    """True for a pod that has been ready for `wait_s` seconds."""
    return pod.ready and (not wait_s or pod.ready_since + wait_s <= now)


def complete_rolling_update(owner: Tree, status: Tree) -> None:
    """Make the update revision the current one in `status` when all replicas have it."""
    wanted = replica_count(owner)
    names = ("updatedReplicas", "readyReplicas", "replicas")
    is_rolling = owner["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    if is_rolling and all(status[name] == wanted for name in names):
        status["currentReplicas"] = status["updatedReplicas"]
        status["currentRevision"] = status["updateRevision"]


def is_status_changed(owner: Tree, status: Tree) -> bool:
    """True when a status is to be written."""
    old = owner.get("status") or {}
    if status["observedGeneration"] > old.get("observedGeneration", 0):
        return True
    names = ("replicas", "currentReplicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    return any(status[name] != old.get(name, 0) for name in names) or any(
        status[name] != old.get(name, "") for name in ("currentRevision", "updateRevision")
    )
