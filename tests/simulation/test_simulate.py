"""simulate(): placements, failures, and reproducible files."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import stowplan
from stowplan.assembly import configuration_of
from stowplan.config import Configuration
from stowplan.forecast.capacity import capacity
from stowplan.forecast.explain import explain
from stowplan.framework import OK, CycleState, PermitWait, Status, unschedulable
from stowplan.framework.problems import ConfigError, ContractError
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.results.summary import ORDER_NOTE, VOLUMES_NOTE
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders
from tests.simulation import openb_trace as trace


def small(
    *pods: Pod, cpu: str = "4", n_nodes: int = 2, objects: tuple[Object, ...] = ()
) -> Cluster:
    nodes = [builders.node(f"n{index}", cpu=cpu) for index in range(n_nodes)]
    return Cluster(nodes=nodes, pods=list(pods), objects=list(objects))


def pods(n_pods: int, cpu: str = "1") -> list[Pod]:
    return [builders.pod(f"p{index}", cpu=cpu) for index in range(n_pods)]


def outcome(result: Simulation) -> list[str]:
    return [placement.node or placement.reason for placement in result.placements]


def files(result: Simulation, folder: Path) -> dict[str, bytes]:
    result.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Placements.


def test_placed_pods_count_for_the_next() -> None:
    result = simulate(small(*pods(9)))
    assert Counter(outcome(result)) == {"n0": 4, "n1": 4, "Insufficient cpu": 1}
    assert result.placements[-1].pod == "default/p8"
    assert result.placements[-1].message.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_bound_pods_count_and_finished_ones_do_not() -> None:
    there = builders.pod("there", cpu="4", on="n0")
    done = builders.pod("done", cpu="4", on="n1")
    done = convert({**_tree(done), "status": {"phase": "Succeeded"}}, Pod)
    result = simulate(small(there, done, *pods(1, "3")))
    assert outcome(result) == ["n1"]
    assert (result.summary["bound"], result.summary["pods"]) == (1, 1)


def _tree(pod: Pod) -> dict[str, Any]:
    meta = {"name": pod.name, "namespace": pod.namespace}
    return {"metadata": meta, "spec": {"nodeName": pod.node_name}}


def test_pods_come_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(f"{trace.NODE_HEADER}\nn1,4000,99999,0,\n")
    lines = ["late,3000,1,0,0,,,,9,,", "early,3000,1,0,0,,,,1,,"]
    (tmp_path / "pods.csv").write_text("\n".join([trace.POD_HEADER, *lines]))
    result = simulate(tmp_path)
    assert [(p.pod, p.node) for p in result.placements] == [
        ("default/early", "n1"),
        ("default/late", ""),
    ]


def test_the_cluster_is_left_as_it_was() -> None:
    cluster = small(*pods(3))
    assert outcome(simulate(cluster)) == outcome(simulate(cluster))
    assert cluster.bound() == []


def test_no_node_takes_more_than_it_has() -> None:
    cluster = generate_workload(60, 600)
    result = simulate(cluster)
    taken: dict[str, Counter[str]] = {node.name: Counter() for node in cluster.nodes}
    by_key = {pod.key: pod for pod in cluster.pods}
    for placement in result.placements:
        if placement.node:
            taken[placement.node].update(requested(by_key[placement.pod]))
    table = cluster.table()
    for row, name in enumerate(table.names):
        for resource, amount in taken[name].items():
            assert amount <= table.allocatable(resource)[row], (name, resource)
    assert result.summary["placed"] == sum(1 for p in result.placements if p.node) > 300


# Failures.


def test_a_gated_pod_is_not_tried() -> None:
    gated = convert(
        {**_tree(builders.pod("p")), "spec": {"schedulingGates": [{"name": "wait"}]}}, Pod
    )
    assert outcome(simulate(small(gated))) == ["waiting for scheduling gates: [wait]"]


def test_an_unknown_scheduler_name() -> None:
    cluster = small(builders.pod("p", scheduler="other"), n_nodes=1)
    assert outcome(simulate(cluster)) == ["no profile has schedulerName 'other'"]
    assert outcome(simulate(cluster, profile="default-scheduler")) == ["n0"]


def test_reasons_are_counted_the_commonest_first() -> None:
    picky = [builders.pod(f"q{i}", node_selector={"disk": "ssd"}) for i in range(2)]
    result = simulate(small(*pods(3, "9"), *picky))
    assert list(result.summary["failed"].items()) == [
        ("Insufficient cpu", 3),
        ("node(s) didn't match Pod's node affinity/selector", 2),
    ]


def test_reasons_of_different_nodes_are_joined() -> None:
    cluster = small(builders.pod("p", cpu="2", tolerations=["a"]), cpu="1")
    cluster.nodes.append(builders.node("n9", taints=["b=c:NoSchedule"]))
    result = simulate(cluster)
    assert outcome(result) == ["Insufficient cpu; node(s) had untolerated taint(s)"]
    assert "1 node(s) had untolerated taint(s), 2 Insufficient cpu" in result.placements[0].message


def test_the_summary() -> None:
    cluster = small(*pods(3))
    cluster.ignored = {"Secret": 2}
    summary = simulate(cluster, seed=7).summary
    assert summary["seed"] == 7
    assert summary["versions"]["stowplan"] == stowplan.__version__
    assert set(summary["versions"]) == {"stowplan", "python", "numpy"}
    assert len(summary["configuration"]) == 64
    assert (summary["nodes"], summary["pods"], summary["placed"]) == (2, 3, 3)
    assert summary["failed"] == {}
    assert summary["ignored"] == {"Secret": 2}
    cpu = {"requested": 3000, "allocatable": 8000, "share": 0.375}
    assert summary["utilisation"]["cpu"] == cpu
    assert summary["utilisation"]["pods"]["requested"] == 3
    assert summary["pods_per_s"] > 0


def test_the_configuration_hash_distinguishes_configurations(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    cluster = small(*pods(1))
    plain, other = simulate(cluster), simulate(cluster, config=path)
    assert plain.summary["configuration"] != other.summary["configuration"]


@pytest.fixture
def two_cards(tmp_path: Path) -> Path:
    """A trace: three pods with 600 milli each, and a node with two cards."""
    folder = tmp_path / "openb"
    folder.mkdir()
    pods = [f"p{i},1000,1024,1,600,,LS,Running,{i},9,1" for i in range(3)]
    (folder / "nodes.csv").write_text(f"{trace.NODE_HEADER}\nn0,64000,262144,2,T4\n")
    (folder / "pods.csv").write_text("\n".join([trace.POD_HEADER, *pods, ""]))
    return folder


def test_a_trace_is_placed_card_by_card(two_cards: Path) -> None:
    result = simulate(two_cards)
    assert outcome(result) == ["n0", "n0", "node(s) had too little left on their GPU cards"]
    assert any("counted one by one" in note for note in result.summary["notes"])
    assert result.summary["gpu_cards"]["idle_milli"] == 800


def test_what_else_is_asked_of_a_trace_counts_cards(two_cards: Path) -> None:
    explanation = explain("default/p2", two_cards, after_simulation=True)
    first = explanation.nodes[0].first
    assert first is not None
    assert first.plugin == "GpuShare"
    units = capacity(two_cards / "pods.csv", two_cards / "nodes.csv").units
    assert [unit.count for unit in units] == [2, 2, 2, 0]


@pytest.mark.parametrize("how", ["file", "value", "compat"])
def test_a_configuration_without_gpu_share_adds_up_the_cards(
    how: str, two_cards: Path, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("packing", "default-scheduler"))
    config = {"file": path, "value": configuration_of(None, "")[0], "compat": None}[how]
    compat = "kube-scheduler-1.36" if how == "compat" else ""
    result = simulate(two_cards, config=config, compat=compat)
    assert outcome(result) == ["n0"] * 3
    notes = result.summary["notes"]
    assert any("count as one amount" in note for note in notes)
    assert not any("one by one" in note for note in notes)


@pytest.mark.slow
def test_the_real_trace() -> None:
    folder = trace.real()
    if folder is None:
        pytest.skip("STOWPLAN_TRACES names no folder with openb")
    paths = [folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv"]
    summary = simulate(paths).summary
    assert (summary["nodes"], summary["pods"]) == (1213, 8152)
    assert summary["placed"] == 7915
    assert summary["utilisation"]["stowplan.dev/gpu-milli"]["share"] > 0.9


def test_progress_runs_from_none_to_all() -> None:
    seen: list[tuple[int, int]] = []
    simulate(small(*pods(120)), on_progress=lambda done, total: seen.append((done, total)))
    assert (seen[0], seen[-1]) == ((0, 120), (120, 120))
    assert seen == sorted(seen)


def test_nothing_waits() -> None:
    result = simulate(small())
    assert result.placements == []
    assert result.summary["pods_per_s"] == 0


# Deciders.

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: packing
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins:
    score: {disabled: [{name: NodeResourcesBalancedAllocation}]}
"""


