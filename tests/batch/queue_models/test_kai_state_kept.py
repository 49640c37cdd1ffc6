"""What sessions of KAI's model keep from one to the next equals what they would read anew."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.model.bind_requests import BindRequests
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory
from stowplan.batch.queue_models.kai.model.kai_state import KaiState
from stowplan.batch.queue_models.kai.model.node_zones import NodeZones
from stowplan.batch.queue_models.kai.model.pod_grouper import PodGrouper
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.queue_model import ModelCluster
from stowplan.benchmarks.sessions import session_benchmarks
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.benchmarks.sessions.session_benchmarks import START
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.kai.bind_request import (
    KaiBindRequest,
    KaiBindRequestSpec,
    KaiBindRequestStatus,
)
from stowplan.objects.kai.grouping.sub_groups import MIN_MEMBER, REPLICA_TYPE
from stowplan.objects.kai.grouping.workload_owners import PyTorchJobOwner
from stowplan.objects.kai.kai_kinds import (
    KaiQueueObject,
    KaiQueueResource,
    KaiQueueResources,
    KaiTopologyConstraint,
    KaiTopologyLevel,
    KaiTopologyObject,
    KaiTopologySpec,
)
from stowplan.objects.kai.node_topology import (
    NodeResourceTopology,
    NodeZone,
    NodeZoneResource,
)
from stowplan.objects.kai.zone_placement import KaiZonePlacement
from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.workload import Job

SHARES = ("0.25", "0.5")
CONFIGURATION = """
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec:
  plugins:
    numa: {enabled: true}
