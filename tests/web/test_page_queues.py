"""Queues and gangs of the page: the amounts of `stowplan queues`, and why a pod of a gang waits."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from stowplan.examples.demo_cluster import demo_deciders
from stowplan.examples.demo_manifests import BATCH
from stowplan.forecast.queue_shares import shares_of
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.simulation.session_runner import SessionRunner
from stowplan.testing.builders import node, pod
from stowplan.web.serving.cluster_questions import ClusterQuestions, ObjectsAtOnce
from stowplan.web.serving.page_source import BadRequest, NotFound


def member(name: str, group: str, on: str = "") -> Pod:
    made = pod(name, uid=name, cpu="2", on=on, scheduler=BATCH, created_at=5)
    notes = {GROUP_ANNOTATIONS[0]: group}
    phase = replace(made.status, phase="Running" if on else "Pending")
    return replace(made, metadata=replace(made.metadata, annotations=notes), status=phase)


def group(name: str, queue: str, size: int) -> PodGroup:
    spec = PodGroupSpec(min_member=size, queue=queue)
    return PodGroup(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=spec)


def queue(name: str, weight: int) -> Queue:
    return Queue(metadata=ObjectMeta(name=name, uid=name), spec=QueueSpec(weight=weight))


def objects() -> ObjectsAtOnce:
    """Two nodes of four cores; `one` has borrowed all of them, `two` waits."""
    nodes = [node("n0"), node("n1")]
    running = [member(f"a{place}", "a", on=f"n{place % 2}") for place in range(4)]
    waiting = [member(f"b{place}", "b") for place in range(3)]
    others = [queue("one", 1), queue("two", 3), group("a", "one", 4), group("b", "two", 3)]
    return ObjectsAtOnce(nodes, [*running, *waiting], list(others))


def test_queues_are_those_of_the_command() -> None:
    at_once, deciders = objects(), demo_deciders()
    questions = ClusterQuestions(deciders)
    tree = asyncio.run(questions.queues(at_once, 5000.0))
    (found,) = tree["schedulers"]
    expected = msgspec.to_builtins(shares_of(SessionRunner(at_once.cluster(), deciders)))
    assert found["total"] == expected["total"]
    assert found["loans"] == expected["loans"]
    for mine, other in zip(found["queues"], expected["queues"], strict=True):
        assert other.items() <= mine.items()
    by_name = {one["name"]: one for one in found["queues"]}
    assert by_name["one"]["allocated"]["cpu"] == 8
    # Its part is a quarter of eight cores.
    assert by_name["one"]["borrowed"]["cpu"] == 6
    assert by_name["two"]["lent"]["cpu"] == 6
    counts = {one["gang"]: (one["running"], one["pending"]) for one in tree["gangs"]}
    assert counts == {"default/a": (4, 0), "default/b": (0, 3)}
    series = questions.history.tree(0)["series"]
    fields = {(one["queue"], one["resource"], one["field"]): one["values"] for one in series}
    assert fields["one", "cpu", "allocated"] == [8]


def test_why_a_pod_of_a_gang_waits() -> None:
    questions = ClusterQuestions(demo_deciders())
    tree = asyncio.run(questions.why("default/b0", objects()))
    assert (tree["state"], tree["queue"]) == ("pending", "two")
    assert tree["gang"] == {
        "gang": "default/b",
        "queue": "two",
        "phase": "",
        "min": 3,
        "running": 0,
        "pending": 3,
        "missing": 0,
    }
    assert tree["nodes"] == 2 or tree["wouldGoTo"]


def test_what_is_not_there_is_not_found() -> None:
    questions = ClusterQuestions(demo_deciders())
    with pytest.raises(NotFound, match='pods "nope" not found in namespace "default"'):
        asyncio.run(questions.why("default/nope", objects()))
    with pytest.raises(BadRequest, match="not possible here"):
        asyncio.run(questions.what_if({"changes": [{"config": "/etc/passwd"}]}, objects()))


def test_a_changed_weight_is_answered_by_queue() -> None:
    questions = ClusterQuestions(demo_deciders())
    tree = asyncio.run(questions.what_if({"changes": [{"queue": "two.weight=1"}]}, objects()))
    assert tree["changes"]
