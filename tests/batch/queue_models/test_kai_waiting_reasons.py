"""Reasons of KAI's pods that wait, in events and as `stowplan status` lists them, while objects
change."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.benchmarks.sessions.session_benchmarks import START
from stowplan.messages import events as happened
from stowplan.messages.effects import RecordEvent, Wake
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiSubGroup,
    KaiTopologyConstraint,
    KaiTopologyLevel,
    KaiTopologyObject,
    KaiTopologySpec,
)
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Pod

ASKS = ("1", "1Gi", "1")


class Reasons(KaiBenchmark):
    """A node with 4 cards, and a queue."""

    def __init__(self) -> None:
        super().__init__(1, 4)
        self.show([self.queue("q")])

    def after(self, *events: happened.Event) -> dict[str, str]:
        """Pod -> the text of its last event, of a session after these events."""
        self.effects.clear()
        self.session(*events)
        notes = [one for one in self.effects if isinstance(one, RecordEvent) and one.kind == "Pod"]
        return {one.name: one.note for one in notes if one.reason == "FailedScheduling"}

    def arriving(self, name: str, size: int) -> list[Pod]:
        """Pods of a group that is there or not."""
        arrivals = self.members(name, size, ASKS, (), START)
        return [event.pod for event in arrivals if isinstance(event, happened.PodAdded)]

    @property
    def listed(self) -> dict[str, str]:
        """What `status` lists."""
        (lane,) = self.scheduler.lanes.batch
        assert isinstance(lane.decider, ModelDecider)
        return dict(lane.decider.waiting_reasons)


def topology(*labels: str) -> KaiTopologyObject:
    levels = tuple(KaiTopologyLevel(label) for label in labels)
    return KaiTopologyObject(
        metadata=ObjectMeta(name="t", uid="t"), spec=KaiTopologySpec(levels=levels)
    )


def group(name: str, *sub_groups: str) -> KaiPodGroupObject:
    subs = tuple(KaiSubGroup(one, min_member=1) for one in sub_groups)
    meta = ObjectMeta(name=name, namespace="ns", uid=name)
    return KaiPodGroupObject(metadata=meta, spec=KaiPodGroupSpec(queue="q", sub_groups=subs))


def labelled(pod: Pod, **labels: str) -> Pod:
    marks = {f"kai.scheduler/{name}": text for name, text in labels.items()}
    return replace(pod, metadata=replace(pod.metadata, labels={**pod.labels, **marks}))


def test_only_groups_with_pods_that_wait_are_listed() -> None:
    cluster = Reasons()
    cluster.show(list(cluster.gang("runs", "q", 3, ASKS, (0, 0, 0))))
    cluster.show([*cluster.gang("wide", "q", 2, ASKS), *cluster.gang("gone", "q", 3, ASKS)])
    cluster.session(happened.Synced())
    assert cluster.listed.keys() == {"ns/wide", "ns/gone"}
    # One has room once the first group has ended,
    left = [happened.PodDeleted(cluster.pods.pop(f"runs-{i}")) for i in range(3)]
    cluster.session(*left)
    cluster.settle()
    assert cluster.listed.keys() == {"ns/gone"}
    # and of the other the group goes before its pods do.
    cluster.session(happened.ObjectDeleted(group("gone")))
    assert "not found" in cluster.listed["ns/gone"]
    cluster.session(*(happened.PodDeleted(cluster.pods.pop(f"gone-{i}")) for i in range(3)))
    assert cluster.listed == {}


def test_a_reason_that_changes_with_a_topology_is_written() -> None:
    cluster = Reasons()
    constraint = KaiTopologyConstraint(topology="t", required_topology_level="rack")
    gang = cluster.gang("g", "q", 1, ASKS, topology_constraint=constraint)
    found = cluster.after(*gang, happened.Synced())
    assert 'topologies.kai.scheduler "t" not found' in found["g-0"]
    found = cluster.after(happened.ObjectAdded(topology("zone")))
    assert 'topology t has no level "rack"' in found["g-0"]
    assert 'topology t has no level "rack"' in cluster.listed["ns/g"]
    found = cluster.after(happened.ObjectDeleted(topology("zone")))
    assert 'topologies.kai.scheduler "t" not found' in found["g-0"]
    # Numbers are no news.
    offered = {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "4"}
    node = Node(metadata=ObjectMeta(name="other"), status=NodeStatus(allocatable=offered))
    assert cluster.after(happened.NodeAdded(node)) == {}


def test_pods_of_no_sub_group_have_a_reason_of_their_own() -> None:
    cluster = Reasons()
    cluster.session(happened.ObjectAdded(group("g", "a")), happened.Synced())
    pods = [
        labelled(pod, **({"subgroup-name": name} if name else {}))
        for pod, name in zip(cluster.arriving("g", 3), ("a", "b-1", ""), strict=True)
    ]
    found = cluster.after(*map(happened.PodAdded, pods))
    text = 'Pod references subgroup "{}", which does not exist in PodGroup ns/g'
    assert found == {"g-1": text.format("b-1"), "g-2": text.format("default")}
    assert cluster.listed == {"ns/g-1": text.format("b-1"), "ns/g-2": text.format("default")}
    # It is said once, and anew where it names another one.
    assert cluster.after(happened.ObjectUpdated(group("g", "a", "c"))) == {}
    moved = labelled(pods[1], **{"subgroup-name": "b-2"})
    assert cluster.after(happened.PodUpdated(moved)) == {"g-1": text.format("b-2")}
    # With the sub-group it has a place.
    assert cluster.after(happened.ObjectUpdated(group("g", "a", "b-2"))) == {}
    assert "ns/g-1" not in cluster.listed


def test_a_group_that_the_pod_grouper_is_about_to_make_is_waited_for() -> None:
    cluster = Reasons()
    (pod,) = cluster.arriving("x", 1)
    notes = "pod-group-name"
    meta = replace(pod.metadata, annotations={notes: f"pg-{pod.name}-{pod.uid}"})
    own = replace(pod, metadata=meta)
    assert cluster.after(happened.PodAdded(own), happened.Synced()) == {}
    (wake,) = (one for one in cluster.effects if isinstance(one, Wake))
    assert wake.at <= cluster.now + 1.1e9
    # Something else happens meanwhile, and then nothing.
    cluster.now -= 500_000_000
    assert cluster.after(cluster.queue("other")) == {}
    (text,) = cluster.after().values()
    assert text.startswith("podgroups.scheduling.run.ai")
    # Another group, which a user makes, is not waited for.
    reference = OwnerReference("batch/v1", "Job", "j", "uid-of-j")
    meta = replace(
        meta, name="y", uid="y", annotations={notes: "other"}, owner_references=(reference,)
    )
    assert cluster.after(happened.PodAdded(replace(pod, metadata=meta))).keys() == {"y"}