"""
N_NODES, N_ROUNDS = 3, 12


def facts(session: KaiSession) -> dict[str, Any]:
    """What a session decides by."""
    return {
        "jobs": {
            job.uid: (job.terms, sorted(_task(task) for task in job.tasks()), job.order())
            for job in session.jobs.values()
        },
        "nodes": {
            name: (
                node.idle,
                node.releasing,
                node.used,
                node.is_ready,
                sorted(node.tasks),
                _left(node),
            )
            for name, node in session.nodes.items()
        },
        "columns": (session.rows.later.tolist(), session.rows._idle.tolist()),
        "queues": {
            name: (queue.allocated, queue.fixed, queue.request, queue.fair)
            for name, queue in session.queues.queues.items()
        },
        "total": session.queues.total,
        "waiting": sorted(job.uid for job in session.waiting),
        "off nodes": session.off_nodes,
        "sets": {
            job.uid: [(one.name, one.minimum, sorted(one.tasks)) for one in job.root.pod_sets()]
            for job in session.jobs.values()
        },
    }


def _left(node: KaiNode) -> list[tuple[str, list[float]]]:
    """What its NUMA zones have left."""
    return [] if node.numa is None else [(zone.id, zone.available) for zone in node.numa.zones]


def _task(task: Any) -> tuple[Any, ...]:
    # What a pod has on a node is set when it gets there: without a node it has no meaning.
    accepted = task.accepted if task.node else None
    numa = task.numa if task.node else None
    return task.key, task.status, task.node, task.request, accepted, task.groups, numa


class Cluster(KaiBenchmark):
    """Random changes of a small cluster with shared cards and NUMA zones."""

    configuration = CONFIGURATION

    def __init__(self, seed: int) -> None:
        super().__init__(N_NODES, 2)
        self.random = random.Random(seed)
        # What makes everything be read anew hides what is not followed.
        self.is_unsteady = seed % 2 == 1
        self.owners: dict[str, type[Object]] = {}
        made = [session_benchmarks._node(number, 2) for number in range(N_NODES)]
        self.nodes = {node.name: node for node in made}
        self.there = {*self.nodes}
        self.requests: set[str] = set()
        quota = KaiQueueResources(
            *(KaiQueueResource(2000, -1, 1.0),) * 2, KaiQueueResource(3, -1, 1)
        )
        self.show([self.queue(name, resources=quota) for name in ("red", "blue")])
        self.show([happened.Synced()])

    def changes(self, round_: int) -> list[Event]:
        """Some of everything that may happen between two sessions."""
        rng = self.random
        events: list[Event] = []
        for number in range(rng.randrange(4)):
            asks = ("1", "1Gi", str(rng.randrange(3)))
            on = [rng.randrange(N_NODES) for _ in range(2)] if rng.random() < 0.3 else ()
            name = f"g{round_}-{number}"
            kind: dict[str, Any] = {"priority_class_name": rng.choice(("train", "build"))}
            if self.is_unsteady and rng.random() < 0.3:
                kind["topology_constraint"] = KaiTopologyConstraint("net", "", "rack")
            events += self.gang(name, rng.choice(("red", "blue", "none")), 2, asks, on, **kind)
        known = sorted(self.pods)
        for name in rng.sample(known, min(len(known), rng.randrange(3))):
            if rng.random() < 0.5:
                events.append(happened.PodDeleted(self.pods.pop(name)))
                self.effects = [one for one in self.effects if getattr(one, "name", "") != name]
            else:
                notes = {
                    **self.pods[name].metadata.annotations,
                    "gpu-fraction": rng.choice(SHARES),
                }
                meta = replace(self.pods[name].metadata, annotations=notes)
                events.append(self._changed(name, metadata=meta))
        events += [*self.owned(round_), *self.requested(), *self.zoned()]
        return [*events, *self.noded(), *self.queued()] if self.is_unsteady else events

    def noded(self) -> Iterator[Event]:
        """Nodes change, go with pods on them, and come again; at times there is none."""
        rng = self.random
        for name in rng.sample(sorted(self.nodes), rng.randrange(3)):
            node, is_there = self.nodes[name], name in self.there
            if is_there and rng.random() < 0.4:
                self.there.discard(name)
                yield happened.NodeDeleted(node)
                continue
            amounts = {**node.status.allocatable, "nvidia.com/gpu": str(rng.randrange(4))}
            labels = {**node.labels, "rack": rng.choice(("r0", "r1"))}
            self.nodes[name] = replace(
                node,
                metadata=replace(node.metadata, labels=labels),
                spec=replace(node.spec, unschedulable=rng.random() < 0.2),
                status=replace(node.status, allocatable=amounts),
            )
            self.there.add(name)
            changed = happened.NodeUpdated if is_there else happened.NodeAdded
            yield changed(self.nodes[name])

    def queued(self) -> Iterator[Event]:
        """Queues and topologies change, go and come again; queues get into loops."""
        rng = self.random
        if rng.random() < 0.6:
            return
        kind = rng.randrange(3)
        name = rng.choice(("red", "blue", "top"))
        if kind == 0:
            yield happened.ObjectDeleted(KaiQueueObject(metadata=ObjectMeta(name, uid=name)))
        elif kind == 1:
            yield self.queue(name, parent_queue=rng.choice(("", "top", "red", "none")))
        else:
            levels = tuple(KaiTopologyLevel(one) for one in ("rack", "kubernetes.io/hostname"))
            made = KaiTopologyObject(ObjectMeta("net", uid="net"), KaiTopologySpec(levels))
            yield rng.choice((happened.ObjectUpdated, happened.ObjectDeleted))(made)

    def zoned(self) -> Iterator[Event]:
        """Reports of NUMA zones come, change and go; zones get and lose their names."""
        rng = self.random
        name = f"n{rng.randrange(N_NODES):05}"
        if rng.random() < 0.3:
            yield happened.ObjectDeleted(NodeResourceTopology(ObjectMeta(name)))
            return
        first = rng.randrange(2)
        cards = NodeZoneResource("nvidia.com/gpu", 1, 1, 1)
        zones = [NodeZone(f"zone-{first + i}", "Node", resources=(cards,)) for i in range(2)]
        policies = (rng.choice(("SingleNUMANodePodLevel", "Restricted", "BestEffort")),)
        yield happened.ObjectUpdated(
            NodeResourceTopology(ObjectMeta(name), topology_policies=policies, zones=tuple(zones))
        )

    def requested(self) -> Iterator[Event]:
        """Bind requests come, change and go; some are for nodes that do not exist."""
        rng = self.random
        waiting = [name for name in sorted(self.pods) if not self.pods[name].node_name]
        for name in rng.sample(waiting, min(2, len(waiting))):
            cards = (f"card-{rng.randrange(2)}",) if rng.random() < 0.5 else ()
            node = f"n{rng.randrange(N_NODES + 1):05}"
            zones = (KaiZonePlacement(f"zone-{rng.randrange(3)}", {"nvidia.com/gpu": "1"}),)
            kind = "Fraction" if cards else "Regular"
            spec = KaiBindRequestSpec(name, node, kind, cards, predicted_numa_zones=zones)
            status = KaiBindRequestStatus(rng.choice(("Pending", "Failed")))
            meta = ObjectMeta(name, "ns", name)
            self.requests.add(name)
            yield happened.ObjectUpdated(KaiBindRequest(meta, spec=spec, status=status))
        for name in rng.sample(sorted(self.requests), min(1, len(self.requests))):
            self.requests.discard(name)
            yield happened.ObjectDeleted(KaiBindRequest(ObjectMeta(name, "ns", name)))

    def owned(self, round_: int) -> Iterator[Event]:
        """Pods of jobs that name no group; the jobs come before them or later, change, and go."""
        rng = self.random
        name = f"o{round_}"
        kind, version = rng.choice(
            (
                (PyTorchJobOwner, "kubeflow.org/v1"),
                (Job, "batch/v1"),
            )
        )
        reference = OwnerReference(version, kind.__name__.removesuffix("Owner"), name, name, True)
        self.owners[name] = kind
        for number in range(rng.randrange(3)):
            pod = self._pod(f"{name}-{number}", "", ("1", "1Gi", "1"), "", START)
            labels = {REPLICA_TYPE: rng.choice(("master", "worker", "other")), "project": "blue"}
            meta = replace(
                pod.metadata, annotations={}, labels=labels, owner_references=(reference,)
            )
            self.pods[pod.name] = replace(pod, metadata=meta)
            yield happened.PodAdded(self.pods[pod.name])
        for other in rng.sample(sorted(self.owners), min(3, len(self.owners))):
            labels = {"kai.scheduler/queue": rng.choice(("red", "blue"))}
            notes = {MIN_MEMBER: str(rng.randrange(1, 3))}
            meta = ObjectMeta(other, "ns", other, labels, notes)
            specs = {name: {"replicas": rng.randrange(3)} for name in ("Master", "Worker")}
            if self.owners[other] is Job:
                yield happened.ObjectUpdated(Job(metadata=meta))
            else:
                made = PyTorchJobOwner(metadata=meta, spec={"pytorchReplicaSpecs": specs})
                yield happened.ObjectUpdated(made)
        if rng.random() < 0.3:
            gone = rng.choice(sorted(self.owners))
            meta = ObjectMeta(gone, "ns", gone)
            yield happened.ObjectDeleted(self.owners[gone](metadata=meta))


def run(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare in every session; the number of sessions with evictions or binds."""
    original = KaiState.open

    def compared(
        self: KaiState, cluster: ModelCluster, options: KaiOptions, usage: Any = None
    ) -> KaiSession:
        session = original(self, cluster, options)
        anew = KaiState(self._names, _copy(self._memory), self._rules, self._devices)
        assert facts(session) == facts(original(anew, cluster, options))
        return session

    monkeypatch.setattr(KaiState, "open", compared)
    cluster = Cluster(seed)
    n_busy = 0
    for round_ in range(N_ROUNDS):
        cluster.session(*cluster.changes(round_))
        n_busy += bool(cluster.effects)
        if cluster.random.random() < 0.8:
            cluster.settle()
    monkeypatch.setattr(KaiState, "open", original)
    return n_busy


