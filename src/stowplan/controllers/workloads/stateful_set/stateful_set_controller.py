"""StatefulSet controller: claims pods and revisions, updates them, and writes the status.

Source: kube-controller-manager v1.36, pkg/controller/statefulset.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.controller_ref_manager import claim_objects, claim_pods
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import controller_reference, is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import (
    CLAIMS,
    CONTROLLER_REVISIONS,
    PODS,
    STATEFUL_SETS,
)
from stowplan.controller_runtime.selector_index import SelectorIndex
from stowplan.controllers.workloads import controller_revisions
from stowplan.controllers.workloads.stateful_set.pod_identity import parent_and_ordinal
from stowplan.controllers.workloads.stateful_set.stateful_pod_control import StatefulPodControl
from stowplan.controllers.workloads.stateful_set.stateful_set_update import (
    StatefulSetRevisions,
    StatefulSetUpdate,
    complete_rolling_update,
    is_status_changed,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent


class StatefulSetController(Controller):
    """Keeps the pods of StatefulSets, one per ordinal."""

    name = "statefulset"
    path = STATEFUL_SETS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._selectors = SelectorIndex()
        self._storage_seen: dict[Key, set[str]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed StatefulSet, that of a changed pod, those that may adopt an orphan, and
        that of a deleted claim."""
        key = split_key(change)
        if change.path == STATEFUL_SETS:
            self.queue.add(key)
            self._selectors.observe(change)
        elif change.path == PODS:
            now = self.index.pods.get(key)
            for pod in (before, now):
                if pod is not None and pod.owner_kind == "StatefulSet":
                    self.queue.add((key[0], pod.owner_name))
            for claimant in self._selectors.claimants(now) if now is not None else ():
                self.queue.add(claimant)
        elif change.path == CLAIMS and change.type == "DELETED":
            # Differs: the original does not watch claims, and leaves a pod whose claim is
            # being deleted to its next complete listing, hours later.
            labels = (self.decoded(change.value) or {})["metadata"].get("labels") or {}
            for claimant in self._selectors.matching(key[0], labels):
                self.queue.add(claimant)

    def sync(self, key: Key) -> None:
        """Claim pods and revisions, make the next step, write the status."""
        found = self.api.get(STATEFUL_SETS, *key)
        if found is None:
            self._storage_seen.pop(key, None)
            return
        owner_ref = controller_reference(found, "StatefulSet", "apps/v1")
        revisions = controller_revisions.by_number(
            claim_objects(
                self.api, self.index, CONTROLLER_REVISIONS, found, owner_ref, releases=False
            )
        )
        pods = claim_pods(
            self.api,
            self.index,
            found,
            owner_ref,
            finished=True,
            is_member=lambda pod: parent_and_ordinal(pod.key[1])[0] == key[1],
        )
        pair = self._revisions(found, owner_ref, revisions)
        seen = self._storage_seen.get(key, set()) & {pod.uid for pod in pods}
        self._storage_seen[key] = seen
        control = StatefulPodControl(self.api, self.index, self.recorder, found, seen)
        update = StatefulSetUpdate(control, owner_ref, pods, pair)
        problem = self._run(update)
        self._write_status(found, update.status)
        self._truncate_history(found, pods, revisions, pair)
        if problem is not None:
            raise problem
        self._queue_again(key, found, update, pods)

    def _run(self, update: StatefulSetUpdate) -> ApiError | None:
        """Make the next step, unless the StatefulSet is being deleted; returns its error."""
        if is_deleting(update.owner):
            return None
        try:
            update.run()
        except ApiError as error:
            return error
        return None

    def _revisions(
        self, found: Tree, owner_ref: Tree, known: Sequence[Tree]
    ) -> StatefulSetRevisions:
        """The current and the update revision; creates the latter if the template is new.

        Differs: templates are compared as stored. The original takes one that differs from the
        latest revision only by later defaults for the same.
        """
        status = found.get("status") or {}
        collisions = status.get("collisionCount", 0)
        number = max((each["revision"] for each in known), default=0) + 1
        wanted = controller_revisions.new_revision(found, owner_ref, number, collisions)
        equal = [each for each in known if each["data"] == wanted["data"]]
        if equal and known[-1]["data"] == wanted["data"]:
            update = known[-1]
        elif equal:
            update = controller_revisions.set_number(self.api, equal[-1], number)
        else:
            update, collisions = controller_revisions.create_revision(
                self.api, found, wanted, collisions
            )
        name = status.get("currentRevision")
        current = next((each for each in known if each["metadata"]["name"] == name), update)
        return StatefulSetRevisions(current, update, collisions)

    def _write_status(self, found: Tree, status: Tree) -> None:
        complete_rolling_update(found, status)
        if is_status_changed(found, status):
            found["status"] = status
            self.api.update_status(STATEFUL_SETS, found)

    def _truncate_history(
        self,
        found: Tree,
        pods: Sequence[PodFacts],
        revisions: Sequence[Tree],
        pair: StatefulSetRevisions,
    ) -> None:
        """Delete the oldest revisions that no pod has beyond the limit."""
        live = {pod.labels.get(controller_revisions.HASH_LABEL) for pod in pods}
        live |= {pair.current_name, pair.update_name}
        old = [each for each in revisions if each["metadata"]["name"] not in live]
        limit = found["spec"].get("revisionHistoryLimit", 10)
        for each in old[: max(len(old) - limit, 0)]:
            controller_revisions.delete_revision(self.api, each)

    def _queue_again(
        self, key: Key, found: Tree, update: StatefulSetUpdate, pods: Sequence[PodFacts]
    ) -> None:
        """Queue the StatefulSet for when a pod becomes available."""
        wait = found["spec"].get("minReadySeconds", 0)
        moments = [pod.ready_since + wait for pod in pods if pod.ready]
        moments = [at for at in moments if at > self.api.now]
        if update.unfinished:
            self.queue.add(key)
        elif wait and moments:
            self.queue.add(key, min(moments))
