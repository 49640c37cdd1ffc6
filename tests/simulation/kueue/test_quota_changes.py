"""`what-if` where Kueue admits jobs: other quota, other jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.run import run
from tests.simulation.kueue.test_job_admission import Tree, flavor, job, node, queue, written


def asked(directory: Path, *arguments: str) -> Tree:
    queues = queue("one", "2", cohortName="all"), queue("two", "2", "1", cohortName="all")
    jobs = job("a", "one", 2), job("b", "one", 3, minute=1), job("c", "two", 4, minute=2)
    file = written(directory, node(), flavor(), *queues, *jobs)
    config = directory / "kueue.yaml"
    config.write_text("scheduler: kueue\n")
    result = run("what-if", "-f", str(file), "--base-config", str(config), *arguments)
    if result.code:
        return {"error": result.err}
    found: Tree = json.loads(result.out) if "json" in arguments else {"text": result.out}
    return found


@pytest.mark.parametrize(
    ("change", "admitted", "jobs"),
    [
        ("one.nominalQuota[f/cpu]=5", [1, 2], {"job/b"}),
        ("two.borrowingLimit[f/cpu]=2", [1, 1], {"job/c"}),
        ("one.cohortName=other", [1, 1], {"job/b"}),
        ("one.stopPolicy=Hold", [1, 0], {"job/a", "job/b"}),
        ("one.weight=3", [1, 1], set()),
    ],
)
def test_other_queues(tmp_path: Path, change: str, admitted: list[int], jobs: set[str]) -> None:
    found = asked(tmp_path, "--queue", change, "-o", "json")
    assert found["admitted"] == admitted
    assert {one["job"] for one in found["workloads"]} == jobs


def test_other_jobs(tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump(job("d", "two", 1)))
    found = asked(tmp_path, "--delete", "job/a", "--submit", str(more), "-o", "json")
    fates = {
        one["job"]: tuple(
            one[when]["status"] if one[when] is not None else None for when in ("before", "after")
        )
        for one in found["workloads"]
    }
    # b takes what a leaves, and d the rest.
    assert fates["job/a"] == ("Admitted", None)
    assert fates["job/d"][1] == "Admitted"
    text = asked(tmp_path, "--delete", "job/a")["text"]
    assert "Admitted workloads: 1 before, 1 after" in text
    assert "Pending (WaitingForQuota)" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--queue", "on.weight=1"), "did you mean"),
        (("--queue", "one.nominalQuota=1"), "NAME.nominalQuota[FLAVOR/RESOURCE]=AMOUNT"),
        (("--queue", "one.nominalQuota[f/gpu]=1"), "expected one of f/cpu"),
        (("--queue", "one.nominalQuota[f/cpu]=x"), "is not a quantity"),
        (
            ("--queue", "one.nominalQuota[f/cpu]=-12"),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: "
            'Invalid value: "-12": must be greater than or equal to 0',
        ),
        (("--queue", "one.weight=-1"), "spec.fairSharing.weight: Invalid value"),
        (("--queue", "one.weight=heavy"), "spec.fairSharing.weight: quantities must match"),
        (("--queue", "one.stopPolicy=Later"), 'spec.stopPolicy: Unsupported value: "Later"'),
        (("--queue", "two.cohortName="), "borrowingLimit: Forbidden"),
        (("--drain", "n1"), "Kueue answers changes by --queue, --submit, --delete only"),
        (("--delete", "job/x"), 'no job "x" with a queue in the input'),
        (("--delete", "job/a", "--for", "1h"), "do not apply"),
    ],
)
def test_a_change_that_is_not_answered(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in asked(tmp_path, *arguments)["error"]


def test_what_still_waits_has_its_position_and_shortage(tmp_path: Path) -> None:
    text = asked(tmp_path, "--queue", "two.borrowingLimit[f/cpu]=2")["text"]
    wanted = "job/c in default: position 1 in the queue; short: cpu in flavor f: requested 4"
    assert wanted in text
    drained = asked(tmp_path, "--queue", "one.stopPolicy=HoldAndDrain")["text"]
    assert "Pending (Suspended)" in drained
