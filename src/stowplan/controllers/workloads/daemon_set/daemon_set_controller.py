"""DaemonSet controller: one pod on every node that the pod template selects.

Source: kube-controller-manager v1.36, pkg/controller/daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stowplan.apis.apps.daemon_pods import target_node
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.controller_ref_manager import claim_pods
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import controller_reference, is_deleting
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    NODES,
    PODS,
)
from stowplan.controller_runtime.selector_index import SelectorIndex
from stowplan.controllers.workloads.daemon_set.daemon_placements import DaemonPlacements
from stowplan.controllers.workloads.daemon_set.daemon_pod_sync import (
    GENERATION_ANNOTATION,
    DaemonPodChanges,
    DaemonSetView,
    excess_pods,
    oldest_first,
    pods_without_node,
    rolling_update,
)
from stowplan.controllers.workloads.daemon_set.daemon_set_history import (
    clean_up_history,
    construct_history,
)
from stowplan.controllers.workloads.daemon_set.daemon_template import pod_template, pod_to_create
from stowplan.controllers.workloads.daemon_set.failed_pod_backoff import FailedPodBackoff
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "daemonset-controller"
_CHANGES_PER_SYNC_MAX = 250
"""Pods created, and pods deleted, in one sync."""


class DaemonSetController(Controller):
    """Creates and deletes the pods of DaemonSets, updates them, and writes the status."""

    name = "daemonset"
    path = DAEMON_SETS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._selectors = SelectorIndex()
        self._placements = DaemonPlacements()
        self._backoff = FailedPodBackoff()
        self._targets: dict[Key, dict[str, str]] = {}
        """Nodes of unbound pods, by DaemonSet and uid."""

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed DaemonSet, that of a changed pod or revision, those that may adopt an
        orphan, and those that a changed node concerns."""
        key = split_key(change)
        if change.path == DAEMON_SETS:
            self._placements.observe_set(change)
            self._selectors.observe(change)
            self.queue.add(key)
        elif change.path == PODS:
            self._observe_pod(before, self.index.pods.get(key))
        elif change.path == NODES:
            if self._placements.observe_node(change):
                pods = self.index.on_node(key[1])
                owners = (pod for pod in pods if pod.owner_kind == "DaemonSet")
                scheduled = frozenset((pod.key[0], pod.owner_name) for pod in owners)
                for each in self._placements.concerned_by(key[1], scheduled):
                    self.queue.add(each)
        elif change.path == CONTROLLER_REVISIONS and change.type != "ADDED":
            self._observe_revision(change)

    def sync(self, key: Key) -> None:
        """Claim pods and revisions, create and delete pods, write the status."""
        found = self.api.get(DAEMON_SETS, *key)
        if found is None:
            self._targets.pop(key, None)
            return
        if is_deleting(found):
            return
        owner_ref = controller_reference(found, "DaemonSet", "apps/v1")
        pods = self._claimed(found, owner_ref)
        history = construct_history(self.api, self.index, found, owner_ref, pods)
        view = self._view(key, found, history.hash)
        problem: ApiError | None = None
        try:
            changed = self._manage(found, owner_ref, view) or self._update(found, owner_ref, view)
            clean_up_history(
                self.api, found, history, self.index.of_owner(found["metadata"]["uid"])
            )
        except ApiError as error:
            problem, changed = error, True
        if changed:
            view = self._view(key, found, history.hash)
        self._write_status(key, found, view)
        if problem is not None:
            raise problem

    def _observe_pod(self, before: PodFacts | None, now: PodFacts | None) -> None:
        if before is not None and now is not None and _concern(before) == _concern(now):
            return
        for pod in (before, now):
            if pod is not None and pod.owner_kind == "DaemonSet":
                self.queue.add((pod.key[0], pod.owner_name))
        for claimant in self._selectors.claimants(now) if now is not None else ():
            self.queue.add(claimant)

    def _observe_revision(self, change: WatchEvent) -> None:
        tree = self.decoded(change.value) or {"metadata": {}}
        for each in tree["metadata"].get("ownerReferences") or ():
            if each.get("kind") == "DaemonSet":
                self.queue.add((change.namespace, each["name"]))

    def _claimed(self, found: Tree, owner_ref: Tree) -> list[PodFacts]:
        return claim_pods(self.api, self.index, found, owner_ref, finished=True)

    def _view(self, key: Key, found: Tree, hash_: str) -> DaemonSetView:
        annotations = found["metadata"].get("annotations") or {}
        generation = uint_or_none(annotations.get(GENERATION_ANNOTATION, ""))
        return DaemonSetView(
            strategy=found["spec"]["updateStrategy"],
            wait_s=found["spec"].get("minReadySeconds", 0),
            hash=hash_,
            generation="" if generation is None else str(generation),
            now=self.api.now,
            placements=self._placements.of_set(key),
            pods=self._by_node(key, self.index.of_owner(found["metadata"]["uid"])),
        )

    def _by_node(self, key: Key, pods: Iterable[PodFacts]) -> Mapping[str, Sequence[PodFacts]]:
        """Pods by the node that they are or will be on."""
        known = self._targets.get(key, {})
        self._targets[key] = unbound = {}
        found: dict[str, list[PodFacts]] = {}
        for pod in pods:
            if pod.is_finished and pod.deleting:
                continue
            node = pod.node
            if not node:
                node = unbound[pod.uid] = known.get(pod.uid) or self._target(pod)
            if node:
                found.setdefault(node, []).append(pod)
        return found

    def _target(self, pod: PodFacts) -> str:
        tree = self.api.get(PODS, *pod.key)
        return target_node(convert(tree, Pod)) if tree is not None else ""

    def _manage(self, found: Tree, owner_ref: Tree, view: DaemonSetView) -> bool:
        """Create missing and delete superfluous or failed pods; False if there were none."""
        changes = DaemonPodChanges()
        for node, placement in view.placements.items():
            pods = view.pods.get(node)
            if placement.should_run and pods is None:
                changes.nodes.append(node)
            elif placement.should_continue:
                self._manage_node(found, view, node, changes)
            elif pods is not None:
                changes.pods += [pod.key[1] for pod in pods if not pod.deleting]
        changes.pods += pods_without_node(view)
        return self._apply(found, owner_ref, view, changes)

    def _manage_node(
        self, found: Tree, view: DaemonSetView, node: str, changes: DaemonPodChanges
    ) -> None:
        """Delete finished and excess pods of a node where the DaemonSet's pods may run."""
        pods = view.pods.get(node, ())
        if len(pods) == 1 and pods[0].is_active:
            return
        running = []
        for pod in pods:
            if pod.deleting:
                continue
            if not pod.is_finished:
                running.append(pod)
            elif self._may_delete_finished(found, pod, node):
                changes.pods.append(pod.key[1])
        changes.pods += excess_pods(view, running)
        if view.allows_surge and not running and view.should_run(node):
            changes.nodes.append(node)

    def _may_delete_finished(self, found: Tree, pod: PodFacts, node: str) -> bool:
        """Record the end of a pod; False while the deletion of failed pods is backed off."""
        if pod.phase == "Succeeded":
            text = f"Found succeeded daemon pod {'/'.join(pod.key)} on node {node}"
            self._record(found, "SucceededDaemonPod", f"{text}, will try to delete it")
            return True
        meta, now = found["metadata"], self.api.now
        generation = (found.get("status") or {}).get("observedGeneration", 0)
        key = (meta["uid"], generation, node)
        delay = self._backoff.delay(key, now)
        if delay:
            self.queue.add((meta["namespace"], meta["name"]), now + delay)
            return False
        self._backoff.advance(key, now)
        text = f"Found failed daemon pod {'/'.join(pod.key)} on node {node}, will try to kill it"
        self._record(found, "FailedDaemonPod", text, "Warning")
        return True

    def _update(self, found: Tree, owner_ref: Tree, view: DaemonSetView) -> bool:
        """Replace outdated pods, for a rolling update; False if there was nothing to do."""
        if view.strategy["type"] != "RollingUpdate":
            return False
        return self._apply(found, owner_ref, view, rolling_update(view))

    def _apply(
        self, found: Tree, owner_ref: Tree, view: DaemonSetView, changes: DaemonPodChanges
    ) -> bool:
        """Create and delete pods; False if there were none to create or delete.

        Raises the first ApiError after both were tried.
        """
        problem = self._create(found, owner_ref, view, changes.nodes[:_CHANGES_PER_SYNC_MAX])
        problem = self._delete(found, changes.pods[:_CHANGES_PER_SYNC_MAX]) or problem
        if problem is not None:
            raise problem
        return bool(changes.nodes or changes.pods)

    def _create(
        self, found: Tree, owner_ref: Tree, view: DaemonSetView, nodes: Sequence[str]
    ) -> ApiError | None:
        template = pod_template(found, view.hash, view.generation) if nodes else {}
        for node in nodes:
            try:
                made = self.api.create(PODS, pod_to_create(found, owner_ref, template, node))
            except ApiError as error:
                causes = (error.details or {}).get("causes") or ()
                if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
                    return None
                self._record(found, "FailedCreate", f"Error creating: {error.message}", "Warning")
                return error
            self._record(found, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return None

    def _delete(self, found: Tree, names: Sequence[str]) -> ApiError | None:
        problem: ApiError | None = None
        for name in names:
            try:
                self.api.delete(PODS, found["metadata"]["namespace"], name)
            except ApiError as error:
                if error.code != 404:
                    text = f"Error deleting: {error.message}"
                    self._record(found, "FailedDelete", text, "Warning")
                    problem = problem or error
                continue
            self._record(found, "SuccessfulDelete", f"Deleted pod: {name}")
        return problem

    def _write_status(self, key: Key, found: Tree, view: DaemonSetView) -> None:
        counts = daemon_set_status(view)
        old = found.get("status") or {}
        generation = found["metadata"].get("generation", 0)
        changed = any(old.get(name, 0) != count for name, count in counts.items())
        if changed or old.get("observedGeneration", 0) < generation:
            found["status"] = {**old, **counts, "observedGeneration": generation}
            self.api.update_status(DAEMON_SETS, found)
        if view.wait_s:
            ready = (pod for pods in view.pods.values() for pod in pods if pod.ready)
            moments = [pod.ready_since + view.wait_s for pod in ready]
            coming = min((at for at in moments if at > self.api.now), default=0.0)
            if coming:
                self.queue.add(key, coming)

    def _record(self, about: Tree, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(about, COMPONENT, reason, message, type=type_)


def daemon_set_status(view: DaemonSetView) -> dict[str, int]:
    """The counts of the status; of several pods of a node the oldest counts."""
    names = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    counts = dict.fromkeys(names, 0)
    for node, placement in view.placements.items():
        pods = view.pods.get(node)
        if not placement.should_run:
            counts["numberMisscheduled"] += pods is not None
            continue
        counts["desiredNumberScheduled"] += 1
        if pods is None:
            continue
        pod = oldest_first(pods)[0] if len(pods) > 1 else pods[0]
        counts["currentNumberScheduled"] += 1
        counts["numberReady"] += pod.ready
        counts["numberAvailable"] += view.is_available(pod)
        counts["updatedNumberScheduled"] += view.is_updated(pod)
    missing = counts["desiredNumberScheduled"] - counts["numberAvailable"]
    return {**counts, "numberUnavailable": missing}


def _concern(pod: PodFacts) -> tuple[object, ...]:
    """What of a pod the controller reads; other changes need no sync."""
    return pod.owner, pod.labels, pod.phase, pod.ready_since, pod.ready, bool(pod.deleting)
