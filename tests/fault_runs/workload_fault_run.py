"""Fault runs of workloads: controllers, kubelets and a scheduler whose requests fail at random.

A run is drawn from its seed: nodes, Deployments that are scaled, Jobs, nodes that leave, and the
faults of the scheduler's requests. What must hold whatever fails is checked at every change, and
what must come true at the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan.assembly.deciders import deciders_of
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.simulation.cluster.effect_dispatcher import InjectedFault
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.workload_replay import WorkloadReplay

Tree = dict[str, Any]

FAULTS_END_S, UNTIL_S = 300.0, 1800.0
"""After the last fault there is time for every retry."""
NODE_MILLI_CPU = 4000
CODES = (0, 409, 429, 500, 503, None)
"""Statuses that requests fail with: 0 for a lost reply, None for no reply ever."""


class WorkloadFault(AssertionError):
    """What a run has violated."""


def workload(rng: np.random.Generator) -> list[Tree]:
    """Nodes, Deployments and Jobs that fit the nodes that always stay."""
    amounts = {"cpu": f"{NODE_MILLI_CPU}m", "memory": "8Gi", "pods": "20"}
    status = {"capacity": amounts, "allocatable": amounts}
    n_nodes = int(rng.integers(3, 6))
    objects: list[Tree] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{at}"}, "status": status}
        for at in range(n_nodes)
    ]
    for at in range(int(rng.integers(1, 3))):
        first, second = (int(each) for each in rng.integers(0, 8, 2))
        notes = {"stowplan.dev/replica-changes": f"{int(rng.integers(5, 200))}={second}"}
        objects.append(deployment(f"web-{at}", first, notes))
    for at in range(int(rng.integers(0, 3))):
        notes = {"stowplan.dev/arrival-seconds": str(int(rng.integers(0, 100)))}
        objects.append(job(f"train-{at}", int(rng.integers(1, 6)), notes))
    return objects


def template(name: str, **spec: Any) -> Tree:
    resources = {"requests": {"cpu": "500m", "memory": "64Mi"}}
    container = {"name": "c", "image": "i", "resources": resources}
    notes = {"stowplan.dev/run-seconds": "20"} if spec else {}
    meta = {"labels": {"app": name}, "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def deployment(name: str, replicas: int, notes: dict[str, str]) -> Tree:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": notes},
        "spec": {**spec, "template": template(name)},
    }


def job(name: str, completions: int, notes: dict[str, str]) -> Tree:
    spec = {"completions": completions, "parallelism": 2, "backoffLimit": 1000}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": notes},
        "spec": {**spec, "template": template(name, restartPolicy="Never")},
    }


class WorkloadFaultRun:
    """One run. n_faults: how many requests failed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng([seed, 11])
        self.objects = workload(self.rng)
        self.n_faults = 0
        self._bound: dict[str, str] = {}
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
        self._check_end()

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
        """What holds at every moment: a pod keeps its node, and no node is over-committed."""
        used: dict[str, int] = {}
        for pod in self.replay.cluster.pods.values():
            if not pod.node_name:
                continue
            first = self._bound.setdefault(pod.uid, pod.node_name)
            if first != pod.node_name:
                raise WorkloadFault(f"pod {pod.key} moved from {first} to {pod.node_name}")
            if not pod.is_finished:
                used[pod.node_name] = used.get(pod.node_name, 0) + milli_cpu(pod)
        over = {name: milli for name, milli in used.items() if milli > NODE_MILLI_CPU}
        if over:
            raise WorkloadFault(f"over-committed: {over}")

    def _check_end(self) -> None:
        """What has come true: every Deployment has its replicas, every Job is complete."""
        for tree in self.objects:
            if tree["kind"] == "Node":
                continue
            resource = self.replay._api.resource_of(tree)
            name = tree["metadata"]["name"]
            found = self.replay._api.server.get(resource, "default", name) or {}
            status = found.get("status") or {}
            if tree["kind"] == "Deployment":
                wanted, got = found["spec"]["replicas"], status.get("readyReplicas", 0)
            else:
                wanted, got = found["spec"]["completions"], status.get("succeeded", 0)
            if wanted != got:
                raise WorkloadFault(f"{tree['kind']} {name}: {got} of {wanted}: {status}")


def milli_cpu(pod: Pod) -> int:
    return requested(pod).get("cpu", 0)
