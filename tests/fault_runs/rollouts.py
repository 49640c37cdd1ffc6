"""Rollouts of a long run: deployments that roll out one revision after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.objects.volume import PVCSpec, VolumeResources
from stowplan.objects.workload import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    Service,
    ServiceSpec,
    WorkloadSpec,
)
from stowplan.testing.builders import HOSTNAME, ZONE, affinity, pod, spread, term

if TYPE_CHECKING:
    from tests.fault_runs.long_run import LongRun

REVISED = 6 * 3600 * SECOND
HISTORY = 2
HASH = "pod-template-hash"
LOCAL = "local"

Make = Callable[[str, dict[str, str], str], Pod]
"""Builds a pod from a name, labels and an image."""


class Kind(NamedTuple):
    """Specification of a deployment. has_claims: each pod has a volume of its own."""

    name: str
    replicas: int
    make: Make
    has_claims: bool = False


def _web(name: str, labels: dict[str, str], image: str) -> Pod:
    even = [
        spread("app=web", ZONE, max_skew=2, match_label_keys=[HASH]),
        spread("app=web", HOSTNAME, hard=False),
    ]
    return pod(name, cpu="500m", memory="1Gi", labels=labels, image=image, spread=even)


def _api(name: str, labels: dict[str, str], image: str) -> Pod:
    apart = affinity(apart=[term(f"app=api,{HASH}={labels[HASH]}", HOSTNAME)])
    return pod(name, cpu="1", memory="2Gi", labels=labels, image=image, affinity=apart)


def _cache(name: str, labels: dict[str, str], image: str) -> Pod:
    near = affinity(prefer_near=[(50, term("app=web", ZONE))])
    return pod(
        name, cpu="250m", memory="4Gi", labels=labels, image=image, affinity=near, priority=100
    )


def _store(name: str, labels: dict[str, str], image: str) -> Pod:
    return pod(name, cpu="1", memory="4Gi", labels=labels, image=image, claims=[f"data-{name}"])


def _low(name: str, labels: dict[str, str], image: str) -> Pod:
    return pod(name, cpu="2", memory="2Gi", labels=labels, image=image, priority=-10)


def _edge(name: str, labels: dict[str, str], image: str) -> Pod:
    return pod(name, cpu="100m", labels=labels, image=image, ports=["8443"], tolerations=["edge"])


DEPLOYMENTS = (
    Kind("web", 12, _web),
    Kind("api", 6, _api),
    Kind("cache", 6, _cache),
    Kind("store", 4, _store, has_claims=True),
    Kind("low", 10, _low),
    Kind("edge", 4, _edge),
)


class Member(msgspec.Struct):
    """A pod of a deployment and its revision."""

    revision: int
    is_ready: bool = False


class Deployment:
    """Deployment controller: reconciles whenever one of its pods starts or ends."""

    def __init__(self, run: LongRun, kind: Kind, busy: float) -> None:
        self.kind = kind
        self.replicas = max(2, round(kind.replicas * busy))
        self.revision = 0
        self.members: dict[str, Member] = {}
        self._run = run
        self._n_made = 0
        self._is_due = False
        cluster, name = run.cluster, kind.name
        cluster.put_object(Service(_meta(name), ServiceSpec({"app": name})))
        budget = PodDisruptionBudgetSpec(LabelSelector({"app": name}), 1)
        allowed = PodDisruptionBudgetStatus(1)
        cluster.put_object(PodDisruptionBudget(_meta(name), budget, allowed))
        run.every(round(REVISED / busy), self.revise)
        self.revise()

    def revise(self) -> None:
        """Start a rollout; old ReplicaSets are deleted."""
        self.revision += 1
        cluster = self._run.cluster
        selector = LabelSelector({"app": self.kind.name, HASH: self._hash()})
        cluster.put_object(ReplicaSet(_meta(self._set()), WorkloadSpec(self.replicas, selector)))
        past = f"default/{self._set(self.revision - HISTORY)}"
        if (ReplicaSet, past) in cluster.objects:
            cluster.drop_object(ReplicaSet, past)
        self._soon()

    def _hash(self, revision: int | None = None) -> str:
        return f"{self.kind.name}{self.revision if revision is None else revision:05d}"

    def _set(self, revision: int | None = None) -> str:
        return f"{self.kind.name}-{self._hash(revision)}"

    def started(self, key: str) -> None:
        """A pod of any deployment has started."""
        if key in self.members:
            self.members[key].is_ready = True
            self._soon()

    def ended(self, key: str) -> None:
        """A pod has ended; its volume is deleted with it."""
        if self.kind.has_claims and key.startswith(f"default/{self.kind.name}-"):
            self._drop_claim(f"data-{key.partition('/')[2]}")
        if self.members.pop(key, None) is not None:
            self._soon()

    def unfinished(self) -> list[str]:
        """One line if the rollout is not complete."""
        ready = [one for one in self.members.values() if one.is_ready]
        is_new = all(one.revision == self.revision for one in ready)
        if is_new and len(ready) == len(self.members) == self.replicas:
            return []
        return [f"{self.kind.name}: {len(ready)} ready of {len(self.members)} of {self.replicas}"]

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._run.event_queue.after(SECOND, self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        surge = max(1, self.replicas // 4)
        n_new = sum(one.revision == self.revision for one in self.members.values())
        while n_new < self.replicas and len(self.members) < self.replicas + surge:
            self._make()
            n_new += 1
        n_ready = sum(one.is_ready for one in self.members.values())
        for key, one in list(self.members.items()):
            if one.revision == self.revision:
                continue
            if n_ready > self.replicas or not one.is_ready:
                n_ready -= one.is_ready
                del self.members[key]
                self._run.cluster.delete_pod(key, "rolled out")
                self._soon()

    def _make(self) -> None:
        self._n_made += 1
        name = f"{self._set()}-{self._n_made}"
        labels = {"app": self.kind.name, HASH: self._hash()}
        made = self.kind.make(name, labels, f"{self.kind.name}:{self.revision}")
        owner = OwnerReference("apps/v1", "ReplicaSet", self._set(), self._set(), controller=True)
        if self.kind.has_claims:
            self._make_claim(f"data-{name}")
        meta = replace(made.metadata, owner_references=(owner,))
        key = self._run.create_pod(replace(made, metadata=meta))
        self.members[key] = Member(self.revision)

    def _make_claim(self, name: str) -> None:
        size = VolumeResources({"storage": "1Gi"})
        spec = PVCSpec(("ReadWriteOnce",), size, storage_class_name=LOCAL)
        self._run.cluster.put_object(PersistentVolumeClaim(_meta(name), spec))

    def _drop_claim(self, name: str) -> None:
        cluster = self._run.cluster
        for kind, key in (
            (PersistentVolumeClaim, f"default/{name}"),
            (PersistentVolume, f"pvc-{name}"),
        ):
            if (kind, key) in cluster.objects:
                cluster.drop_object(kind, key)


def _meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default", uid=name)
