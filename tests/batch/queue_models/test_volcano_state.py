"""What the queue model of Volcano keeps, in a session and between sessions: its decisions equal
those of a model that begins anew and computes every comparison, score and sum as it is asked."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.assembly.sessions.volcano_rules import FrameworkScores
from stowplan.assembly.sessions.volcano_scores import KindScores
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.batch.queue_models.volcano import volcano_session
from stowplan.batch.queue_models.volcano.model.volcano_state import VolcanoState
from stowplan.batch.queue_models.volcano.session_nodes.free_columns import FreeColumns
from stowplan.batch.queue_models.volcano.session_nodes.kind_columns import KindColumn, KindColumns
from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_amount import EPSILON, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_session_job import JobAmounts
from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.nodetable import table_of
from stowplan.framework import ObjectStore, Snapshot
from stowplan.framework.deciders.session_decider import SessionResult
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeSpec, NodeStatus, Taint
from stowplan.objects.pod import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    WeightedPodAffinityTerm,
)
from stowplan.objects.podgroup import (
    VOLCANO_API_VERSION,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueSpec,
)
from stowplan.objects.selectors import (
    LabelSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from tests.soak import examples

CONFIGURATIONS = (
    """
actions: "enqueue, allocate, backfill, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]
""",
    """
actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - name: overcommit
  - name: predicates
  - name: capacity
    enableHierarchy: true
  - name: nodeorder
  - name: binpack
""",
    """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}]
