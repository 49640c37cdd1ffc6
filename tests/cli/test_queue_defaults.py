"""`stowplan queues --compat NAME` without a configuration: the default one of that scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.batch.queue_models import test_kai_model as kai
from tests.batch.queue_models import test_volcano_model as volcano
from tests.cli.run import run

CLUSTERS: dict[str, tuple[Any, ...]] = {
    "kai": (
        kai.node("n", 4),
        kai.queue("top", 4),
        kai.queue("leaf", 2, parent="top"),
        kai.group("g", "leaf", 1),
        kai.pod("p", of="g", node="n"),
    ),
    "volcano-1.15": (
        volcano.node("n"),
        volcano.queue("leaf"),
        volcano.group("g", 1, "leaf", 1),
        volcano.pod("p", of="g", node="n"),
    ),
}


@pytest.mark.parametrize("compat", CLUSTERS)
def test_queues_of_another_scheduler_by_its_default(tmp_path: Path, compat: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(CLUSTERS[compat]))
    found = run("queues", "--compat", compat, str(file), "-o", "json")
    assert found.code == 0, found.err
    queues = {one["name"]: one for one in json.loads(found.out)["queues"]}
    # KAI knows no default queue, Volcano makes two.
    assert (
        queues.keys()
        == {"kai": {"top", "leaf"}, "volcano-1.15": {"leaf", "root", "default"}}[compat]
    )
    assert queues["leaf"]["allocated"]["cpu"] == 1.0


def test_queues_of_kueue_need_no_configuration(tmp_path: Path) -> None:
    version = "kueue.x-k8s.io/v1beta2"
    quota = {"name": "cpu", "nominalQuota": 4}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    queue = {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "cq"}}
    flavor = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "f"}}
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([{**queue, "spec": spec}, flavor, volcano.node("n")]))
    found = run("queues", "--compat", "kueue", str(file), "-o", "name")
    assert (found.code, "cq" in found.out) == (0, True), found.err


def test_what_if_has_the_gate_of_a_queue(tmp_path: Path) -> None:
    cluster, job = tmp_path / "cluster.yaml", tmp_path / "job.yaml"
    small = volcano.queue("q", capability={"cpu": "1"})
    cluster.write_text(yaml.safe_dump_all([volcano.node("n"), small]))
    job.write_text(
        yaml.safe_dump_all([volcano.group("g", 2, "q", 2), volcano.pod("p", of="g"),
                            volcano.pod("r", of="g")])
    )  # fmt: skip
    config = tmp_path / "volcano.conf"
    config.write_text(volcano.WITHOUT_OVERCOMMIT)
    found = run("what-if", "-f", str(cluster), "--config", str(config), "--submit", str(job))
    assert "not inqueue: queue q's capability cpu 1, 0 in use, 2 asked" in found.out, found


def test_why_a_pod_of_kai_with_parts_of_no_card_fits_nowhere(tmp_path: Path) -> None:
    """Where KAI's webhook did not look at it: in files that is a mistake."""
    pod = kai.pod("p", of="g")
    pod["metadata"]["annotations"] |= {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}
    objects = [kai.node("n", 4), kai.queue("leaf", 2), kai.group("g", "leaf", 1), pod]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    arguments = (str(file), "--compat", "kai")
    refused = run("queues", *arguments)
    assert (refused.code, refused.err.count("gpu-fraction-num-devices")) == (2, 1)
    config = tmp_path / "kai.yaml"
    config.write_text("scheduler: kai\n")
    asked = ("-f", str(file), "--config", str(config), "--validate", "ignore")
    found = run("explain", "pod/p", *asked).out
    reason = "node(s) cannot give parts of 0 cards, as the annotation gpu-fraction-num-devices asks"
    assert f"0/1 nodes fit pod default/p: 1 {reason}" in found
    assert f"n     {reason}" in found
