"""Deployment controller: one ReplicaSet per pod template; the new one is scaled up, old ones down.

Source: kube-controller-manager v1.36, pkg/controller/deployment.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.controller_ref_manager import claim_replica_sets
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    find_condition,
    is_deleting,
    selector_tree_matches,
)
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import DEPLOYMENTS, PODS, REPLICA_SETS
from stowplan.controllers.workloads import deployment_revision, rolling_update
from stowplan.controllers.workloads.deployment_status import (
    DeploymentCounts,
    RolloutContext,
    check_paused,
    has_progress_deadline,
    next_progress_check,
    rollout_status,
    scaling_status,
    set_progressing,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

COMPONENT = "deployment-controller"
_NO_LIMIT = 2**31 - 1


class DeploymentController(Controller):
    """Creates and scales the ReplicaSets of Deployments, and reports rollout progress."""

    name = "deployment"
    path = DEPLOYMENTS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Deployment, that of a changed ReplicaSet, and for Recreate that of a
        deleted pod."""
        key = split_key(change)
        path = change.path
        if path == DEPLOYMENTS:
            self.queue.add(key)
        elif path == REPLICA_SETS:
            self._queue_owner(key[0], change)
        elif path == PODS and before is not None and key not in self.index.pods:
            self._queue_recreating(before)

    def sync(self, key: Key) -> None:
        """Do one step: status, pause, scaling or rollout."""
        found = self.api.get(DEPLOYMENTS, *key)
        if found is None:
            return
        owner_ref = controller_reference(found, "Deployment", "apps/v1")
        sets = claim_replica_sets(self.api, self.index, found, owner_ref)
        look = _DeploymentSync(self, found, owner_ref, deployment_revision.by_creation(sets))
        if is_deleting(found):
            look.find_newest(create=False)
            look.write_status(scaling_status(found, look.counts(), look.limits, self.api.now))
            return
        if check_paused(found, self.api.now):
            look.write_back()
        # A paused Deployment has ReplicaSets, too.
        was_scaled = look.was_scaled()
        if found["spec"].get("paused") or was_scaled:
            look.scale()
        elif look.limits_kind == "Recreate":
            look.recreate()
        else:
            look.roll()

    def _queue_recreating(self, gone: PodFacts) -> None:
        """Queue the Deployment of a deleted pod, which may wait for that."""
        if gone.owner_kind != "ReplicaSet":
            return
        found = self.api.get(REPLICA_SETS, gone.key[0], gone.owner_name)
        owner = controller_of(found) if found is not None else None
        if owner is not None and owner["kind"] == "Deployment":
            self.queue.add((gone.key[0], owner["name"]))

    def _queue_owner(self, namespace: str, change: WatchEvent) -> None:
        for value in (change.value, change.previous):
            obj = self.decoded(value)
            owner = controller_of(obj) if obj is not None else None
            if owner is not None and owner["kind"] == "Deployment":
                self.queue.add((namespace, owner["name"]))
            elif obj is not None and owner is None and change.type != "DELETED":
                labels = obj["metadata"].get("labels") or {}
                for each in self.api.list(DEPLOYMENTS, namespace):
                    if selector_tree_matches(each["spec"].get("selector"), labels):
                        self.queue.add((namespace, each["metadata"]["name"]))


