"""`what-if --queue` and `--delete` on queues of KAI-Scheduler and Volcano."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.forecast.what_if.questions import answer, question_of
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.insight.what_if.application import apply_changes
from stowplan.insight.what_if.requested_changes import requests_of
from stowplan.insight.what_if.result import WhatIf
from stowplan.objects.kai.kai_kinds import KaiQueueObject
from stowplan.objects.podgroup import Queue
from tests.batch.queue_models.test_kai_model import group, node, pod, queue

Tree = dict[str, Any]


def volcano_queue(name: str, **spec: Any) -> Tree:
    version = "scheduling.volcano.sh/v1beta1"
    return {
        "apiVersion": version,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, **spec},
    }


OBJECTS = [
    node("a", 8),
    queue("top", 8),
    queue("red", 2, limit=2, parent="top"),
    volcano_queue("gold", capability={"cpu": "8"}),
    group("g", "red", 4),
    *(pod(f"g-{i}", "g") for i in range(4)),
]


def read(tmp_path: Path) -> Any:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return read_cluster(path)


def asked(tmp_path: Path, *changes: tuple[str, str]) -> WhatIf:
    deciders = deciders_of([ConfigText("scheduler: kai", "kai.yaml")])
    return answer(question_of(read(tmp_path), config=deciders), requests_of(changes))


def after(tmp_path: Path, kind: type, name: str, *changes: str) -> Any:
    given = requests_of([("queue", one) for one in changes])
    objects = apply_changes(read(tmp_path), given).cluster.objects
    return next(one for one in objects if isinstance(one, kind) and one.name == name)


def test_a_gang_starts_under_a_higher_limit(tmp_path: Path) -> None:
    found = asked(tmp_path, ("queue", "red.limit.gpu=4"))
    assert found.summary["placed"] == 4
    assert found.changes[0].effect == "limit.gpu of queue red set to 4"
    assert asked(tmp_path, ("queue", "red.limit.gpu=3")).summary["placed"] == 0


def test_fields_of_kai(tmp_path: Path) -> None:
    red = after(
        tmp_path,
        KaiQueueObject,
        "red",
        *("red.quota.cpu=1500", "red.limit.memory=-1", "red.overQuotaWeight.gpu=0.5"),
        *("red.priority=200", "red.parentQueue=", "red.reclaimMinRuntime=5m"),
    )
    assert red.spec.resources.cpu.quota == 1500
    assert red.spec.resources.memory.limit == -1
    assert red.spec.resources.gpu.over_quota_weight == 0.5
    # What no change names stays.
    assert red.spec.resources.gpu.limit == 2
    assert (red.spec.priority, red.spec.parent_queue) == (200, "")
    assert red.spec.reclaim_min_runtime == "5m"


def test_fields_of_volcano_in_any_order(tmp_path: Path) -> None:
    changes = "gold.guarantee.cpu=2", "gold.deserved.cpu=4", "gold.weight=3", "gold.priority=7"
    for order in (changes, changes[::-1]):
        gold = after(tmp_path, Queue, "gold", *order)
        assert gold.spec.guarantee.resource == {"cpu": "2"}
        assert gold.spec.deserved == {"cpu": "4"}
        assert (gold.spec.weight, gold.spec.priority) == (3, 7)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("red.quota.gpu=two", "invalid quota 'two': expected a number"),
        (
            "red.quota.gpu=-2",
            "spec.resources.gpu.quota: Invalid value: -2: expected a number of at",
        ),
        ("red.quota.gpu=nan", "spec.resources.gpu.quota: Invalid value: nan: expected a number"),
        ("red.overQuotaWeight.gpu=-1", "spec.resources.gpu.overQuotaWeight: Invalid value: -1"),
        ("red.quota.tpu=1", 'unknown resource "tpu": expected one of cpu, memory, gpu'),
        ("red.priority=x", "invalid priority 'x': expected a whole number"),
        ("red.parentQueue=to", "queues \"to\" not found (did you mean 'top'?)"),
        ("red.parentQueue=red", "a queue is not its own parent"),
        ("red.preemptMinRuntime=5x", "spec.preemptMinRuntime: Invalid value"),
        ("red.weight=2", 'queue "red" is of KAI-Scheduler and has no weight: expected NAME.quota.'),
        ("gold.quota.gpu=2", 'queue "gold" is of kube-batch and Volcano and has no quota'),
        ("gold.guarantee.cpu=2", "spec.deserved.cpu: deserved[cpu] must be >= guarantee[cpu]=2"),
        ("gold.deserved.cpu=9", "spec.deserved.cpu: deserved[cpu]=9 must be <= capability[cpu]=8"),
        ("gold.reclaimable=maybe", "expected true or false"),
        ("rde.quota.gpu=1", "queues \"rde\" not found (did you mean 'red'?)"),
        ("red.quota=1", "expected NAME.weight=N"),
    ],
)
def test_a_change_that_cannot_be_is_one_clear_error(tmp_path: Path, change: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(tmp_path, ("queue", change))
    assert str(caught.value).startswith(f"--queue {change}: ")
    assert text in str(caught.value)


def test_a_queue_is_deleted_by_its_name_alone(tmp_path: Path) -> None:
    assert asked(tmp_path, ("delete", "queue/red")).changes[0].effect == "queue/red deleted"
    assert asked(tmp_path, ("delete", "podgroup/g")).changes[0].effect == "podgroup/g deleted"
    with pytest.raises(InputError) as caught:
        asked(tmp_path, ("delete", "queue/rde"))
    assert str(caught.value) == (
        "--delete queue/rde: queues \"rde\" not found (did you mean 'red'?)"
    )
