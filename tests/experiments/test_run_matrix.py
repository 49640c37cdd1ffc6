"""Plans: strict reading, the matrix, --only, shards, and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stowplan.experiments.experiment_run import prepare_experiment
from stowplan.experiments.plan.plan_file import plan_of_tree, read_plan
from stowplan.experiments.plan.run_matrix import (
    Shard,
    cells_of,
    option_text,
    parse_shard,
    selected,
)
from stowplan.framework.problems import ConfigError
from stowplan.inputs.input_error import InputError

ROOT = Path(__file__).parents[2]
BASE: dict[str, Any] = {
    "mode": "replay",
    "workloads": [{"name": "w", "generated": {"nodes": 2, "pods": 3}}, "trace.csv"],
    "policies": ["default", "packing.yaml"],
    "options": {"churn": [None, "30d/1h"], "nodeCount": [5, 10]},
    "seeds": [7, 3],
}


def cells(only: tuple[str, ...] = (), **change: Any) -> list[tuple[Any, ...]]:
    plan = plan_of_tree({**BASE, **change}, "plan")
    found = selected(cells_of(plan), plan, only)
    return [(one.workload, one.policy, *one.options.values(), one.seed) for one in found]


def test_the_matrix_is_the_product() -> None:
    found = cells()
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2 * 2
    # Runs of a workload follow each other; options are in the order of their table.
    assert found[0] == ("w", "default", 5, None, 7)
    assert found[-1] == ("trace", "packing", 10, "30d/1h", 3)
    assert [one[0] for one in found] == ["w"] * 16 + ["trace"] * 16


def test_seeds_may_be_a_count() -> None:
    assert plan_of_tree({**BASE, "seeds": 3}, "plan").seeds == (0, 1, 2)
    assert plan_of_tree({**BASE, "seeds": None}, "plan").seeds == (0,)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (("seed=3",), 16),
        (("seed=3", "seed=7"), 32),
        (("seed=3", "policy=packing"), 8),
        (("seed=3", "policy=packing", "workload=w", "nodeCount=5", "churn=default"), 1),
        (("churn=30d/1h", "churn=default"), 32),
    ],
)
def test_only_takes_any_value_of_a_key_and_all_keys(only: tuple[str, ...], expected: int) -> None:
    found = cells(only)
    assert len(found) == expected
    assert found == [one for one in cells() if one in found]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("seed", "Invalid value: 'seed': expected KEY=VALUE"),
        ("seeds=3", r"'seeds': expected one of .* \(did you mean 'seed'\?\)"),
        ("policy=pack", r"expected one of default, packing \(did you mean 'packing'\?\)"),
        ("seed=4", "'4': expected one of 7, 3"),
        ("speedup=2", "'speedup': expected one of"),
    ],
)
def test_only_refuses_what_the_plan_does_not_have(only: str, expected: str) -> None:
    with pytest.raises(InputError, match=f"--only: .*{expected}"):
        cells((only,))


def test_options_as_text() -> None:
    values = (None, True, False, 2, 2.0, 0.5, "1d")
    assert [option_text(one) for one in values] == [
        "default", "true", "false", "2", "2", "0.5", "1d"
    ]  # fmt: skip


# Strict reading.


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"polices": []}, "polices: Unknown field: expected .*did you mean 'policies'"),
        ({"mode": "fil"}, "mode: .*'fil'.*did you mean 'fill'"),
        ({"kind": "Sweep"}, "kind: Invalid value: 'Sweep': expected Experiment"),
        ({"apiVersion": "v1"}, "expected stowplan.dev/experiment/v1"),
        ({"workloads": []}, "workloads: .*an empty list: expected at least one"),
        ({"workloads": ["a.csv", "b/a.csv"]}, r"workloads\[1\].name: .*'a': expected each name"),
        ({"workloads": [{"openb": "x", "files": "y"}]}, "one of files, openb and generated"),
        ({"workloads": [{"openb": "gpuspec3"}]}, r"\[0\].openb: .*did you mean 'gpuspec33'"),
        ({"workloads": [{"generated": {"node": 3}}]}, "did you mean 'nodes'"),
        ({"policies": ["defualt"]}, r"policies\[0\]: .*did you mean 'default'"),
        ({"policies": [{"plugin": "x.py"}]}, r"policies\[0\].plugin: .*did you mean 'plugins'"),
        ({"policies": [{"configuration": {}}]}, r"policies\[0\].name: expected a name"),
        ({"policies": [{"config": "a.yaml", "configuration": {}}]}, "not both"),
        ({"policies": [{"name": "a b"}]}, "without blanks"),
        ({"policies": ["default", {"gpuShare": "FGD"}]}, "gpuShare: .*mode gpu-sharing"),
        ({"options": {"speedUp": 2}}, "options.speedUp: .*did you mean 'speedup'"),
        ({"options": {"speedup": [1, 0]}}, r"options.speedup\[1\]: .*greater than 0"),
        ({"options": {"until": "1 day"}}, "options.until: .*a duration such as"),
        ({"options": {"churn": "30d"}}, "options.churn: .*UP/DOWN"),
        ({"options": {"nodeCount": [5, 5]}}, "each value once"),
        ({"options": {"arrivals": "poison"}}, "options.arrivals: .*'poison': expected PROCESS"),
        ({"options": {"arrivals": "poisson,burst=2"}}, "as poisson,rate=120"),
        ({"options": {"departures": "no"}}, "true or false"),
        ({"mode": "fill"}, "options.churn: .*expected mode replay"),
        ({"seeds": []}, "seeds: .*at least one seed"),
        ({"seeds": [1, 1]}, "each seed once"),
        ({"seeds": -1}, "seeds: Invalid value: -1"),
        ({"seeds": "many"}, "seeds: Invalid value: 'many'"),
        ({"compare": {"confidence": 2}}, "compare.confidence"),
    ],
)
def test_mistakes_are_named_with_their_place(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        plan_of_tree({**BASE, **change}, "plan")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"policies": ["FGDD"]}, r"policies\[0\]: .*did you mean 'FGD'"),
        ({"policies": [{"gpuShare": "best"}]}, r"policies\[0\].gpuShare: .*BestFit"),
        ({"policies": [{"gpuShare": "FGD", "config": "x"}]}, "name and gpuShare"),
        ({"workloads": ["trace.csv"]}, "'trace.csv': expected one of default, cpu050"),
        ({"workloads": [{"files": "a.csv"}]}, "openb: the mode gpu-sharing fills"),
        ({"measures": ["a.py:f"]}, "measures: .*none"),
    ],
)
def test_mistakes_in_plans_of_gpu_sharing(change: dict[str, Any], expected: str) -> None:
    plan = {"mode": "gpu-sharing", "workloads": ["default"], "policies": ["FGD"], **change}
    with pytest.raises(ConfigError, match=expected):
        plan_of_tree(plan, "plan")


def test_the_example_is_the_published_table() -> None:
    path = ROOT / "examples" / "fgd.yaml"
    plan = read_plan(path.read_bytes(), str(path))
    assert len(cells_of(plan)) == 6 * 17 * 10
    assert plan.seeds == tuple(range(42, 52))


# Shards.


def test_shards_are_disjoint_and_whole() -> None:
    runs = list(range(11))
    parts = [Shard(number, 4).share(runs) for number in range(1, 5)]
    assert sorted(one for part in parts for one in part) == runs
    assert {len(part) for part in parts} == {2, 3}


SLURM = {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "8"}


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("", {}, (1, 1)),
        ("2/3", {}, (2, 3)),
        ("auto", SLURM, (5, 8)),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_MIN": "0"}, (6, 8)),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_STEP": "2"}, (3, 8)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "0"}, (1, 4)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "3"}, (4, 4)),
    ],
)
def test_a_shard_is_read(text: str, environment: dict[str, str], expected: Any) -> None:
    assert parse_shard(text, environment) == expected


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("0/3", {}, "I from 1 to N"),
        ("4/3", {}, "I from 1 to N"),
        ("1", {}, "I from 1 to N"),
        ("auto/x", SLURM, "I from 1 to N"),
        ("auto", {}, "SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX"),
        ("auto", {"JOB_COMPLETION_INDEX": "1"}, "auto/N, N being the Job's spec.completions"),
        ("auto/2", {"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX=2: expected a task of 2"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "5"}, "SLURM_ARRAY_TASK_COUNT: Required value"),
    ],
)
def test_a_wrong_shard_is_refused(text: str, environment: dict[str, str], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        parse_shard(text, environment)


# Keys.


def keys(folder: Path, plan: dict[str, Any], traces: Path | None = None) -> list[str]:
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan))
    return [task.key for task in prepare_experiment(path, traces, ()).tasks]


def test_a_key_follows_from_contents_and_not_from_places(tmp_path: Path) -> None:
    plan = {
        "workloads": ["nodes.yaml"],
        "policies": ["profile.yaml", {"name": "own", "plugins": "own.py"}],
    }
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "nodes.yaml").write_text("kind: Node\napiVersion: v1\nmetadata: {name: n}\n")
        (folder / "profile.yaml").write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        )
        (folder / "own.py").write_text(
            "from stowplan.framework import score\n\n"
            "@score('own')\ndef own(pod, node):\n    return 0\n"
        )
    first = keys(folders[0], plan)
    assert len(set(first)) == 2
    assert keys(folders[1], plan) == first
    changes = {
        "nodes.yaml": (True, True),
        "profile.yaml": (True, False),
        "own.py": (False, True),
    }
    for name, changed in changes.items():
        before = (folders[1] / name).read_text()
        (folders[1] / name).write_text(before + "# other\n")
        found = keys(folders[1], plan)
        assert tuple(a != b for a, b in zip(first, found, strict=True)) == changed
        (folders[1] / name).write_text(before)
    assert keys(folders[1], {**plan, "seeds": [1]}) != first
    assert keys(folders[1], {**plan, "title": "other"}) == first