- plugins: [{name: proportion}, {name: nodeorder}]
""",
)
BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class RandomCluster:
    """Objects as the watch shows them, a model that follows them, and models that begin anew."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.configuration = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
        # Scores of taints depend on which nodes pass; without any, columns of kinds are used.
        taints = (Taint("slow", "", "PreferNoSchedule"),) if seed % 2 else ()
        self.nodes = [_node(i, self.rng.choice((4, 8)), taints) for i in range(6)]
        self.queues = [_queue(f"q{i}", self.rng.choice((4, 8))) for i in range(3)]
        self.groups: dict[str, PodGroup] = {}
        self.pods: dict[str, Pod] = {}
        self.n_jobs = 0
        self.now = 0
        self.kept = self._decider()

    def _decider(self) -> ModelDecider:
        decider = deciders_of([ConfigText(self.configuration, "drawn")]).session_decider()
        assert isinstance(decider, ModelDecider)
        decider.attach(decider.framework.shared, self._snapshot)
        for queue in self.queues:
            decider.object_updated(queue)
        return decider

    def _snapshot(self) -> Snapshot:
        placed = (pod for pod in self.pods.values() if pod.node_name and not pod.is_finished)
        return Snapshot(table_of(self.nodes, placed), ObjectStore())

    def change(self) -> None:
        """A few jobs arrive, and a few pods end or are deleted."""
        for _ in range(self.rng.randrange(3)):
            self._arrive()
        for pod in list(self.pods.values()):
            chance = self.rng.random()
            if chance < 0.05:
                del self.pods[pod.uid]
                self.kept.pod_deleted(pod.uid)
            elif chance < 0.12 and pod.node_name and not pod.is_finished:
                self._show(replace(pod, status=replace(pod.status, phase="Succeeded")))
        if self.rng.random() < 0.1:
            queue = _queue("q0", self.rng.choice((2, 6)))
            self.queues[0] = queue
            self.kept.object_updated(queue)

    def _arrive(self) -> None:
        name = f"j{self.n_jobs:03}"
        self.n_jobs += 1
        size, cpu = self.rng.randint(1, 4), self.rng.randint(1, 3)
        affinity = self.rng.choice((None, None, None, *AFFINITIES))
        role = self.rng.choice(("", "worker"))
        moment = BEGAN + datetime.timedelta(seconds=self.n_jobs)
        meta = ObjectMeta(name=name, namespace="ns", uid=name, creation_timestamp=moment)
        spec = PodGroupSpec(
            min_member=self.rng.randint(1, size),
            queue=self.rng.choice(self.queues).name,
            min_resources={"cpu": cpu} if self.rng.random() < 0.8 else None,
        )
        group = PodGroup(meta, api_version=VOLCANO_API_VERSION, spec=spec)
        self.groups[group.key] = group
        self.kept.object_updated(group)
        # Pods of a template share their spec; tasks of a role may have two.
        specs = [_spec(cpu, self.rng.choice((0, 5)), affinity), _spec(1, 0, affinity)]
        is_mixed = self.rng.random() < 0.5
        for i in range(size):
            spec = self.rng.choice(specs) if is_mixed else specs[0]
            self._show(_pod(f"{name}-{i}", name, spec, moment, role))

    def _show(self, pod: Pod) -> None:
        # Of equal victims the one that came to the node first is evicted, and a changed pod comes
        # anew; a new model sees the pods in this order.
        self.pods.pop(pod.uid, None)
        self.pods[pod.uid] = pod
        self.kept.pod_updated(pod)

    def session(self) -> tuple[SessionResult, SessionResult]:
        """A session of the model that has followed all, and one of a new model."""
        fresh = self._decider()
        for group in self.groups.values():
            fresh.object_updated(group)
        for pod in self.pods.values():
            fresh.pod_updated(pod)
        self.now += 1_000_000_000
        mine = self.kept.run_session("s", (), self.now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(volcano_session, "FreeColumns", PlainColumns)
            patch.setattr(FrameworkScores, "_kept", lambda *_: None)
            patch.setattr(KindColumns, "of", lambda *_: None)
            return mine, fresh.run_session("s", (), self.now)

    def carry_out(self, result: SessionResult) -> None:
        """What was decided becomes true before the next session."""
        for place in result.binds:
            pod = self.pods[place.pod.uid]
            spec = replace(pod.spec, node_name=place.node)
            status = PodStatus(phase="Running")
            self._show(replace(pod, spec=spec, status=status))
        for victim in result.victims:
            del self.pods[victim.pod.uid]
            self.kept.pod_deleted(victim.pod.uid)
        kept = {place.pod.uid: place.node for place in result.nominations}
        for pod in list(self.pods.values()):
            node = kept.get(pod.uid, "")
            if not pod.node_name and pod.status.nominated_node_name != node:
                self._show(replace(pod, status=replace(pod.status, nominated_node_name=node)))
        for report in result.groups:
            if report.status is not None:
                key = f"{report.namespace}/{report.name}"
                self.groups[key] = replace(self.groups[key], status=report.status)
                self.kept.object_updated(self.groups[key])


class PlainColumns:
    """What FreeColumns finds, compared node by node whenever it is asked."""

    def __init__(self, nodes: Sequence[VolcanoNode]) -> None:
        self._nodes = nodes
        for place, node in enumerate(nodes):
            node.place = place

    def fits(self, request: VolcanoAmount, places: Ints | slice, *, later: bool) -> Bools:
        found = np.array(
            [request.fits(n.future_idle() if later else n.idle) for n in self._nodes],
            dtype=np.bool_,
        )
        return found[places]

    def lacking(self, request: VolcanoAmount) -> dict[str, Bools]:
        return {
            name: np.array([amount - n.future_idle().get(name) >= EPSILON for n in self._nodes])
            for name, amount in request.items()
            if amount >= EPSILON
        }


def _prefers_zone() -> Affinity:
    wanted = NodeSelectorRequirement(key="zone", operator="In", values=("z1",))
    term = PreferredSchedulingTerm(7, NodeSelectorTerm(match_expressions=(wanted,)))
    return Affinity(node_affinity=NodeAffinity(preferred=(term,)))


def _avoids(key: str) -> Affinity:
    selector = LabelSelector(match_labels={"job": "apart"})
    term = PodAffinityTerm(label_selector=selector, topology_key=key)
    return Affinity(pod_anti_affinity=PodAffinity(preferred=(WeightedPodAffinityTerm(9, term),)))


AFFINITIES = (_prefers_zone(), _avoids("zone"))


def _node(number: int, cpu: int, taints: tuple[Taint, ...]) -> Node:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": 20}
    status = NodeStatus(allocatable=dict(amounts), capacity=dict(amounts))
    meta = ObjectMeta(name=f"n{number}", labels={"zone": f"z{number % 2}"})
    spec = NodeSpec(taints=taints if number % 3 == 0 else ())
    return Node(metadata=meta, spec=spec, status=status)


def _queue(name: str, cpu: int) -> Queue:
    spec = QueueSpec(weight=1, deserved={"cpu": cpu}, capability={"cpu": 2 * cpu})
    return Queue(ObjectMeta(name=name), api_version=VOLCANO_API_VERSION, spec=spec)


def _spec(cpu: int, priority: int, affinity: Affinity | None) -> PodSpec:
    asks = ResourceRequirements(requests={"cpu": cpu})
    return PodSpec(
        containers=(Container(name="c", resources=asks),),
        scheduler_name="volcano",
        priority=priority,
        affinity=affinity,
    )


def _pod(name: str, group: str, spec: PodSpec, moment: datetime.datetime, role: str) -> Pod:
    notes = {"scheduling.k8s.io/group-name": group}
    if role:
        notes["volcano.sh/task-spec"] = role
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=name,
        annotations=notes,
        labels={"job": "apart" if spec.affinity else "other"},
        creation_timestamp=moment,
    )
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Pending"))


