"""Nodes as columns: where a request fits is kept, and follows what changes on nodes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from stowplan.batch.queue_models.kai.kai_objects import task_of
from stowplan.batch.queue_models.kai.session_claims import SessionClaims
from stowplan.batch.queue_models.kai.state import node_rows
from stowplan.batch.queue_models.kai.state.kai_amount import ResourceIndex
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask
from stowplan.batch.queue_models.kai.state.node_rows import NodeRows
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from tests.soak import examples, seeds

NO_CLAIMS = SessionClaims((), (), lambda *_: None)
INDEX = ResourceIndex(())
OFFER = {"cpu": "4", "memory": "4Gi", "pods": "4", "nvidia.com/gpu": "2"}


def task(name: str, cpu: str, cards: str, node: str = "") -> KaiTask:
    asked = {"cpu": cpu} | ({"nvidia.com/gpu": cards} if cards != "0" else {})
    container = Container(name="c", resources=ResourceRequirements(requests=asked, limits=asked))
    pod = Pod(
        metadata=ObjectMeta(name=name, uid=name, namespace="ns"),
        spec=PodSpec(containers=(container,), node_name=node),
        status=PodStatus(phase="Running" if node else "Pending"),
    )
    return task_of(pod, 0.0, INDEX, NO_CLAIMS)


def check(seeds_: Iterable[int]) -> None:
    for seed in seeds_:
        rng = random.Random(seed)
        nodes = [
            KaiNode(
                Node(metadata=ObjectMeta(name=f"n{i}"), status=NodeStatus(allocatable=OFFER)), INDEX
            )
            for i in range(5)
        ]
        rows = NodeRows(nodes)
        asked = [
            task(f"a{i}", cpu, cards)
            for i, (cpu, cards) in enumerate((("1", "0"), ("2", "1"), ("1", "2")))
        ]
        on: list[KaiTask] = []
        for number in range(30):
            node = rng.choice(nodes)
            if on and rng.random() < 0.4:
                gone = on.pop(rng.randrange(len(on)))
                nodes[int(gone.node[1:])].remove(gone)
            elif on and rng.random() < 0.3:
                left = rng.choice(on)
                left.status = int(KaiStatus.RELEASING)
                nodes[int(left.node[1:])].update(left)
            else:
                new = task(f"t{number}", rng.choice("12"), rng.choice("012"), node.name)
                node.add(new)
                on.append(new)
            one = rng.choice(asked)
            for later in (False, True):
                mask = rows.fits(one, later)
                fits = [n.fits_later(one) if later else n.fits_idle(one) for n in nodes]
                assert mask.tolist() == fits, (seed, number, later)
                # It is the caller's.
                mask[:] = False


def test_where_a_request_fits_follows_what_changes() -> None:
    check(range(examples(50)))


def test_it_does_so_where_all_is_forgotten_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_rows, "READ_MAX", -15)
    monkeypatch.setattr(node_rows, "FITS_MAX", 2)
    check(range(examples(20)))


def test_masks_that_miss_changes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = NodeRows.refresh

    def forgetful(self: NodeRows) -> None:
        original(self)
        self._read.clear()

    monkeypatch.setattr(NodeRows, "refresh", forgetful)
    with pytest.raises(AssertionError):
        check(seeds(50))