def run_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several clusters."""
    for seed in range(6):
        run(seed, monkeypatch)


def _copy(memory: KaiMemory) -> KaiMemory:
    copied = KaiMemory()
    for name in ("_cards", "_zones", "_started", "_stale", "_evicted", "_read"):
        setattr(copied, name, dict(getattr(memory, name)))
    return copied


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_equals_what_is_read_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(seed, monkeypatch) >= 2


SETTLE, DROP = KaiState.settle, KaiState._drop


def _forgets_jobs(self: KaiState, session: KaiSession) -> Iterable[KaiJob]:
    found = SETTLE(self, session)
    self._old_jobs.clear()
    return found


def _forgets_nodes(self: KaiState, uid: str, key: str | None) -> None:
    DROP(self, uid, key)
    self._old_nodes.clear()


def _forgets_owners(self: PodGrouper, changed: Iterable[object]) -> Iterator[str]:
    return iter(())


@pytest.mark.parametrize(("name", "wrong"), [("settle", _forgets_jobs), ("_drop", _forgets_nodes)])
def test_a_state_that_forgets_what_has_changed_differs(
    name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KaiState, name, wrong)
    with pytest.raises(AssertionError):
        run_all(monkeypatch)


def test_a_state_that_overlooks_changed_bind_requests_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = BindRequests.follow

    def forgets(self: BindRequests, *given: Any) -> Iterable[str]:
        follow(self, *given)
        return ()

    monkeypatch.setattr(BindRequests, "follow", forgets)
    with pytest.raises(AssertionError):
        run_all(monkeypatch)


def test_a_state_that_overlooks_changed_zones_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeZones, "changed", lambda *_: iter(()))
    with pytest.raises(AssertionError):
        run_all(monkeypatch)


def test_a_state_that_overlooks_changed_owners_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodGrouper, "outdated", _forgets_owners)
    with pytest.raises(AssertionError):
        run_all(monkeypatch)


def test_a_state_that_overlooks_nodes_that_are_gone_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = KaiState._follow_nodes

    def forgets(self: KaiState, nodes: Any, cluster: ModelCluster) -> None:
        there = {node.name for node in nodes}
        on = {name: self._on.pop(name) for name in [*self._on] if name not in there}
        follow(self, nodes, cluster)
        self._on.update(on)

    monkeypatch.setattr(KaiState, "_follow_nodes", forgets)
    with pytest.raises(AssertionError):
        run_all(monkeypatch)
