"""Pods of one gang of KAI's model heed what those before them have just got."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import Bind
from stowplan.messages.events import Event
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import LabelSelector

WITHOUT_CARDS = {"cpu": "24", "memory": "128Gi", "pods": "110"}


class TwoPods(KaiBenchmark):
    """A gang of two pods of which the first one is special. nodes: by pod, after a session."""

    def __init__(self, n_gpus: int, *nodes: Node) -> None:
        super().__init__(2 - len(nodes), n_gpus)
        self.show([happened.NodeAdded(node) for node in nodes])
        self.show([self.queue("q")])

    def nodes(self, first: Pod) -> dict[str, str]:
        self.pods[first.name] = first
        self.session(*self._events(first), happened.Synced())
        return {effect.name: effect.node for effect in self.effects if isinstance(effect, Bind)}

    def first(self) -> Pod:
        self._events_of_gang = [*self.gang("g", "q", 2, ("1", "1Gi"))]
        return self.pods["g-0"]

    def _events(self, first: Pod) -> Iterator[Event]:
        for event in self._events_of_gang:
            is_first = isinstance(event, happened.PodAdded) and event.pod.name == first.name
            yield happened.PodAdded(first) if is_first else event


def test_a_plain_pod_keeps_away_from_one_of_its_gang_that_wants_no_other_there() -> None:
    cluster = TwoPods(0)
    first = cluster.first()
    term = PodAffinityTerm(LabelSelector({"job": "g"}), topology_key="kubernetes.io/hostname")
    apart = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    nodes = cluster.nodes(replace(first, spec=replace(first.spec, affinity=apart)))
    assert sorted(nodes.values()) == ["n00000", "n00001"]


def test_a_plain_pod_prefers_the_node_where_one_of_its_gang_has_opened_a_card() -> None:
    # Without a shared card it would go where no cards are.
    status = NodeStatus(allocatable=WITHOUT_CARDS, capacity=WITHOUT_CARDS)
    cluster = TwoPods(4, Node(metadata=ObjectMeta(name="plain"), status=status))
    first = cluster.first()
    notes = {**first.metadata.annotations, "gpu-fraction": "0.5"}
    nodes = cluster.nodes(replace(first, metadata=replace(first.metadata, annotations=notes)))
    assert nodes == {"g-0": "n00000", "g-1": "n00000"}
