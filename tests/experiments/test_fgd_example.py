"""`stowplan experiment examples/fgd.yaml`: the published table, through the command."""

from __future__ import annotations

import gzip
from pathlib import Path

import click
import pytest

from stowplan.cli.completion import complete_only
from tests.cli.run import run
from tests.simulation import openb_trace

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "fgd.yaml"
PUBLISHED = ROOT / "tests" / "conformance" / "data" / "gpushare" / "expected_seeds.csv.gz"
POLICIES = ("FGD", "BestFit", "DotProd", "GpuPacking", "GpuClustering")


def published(workload: str, policies: tuple[str, ...], seeds: tuple[str, ...]) -> list[str]:
    """The header and the lines of these runs, as they are published."""
    header, *lines = gzip.decompress(PUBLISHED.read_bytes()).decode().splitlines()
    chosen = []
    for line in lines:
        _, of_workload, policy, seed = line.split(",")[:4]
        if of_workload == workload and policy in policies and seed in seeds:
            chosen.append(line)
    return [header, *sorted(chosen)]


def written(out: Path) -> list[str]:
    header, *lines = (out / "table.csv").read_text(encoding="utf-8").splitlines()
    return [header, *sorted(lines)]


@pytest.mark.parametrize(
    ("policies", "seeds"),
    [
        pytest.param(("FGD", "BestFit"), ("42",), id="sample"),
        pytest.param(POLICIES, tuple(map(str, range(42, 52))), id="all", marks=pytest.mark.soak),
    ],
)
def test_the_table_is_the_published_one(
    policies: tuple[str, ...], seeds: tuple[str, ...], tmp_path: Path
) -> None:
    traces = openb_trace.real()
    if traces is None:
        pytest.skip("STOWPLAN_TRACES names no folder with openb")
    only = [f"policy={one}" for one in policies] + [f"seed={one}" for one in seeds]
    words = [word for one in ("workload=default", *only) for word in ("--only", one)]
    command = ["experiment", str(EXAMPLE), "--out", str(tmp_path), "--jobs", "2", *words]
    for folder in (traces, traces.parent):
        ran = run(*command, "--traces", str(folder))
        assert ran.code == 0, ran
    n_runs = len(policies) * len(seeds)
    assert f"{n_runs} of {n_runs} runs done ({n_runs} there already, 0 executed)" in ran.out
    assert written(tmp_path) == published("default", policies, seeds)


def test_a_folder_without_the_trace_is_named(tmp_path: Path) -> None:
    ran = run("experiment", str(EXAMPLE), "--traces", str(tmp_path), "--out", str(tmp_path / "o"))
    assert ran.code == 2
    assert f"error: {tmp_path}: no openb_node_list_gpu_node.csv in it" in ran.out + ran.err


def test_an_unknown_policy_is_guessed(tmp_path: Path) -> None:
    ran = run("experiment", str(EXAMPLE), "--only", "policy=FDG", "--out", str(tmp_path))
    assert ran.code == 2
    assert "(did you mean 'FGD'?)" in ran.out + ran.err


@pytest.mark.parametrize(
    ("plan", "incomplete", "expected"),
    [
        (EXAMPLE, "policy=Gpu", ["policy=GpuClustering", "policy=GpuPacking"]),
        (EXAMPLE, "seed=5", ["seed=50", "seed=51"]),
        (EXAMPLE.with_name("nope.yaml"), "policy=", []),
    ],
)
def test_only_is_completed_from_the_plan(plan: Path, incomplete: str, expected: list[str]) -> None:
    command = click.Command("experiment", params=[click.Option(["--only"])])
    ctx = click.Context(command)
    ctx.params["plan"] = str(plan)
    found = complete_only(ctx, command.params[0], incomplete)
    assert [item.value for item in found] == expected
