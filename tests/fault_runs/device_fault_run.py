"""Fault runs with claims: requests of the scheduler fail or lose their replies, pods come and go.

Drawn from the seed: devices of each node (cards, cards in parts, shared network cards), Deployments
and Jobs whose pods have claims from templates or request an extended resource. At every change of a
claim no device has two users, and no card gives more parts than it has. At the end every workload
runs, and only its pods have devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan.assembly.deciders import deciders_of
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.messages.effects import Effect, Write
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.cluster.effect_dispatcher import InjectedFault
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.workload_replay import WorkloadReplay
from tests.fault_runs.workload_fault_run import CODES, Tree

CLAIMS = "resource.k8s.io/resourceclaims"
FAULTS_END_S, UNTIL_S = 150.0, 900.0
DRIVER, RESOURCE, PARTS = "gpu.example.com", "example.com/gpu", 4
MEMORY = 80
KINDS = (f"{DRIVER}=4xH100", f"{DRIVER}=2xA100,partitions={PARTS}")

Device = tuple[str, str, str]


class DeviceFault(AssertionError):
    """What a run has violated."""


class DeviceFaultRun:
    """One run. n_faults: how many requests failed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng([seed, 24])
        self.n_faults = 0
        self.allocations = 0
        self._violations: list[str] = []
        self._held: dict[str, tuple[Device, ...]] = {}
        self._users: Counter[Device] = Counter()
        file = folder / "objects.json"
        file.write_bytes(msgspec.json.encode({"kind": "List", "items": list(self._objects())}))
        deciders = deciders_of([], [])
        cluster = read_cluster(file, keep_manifests=True)
        options = ReplayOptions(until_s=UNTIL_S)
        self.replay = WorkloadReplay(cluster, deciders, deciders.scheduler(), options, seed)
        self.replay.instance.dispatcher.inject = self._fault
        self._changed = self.replay._api.changed
        self.replay._api.changed = self._observe  # type: ignore[method-assign]

    def run(self) -> None:
        """Run to the end; raises DeviceFault."""
        self.replay.run(lambda now: None, 3600 * SECOND)
        problems = [*self._violations[:1], *self.replay.failure_notes, *self._unfinished()]
        if problems:
            raise DeviceFault("; ".join(problems))

    # What is drawn.

    def _objects(self) -> Iterator[Tree]:
        expression = f'device.driver == "{DRIVER}"'
        spec: Tree = {"selectors": [{"cel": {"expression": expression}}]}
        yield _made("DeviceClass", "gpu", {**spec, "extendedResourceName": RESOURCE})
        for count in (1, 2):
            exactly = {"deviceClassName": "gpu", "count": count}
            devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
            yield _made("ResourceClaimTemplate", f"of-{count}", {"spec": {"devices": devices}})
        for at in range(int(self.rng.integers(2, 4))):
            kind = KINDS[int(self.rng.integers(len(KINDS)))]
            amounts = {"cpu": "64", "memory": "64Gi", "pods": "50"}
            meta = {"name": f"n{at}", "annotations": {"stowplan.dev/devices": kind}}
            status = {"capacity": amounts, "allocatable": amounts}
            yield {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
        # All together fit even where every claim has whole cards.
        second = int(self.rng.integers(1, 3))
        notes = {"stowplan.dev/replica-changes": f"{int(self.rng.integers(5, 140))}={second}"}
        yield _deployment("from-template", notes, "of-1")
        if self.rng.random() < 0.5:
            yield _deployment("extended", {}, "")
        else:
            yield _job("train", "of-2" if self.rng.random() < 0.5 else "of-1")

    def _fault(self, effect: Effect) -> InjectedFault | None:
        if self.replay.event_queue.now > FAULTS_END_S * SECOND or self.rng.random() > 0.4:
            return None
        self.n_faults += 1
        code = CODES[int(self.rng.integers(len(CODES)))]
        if isinstance(effect, Write) and code is None:
            # The client ends a request that gets no reply.
            code = 0
        done = code in (0, None) and bool(self.rng.random() < 0.5)
        late = int(self.rng.integers(SECOND)) if code in (0, None) and not done else 0
        return InjectedFault(code, done=done, late=late)

    # What holds at every moment.

    def _observe(self, server: Any, change: Any, now: float) -> None:
        if change.path == CLAIMS:
            key = f"{change.namespace}/{change.name}"
            tree = {} if change.type == "DELETED" else msgspec.json.decode(change.value)
            self._follow(key, tree)
        self._changed(server, change, now)

    def _follow(self, key: str, claim: Tree) -> None:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        devices = tuple((one["driver"], one["pool"], one["device"]) for one in results)
        before = self._held.pop(key, ())
        self._users.subtract(before)
        self._users.update(devices)
        if devices:
            self._held[key] = devices
            self.allocations += devices != before
        for device in devices:
            if self._users[device] > 1:
                users = [name for name, held in self._held.items() if device in held]
                self._violations.append(f"device {'/'.join(device)} has users {users}")
        self._check_parts()

    def _check_parts(self) -> None:
        taken: Counter[tuple[str, str]] = Counter()
        for (_, pool, name), n_users in self._users.items():
            card, _, part = name.partition("-part-")
            taken[pool, card] += n_users * (1 if part else PARTS)
        for card, parts in taken.items():
            if parts > PARTS:
                self._violations.append(f"card {'/'.join(card)} gives {parts} of {PARTS} parts")

    # The end.

    def _unfinished(self) -> Iterator[str]:
        pods = {tree["metadata"]["uid"]: tree for tree in self._stored("pods")}
        for tree in self._stored("apps/deployments"):
            wanted, got = tree["spec"]["replicas"], tree["status"].get("readyReplicas", 0)
            if wanted != got:
                yield f"Deployment {tree['metadata']['name']}: {got} of {wanted} are ready"
        for tree in self._stored("batch/jobs"):
            if tree["status"].get("succeeded") != tree["spec"]["completions"]:
                yield f"Job {tree['metadata']['name']}: {tree['status']}"
        for claim in self._stored(CLAIMS):
            name, users = claim["metadata"]["name"], claim["status"].get("reservedFor") or ()
            owner = claim["metadata"]["ownerReferences"][0]["uid"]
            pod = pods.get(owner)
            if pod is None or pod["status"]["phase"] != "Running":
                yield f"claim {name} is left over"
            elif [one["uid"] for one in users] != [owner]:
                yield f"claim {name} is reserved for {users}"
            elif {pool for _, pool, _ in self._held[f"default/{name}"]} != {
                pod["spec"]["nodeName"]
            }:
                yield f"claim {name} has devices of another node than its pod"

    def _stored(self, path: str) -> list[Tree]:
        server = self.replay._api.server
        resource = server.registry.by_path(path)
        assert resource is not None
        return list(server.list(resource))


def _made(kind: str, name: str, spec: Tree) -> Tree:
    meta = {"name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def _template(name: str, template: str, **spec: Any) -> Tree:
    container: Tree = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    if template:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    else:
        container["resources"]["requests"][RESOURCE] = "1"
        container["resources"]["limits"] = {RESOURCE: "1"}
    notes = {"stowplan.dev/run-seconds": "20"} if spec.get("restartPolicy") else {}
    meta = {"labels": {"app": name}, "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def _deployment(name: str, notes: dict[str, str], template: str) -> Tree:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}}
    meta = {"name": name, "annotations": notes}
    made = {"template": _template(name, template)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec | made}


def _job(name: str, template: str) -> Tree:
    spec = {"completions": 3, "parallelism": 1, "backoffLimit": 1000}
    made = {"template": _template(name, template, restartPolicy="Never")}
    meta = {"name": name}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec | made}
