"""Pods of KAI's model on nodes that are gone: none of them is a victim, and sessions go on."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.benchmarks.sessions import session_benchmarks
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import Evict
from stowplan.objects.devices.device import DeviceClass
from stowplan.objects.kai.kai_kinds import KaiQueueResource, KaiQueueResources
from stowplan.objects.meta import ObjectMeta

CARD, TWO_CARDS = ("1", "1Gi", "1"), ("1", "1Gi", "2")
FREE, ONE = KaiQueueResource(-1.0, -1.0, 1.0), KaiQueueResource(1.0, -1.0, 1.0)
QUOTA = KaiQueueResources(FREE, FREE, ONE)
WITH_DEVICES = happened.ObjectAdded(DeviceClass(metadata=ObjectMeta(name="gpu", uid="gpu")))
"""With an object of devices everything is read anew for each session."""


class TwoNodes(KaiBenchmark):
    """Nodes of 4 cards with 4 pods each, of a group each in queue b; a pod of queue a, or of a
    higher class in b, asks for 2 cards. gone: how many nodes are deleted before the session."""

    def __init__(self, gone: int, more: list[happened.Event], **waiting: Any) -> None:
        super().__init__(2, 4)
        self.show([self.queue(name, resources=QUOTA) for name in ("a", "b")])
        self.show(more)
        for number in range(8):
            self.show(list(self.gang(f"b{number}", "b", 1, CARD, [number // 4])))
        self.show(list(self.gang("waits", waiting.pop("queue", "a"), 1, TWO_CARDS, **waiting)))
        nodes = [session_benchmarks._node(number, 4) for number in range(2)]
        self.show([happened.NodeDeleted(node) for node in nodes[2 - gone :]])
        self.session(happened.Synced())
        self.evicted = {one.name for one in self.effects if isinstance(one, Evict)}


@pytest.mark.parametrize("more", [[], [WITH_DEVICES]])
@pytest.mark.parametrize(
    "waiting", [{}, {"queue": "b", "priority_class_name": "build-preemptible"}]
)
def test_victims_are_found_on_the_nodes_that_are_left(more: Any, waiting: Any) -> None:
    assert TwoNodes(0, more, **waiting).evicted == {"b6-0", "b7-0"}
    assert TwoNodes(1, more, **waiting).evicted == {"b2-0", "b3-0"}
    assert TwoNodes(2, more, **waiting).evicted == set()


@pytest.mark.parametrize("more", [[], [WITH_DEVICES]])
def test_pods_of_a_stale_gang_are_evicted_wherever_they_are(more: Any) -> None:
    cluster = KaiBenchmark(2, 4)
    cluster.show([cluster.queue("b", resources=QUOTA), *more])
    stale = cluster.gang("stale", "b", 2, CARD, [0, 1], min_member=3, staleness_grace_period="0s")
    cluster.show(list(stale))
    cluster.show([happened.NodeDeleted(session_benchmarks._node(1, 4))])
    cluster.session(happened.Synced())
    assert {one.name for one in cluster.effects if isinstance(one, Evict)} == {"stale-0", "stale-1"}