def decisions(result: SessionResult) -> tuple[object, ...]:
    """What of a session must be equal."""

    def phase(status: PodGroupStatus | None) -> str:
        return "" if status is None else status.phase

    return (
        {place.pod.uid: place.node for place in result.binds},
        {victim.pod.uid: victim.why for victim in result.victims},
        {place.pod.uid: place.node for place in result.nominations},
        {one.name: phase(one.status) for one in result.groups if phase(one.status)},
    )


def differs(seed: int, n_sessions: int) -> str:
    """The first session in which both models decide otherwise, "" for none."""
    cluster = RandomCluster(seed)
    for number in range(n_sessions):
        cluster.change()
        mine, fresh = cluster.session()
        if decisions(mine)[:3] != decisions(fresh)[:3]:
            return f"seed {seed}, session {number}: {decisions(mine)} != {decisions(fresh)}"
        cluster.kept.validate()
        cluster.carry_out(mine)
    return ""


@pytest.mark.parametrize("seed", range(examples(18)))
def test_kept_state_decides_as_a_new_one(seed: int) -> None:
    assert differs(seed, 12) == ""


def _is_caught(seed: int) -> bool:
    try:
        return bool(differs(seed, 12))
    except (AssertionError, KeyError):
        return True


WRONG: dict[str, tuple[type[object], str, object]] = {
    "pipelined pods are not taken back": (VolcanoState, "_unplace", lambda *_: None),
    "pods that leave are still counted": (VolcanoState, "_leave", lambda *_: None),
    "scores of changed rows are as before": (KindScores, "_follow", lambda *_: None),
    "sums of queues are those of the first session": (JobAmounts, "__eq__", lambda *_: True),
    "masks do not see what was placed": (FreeColumns, "changed_since", lambda *_: []),
    "columns of a kind are as before": (KindColumn, "_follow", lambda *_: None),
    "pods of a role count as alike": (PredicateFailures, "would_not_change", lambda *_: True),
}
"""What is wrong -> class, attribute and what it is instead."""


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_follow_changes_is_caught(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, instead = WRONG[wrong]
    monkeypatch.setattr(owner, name, instead)
    assert any(_is_caught(seed) for seed in range(12))
