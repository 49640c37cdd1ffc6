"""`stowplan import volcano`: a dump of a cluster that Volcano schedules, simulated by the
configuration that stands in it, and what is said to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.inputs.importers.volcano_cluster import volcano_cluster_of
from tests.batch.queue_models.test_volcano_model import CAPACITY, group, node, pod, queue
from tests.cli.run import check_one_line, run

Tree = dict[str, Any]

WITH_TOPOLOGY = CAPACITY + "- plugins: [{name: task-topology}]\n"


def config_map(text: str, namespace: str = "volcano-system") -> Tree:
    meta = {"name": "volcano-scheduler-configmap", "namespace": namespace}
    data = {"volcano-scheduler.conf": text}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def scheduler_pod(*flags: str) -> Tree:
    words = ["--logtostderr", "--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf", *flags]
    container = {"name": "scheduler", "image": "volcanosh/vc-scheduler:v1.15", "args": words}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "volcano-scheduler-5d9", "namespace": "volcano-system", "uid": "s"},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {"phase": "Running"},
    }


def vcjob(name: str, n_pods: int, queue_name: str, **meta: Any) -> Tree:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    task = {"name": "w", "replicas": n_pods, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}", **meta},
        "spec": {"queue": queue_name, "minAvailable": n_pods, "tasks": [task]},
    }


def dump() -> list[Tree]:
    """A job that runs, one whose pods do not exist yet, and one that its queue has no room for."""
    running = {**group("running-u-running", 2, "research", 2), "status": {"phase": "Running"}}
    owner = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "name": "running"}
    running["metadata"]["ownerReferences"] = [{**owner, "uid": "u-running", "controller": True}]
    pods = [pod(f"running-w-{i}", of="running-u-running", node="n") for i in range(2)]
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
    hyper_node = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode"}
    member = {"type": "Node", "selector": {"exactMatch": {"name": "n"}}}
    return [
        node("n"),
        {**hyper_node, "metadata": {"name": "s0"}, "spec": {"tier": 1, "members": [member]}},
        config_map(WITH_TOPOLOGY),
        scheduler_pod("--schedule-period=2s", "--node-selector=volcano.sh/role:train"),
        queue("research", capability={"cpu": "4"}),
        running,
        *pods,
        vcjob("running", 2, "research"),
        vcjob("new", 2, "research"),
        vcjob("large", 3, "research"),
        {**command, "metadata": {"name": "abort"}},
    ]


def written(tmp_path: Path, *trees: Tree) -> str:
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(trees)}))
    return str(file)


def test_a_dump_is_simulated_by_its_own_configuration(tmp_path: Path) -> None:
    found = run("import", "volcano", written(tmp_path, *dump()))
    assert found.code == 0, found.err
    first, second, *notes = found.err.splitlines()
    assert first == "Imported: 1 Node, 3 Pods, 1 PodGroup, 1 Queue, 3 Jobs, 1 HyperNode"
    source = "ConfigMap volcano-system/volcano-scheduler-configmap: volcano-scheduler.conf"
    assert second == f"Configuration: {source}"
    stated = "\n".join(notes)
    assert "--node-selector=volcano.sh/role:train of the scheduler (all nodes count)" in stated
    assert "1 Command.bus.volcano.sh (what vcctl asks for)" in stated
    assert "task-topology" in stated
    # The pods of `new` did not exist, those of `running` are not created once more.
    assert "2 of 5 pods placed" in found.out, found.out
    assert "not inqueue: queue research's capability cpu 4, 4 in use, 3 asked" in found.out


def test_what_is_imported_can_be_kept(tmp_path: Path) -> None:
    file, kept = written(tmp_path, *dump()), tmp_path / "kept"
    assert run("import", "volcano", file, "--save", str(kept), "-o", "name").code == 0
    items = json.loads((kept / "cluster.json").read_text())["items"]
    assert "ConfigMap" not in {one["kind"] for one in items}
    text = (kept / "volcano-scheduler.conf").read_text()
    assert yaml.safe_load(text)["batch"] == {"schedulePeriod": "2s"}
    again = run(
        "simulate", "-f", str(kept / "cluster.json"), "--config",
        str(kept / "volcano-scheduler.conf"), "-o", "json",
    )  # fmt: skip
    assert json.loads(again.out)["placed"] == 2, again.err


def test_the_configuration_beside_the_scheduler_is_used() -> None:
    other = CAPACITY.replace("capacity", "proportion")
    trees = [config_map(other, "else"), config_map(CAPACITY), scheduler_pod()]
    found = volcano_cluster_of(trees)
    assert "name: capacity" in found.configuration
    (note,) = found.notes
    assert note.startswith("not used: ConfigMap else/")


def test_without_a_configuration_volcano_s_default_holds(tmp_path: Path) -> None:
    found = run("import", "volcano", written(tmp_path, node("n"), queue("q")), "-o", "json")
    assert found.code == 0
    assert "no ConfigMap with a volcano-scheduler.conf" in found.err


def test_mistakes_of_the_configuration_name_the_config_map(tmp_path: Path) -> None:
    wrong = config_map(CAPACITY.replace("capacity", "capacityy"))
    found = run("import", "volcano", written(tmp_path, node("n"), wrong))
    check_one_line(found, "ConfigMap volcano-system/volcano-scheduler-configmap", "'capacityy'")


@pytest.mark.parametrize("words", [["--scheduler-name", "vc"], ["--scheduler-name=vc"]])
def test_flags_of_the_scheduler_count(words: list[str]) -> None:
    found = volcano_cluster_of([scheduler_pod(*words, "--default-queue=q")])
    batch = yaml.safe_load(found.configuration)["batch"]
    assert batch == {"schedulerNames": ["vc"], "defaultQueue": "q"}