class _DeploymentSync:
    """One sync of a Deployment: the current objects, and the resulting writes."""

    def __init__(
        self, controller: DeploymentController, found: Tree, owner_ref: Tree, sets: list[Tree]
    ) -> None:
        self.api = controller.api
        self.controller = controller
        self.found = found
        self.owner_ref = owner_ref
        self.sets = sets
        spec = found["spec"]
        strategy = spec.get("strategy") or {}
        self.limits_kind = strategy.get("type", "RollingUpdate")
        self.limits = rolling_update.rolling_update_limits(spec.get("replicas", 1), strategy)
        self.newest: Tree | None = None
        self.old: list[Tree] = []

    def was_scaled(self) -> bool:
        """True when an active ReplicaSet was sized for another number of replicas."""
        self.find_newest(create=False)
        for each in self.sets:
            desired = uint_or_none(
                (each["metadata"].get("annotations") or {}).get(
                    deployment_revision.DESIRED_REPLICAS, ""
                )
            )
            active = bool(each["spec"].get("replicas"))
            if active and desired is not None and desired != self.limits.replicas:
                return True
        return False

    def find_newest(self, create: bool) -> None:
        """Find the new ReplicaSet, set its revision and that of the Deployment."""
        newest = deployment_revision.find_new_replica_set(self.found, self.sets)
        self.old = [each for each in self.sets if each is not newest]
        number = deployment_revision.next_revision(self.old)
        if newest is not None:
            self.newest = self._numbered(newest, number)
        elif create:
            self.newest = self._create(number)

    def scale(self) -> None:
        """Scale the ReplicaSets without continuing the rollout."""
        active = [each for each in self.sets if each["spec"].get("replicas")]
        if len(active) <= 1:
            chosen = self.newest or (self.old[-1] if self.old else None)
            if active:
                chosen = active[0]
            if chosen is not None:
                self._resize(chosen, self.limits.replicas)
        elif self._is_saturated():
            for each in self.old:
                if each["spec"].get("replicas"):
                    self._resize(each, 0)
        elif self.limits_kind == "RollingUpdate":
            sizes = rolling_update.scale_proportionally(
                [deployment_revision.replica_set_size(each) for each in active],
                self.limits,
                (self.found.get("status") or {}).get("replicas", 0),
            )
            for name, size in sizes.items():
                self._resize(self._named(name), size, anyway=True)
        if self.found["spec"].get("paused"):
            self._clean_up()
        self.write_status(scaling_status(self.found, self.counts(), self.limits, self.api.now))

    def roll(self) -> None:
        """Scale up the new ReplicaSet within the limits, else scale down old ones."""
        self.find_newest(create=True)
        newest = self.newest
        assert newest is not None
        total = sum(each["spec"].get("replicas", 0) for each in self._all())
        now_wanted = newest["spec"].get("replicas", 0)
        size = rolling_update.scale_up_new(now_wanted, total, self.limits)
        if size != now_wanted:
            self._resize(newest, size)
        else:
            old = [
                deployment_revision.replica_set_size(each)
                for each in self.old
                if each["spec"].get("replicas")
            ]
            sizes = rolling_update.scale_down_old(
                deployment_revision.replica_set_size(newest), old, self.limits
            )
            for name, smaller in sizes.items():
                self._resize(self._named(name), smaller)
            if not sizes and self._is_complete():
                self._clean_up()
        self._finish()

    def recreate(self) -> None:
        """Delete all old pods before new ones are created."""
        self.find_newest(create=False)
        shrinking = [each for each in self.old if each["spec"].get("replicas")]
        for each in shrinking:
            self._resize(each, 0)
        if not shrinking and not self._old_pods_run():
            self.find_newest(create=True)
            if self.newest is not None:
                self._resize(self.newest, self.limits.replicas)
            if self._is_complete():
                self._clean_up()
        self._finish()

    def counts(self) -> DeploymentCounts:
        """Sums of the status of the ReplicaSets."""
        return DeploymentCounts.of(self._all(), self.newest)

    def write_status(self, status: Tree) -> None:
        """Write the status if it has changed."""
        if status == (self.found.get("status") or {}):
            return
        self.found["status"] = status
        self.write_back()

    def write_back(self) -> None:
        """Write status (and revision) of the Deployment."""
        stored = self.api.update_status(DEPLOYMENTS, self.found)
        self.found["metadata"] = stored["metadata"]

    def _finish(self) -> None:
        note = RolloutContext(self.found, self.newest, self._failure())
        status = rollout_status(note, self.counts(), self.limits, self.api.now)
        self.write_status(status)
        again = next_progress_check(self.found, status, self.api.now)
        if again:
            key = (self.found["metadata"]["namespace"], self.found["metadata"]["name"])
            self.controller.queue.add(key, again)

    def _all(self) -> list[Tree]:
        return [*self.old, *([self.newest] if self.newest is not None else [])]

    def _named(self, name: str) -> Tree:
        return next(each for each in self._all() if each["metadata"]["name"] == name)

    def _numbered(self, newest: Tree, number: int) -> Tree:
        """The new ReplicaSet, with its annotations and the Deployment's revision updated."""
        copied = copy.deepcopy(newest)
        wait = self.found["spec"].get("minReadySeconds", 0)
        changed = deployment_revision.annotate(copied, self.found, number)
        if changed or copied["spec"].get("minReadySeconds", 0) != wait:
            copied["spec"]["minReadySeconds"] = wait
            stored = self.api.update(REPLICA_SETS, copied)
            self.sets = [stored if each is newest else each for each in self.sets]
            newest = stored
        changed = self._set_revision(
            newest["metadata"]["annotations"][deployment_revision.REVISION]
        )
        conditions = (self.found.get("status") or {}).get("conditions") or ()
        if has_progress_deadline(self.found) and find_condition(conditions, "Progressing") is None:
            text = f'Found new replica set "{newest["metadata"]["name"]}"'
            set_progressing(self.found, "True", "FoundNewReplicaSet", text, self.api.now)
            changed = True
        if changed:
            self.write_back()
        return newest

    def _set_revision(self, number: str) -> bool:
        annotations = self.found["metadata"].setdefault("annotations", {})
        changed = bool(annotations.get(deployment_revision.REVISION) != number)
        annotations[deployment_revision.REVISION] = number
        return changed

    def _create(self, number: int) -> Tree | None:
        total = sum(each["spec"].get("replicas", 0) for each in self.old)
        size = self.limits.replicas
        if self.limits_kind == "RollingUpdate":
            size = rolling_update.scale_up_new(0, total, self.limits)
        made = deployment_revision.new_replica_set(
            self.found, self.owner_ref, number, size, self.limits
        )
        name = made["metadata"]["name"]
        try:
            stored = self.api.create(REPLICA_SETS, made)
        except ApiError as error:
            self._creation_failed(name, error)
            raise
        if size > 0:
            self._record("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
        self._set_revision(str(number))
        if has_progress_deadline(self.found):
            text = f'Created new replica set "{name}"'
            set_progressing(self.found, "True", "NewReplicaSetCreated", text, self.api.now)
        self.write_back()
        self.sets.append(stored)
        return stored

    def _creation_failed(self, name: str, error: ApiError) -> None:
        """A name that is taken by another template needs another hash; other errors are
        reported."""
        status = self.found.setdefault("status", {})
        if error.reason == "AlreadyExists":
            status["collisionCount"] = status.get("collisionCount", 0) + 1
            self.write_back()
            return
        causes = (error.details or {}).get("causes") or ()
        if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
            return
        text = f'Failed to create new replica set "{name}": {error.message}'
        if has_progress_deadline(self.found):
            set_progressing(self.found, "False", "ReplicaSetCreateError", text, self.api.now)
            self.write_back()
        self._record("ReplicaSetCreateError", text, "Warning")

    def _resize(self, each: Tree, size: int, anyway: bool = False) -> None:
        """Set the size of a ReplicaSet; anyway: also when only its size annotations change."""
        before = each["spec"].get("replicas", 0)
        size_texts = deployment_revision.size_annotations(self.limits)
        annotations = each["metadata"].get("annotations") or {}
        if before == size and (not anyway or size_texts.items() <= annotations.items()):
            return
        changed = copy.deepcopy(each)
        changed["spec"]["replicas"] = size
        changed["metadata"].setdefault("annotations", {}).update(size_texts)
        stored = self.api.update(REPLICA_SETS, changed)
        each.clear()
        each.update(stored)
        if before != size:
            way = "up" if before < size else "down"
            name = each["metadata"]["name"]
            self._record(
                "ScalingReplicaSet", f"Scaled {way} replica set {name} from {before} to {size}"
            )

    def _is_saturated(self) -> bool:
        if self.newest is None:
            return False
        desired = (self.newest["metadata"].get("annotations") or {}).get(
            deployment_revision.DESIRED_REPLICAS
        )
        wanted = self.limits.replicas
        size = deployment_revision.replica_set_size(self.newest)
        return desired == str(wanted) and size.wanted == wanted and size.available == wanted

    def _is_complete(self) -> bool:
        return DeploymentCounts.of_status(self.found).is_complete(self.found)

    def _old_pods_run(self) -> bool:
        newest = self.newest["metadata"]["uid"] if self.newest is not None else ""
        if any((each.get("status") or {}).get("replicas") for each in self.old):
            return True
        owned: Sequence[str] = [each["metadata"]["uid"] for each in self.sets]
        return any(
            not pod.is_finished
            for uid in owned
            if uid != newest
            for pod in self.controller.index.of_owner(uid)
        )

    def _clean_up(self) -> None:
        """Delete the oldest empty ReplicaSets beyond the revision history limit."""
        limit = self.found["spec"].get("revisionHistoryLimit", 10)
        alive = [each for each in self.old if not is_deleting(each)]
        beyond = len(alive) - limit
        if limit == _NO_LIMIT or beyond <= 0:
            return
        alive.sort(
            key=lambda each: (deployment_revision.revision(each), deployment_revision.created(each))
        )
        for each in alive[:beyond]:
            status = each.get("status") or {}
            seen = each["metadata"].get("generation", 0) <= status.get("observedGeneration", 0)
            if status.get("replicas") or each["spec"].get("replicas") or not seen:
                continue
            meta = each["metadata"]
            self.api.delete(REPLICA_SETS, meta["namespace"], meta["name"])

    def _failure(self) -> Tree | None:
        """ReplicaFailure of the new ReplicaSet, or else of any."""
        for each in ([self.newest] if self.newest is not None else []) + self.old:
            conditions = (each.get("status") or {}).get("conditions") or ()
            failure = find_condition(conditions, "ReplicaFailure")
            if failure is not None:
                return failure
        return None

    def _record(self, reason: str, message: str, type_: str = "Normal") -> None:
        self.controller.recorder.record(self.found, COMPONENT, reason, message, type=type_)