def test_a_configuration_decides(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    packed = simulate(small(*pods(4)), config=path, profile="packing")
    assert len(set(outcome(packed))) == 1
    assert len(set(outcome(simulate(small(*pods(4)))))) == 2


def test_a_configuration_may_be_given_as_such(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    configuration, _ = configuration_of(CONFIG, str(path))
    assert isinstance(configuration, Configuration)
    by_value = simulate(small(*pods(4)), config=configuration, profile="packing")
    by_file = simulate(small(*pods(4)), config=str(path), profile="packing")
    assert by_value.placements == by_file.placements


PLUGIN = """\
from stowplan.framework import OK, unschedulable

class Even:
    name = "Even"

    def filter(self, node):
        return OK if int(node.name[1:]) % 2 == 0 else unschedulable("odd")
"""


def test_a_plugin_may_be_a_file_or_a_class(tmp_path: Path) -> None:
    path = tmp_path / "even.py"
    path.write_text(PLUGIN)

    class Odd:
        name = "Odd"

        def filter(self, node: Any) -> Status:
            return unschedulable("even") if int(node.name[1:]) % 2 == 0 else OK

    cluster = small(*pods(2), n_nodes=3)
    assert set(outcome(simulate(cluster, plugins=[path]))) == {"n0", "n2"}
    assert set(outcome(simulate(cluster, plugins=[Odd]))) == {"n1"}
    assert set(outcome(simulate(cluster, plugins=[str(path), Odd]))) == {"even; odd"}


class Gate:
    """Rejects, waits or allows at Permit; records its calls."""

    name = "Gate"
    answer: Any = OK
    at = "permit"
    seen: list[str] = []

    def _say(self, point: str) -> Any:
        Gate.seen.append(point)
        return Gate.answer if Gate.at == point else OK

    def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Any:
        return self._say("reserve")

    def unreserve(self, pod: Pod, node_name: str) -> None:
        Gate.seen.append("unreserve")

    def permit(self, pod: Pod) -> Any:
        return self._say("permit")

    def pre_bind(self, pod: Pod) -> Any:
        return self._say("pre_bind")

    def post_bind(self, pod: Pod) -> None:
        Gate.seen.append("post_bind")


@pytest.fixture
def gate() -> type[Gate]:
    Gate.answer, Gate.at, Gate.seen = OK, "permit", []
    return Gate


def test_the_points_after_the_choice_are_walked_in_order(gate: type[Gate]) -> None:
    assert outcome(simulate(small(*pods(1)), plugins=[gate])) in (["n0"], ["n1"])
    assert gate.seen == ["reserve", "permit", "pre_bind", "post_bind"]


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        ("reserve", ["reserve", "unreserve"]),
        ("permit", ["reserve", "permit", "unreserve"]),
        ("pre_bind", ["reserve", "permit", "pre_bind", "unreserve"]),
    ],
)
def test_a_refusal_after_the_choice_takes_the_pod_off_its_node(
    gate: type[Gate], at: str, seen: list[str]
) -> None:
    gate.answer, gate.at = unschedulable("not today"), at
    result = simulate(small(*pods(1)), plugins=[gate])
    assert outcome(result) == ["not today"]
    assert gate.seen == seen
    assert result.summary["utilisation"]["cpu"]["requested"] == 0


