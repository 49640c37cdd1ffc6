"""`simulate` with GpuShare places the pods of recorded fills as the original did."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan import simulate
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MILLI_KEY, MODEL_KEY
from tests.plugins.gpu_share.gpu_cases import configuration

FILLS = Path(__file__).parents[2] / "conformance" / "data" / "gpushare" / "fill.jsonl.gz"
PLAIN = (
    "fill-bestfit-016",
    "fill-dotprod-054",
    "fill-fgd-077",
    "fill-gpuclustering-036",
    "fill-gpupacking-034",
)


def recorded_fills() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with gzip.open(FILLS, "rt") as lines:
        for line in lines:
            recorded = json.loads(line)
            yield recorded["case"], recorded["expected"]


def node_manifest(node: dict[str, Any]) -> dict[str, Any]:
    amounts = {
        "cpu": f"{node['cpu_milli']}m",
        "memory": f"{node['memory_mib']}Mi",
        "pods": "1001",
        COUNT_KEY: str(node["gpu"]),
    }
    labels = {MODEL_KEY: node["model"]} if node["model"] else {}
    meta = {"name": node["name"], "uid": node["name"], "resourceVersion": "1", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod_manifest(name: str, number: int, shape: dict[str, Any]) -> dict[str, Any]:
    annotations = {}
    if shape["num_gpu"]:
        annotations = {COUNT_KEY: str(shape["num_gpu"]), MILLI_KEY: str(shape["gpu_milli"])}
        annotations |= {MODEL_KEY: shape["gpu_spec"]} if shape["gpu_spec"] else {}
    requests = {"cpu": f"{shape['cpu_milli']}m", "memory": f"{shape['memory_mib']}Mi"}
    created = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
    container = {"name": "main", "image": "main", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": created,
            "annotations": annotations,
        },
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    options = case["options"]
    args = {
        "policy": case["policy"],
        "gpuSel": options["gpu_sel"],
        "dimExt": options["dim_ext"],
        "norm": options["norm"],
    }
    if case["policy"] == "FGD":
        args["workload"] = [
            {
                "cpuMilli": shape["cpu_milli"],
                "num": shape["num_gpu"],
                "milli": shape["gpu_milli"],
                "models": shape["gpu_spec"],
            }
            for shape in case["workload"]
        ]
    return args


def placed(case: dict[str, Any], folder: Path, **more: Any) -> list[str | None]:
    """The node of each pod, in the order of their arrival."""
    nodes = [node_manifest(node) for node in case["nodes"]]
    pods = [
        pod_manifest(f"p{number:05d}", number, case["workload"][index])
        for number, index in enumerate(case["order"])
    ]
    path, config = folder / "cluster.json", folder / "config.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes + pods}))
    config.write_text(configuration(**arguments(case) | more))
    return [one.node or None for one in simulate(path, config=config).placements]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(PLAIN, id="sample"),
        pytest.param((), id="all", marks=pytest.mark.soak),
    ],
)
def test_every_pod_goes_where_the_original_placed_it(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    n_found = 0
    for case, expected in recorded_fills():
        if case["policy"] == "Random" or (names and case["id"] not in names):
            continue
        n_found += 1
        assert placed(case, tmp_path) == [one["node"] for one in expected["steps"]], case["id"]
    assert n_found == (len(names) or 43)


def test_other_ties_are_noticed(tmp_path: Path) -> None:
    case, expected = next(one for one in recorded_fills() if one[0]["id"] == "fill-fgd-077")
    wanted = [one["node"] for one in expected["steps"]]
    assert placed(case, tmp_path, ties="any") != wanted
