"""What the model of KAI-Scheduler says of nodes that have the amounts and do not fit a pod."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.assembly.sessions import kai_rules
from stowplan.batch.queue_models.kai import session_claims
from stowplan.plugins.devices import claim_search
from stowplan.plugins.pod_affinity.inter_pod_affinity import InterPodAffinity
from tests.batch.queue_models.test_kai_model import node, queue
from tests.cli.run import run

Tree = dict[str, Any]


def labelled(name: str, gpus: int = 0, **labels: str) -> Tree:
    made = node(name, gpus)
    made["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    made["metadata"]["labels"] |= {key.replace("_", "/"): value for key, value in labels.items()}
    if not gpus:
        for amounts in made["status"].values():
            amounts.pop("nvidia.com/gpu", None)
    return made


def pod(name: str, notes: dict[str, str] | None = None, on: str = "", **spec: Any) -> Tree:
    container: Tree = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    if "resourceClaims" in spec:
        names = [{"name": one["name"]} for one in spec["resourceClaims"]]
        container["resources"]["claims"] = names
    spec |= {"nodeName": on} if on else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kai.scheduler/queue": "red", "app": name},
            "annotations": notes or {},
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **spec},
    }


def near(app: str, kind: str) -> Tree:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def claim(name: str, of: str, **labels: str) -> Tree:
    request = {
        "name": "r",
        "exactly": {"deviceClassName": of, "allocationMode": "ExactCount", "count": 1},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"devices": {"requests": [request]}},
    }


def with_claim(name: str, **names: str) -> Tree:
    return pod(name, resourceClaims=[{"name": "a", **names}])


def device_class(name: str) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {},
    }


def reason_of(tmp_path: Path, name: str, *objects: Tree, reason: str = "Unschedulable") -> str:
    """The reason in the table of jobs."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(copy.deepcopy([queue("red", 0), *objects])))
    config = tmp_path / "kai.yaml"
    config.write_text("scheduler: kai")
    out = run("simulate", "-f", str(path), "--config", str(config)).out
    (line,) = (one for one in out.splitlines() if one.split()[1:2] == [name])
    return line.partition(f"{reason}: ")[2]


CARDS = labelled("a", 2, **{"nvidia.com_gpu.memory": "16384", "nvidia.com_gpu.count": "2"})
THERE = pod("there", on="a")
CASES: dict[str, tuple[Tree, list[Tree], str]] = {
    "memory of a card": (
        pod("x", {"gpu-memory": "16384"}),
        [CARDS],
        "1 node(s) didn't have enough GPU memory: 16384 MiB asked and a card has 16300 MiB for it",
    ),
    "memory of cards whose label is below what KAI counts": (
        pod("x", {"gpu-memory": "1"}),
        [labelled("a", 2, **{"nvidia.com_gpu.memory": "50"})],
        "1 node(s) without memory of cards in the label nvidia.com/gpu.memory",
    ),
    "cards of unknown memory": (
        pod("x", {"gpu-memory": "10"}),
        [labelled("a", 2)],
        "1 node(s) without memory of cards in the label nvidia.com/gpu.memory",
    ),
    "no cards": (
        pod("x", {"gpu-memory": "10"}),
        [labelled("a")],
        "1 Insufficient nvidia.com/gpu",
    ),
    "anti-affinity": (
        pod("x", affinity=near("there", "podAntiAffinity")),
        [CARDS, THERE],
        "1 node(s) didn't match pod anti-affinity rules",
    ),
    "anti-affinity of a pod that is there": (
        pod("x"),
        [CARDS, pod("there", on="a", affinity=near("x", "podAntiAffinity"))],
        "1 node(s) didn't satisfy existing pods anti-affinity rules",
    ),
    "affinity": (
        pod("x", affinity=near("other", "podAffinity")),
        [CARDS, THERE],
        "1 node(s) didn't match pod affinity rules",
    ),
    "no device": (
        with_claim("x", resourceClaimName="c"),
        [CARDS, device_class("d.example"), claim("c", "d.example")],
        "1 cannot allocate all claims",
    ),
    "share of cards that are divided by MIG": (
        pod("x", {"gpu-fraction": "0.5"}),
        [
            labelled(
                "a",
                2,
                **{
                    "node-role.kubernetes.io_mig-enabled": "true",
                    "nvidia.com_mig.strategy": "mixed",
                },
            )
        ],
        "1 node(s) for MIG instances only, by nvidia.com/mig.strategy mixed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_that_does_not_fit_names_the_cause(case: str, tmp_path: Path) -> None:
    asked, others, why = CASES[case]
    assert reason_of(tmp_path, "x", asked, *others) == f"0/1 nodes fit pod default/x: {why}"


def test_a_new_shared_card_takes_a_pod_of_its_own(tmp_path: Path) -> None:
    small = copy.deepcopy(CARDS)
    small["status"]["allocatable"]["pods"] = "1"
    found = reason_of(tmp_path, "x", pod("x", {"gpu-fraction": "0.5"}), small)
    assert found == "0/1 nodes fit pod default/x: 1 Insufficient pods"


CLAIMS: dict[str, tuple[Tree, list[Tree], str]] = {
    "no claim": (
        with_claim("x", resourceClaimName="gone"),
        [],
        'resourceclaims "gone" not found in namespace "default"',
    ),
    "no template": (
        with_claim("x", resourceClaimTemplateName="gone"),
        [],
        'no ResourceClaim is made yet from ResourceClaimTemplate "gone"',
    ),
    "shared GPU claim without a queue": (
        with_claim("x", resourceClaimName="c"),
        [device_class("gpu.example"), claim("c", "gpu.example")],
        'resourceclaims "c" in namespace "default": label kai.scheduler/queue is "", not "red", '
        "the queue of the pod",
    ),
    "no device class": (
        with_claim("x", resourceClaimName="c"),
        [claim("c", "d.example")],
        'resourceclaims "c" in namespace "default": deviceclasses "d.example" not found',
    ),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_claim_that_keeps_a_pod_from_all_nodes_is_named(case: str, tmp_path: Path) -> None:
    asked, others, why = CLAIMS[case]
    found = reason_of(tmp_path, "x", asked, CARDS, *others, reason="ResourceClaimNotReady")
    assert found == f"pod default/x: {why}"
    config, path = str(tmp_path / "kai.yaml"), str(tmp_path / "cluster.yaml")
    explained = run("explain", "pod/x", "-f", path, "--config", config).out
    assert "0 of 1 nodes fit this pod alone" in explained
    assert explained.splitlines()[-1].split(maxsplit=1) == ["a", why]
    replayed = run("simulate", "-f", path, "--config", config, "--replay").out
    assert f"this pod: {why}" in replayed


def test_the_words_are_those_of_the_plugins() -> None:
    plugin = InterPodAffinity
    assert plugin.NO_AFFINITY.reasons == (kai_rules.NO_AFFINITY,)
    assert plugin.REJECTED_BY_POD.reasons == (kai_rules.REJECTED_BY_POD,)
    assert plugin.REJECTED_BY_EXISTING.reasons == (kai_rules.REJECTED_BY_EXISTING,)
    assert claim_search.NOT_AVAILABLE.reasons == (session_claims.NOT_AVAILABLE,)