def test_a_wait_at_permit_ends_in_virtual_time(gate: type[Gate]) -> None:
    gate.answer = PermitWait(10.0)
    result = simulate(small(*pods(1)), plugins=[gate])
    assert outcome(result) == ["rejected due to timeout after waiting 10s at plugin Gate"]
    assert gate.seen == ["reserve", "permit", "unreserve"]
    assert result.summary["placed"] == 0


def volume(name: str) -> PersistentVolume:
    tree = {
        "metadata": {"name": name, "uid": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Available"},
    }
    return convert(tree, PersistentVolume)


def claim(name: str) -> PersistentVolumeClaim:
    tree = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return convert(tree, PersistentVolumeClaim)


def test_a_volume_that_a_pod_took_is_gone_for_the_next() -> None:
    tree = {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    objects = (convert(tree, StorageClass), volume("v"), claim("a"), claim("b"))
    users = [builders.pod(f"uses-{name}", claims=[name]) for name in ("a", "b")]
    result = simulate(small(*users, objects=objects))
    first, second = outcome(result)
    assert first in ("n0", "n1")
    assert second == "node(s) didn't find available persistent volumes to bind"
    assert result.summary["notes"] == [ORDER_NOTE, VOLUMES_NOTE]


def provisioned() -> Cluster:
    tree = {
        "metadata": {"name": "local"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    class_ = convert(tree, StorageClass)
    users = [builders.pod(f"uses-{at}", claims=[f"c{at}"]) for at in range(2)]
    claims = tuple(claim(f"c{at}") for at in range(2))
    return small(*users, n_nodes=1, objects=(class_, *claims))


def test_volumes_are_provisioned_where_nodes_have_no_hostname_label() -> None:
    cluster = provisioned()
    bare = replace(cluster.nodes[0].metadata, labels={})
    cluster.nodes[0] = replace(cluster.nodes[0], metadata=bare)
    assert outcome(simulate(cluster)) == ["n0", "n0"]


def test_pods_whose_binding_fails_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = provisioned()

    def provision(self: VolumeController, claim: PersistentVolumeClaim, node: str) -> None:
        """Wrong: the volume is on another node than the one that was chosen."""
        self._cluster.put_node(builders.node("elsewhere", cpu="0"))
        original(self, claim, "elsewhere")

    original = VolumeController._provision
    monkeypatch.setattr(VolumeController, "_provision", provision)
    result = simulate(cluster)
    assert all("node affinity" in text for text in outcome(result)), outcome(result)
    assert not any(place.node for place in result.placements)


# Invalid arguments.


def test_an_unknown_profile() -> None:
    with pytest.raises(InputError) as caught:
        simulate(small(), profile="default-schedular")
    assert str(caught.value) == (
        "default configuration: profile: Invalid value: 'default-schedular': "
        "expected one of default-scheduler "
        "(did you mean 'default-scheduler'?)"
    )


def test_a_seed_below_zero() -> None:
    with pytest.raises(
        InputError, match="seed: Invalid value: -1: expected a whole number from 0 up"
    ):
        simulate(small(), seed=-1)


def test_an_invalid_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or directory"):
        simulate(small(), config=tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("kind: Pod\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        simulate(small(), config=tmp_path / "bad.yaml")


def test_a_missing_plugin_file(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"none\.py"):
        simulate(small(), plugins=[tmp_path / "none.py"])


# Reproducible files.


def test_files_of_the_same_seed_are_the_same(tmp_path: Path) -> None:
    first = files(simulate(generate_workload(30, 300), seed=3), tmp_path / "a")
    second = files(simulate(generate_workload(30, 300), seed=3), tmp_path / "b")
    assert set(first) == {"placements.jsonl", "summary.json", "usage.json"}
    assert first == second
    other = files(simulate(generate_workload(30, 300), seed=4), tmp_path / "c")
    assert first["placements.jsonl"] != other["placements.jsonl"]


def test_files_do_not_depend_on_how_texts_are_hashed(tmp_path: Path) -> None:
    code = (
        "import sys, stowplan; from stowplan.inputs.generated_workload import generate_workload; "
        "stowplan.simulate(generate_workload(20, 150), seed=1).write(sys.argv[1])"
    )
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, tmp_path / seed], env=env, check=True)
    for name in ("placements.jsonl", "summary.json", "usage.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_what_the_files_hold(tmp_path: Path) -> None:
    result = simulate(small(*pods(1), builders.pod("big", cpu="9")))
    written = files(result, tmp_path / "new" / "folder")
    lines = [json.loads(line) for line in written["placements.jsonl"].splitlines()]
    assert [line["pod"] for line in lines] == ["default/p0", "default/big"]
    assert lines[0] == {"pod": "default/p0", "node": lines[0]["node"], "reason": "", "message": ""}
    assert lines[1]["node"] == ""
    assert lines[1]["reason"] == "Insufficient cpu"
    summary = json.loads(written["summary.json"])
    assert summary == {k: v for k, v in result.summary.items() if k != "pods_per_s"}


def test_files_replace_those_of_an_earlier_run(tmp_path: Path) -> None:
    files(simulate(small(*pods(3))), tmp_path)
    written = files(simulate(small(*pods(1))), tmp_path)
    assert set(written) == {"placements.jsonl", "summary.json", "usage.json"}
    assert len(written["placements.jsonl"].splitlines()) == 1


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_where_a_directory_is_wanted(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("mine")
    target = tmp_path / "taken" / below
    with pytest.raises(InputError) as caught:
        simulate(small(*pods(1))).write(target)
    assert str(caught.value) == f"{target}: not a directory: expected a writable directory"
    assert (tmp_path / "taken").read_text() == "mine"


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(simulate(small(*pods(3))), tmp_path)
    write_bytes = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if "summary" in path.name:
            write_bytes(path, content[:10])
            raise OSError(28, "No space left on device")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="no space left on device: expected a writable directory"):
        simulate(small(*pods(1))).write(tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after == before


# From Python.


def test_the_public_name_is_this_function(tmp_path: Path) -> None:
    assert stowplan.simulate is simulate
    (tmp_path / "nodes.csv").write_text(trace.nodes(3))
    (tmp_path / "pods.csv").write_text(trace.pods(5))
    from_paths = simulate([tmp_path / "nodes.csv", str(tmp_path / "pods.csv")])
    assert from_paths.placements == simulate(read_cluster(tmp_path)).placements


def test_without_a_cluster_a_workload_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[simulate.__module__]
    monkeypatch.setattr(module, "generate_workload", lambda seed: generate_workload(10, 40, seed))
    result = simulate(seed=5)
    assert result.summary["pods"] == 40
    assert "generated workload: 10 nodes, 40 pods, seed 5" in result.summary["notes"]
