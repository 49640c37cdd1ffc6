"""Pods to move so that GPU cards are less fragmented: recorded answers, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from stowplan import InputError, defragment
from stowplan.columns.nodetable import table_of
from stowplan.conformance.gpu_share import gpu_share_answers
from stowplan.conformance.gpu_share.gpu_share_cases import GpuCasePod, GpuShareCase
from stowplan.forecast.cluster import Cluster
from stowplan.insight.capacity.card_moves import CardsOfNodes, DefragmentPlan
from stowplan.objects.devices.gpu_cards import format_card_indices
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.meta import OwnerReference
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.gpu_share.policies import GpuPolicy
from stowplan.testing import node
from tests.cli.run import run
from tests.conformance.compare import recorded
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.plugins.gpu_share.test_device_sharing import (
    IGNORED,
    vgpu_pod,
    volcano_node,
    with_notes,
)

CASES = Path(__file__).parents[1] / "conformance" / "data" / "gpushare" / "desched.jsonl.gz"
OWNER = OwnerReference("apps/v1", "ReplicaSet", "web", uid="web", controller=True)


def owned(pod: Pod, name: str = "web") -> Pod:
    owner = replace(OWNER, name=name, uid=name)
    labels = {"app": name}
    meta = replace(pod.metadata, uid=f"u-{pod.name}", owner_references=(owner,), labels=labels)
    return replace(pod, metadata=meta)


def config_file(tmp_path: Path, **args: Any) -> Path:
    path = tmp_path / "config.json"
    path.write_text(configuration(**args))
    return path


# Against recorded answers.


def case_pod(pod: GpuCasePod, on: str) -> Pod:
    request = pod.request
    made = gpu_pod(
        pod.name,
        request.num,
        request.milli,
        cards=format_card_indices(pod.cards) if pod.cards else "",
        models=request.models,
        on=on,
        cpu=f"{pod.cpu}m" if pod.cpu_milli is not None else "",
        memory=f"{pod.memory}Mi",
    )
    return owned(made)


def case_nodes(case: GpuShareCase) -> tuple[list[Node], list[Pod]]:
    nodes, pods = [], []
    for one in case.nodes:
        made = gpu_node(one.name, one.gpu, one.model, cpu=f"{one.cpu_milli}m")
        offered = {**made.status.allocatable, "memory": f"{one.memory_mib}Mi", "pods": "1001"}
        nodes.append(replace(made, status=replace(made.status, allocatable=offered)))
        pods += [case_pod(pod, one.name) for pod in one.pods]
    return nodes, pods


def recorded_cases() -> list[Any]:
    """The cases of which all pods find a place; every fourth, and the others in the soak."""
    found: list[Any] = []
    for line, want in recorded(CASES):
        case = gpu_share_answers.read_case(line)
        is_random = case.policy is GpuPolicy.RANDOM
        if not is_random and all(one["node"] for one in want["placed"]):
            marks = (pytest.mark.soak,) if len(found) % 4 else ()
            found.append(pytest.param(case, want, id=case.id, marks=marks))
    assert found
    return found


def workload_of(case: GpuShareCase) -> list[dict[str, Any]]:
    """Counts of pods from which the shares of the typical pods follow."""
    shares = [one.share for one in case.typical_pods]
    total = next(
        n for n in range(1, 100_000) if all(abs(n * p - round(n * p)) < 1e-7 for p in shares)
    )
    return [
        {
            "cpuMilli": one.cpu_milli,
            "num": one.num,
            "milli": one.milli,
            "models": one.models,
            "count": round(total * one.share),
        }
        for one in case.typical_pods
    ]


@pytest.mark.parametrize(("case", "want"), recorded_cases())
def test_the_plan_is_the_originals(case: GpuShareCase, want: Any, tmp_path: Path) -> None:
    nodes, pods = case_nodes(case)
    assert case.policy is not None
    config = config_file(
        tmp_path,
        policy=case.policy.value,
        gpuSel=case.options.gpu_sel.value,
        dimExt=case.options.dim_ext.value,
        norm=case.options.norm.value,
        workload=workload_of(case),
        popularityThreshold=100,
    )
    plan = defragment(Cluster(nodes, pods), policy=case.desched, ratio=case.ratio, config=config)
    names = {pod.key: pod.name for pod in pods}
    before = {
        pod.name: (one.name, tuple(map(str, pod.cards))) for one in case.nodes for pod in one.pods
    }
    wanted = [
        (name, to["node"], tuple(map(str, to["cards"])))
        for name, to in zip(want["victims"], want["placed"], strict=True)
        if (to["node"], tuple(map(str, to["cards"]))) != before[name]
    ]
    assert [(names[move.pod], move.node, move.cards) for move in plan.moves] == wanted


# What keeps a pod, and what the command prints.

HALVES = [{"cpuMilli": 1000, "num": 1, "milli": 1000, "count": 1}]
"""A workload of whole cards: a card that is used in part is of no use."""


def split_cluster(*, is_owned: bool = True) -> Cluster:
    """Two cards of two nodes, each used by half: together both pods would leave one card whole."""
    pods = [gpu_pod(name, 1, 400, cards="0", on=f"n{name}") for name in "ab"]
    return Cluster(
        [gpu_node("na", 1), gpu_node("nb", 1)], [owned(pod) if is_owned else pod for pod in pods]
    )


def plan_of(cluster: Cluster, tmp_path: Path, **options: Any) -> DefragmentPlan:
    options = {"policy": "fragOnePod", "ratio": 0.5, **options}
    return defragment(cluster, config=config_file(tmp_path, workload=HALVES), **options)


def test_a_move_that_leaves_a_card_whole(tmp_path: Path) -> None:
    plan = plan_of(split_cluster(), tmp_path)
    (move,) = plan.moves
    assert (move.pod, move.from_node, move.from_cards, move.node, move.cards) == (
        "default/a", "na", ("0",), "nb", ("0",),
    )  # fmt: skip
    assert (plan.before.fragment_milli, plan.after.fragment_milli) == (1200.0, 200.0)
    assert plan.lowers
    assert plan.commands == ("kubectl delete pod -n default a",)


def budget(unavailable: int) -> PodDisruptionBudget:
    tree = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": unavailable, "selector": {"matchLabels": {"app": "web"}}},
    }
    return decode(json.dumps(tree).encode(), PodDisruptionBudget)


def test_what_keeps_a_pod(tmp_path: Path) -> None:
    bare = plan_of(split_cluster(is_owned=False), tmp_path)
    assert not bare.moves
    assert "has no controller" in bare.kept[0].reason
    forced = plan_of(split_cluster(is_owned=False), tmp_path, force=True)
    assert len(forced.moves) == 1
    assert "create them again" in " ".join(forced.notes)
    none = budget(0)
    cluster = replace(split_cluster(), objects=[none])
    assert "allows no disruption of pod default/a" in plan_of(cluster, tmp_path).kept[0].reason
    one = budget(1)
    whole = replace(split_cluster(), objects=[one])
    reasons = [kept.reason for kept in plan_of(whole, tmp_path, ratio=1.0).kept]
    assert reasons == [
        "PodDisruptionBudget default/web allows no further disruption together with that of the "
        "pods of the plan"
    ]
    unknown = split_cluster()
    unknown.pods[0] = owned(gpu_pod("a", 1, 400, on="na"))
    assert [kept.pod for kept in plan_of(unknown, tmp_path).kept] == ["default/a"]


def test_a_pod_that_would_fit_nowhere_stays(tmp_path: Path) -> None:
    cluster = split_cluster()
    cluster.nodes = [
        replace(one, spec=replace(one.spec, unschedulable=True)) for one in cluster.nodes
    ]
    plan = plan_of(cluster, tmp_path)
    assert (plan.moves, plan.commands, plan.lowers) == ((), (), False)
    assert [one.reason for one in plan.kept] == [
        "pod default/a would fit nowhere after its eviction"
    ]


def test_registered_devices_are_moved_by_their_ids(tmp_path: Path) -> None:
    notes = {"volcano.sh/vgpu-ids-new": "GPU-{},NVIDIA,4000,0:", "volcano.sh/vgpu-node": "n"}
    pods = []
    for name in "ab":
        texts = {key: text.format(name) for key, text in notes.items()}
        pod = with_notes(vgpu_pod(name, 1, 4000), texts)
        pods.append(owned(replace(pod, spec=replace(pod.spec, node_name=f"n{name}"))))
    nodes = [volcano_node(f"n{name}", (f"GPU-{name}", 16000)) for name in "ab"]
    tree = json.loads(configuration(workload=HALVES))
    tree["profiles"][0]["pluginConfig"].append(IGNORED)
    (tmp_path / "config.json").write_text(json.dumps(tree))
    plan = defragment(
        Cluster(nodes, pods), policy="fragOnePod", ratio=0.5, config=tmp_path / "config.json"
    )
    (move,) = plan.moves
    assert (move.from_cards, move.node, move.cards) == (("GPU-a",), "nb", ("GPU-b",))


def test_cards_of_pods_by_index() -> None:
    cards = CardsOfNodes(table_of([gpu_node("n", 3)], [gpu_pod("a", 2, 500, cards="0-2", on="n")]))
    (found,) = cards.nodes()
    assert found.state.left == (500, 1000, 500)
    assert [(pod.name, pod.cards) for pod in found.pods] == [("default/a", (0, 2))]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"policy": "best"}, "'best': expected one of cosSim"),
        ({"ratio": 1.5}, "greater than 0, up to 1"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], error: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=error):
        plan_of(split_cluster(), tmp_path, **options)


def test_a_configuration_or_a_cluster_without_cards(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no profile with the plugin GpuShare"):
        defragment(split_cluster())
    with pytest.raises(InputError, match="no GPU cards"):
        plan_of(Cluster([node("n")], []), tmp_path)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "config.json").write_text(configuration(workload=HALVES))
    files = ("-f", "cluster.yaml", "--config", "config.json", "--force")
    printed = run("capacity", "--defragment", "fragOnePod", "--ratio", "0.5", *files)
    assert printed.code == 0, printed.out
    assert "GPU cards: 1.2 idle; of no use to typical pods: 1.2 (100.0%)" in printed.out
    assert "1 move of 2 pods: of no use 0.2 (16.7%)" in printed.out
    assert "kubectl delete pod -n default a" in printed.out
    tree = yaml.safe_load(run("capacity", "--defragment", *files, "-o", "yaml").out)
    assert tree["apiVersion"] == "stowplan.dev/capacity/v1"
    assert tree["policy"] == "fragMultiPod"
    kept = run("capacity", "--defragment", *files[:-1])
    assert kept.code == 1
    assert "No moves were found" in kept.out
    assert "cannot be used together" in run("capacity", "--defragment", *files, "--compact").err
    assert (
        "--ratio needs --defragment" in run("capacity", "--ratio", "0.5", "--fit", *files[:2]).err
    )


CLUSTER = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: na}
  status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110", alibabacloud.com/gpu-count: "1"}}
- apiVersion: v1
  kind: Node
  metadata: {name: nb}
  status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110", alibabacloud.com/gpu-count: "1"}}
- apiVersion: v1
  kind: Pod
  metadata:
    name: a
    annotations:
      alibabacloud.com/gpu-count: "1"
      alibabacloud.com/gpu-milli: "400"
      alibabacloud.com/gpu-index: "0"
  spec: {nodeName: na, containers: [{name: main, image: main}]}
- apiVersion: v1
  kind: Pod
  metadata:
    name: b
    annotations:
      alibabacloud.com/gpu-count: "1"
      alibabacloud.com/gpu-milli: "400"
      alibabacloud.com/gpu-index: "0"
  spec: {nodeName: nb, containers: [{name: main, image: main}]}
"""
