"""`status.allocated` of Volcano's queues, as sessions write it: what placed pods request, in the
queue and in those above it."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.batch.queue_models.volcano.model.queue_statuses import QueueStatuses
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.scheduler import SchedulerOptions
from tests.batch.queue_models.test_volcano_model import WITHOUT_OVERCOMMIT, group, node, pod, queue

SECOND = 1_000_000_000
BOTH = {"cpu": "2", "memory": "0", "pods": "2"}
NONE = {"cpu": "0", "memory": "0"}


class Sessions:
    """A scheduler with Volcano's sessions, and the queues as an API server keeps them."""

    def __init__(self, *queues: Queue) -> None:
        # A full cluster leaves `overcommit` no room for a job that would reclaim.
        deciders = deciders_of([ConfigText(WITHOUT_OVERCOMMIT, "volcano-scheduler.conf")])
        options = SchedulerOptions(synced=True, leads=True)
        self.scheduler = deciders.scheduler(options=options, engine="walk")
        self.now = 0
        self.refuses = False
        self.queues = {
            one.name: {name: str(n) for name, n in one.status.allocated.items()} for one in queues
        }
        self.written: list[str] = []
        self.handle([happened.ObjectAdded(one) for one in queues])

    def handle(self, events: list[Any]) -> list[Any]:
        """Handle events and what follows from them, for three seconds."""
        seen: list[Any] = []
        for _ in range(6):
            self.now += SECOND // 2
            effects = self.scheduler.handle(events, self.now, 100)
            seen += effects
            events = [answer for one in effects for answer in self.answers(one)]
        return seen

    def answers(self, effect: Any) -> list[Any]:
        if isinstance(effect, to_do.Bind):
            return [happened.BindDone(effect.effect, effect.uid)]
        if isinstance(effect, to_do.PatchQueue):
            if self.refuses:
                return [happened.PatchFailed(effect.effect, effect.uid, 503)]
            self.written.append(effect.name)
            known = self.queues[effect.name]
            for name, text in effect.allocated.items():
                known.pop(name, None)
                if text is not None:
                    known[name] = text
        return []


def tree_of_queues() -> list[Queue]:
    trees = [queue("root"), queue("upper", parent="root"), queue("leaf", parent="upper")]
    return [made(tree, Queue) for tree in trees]


def made(tree: dict[str, Any], kind: Any) -> Any:
    namespace = {} if kind in (Queue, Node) else {"namespace": "default"}
    name = tree["metadata"]["name"]
    return convert(
        {**tree, "metadata": {**tree["metadata"], **namespace, "uid": f"u-{name}"}}, kind
    )


def arrivals() -> list[Any]:
    pods = [made(pod(f"p{i}", of="job"), Pod) for i in range(2)]
    return [
        happened.NodeAdded(made(node("n"), Node)),
        happened.ObjectAdded(made(group("job", 2, "leaf", 2), PodGroup)),
        *map(happened.PodAdded, pods),
    ]


def test_a_queue_and_those_above_it_have_what_their_pods_request() -> None:
    sessions = Sessions(*tree_of_queues())
    sessions.handle(arrivals())
    assert sessions.queues == {"root": BOTH, "upper": BOTH, "leaf": BOTH}
    # Nothing that has not changed is written again.
    sessions.written.clear()
    sessions.handle([happened.NodeAdded(made(node("other"), Node))])
    assert sessions.written == []


def test_a_sum_that_could_not_be_written_is_written_by_the_next_session() -> None:
    sessions = Sessions(*tree_of_queues())
    sessions.refuses = True
    sessions.handle(arrivals())
    sessions.refuses = False
    assert sessions.queues == {"root": NONE, "upper": NONE, "leaf": NONE}
    sessions.handle([happened.NodeAdded(made(node("other"), Node))])
    assert sessions.queues["leaf"] == sessions.queues["root"] == BOTH


def test_a_resource_that_nothing_uses_any_more_is_removed() -> None:
    stated = {"cpu": "3", "memory": "0", "pods": "1", "nvidia.com/gpu": "1"}
    stale = {**queue("leaf"), "status": {"state": "Open", "allocated": stated}}
    sessions = Sessions(made(stale, Queue))
    assert sessions.queues["leaf"] == NONE


def test_sums_without_the_queues_above_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    of_leaves = QueueStatuses._with_ancestors

    def without(self: QueueStatuses, session: Any) -> Any:
        return {name: n for name, n in of_leaves(self, session).items() if name == "leaf"}

    monkeypatch.setattr(QueueStatuses, "_with_ancestors", without)
    sessions = Sessions(*tree_of_queues())
    sessions.handle(arrivals())
    assert sessions.queues["root"] != BOTH


def test_the_status_has_the_gate_of_a_queue_until_it_opens() -> None:
    sessions = Sessions(made(queue("leaf", capability={"cpu": "1"}), Queue))
    sessions.handle(arrivals())
    (lane,) = sessions.scheduler.lanes.batch
    assert isinstance(lane.decider, ModelDecider)
    gate = "not inqueue: queue leaf's capability cpu 1, 0 in use, 2 asked"
    assert lane.decider.waiting_reasons == {"default/job": gate}
    sessions.handle([happened.ObjectUpdated(made(queue("leaf", capability={"cpu": "4"}), Queue))])
    assert lane.decider.waiting_reasons == {}


def test_a_victim_has_the_tier_and_the_plugins_that_chose_it() -> None:
    amounts = {"deserved": {"cpu": "4"}, "reclaimable": True}
    sessions = Sessions(*(made(queue(name, **amounts), Queue) for name in ("rich", "leaf")))
    old = {**group("old", 1, "rich", 1), "status": {"phase": "Running"}}
    running = [made(pod(f"old-{i}", of="old", node="n"), Pod) for i in range(8)]
    effects = sessions.handle(
        [
            happened.ObjectAdded(made(old, PodGroup)),
            *map(happened.PodAdded, running),
            *arrivals(),
        ]
    )
    texts = {one.message for one in effects if isinstance(one, to_do.Evict)}
    assert texts == {"volcano: reclaim for default/job (tier 1: gang, conformance; capacity)"}
