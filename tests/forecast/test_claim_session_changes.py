"""Changes of claims and of devices after which a session starts a job that waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.forecast.explain_job import JobExplanation, explain_pod_group
from tests.batch.queue_models.test_kai_model import deciders, group, node, pod, queue
from tests.insight.claim_manifests import CLASS, RESOURCE_API, card, request, slices

Tree = dict[str, Any]


def claim(name: str, count: int, of: str = "red", asked: str = "gpu") -> Tree:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": of}},
        "spec": {"devices": {"requests": [request(count=count, deviceClassName=asked)]}},
    }


def template(name: str, count: int) -> Tree:
    spec = {"devices": {"requests": [request(count=count)]}}
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }


def member(name: str, **use: str) -> Tree:
    tree = pod(name, "g", gpus=0)
    tree["spec"]["resourceClaims"] = [{"name": "cards", **use}]
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "cards"}]
    return tree


def explained(tmp_path: Path, *objects: Tree, cards: int = 1) -> JobExplanation:
    path = tmp_path / "cluster.yaml"
    own = slices("a", *(card(f"c{i}") for i in range(cards)))
    queues = queue("top", -1), queue("red", -1, parent="top")
    path.write_text(yaml.safe_dump_all([node("a", 0), CLASS, *own, *queues, *objects]))
    return explain_pod_group("default/g", path, config=deciders())


def texts(found: JobExplanation) -> list[str]:
    assert found.changes is not None
    return [change.text for change in found.changes]


def test_a_claim_for_too_many_devices_is_lowered_or_a_device_is_added(tmp_path: Path) -> None:
    one = member("p", resourceClaimName="two")
    found = explained(tmp_path, claim("two", 2), group("g", "red", 1), one)
    assert texts(found)[:2] == [
        "lower the count of request r of claim two from 2 to 1",
        "add one device like c0 to node a",
    ]
    (lowered, *_) = found.changes or ()
    assert [(one.kind, one.name) for one in lowered.objects] == [("ResourceClaim", "two")]


def test_claims_of_a_template_are_lowered_for_all_pods(tmp_path: Path) -> None:
    pods = [member(f"p{i}", resourceClaimTemplateName="t") for i in range(2)]
    found = explained(tmp_path, template("t", 2), group("g", "red", 2), *pods, cards=2)
    assert texts(found) == [
        "lower the count of request r of the claims of ResourceClaimTemplate t from 2 to 1"
    ]
    (lowered,) = found.changes or ()
    assert [(one.kind, one.name) for one in lowered.objects] == [
        ("ResourceClaim", "p0-cards"),
        ("ResourceClaimTemplate", "t"),
        ("ResourceClaim", "p1-cards"),
    ]


def test_a_shared_claim_is_changed_once(tmp_path: Path) -> None:
    pods = [member(f"p{i}", resourceClaimName="two") for i in range(2)]
    found = explained(tmp_path, claim("two", 2), group("g", "red", 2), *pods)
    for change in found.changes or ():
        names = [(one.kind, one.name) for one in change.objects]
        assert names.count(("ResourceClaim", "two")) <= 1


@pytest.mark.parametrize(
    ("use", "objects", "want"),
    [
        (
            {"resourceClaimName": "nope"},
            [],
            'pod default/p: resourceclaims "nope" not found in namespace "default"',
        ),
        (
            {"resourceClaimTemplateName": "nope"},
            [],
            'pod default/p: no ResourceClaim is made yet from ResourceClaimTemplate "nope"',
        ),
        (
            {"resourceClaimName": "c"},
            [claim("c", 1, asked="no")],
            'pod default/p: resourceclaims "c" in namespace "default": '
            'deviceclasses "no" not found',
        ),
    ],
)
def test_a_claim_that_keeps_a_pod_from_all_nodes_is_the_reason(
    tmp_path: Path, use: dict[str, str], objects: list[Tree], want: str
) -> None:
    found = explained(tmp_path, *objects, group("g", "red", 1), member("p", **use))
    assert found.job is not None
    assert found.job.message == want


def test_a_claim_for_gpus_names_the_queue_of_the_pod(tmp_path: Path) -> None:
    gpus = {**CLASS, "metadata": {"name": "gpu.nvidia.com"}}
    other = claim("c", 1, of="blue", asked="gpu.nvidia.com")
    one = member("p", resourceClaimName="c")
    found = explained(tmp_path, gpus, other, group("g", "red", 1), one)
    label = 'label kai.scheduler/queue is "blue", not "red", the queue of the pod'
    assert found.job is not None
    assert found.job.message == f'pod default/p: resourceclaims "c" in namespace "default": {label}'
