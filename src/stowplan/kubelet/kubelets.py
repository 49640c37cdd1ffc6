"""Kubelets of all hollow nodes: admit pods, run their lifecycle by the clock, remove them.

A pod's next step follows from its status and from the time of the last step; the latter is kept
here to the microsecond, since the status has whole seconds only. After a restart the status alone
is used.

Source: kubelet v1.36, pkg/kubelet (kubelet.go, kuberuntime back-off, pod_workers.go).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from stowplan.apis.core.pod_lifecycle import (
    PodLifecycle,
    PodLifecycleDefaults,
    annotation_problems,
    is_kubelet_off,
    pod_lifecycle,
)
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import NODES, PODS
from stowplan.kubelet import container_resources, pod_status_updates
from stowplan.kubelet.claim_preparation import (
    REASON,
    RETRY_SECONDS,
    has_claims,
    preparation_fault,
    unprepare_seconds,
)
from stowplan.kubelet.pod_admit_handler import AdmittedPods, DeviceManager, check_admit
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.store import DeleteOptions, Store, WatchEvent
from stowplan.objects.timing.due_times import exponential_backoff

BACKOFF_BASE_SECONDS = 10.0
BACKOFF_MAX_SECONDS = 300.0


@dataclass(slots=True)
class _PodWorker:
    """Times of one pod's steps, Unix seconds; 0.0: not yet (or unknown).

    prepared: since when its devices are ready. prepare_at: when the next attempt to prepare them
    ends. attempts: that have failed. left: the kubelet has removed it as far as it can.
    """

    uid: str
    node: str
    arrived: float = 0.0
    began: float = 0.0
    stop_at: float = 0.0
    restart_at: float = 0.0
    crashes: int = 0
    prepared: float = 0.0
    prepare_at: float = 0.0
    attempts: int = 0
    left: bool = False


@dataclass(slots=True)
class _KubeletNode:
    """A node as its kubelet knows it. deferred: pods that wait for resources to be resized."""

    node: Node
    host: str
    is_off: bool
    account: AdmittedPods = field(default_factory=AdmittedPods)
    deferred: set[Key] = field(default_factory=set)


class Kubelets(Controller):
    """Runs the pods of hollow nodes. Keys are pods."""

    name = "hollow-kubelets"
    path = PODS

    def __init__(
        self,
        api: Store,
        index: ObjectIndex,
        recorder: EventRecorder,
        defaults: PodLifecycleDefaults,
        devices: DeviceManager | None = None,
    ) -> None:
        """devices: of all nodes; None: nodes have none that pods are given before."""
        super().__init__(api, index, recorder)
        self.defaults = defaults
        self._devices = devices
        self._nodes: dict[str, _KubeletNode] = {}
        self._workers: dict[Key, _PodWorker] = {}
        self._addresses = 0

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a pod that was added, changed or deleted; the pods of a node that changed or
        resumed."""
        key = split_key(change)
        if change.path == NODES:
            self._observe_node(change, key[1])
        elif change.path == PODS:
            now = self.index.pods.get(key)
            if before is not None and before.node and (now is None or now.uid != before.uid):
                self._forget(key, before.node)
            if now is not None and now.node:
                if now.is_finished:
                    self._release(key, now.node)
                node = self._nodes.get(now.node)
                # Once the node is there and its kubelet on, all its pods are queued.
                is_served = node is not None and not node.is_off
                if is_served and (not now.is_finished or now.deleting):
                    self.queue.add(key)

    def sync(self, key: Key) -> None:
        """Do the next step of one pod's lifecycle, if it is due."""
        facts = self.index.pods.get(key)
        node_state = self._nodes.get(facts.node) if facts is not None else None
        if facts is None or node_state is None or node_state.is_off:
            return
        pod = self.api.get(PODS, *key)
        if pod is None:
            return
        worker = self._workers.get(key)
        if worker is None or worker.uid != facts.uid:
            worker = self._workers[key] = self._restored(pod, facts)
        plan = pod_lifecycle(pod, self.defaults)
        if facts.deleting:
            self._stop(pod, worker, plan)
        elif not facts.is_finished:
            self._advance(pod, worker, plan, node_state)

    def _observe_node(self, change: WatchEvent, name: str) -> None:
        old = self._nodes.get(name)
        if change.type == "DELETED":
            self._nodes.pop(name, None)
            return
        tree: Tree = msgspec.json.decode(change.value)
        node_state = _KubeletNode(decode(change.value, Node), _address(tree), is_kubelet_off(tree))
        if old is not None:
            node_state.account, node_state.deferred = old.account, old.deferred
        self._nodes[name] = node_state
        if old is None or (old.is_off and not node_state.is_off):
            for pod in self.index.on_node(name):
                if old is None:
                    # A restarted kubelet knows pods by their status only.
                    self._workers.pop(pod.key, None)
                self.queue.add(pod.key)

    def _restored(self, pod: Tree, facts: PodFacts) -> _PodWorker:
        """The worker of a pod, restored from its status."""
        held = pod.get("status") or {}
        worker = _PodWorker(facts.uid, facts.node, arrived=unix_seconds(held.get("startTime")))
        # After a restart, addresses in use are not assigned again.
        self._addresses = max(self._addresses, _pod_number(str(held.get("podIP") or "")))
        for entry in held.get("containerStatuses") or ():
            running = (entry.get("state") or {}).get("running") or {}
            worker.began = max(worker.began, unix_seconds(running.get("startedAt")))
            worker.crashes = max(worker.crashes, entry.get("restartCount", 0))
        node_state = self._nodes[facts.node]
        if worker.arrived and not facts.is_finished:
            self._hold(facts.key, self._typed(pod), node_state)
        return worker

    def _advance(
        self, pod: Tree, worker: _PodWorker, plan: PodLifecycle, node_state: _KubeletNode
    ) -> None:
        now = self.api.now
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if not worker.arrived and not self._admit(pod, worker, plan, node_state, key):
            return
        if _is_past_deadline(pod, worker, now):
            pod_status_updates.set_deadline_exceeded(pod, now)
            self._write(pod)
            return
        if not worker.began and has_claims(pod) and not self._prepare(pod, worker, plan, key):
            return
        first = max(worker.arrived, worker.prepared)
        due = first + plan.start_s + plan.init_s * len(pod["spec"].get("initContainers", ()))
        if not worker.began and not worker.restart_at:
            if now >= due:
                self._begin(pod, worker, plan, node_state)
            self._schedule_next(key, pod, worker, plan, due)
            return
        if worker.began and container_resources.is_resized(pod):
            pod = self._resize(pod, worker, node_state, key)
        if worker.restart_at:
            if now >= worker.restart_at:
                worker.began, worker.restart_at = now, 0.0
                pod_status_updates.set_restarted(pod, None, now, plan.ready_s <= 0)
                self._write(pod)
        elif now >= worker.began + self._run_seconds(pod, worker, plan):
            self._end(pod, worker, plan)
        elif now >= worker.began + plan.ready_s and not self.index.pods[key].ready:
            pod_status_updates.set_ready(pod, now)
            self._write(pod)
        self._schedule_next(key, pod, worker, plan, due)

    def _admit(
        self, pod: Tree, worker: _PodWorker, plan: PodLifecycle, node_state: _KubeletNode, key: Key
    ) -> bool:
        """Admit the pod, or fail it."""
        typed = self._typed(pod)
        found = check_admit(typed, node_state.node, node_state.account, self._devices)
        now = self.api.now
        self._answer(pod, typed, worker.node, is_served=found is None)
        if found is not None:
            pod_status_updates.set_rejected(pod, node_state.host, found.reason, found.message, now)
            self._write(pod)
            self._record(pod, worker, found.reason, found.message)
            return False
        self._hold(key, typed, node_state)
        worker.arrived = now
        self._record_invalid_annotations(pod, worker)
        if plan.start_s + plan.init_s * len(pod["spec"].get("initContainers", ())) > 0:
            pod_status_updates.set_creating(pod, node_state.host, now)
            self._write(pod)
        return True

    def _resize(self, pod: Tree, worker: _PodWorker, node_state: _KubeletNode, key: Key) -> Tree:
        """The pod, whose running containers get what they ask for now if the node has it."""
        granted = container_resources.with_granted_resources(pod)
        found = node_state.account.resize(key, self._typed(granted), node_state.node)
        if found is None:
            node_state.deferred.discard(key)
            self._write(granted)
            text = container_resources.resize_message(pod, "completed")
            self._record(granted, worker, "ResizeCompleted", text, type_="Normal")
            self._queue_deferred(node_state)
            return granted
        node_state.deferred.add(key)
        if container_resources.set_deferred(pod, found.message, self.api.now):
            self._write(pod)
            text = container_resources.resize_message(
                pod, container_resources.DEFERRED, found.message
            )
            self._record(pod, worker, "ResizeDeferred", text)
        return pod

    def _queue_deferred(self, node_state: _KubeletNode) -> None:
        """Try again to resize the pods of a node that wait for resources."""
        for key in sorted(node_state.deferred):
            self.queue.add(key)

    def _answer(self, pod: Tree, typed: Pod, host: str, *, is_served: bool) -> None:
        """Write what the device plugins note on the pod, and remove the locks of the node that its
        scheduler took for it."""
        notes = {} if self._devices is None else self._devices.answers(typed, is_served=is_served)
        if self._devices is None or not notes:
            return
        before = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**before, **notes}
        stored = self.api.update(PODS, pod)
        pod["metadata"] = stored["metadata"]
        node = self.api.get(NODES, "", host)
        held = ((node or {}).get("metadata") or {}).get("annotations") or {}
        released = self._devices.released_locks(typed, held)
        if node is not None and released:
            kept = {key: text for key, text in held.items() if key not in released}
            node["metadata"]["annotations"] = kept
            self.api.update(NODES, node)

    def _prepare(self, pod: Tree, worker: _PodWorker, plan: PodLifecycle, key: Key) -> bool:
        """Have the devices of the pod prepared; False while they are not."""
        now = self.api.now
        if worker.prepared or worker.restart_at:
            return True
        if not worker.prepare_at:
            worker.prepare_at = now + plan.prepare_s
        if now >= worker.prepare_at:
            fault = preparation_fault(self.api, pod, plan, worker.attempts)
            if not fault:
                worker.prepared = now
                return True
            worker.attempts += 1
            worker.prepare_at = now + RETRY_SECONDS + plan.prepare_s
            text = f"Failed to prepare dynamic resources: {fault}"
            self._record(pod, worker, REASON, text)
        self.queue.add(key, worker.prepare_at)
        return False

    def _run_seconds(self, pod: Tree, worker: _PodWorker, plan: PodLifecycle) -> float:
        """From the start of the containers to their end; devices are given back before a pod is
        reported as ended."""
        policy = pod["spec"].get("restartPolicy", "Always")
        code = plan.exit_code(worker.crashes)
        is_last = policy == "Never" or (policy == "OnFailure" and code == 0)
        return plan.run_s + (unprepare_seconds(pod, plan) if is_last else 0.0)

    def _begin(
        self, pod: Tree, worker: _PodWorker, plan: PodLifecycle, node_state: _KubeletNode
    ) -> None:
        self._addresses += 1
        address = _pod_address(self._addresses)
        if pod["spec"].get("hostNetwork"):
            address = node_state.host
        worker.began = self.api.now
        pod_status_updates.set_running(
            pod, node_state.host, address, self.api.now, plan.ready_s <= 0
        )
        self._write(pod)

    def _end(self, pod: Tree, worker: _PodWorker, plan: PodLifecycle) -> None:
        """The containers have finished: terminate or restart them."""
        now = self.api.now
        code = plan.exit_code(worker.crashes)
        policy = pod["spec"].get("restartPolicy", "Always")
        if policy == "Never" or (policy == "OnFailure" and code == 0):
            pod_status_updates.set_terminated(pod, code, now)
            self._write(pod)
            return
        pause = 0.0
        if worker.crashes:
            pause = exponential_backoff(
                worker.crashes - 1, BACKOFF_BASE_SECONDS, BACKOFF_MAX_SECONDS
            )
        worker.crashes += 1
        if pause:
            worker.began, worker.restart_at = 0.0, now + pause
            pod_status_updates.set_crash_loop_back_off(pod, code, now)
            self._record_back_off(pod, worker)
        else:
            worker.began = now
            pod_status_updates.set_restarted(pod, code, now, plan.ready_s <= 0)
        self._write(pod)

    def _stop(self, pod: Tree, worker: _PodWorker, plan: PodLifecycle) -> None:
        """Terminate a deleted pod within its grace period, then remove it."""
        if worker.left:
            return
        meta = pod["metadata"]
        key = (meta["namespace"], meta["name"])
        now = self.api.now
        grace = float(meta.get("deletionGracePeriodSeconds") or 0)
        running = bool(worker.began) and not self.index.pods[key].is_finished
        stop_at = now
        if running:
            stop_at += min(plan.stop_s, grace) + unprepare_seconds(pod, plan)
        worker.stop_at = min(worker.stop_at, stop_at) if worker.stop_at else stop_at
        if now < worker.stop_at:
            self.queue.add(key, worker.stop_at)
            return
        if meta.get("finalizers") and not self.index.pods[key].is_finished:
            # A controller tracks the end (finalizer): the status must show it before the pod is
            # removed.
            pod_status_updates.set_terminated(pod, 137 if plan.stop_s > grace else 143, now)
            self._write(pod)
        self._release(key, worker.node)
        # Finalizers may keep the pod for long: do not repeat the deletion meanwhile.
        worker.left = True
        self.api.delete(PODS, *key, DeleteOptions(grace_s=0, uid=meta["uid"]))

    def _record(
        self, pod: Tree, worker: _PodWorker, reason: str, text: str, *, type_: str = "Warning"
    ) -> None:
        """Record an event of the kubelet on a pod."""
        self.recorder.record(
            pod, "kubelet", reason, text, type=type_,
            host=worker.node, object_kind="Pod", api_version="v1",
        )  # fmt: skip

    def _record_invalid_annotations(self, pod: Tree, worker: _PodWorker) -> None:
        """Record an event about invalid annotations."""
        for text in annotation_problems(pod["metadata"].get("annotations") or {}):
            self._record(pod, worker, "UnreadAnnotation", text)

    def _record_back_off(self, pod: Tree, worker: _PodWorker) -> None:
        meta = pod["metadata"]
        for container in pod["spec"]["containers"]:
            text = (
                f"Back-off restarting failed container {container['name']} in pod "
                f"{meta['name']}_{meta['namespace']}({meta['uid']})"
            )
            self._record(pod, worker, "BackOff", text)

    def _schedule_next(
        self, key: Key, pod: Tree, worker: _PodWorker, plan: PodLifecycle, due: float
    ) -> None:
        """Queue the pod for its next timed step."""
        moments = (
            [due]
            if not worker.began
            else [
                worker.began + plan.ready_s,
                worker.began + self._run_seconds(pod, worker, plan),
            ]
        )
        if worker.restart_at:
            moments = [worker.restart_at]
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            moments.append(worker.arrived + float(deadline))
        later = [moment for moment in moments if self.api.now < moment < float("inf")]
        if later:
            self.queue.add(key, min(later))

    def _write(self, pod: Tree) -> None:
        stored = self.api.update_status(PODS, pod)
        pod["metadata"] = stored["metadata"]

    def _hold(self, key: Key, pod: Pod, node_state: _KubeletNode) -> None:
        """Count what an admitted pod uses."""
        node_state.account.admit(key, pod)
        if self._devices is not None:
            self._devices.admit(pod)

    def _release(self, key: Key, node: str) -> None:
        if self._devices is not None:
            self._devices.release("/".join(key), node)
        node_state = self._nodes.get(node)
        if node_state is None:
            return
        node_state.deferred.discard(key)
        if node_state.account.release(key):
            self._queue_deferred(node_state)
            if len(node_state.account) == 0:
                node_state.account = AdmittedPods()

    def _forget(self, key: Key, node: str) -> None:
        self._workers.pop(key, None)
        self._release(key, node)

    @staticmethod
    def _typed(pod: Tree) -> Pod:
        return decode(msgspec.json.encode(pod), Pod)


def _pod_address(number: int) -> str:
    """The address of the nth started pod (from 1)."""
    return f"10.{128 + (number >> 16) % 128}.{(number >> 8) % 256}.{number % 256}"


def _pod_number(address: str) -> int:
    """The number of a pod with this address of `_pod_address`; 0 for another address."""
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and len(part) <= 3 for part in parts):
        return 0
    first, second, third = (int(part) for part in parts[1:])
    number = (first - 128 << 16) + (second << 8) + third
    return number if number > 0 and _pod_address(number) == address else 0


def _is_past_deadline(pod: Tree, worker: _PodWorker, now: float) -> bool:
    limit = pod["spec"].get("activeDeadlineSeconds")
    return limit is not None and now >= worker.arrived + float(limit)


def _address(node: Tree) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    found = (a.get("address", "") for a in addresses if a.get("type") == "InternalIP")
    return str(next(found, ""))
