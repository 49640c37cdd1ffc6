"""The queue model of KAI-Scheduler over several sessions: it decides as one that begins anew, keeps
queues within their limits, and remembers which card a pod shares."""

from __future__ import annotations

import datetime
import random

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.columns.nodetable import table_of
from stowplan.framework import ObjectStore, Snapshot
from stowplan.framework.deciders.session_decider import SessionResult
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiQueueObject,
    KaiQueueResource,
    KaiQueueResources,
    KaiQueueSpec,
)
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements

BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SECOND = 1_000_000_000
UNBOUNDED = KaiQueueResource(-1, -1, 1)


class FollowedCluster:
    """Objects as the watch shows them, and a model that follows them. Pods that are bound run, and
    those that are evicted are gone before the next session."""

    def __init__(self, cards: list[int], queues: dict[str, tuple[int, int]]) -> None:
        """cards: of each node. queues: name -> quota and limit of cards."""
        self.nodes = [_node(f"n{i}", n) for i, n in enumerate(cards)]
        self.limits = {name: limit for name, (_, limit) in queues.items()}
        self.objects: list[Object] = [_queue(name, *bounds) for name, bounds in queues.items()]
        self.pods: dict[str, Pod] = {}
        self.n_sessions = 0
        self.kept = self.follower()

    def follower(self) -> ModelDecider:
        """A model that begins with what there is now."""
        decider = deciders_of([ConfigText("scheduler: kai", "kai")]).session_decider()
        assert isinstance(decider, ModelDecider)
        decider.attach(decider.framework.shared, self._snapshot)
        for one in self.objects:
            decider.object_updated(one)
        for pod in self.pods.values():
            decider.pod_updated(pod)
        return decider

    def _snapshot(self) -> Snapshot:
        placed = (pod for pod in self.pods.values() if pod.node_name)
        return Snapshot(table_of(self.nodes, placed), ObjectStore())

    def add(self, value: Object) -> None:
        """An object is created."""
        self.objects.append(value)
        self.kept.object_updated(value)

    def show(self, pod: Pod) -> None:
        """A pod is created or changed."""
        self.pods[pod.uid] = pod
        self.kept.pod_updated(pod)

    def delete(self, uid: str) -> None:
        """A pod is gone."""
        del self.pods[uid]
        self.kept.pod_deleted(uid)

    def session(self, decider: ModelDecider) -> SessionResult:
        """A session, of which nothing is carried out."""
        now = int(BEGAN.timestamp() + 1000 + self.n_sessions) * SECOND
        return decider.run_session("s", (), now)

    def carry_out(self, result: SessionResult) -> None:
        """What was decided becomes true."""
        self.n_sessions += 1
        for place in result.binds:
            pod = self.pods[place.pod.uid]
            spec = replace(pod.spec, node_name=place.node)
            self.show(replace(pod, spec=spec, status=PodStatus(phase="Running")))
        for victim in result.victims:
            self.delete(victim.pod.uid)


def _node(name: str, cards: int) -> Node:
    amounts = {"cpu": 64, "memory": "64Gi", "pods": 20, "nvidia.com/gpu": cards}
    status = NodeStatus(allocatable=dict(amounts), capacity=dict(amounts))
    return Node(metadata=ObjectMeta(name=name), status=status)


def _queue(name: str, quota: int, limit: int) -> KaiQueueObject:
    cards = KaiQueueResource(quota, limit, 1)
    spec = KaiQueueSpec(resources=KaiQueueResources(UNBOUNDED, UNBOUNDED, cards))
    return KaiQueueObject(ObjectMeta(name=name, creation_timestamp=BEGAN), spec=spec)


def _pod(name: str, cards: int, second: int, **notes: str) -> Pod:
    moment = BEGAN + datetime.timedelta(seconds=second)
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=name,
        labels={"kai.scheduler/queue": "red"},
        annotations=notes,
        creation_timestamp=moment,
    )
    asked = {"cpu": 1} | ({"nvidia.com/gpu": cards} if cards else {})
    container = Container(name="c", resources=ResourceRequirements(requests=asked))
    spec = PodSpec(containers=(container,), scheduler_name="kai-scheduler")
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Pending"))


def arrive(cluster: FollowedCluster, rng: random.Random, number: int) -> None:
    """A gang in one of the queues."""
    name, size, cards = f"j{number:03}", rng.randint(1, 4), rng.randint(1, 2)
    moment = BEGAN + datetime.timedelta(seconds=number)
    meta = ObjectMeta(name=name, namespace="ns", uid=name, creation_timestamp=moment)
    names = sorted(cluster.limits)
    spec = KaiPodGroupSpec(
        queue=rng.choice(names),
        min_member=rng.randint(1, size),
        priority_class_name=rng.choice(("train", "build-preemptible")),
    )
    cluster.add(KaiPodGroupObject(meta, spec=spec))
    for i in range(size):
        cluster.show(_pod(f"{name}-{i}", cards, number, **{KAI_GROUP_ANNOTATION: name}))


def decisions(result: SessionResult) -> tuple[object, ...]:
    """What of a session must be equal."""
    return (
        {place.pod.uid: place.node for place in result.binds},
        {victim.pod.uid: victim.why for victim in result.victims},
    )


@pytest.mark.parametrize("seed", range(3))
def test_it_decides_as_a_new_model_and_keeps_limits(seed: int) -> None:
    rng = random.Random(seed)
    queues = {"red": (3, 5), "blue": (4, -1), "green": (2, 4)}
    cluster = FollowedCluster([4, 4, 2], queues)
    n_jobs = 0
    for _ in range(12):
        for _ in range(rng.randrange(3)):
            arrive(cluster, rng, n_jobs)
            n_jobs += 1
        for uid in [uid for uid, pod in cluster.pods.items() if pod.node_name]:
            if rng.random() < 0.08:
                cluster.delete(uid)
        fresh = cluster.follower()
        cluster.kept.model.inspect()
        mine = cluster.session(cluster.kept)
        assert decisions(mine) == decisions(cluster.session(fresh))
        for queue in cluster.kept.model.report().queues:
            limit = cluster.limits[queue.name]
            assert limit < 0 or queue.allocated["nvidia.com/gpu"] <= limit
        cluster.kept.validate()
        cluster.carry_out(mine)
    assert any(pod.node_name for pod in cluster.pods.values())


def test_a_pod_stays_on_the_card_that_it_shares() -> None:
    cluster = FollowedCluster([1], {"red": (1, -1)})
    cluster.show(_pod("large", 0, 1, **{"gpu-fraction": "0.6"}))
    cluster.carry_out(cluster.session(cluster.kept))
    # One session later: what is left of that card is enough for one of the two.
    cluster.show(_pod("wide", 0, 2, **{"gpu-fraction": "0.5"}))
    cluster.show(_pod("small", 0, 3, **{"gpu-fraction": "0.4"}))
    cluster.carry_out(cluster.session(cluster.kept))
    placed = {uid for uid, pod in cluster.pods.items() if pod.node_name}
    assert placed == {"large", "small"}
