"""Fault runs of workloads: controllers, kubelets and a scheduler whose requests fail at random.

A run is drawn from its seed: nodes, workloads of every kind, nodes that leave, nodes whose kubelet
stops for a while, and the faults of the scheduler's requests. What must hold whatever fails is
checked at every change, and what must come true at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan.apis.machinery.timestamps import parse_time
from stowplan.assembly.deciders import deciders_of
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import zone_key
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.simulation.cluster.effect_dispatcher import InjectedFault
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.workload_replay import WorkloadReplay
from tests.fault_runs.random_workloads import CRON_JOB_HISTORY, NODE_MILLI_CPU, random_objects

Tree = dict[str, Any]

FAULTS_END_S, UNTIL_S = 300.0, 1500.0
"""After the last fault and the return of the last node there is time for every retry."""
CODES = (0, 409, 429, 500, 503, None)
"""Statuses that requests fail with: 0 for a lost reply, None for no reply ever."""
TAINT_INTERVAL_S = 10.0
"""Between two nodes of a zone that are tainted NoExecute: kube-controller-manager's default."""


class WorkloadFault(AssertionError):
    """What a run has violated."""


class WorkloadFaultRun:
    """One run. n_faults: how many requests failed. parts: what happened how often."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng([seed, 11])
        self.objects = random_objects(self.rng)
        self.n_faults = 0
        self.parts = Counter(str(tree["kind"]) for tree in self.objects)
        self._bound: dict[str, str] = {}
        self._violations: list[str] = []
        self._tainted: dict[str, tuple[str, str]] = {}
        self._present: set[str] = set()
        self._last_taint: dict[tuple[str, str], float] = {}
        file = folder / "objects.json"
        file.write_bytes(msgspec.json.encode({"kind": "List", "items": self.objects}))
        deciders = deciders_of([], [])
        churn = Churn(200.0, 30.0) if self.rng.random() < 0.5 else None
        options = ReplayOptions(until_s=UNTIL_S, churn=churn)
        scheduler = deciders.scheduler()
        cluster = read_cluster(file, keep_manifests=True)
        self.replay = WorkloadReplay(cluster, deciders, scheduler, options, seed)
        self.replay.instance.dispatcher.inject = self._fault
        self.replay.cluster.on_change.append(self._check)

    def run(self) -> None:
        """Run to the end; raises WorkloadFault."""
        replay = self.replay
        replay.event_queue.at(round(FAULTS_END_S * SECOND), self._end_churn)
        replay.run(lambda now: None, 3600 * SECOND)
        problems = [*self._violations[:1], *replay.failure_notes, *self._unfinished()]
        if problems:
            raise WorkloadFault("; ".join(problems))
        if replay.node_churn is not None:
            self.parts["nodes that left"] += replay.node_churn.count
        self.parts["failed requests"] += self.n_faults

    def _end_churn(self) -> None:
        if self.replay.node_churn is not None:
            self.replay.node_churn.is_active = False

    def _fault(self, effect: Effect) -> InjectedFault | None:
        if self.replay.event_queue.now > FAULTS_END_S * SECOND or self.rng.random() > 0.5:
            return None
        self.n_faults += 1
        code = CODES[int(self.rng.integers(len(CODES)))]
        done = code in (0, None) and bool(self.rng.random() < 0.5)
        late = int(self.rng.integers(SECOND)) if code in (0, None) and not done else 0
        return InjectedFault(code, done=done, late=late)

    def _check(self) -> None:
        """What holds at every moment: a pod keeps its node, no node is over-committed, and nodes
        of a zone are evicted one after the other.

        Violations are kept: what is raised in a controller's write would be that key's failure.
        """
        used: dict[str, int] = {}
        for pod in self.replay.cluster.pods.values():
            if not pod.node_name:
                continue
            first = self._bound.setdefault(pod.uid, pod.node_name)
            if first != pod.node_name:
                self._violations.append(f"pod {pod.key} moved from {first} to {pod.node_name}")
            if not pod.is_finished:
                used[pod.node_name] = used.get(pod.node_name, 0) + milli_cpu(pod)
        over = {name: milli for name, milli in used.items() if milli > NODE_MILLI_CPU}
        if over:
            self._violations.append(f"over-committed: {over}")
        self._check_taints()

    def _check_taints(self) -> None:
        now = self.replay.event_queue.now / SECOND
        nodes = self.replay.cluster.nodes
        tainted = {
            node.name: zone_key(node)
            for node in nodes.values()
            if any(taint.effect == "NoExecute" for taint in node.spec.taints)
        }
        # As in the original, a zone that gets nodes again has a new queue, with a free taint.
        zones = {zone_key(node) for node in nodes.values()}
        self._last_taint = {zone: at for zone, at in self._last_taint.items() if zone in zones}
        # A node that comes back has the taint with which it left.
        for name in (tainted.keys() - self._tainted.keys()) & self._present:
            zone = tainted[name]
            last = self._last_taint.get(zone, -TAINT_INTERVAL_S)
            if now - last < TAINT_INTERVAL_S - 0.001:
                self._violations.append(f"node {name} evicted at {now}, the one before at {last}")
            self._last_taint[zone] = now
            self.parts["evicted nodes"] += 1
        self._tainted, self._present = tainted, set(nodes)

    # The end.

    def _unfinished(self) -> Iterator[str]:
        """What has not come true: every workload is as its spec says, every node is ready."""
        for tree in self.objects:
            kind, name = str(tree["kind"]), tree["metadata"]["name"]
            found = self._object(tree)
            if kind == "Node":
                wanted, got = "Ready, no taints", _node_text(found)
            elif kind == "CronJob":
                wanted, got = "done", self._cron_job_text(found)
            else:
                wanted, got = (str(value) for value in self._counts(kind, found))
            if wanted != got:
                yield f"{kind} {name}: got {got}, wanted {wanted}: {found.get('status')}"
        names = {pod.name for pod in self.replay.cluster.pods.values() if is_of(pod, "db")}
        for tree in self.objects:
            if tree["kind"] == "StatefulSet":
                replicas = self._object(tree)["spec"]["replicas"]
                expected = {f"db-{at}" for at in range(replicas)}
                if names != expected:
                    yield f"StatefulSet db: pods {sorted(names)}, wanted {sorted(expected)}"

    def _object(self, tree: Tree) -> Tree:
        api = self.replay._api
        resource = api.resource_of(tree)
        place = "default" if resource.namespaced else ""
        return api.server.get(resource, place, tree["metadata"]["name"]) or {}

    def _counts(self, kind: str, found: Tree) -> tuple[int, int]:
        """Wanted and present."""
        status = found.get("status") or {}
        if kind == "Job":
            return found["spec"]["completions"], status.get("succeeded", 0)
        if kind == "DaemonSet":
            # Not by its status: as in the original, a node that leaves and is back before its pods
            # are deleted changes the status only when something else does.
            pods = self.replay.cluster.pods.values()
            at = {pod.node_name for pod in pods if is_of(pod, "agent") and not pod.is_finished}
            return len(self.replay.cluster.nodes), len(at & self.replay.cluster.nodes.keys())
        return found["spec"]["replicas"], status.get("readyReplicas", 0)

    def _cron_job_text(self, found: Tree) -> str:
        """What is wrong with a CronJob that starts every minute; "done" for nothing."""
        server = self.replay._api.server
        resource = server.registry.by_path("batch/jobs")
        assert resource is not None
        jobs = [
            each
            for each in server.list(resource, "default")
            if any(
                owner["kind"] == "CronJob" for owner in each["metadata"].get("ownerReferences", ())
            )
        ]
        running = [each for each in jobs if not (each.get("status") or {}).get("completionTime")]
        status = found.get("status") or {}
        policy, last = found["spec"]["concurrencyPolicy"], status.get("lastScheduleTime")
        age = self.replay._api.now_s - parse_time(last) if last else float("inf")
        if policy != "Forbid" and age > 61.0:
            return f"no start for {age} s"
        if policy != "Allow" and len(running) > 1:
            return f"{len(running)} Jobs at once"
        if len(running) > 3 or len(jobs) - len(running) > CRON_JOB_HISTORY:
            return f"{len(jobs)} Jobs, {len(running)} of them running"
        if len(status.get("active") or ()) != len(running):
            return f"{len(running)} Jobs run, of which the status has another number"
        return "done"


def _node_text(node: Tree) -> str:
    if not node:
        return "gone"
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = {each["type"]: each["status"] for each in conditions}.get("Ready")
    taints = [each["key"] for each in node["spec"].get("taints", ())]
    return f"{'Ready' if ready == 'True' else ready}, {taints or 'no taints'}"


def is_of(pod: Pod, app: str) -> bool:
    return pod.labels.get("app") == app


def milli_cpu(pod: Pod) -> int:
    return requested(pod).get("cpu", 0)
