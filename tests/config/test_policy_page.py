"""docs/policy.md: its example is a policy, its commands decide by it, its Python runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.run import check_one_line, run

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
EXAMPLE, CLUSTER = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """The cluster and the policy."""
    cluster, policy = tmp_path / "cluster.yaml", tmp_path / "policy.yaml"
    cluster.write_text(CLUSTER)
    policy.write_text(EXAMPLE)
    return str(cluster), str(policy)


def test_the_example_explains_and_simulates(files: tuple[str, str], tmp_path: Path) -> None:
    cluster, policy = files
    ran = run("explain", "web", "--cluster", cluster, "--config", policy, "-o", "json")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert result["node"] == "ssd"
    refused = next(node for node in result["nodes"] if node["name"] == "old")
    both = ["Insufficient cpu", "node(s) didn't have the requested labels"]
    assert refused["first"]["reasons"] == both
    assert list(result["scores"][0]["plugins"]) == [
        "LeastRequestedPriority",
        "SelectorSpreadPriority",
        "half-full",
        "ssd",
    ]
    ran = run("simulate", "--cluster", cluster, "--config", policy)
    assert ran.code == 0, ran.err
    assert "1 of 1 pods placed" in ran.out


def test_config_check_prints_a_policy(files: tuple[str, str], tmp_path: Path) -> None:
    ran = run("config", "check", files[1])
    assert ran.code == 0, ran.err
    assert ran.out.startswith("apiVersion: v1\nkind: Policy\n")
    again = tmp_path / "again.yaml"
    again.write_text(ran.out)
    assert run("config", "check", str(again)).out == ran.out
    again.write_text(EXAMPLE.replace("GeneralPredicates", "GeneralPredicate"))
    wanted = "did you mean 'GeneralPredicates'?"
    check_one_line(run("config", "check", str(again)), "predicates[0].name", wanted)


def test_a_policy_by_which_no_rule_scores(files: tuple[str, str], tmp_path: Path) -> None:
    policy = tmp_path / "extended.yaml"
    policy.write_text(
        "{kind: Policy, apiVersion: v1, predicates: [], priorities: [], extenders: [{}]}"
    )
    ran = run("explain", "web", "--cluster", files[0], "--config", str(policy))
    assert ran.code == 0, ran.err
    assert "3 of 3 nodes fit" in ran.out
    assert "Scores" not in ran.out


def test_the_python_runs() -> None:
    exec(compile(PYTHON, "docs/policy.md", "exec"), {})


def test_evaluate_answers_legacy_questions() -> None:
    data = Path(__file__).parents[1] / "conformance" / "data" / "legacy" / "pri-equal.jsonl.gz"
    ran = run("evaluate", "--as", "legacy", str(data))
    assert ran.code == 0, ran.err
    assert all("predicateOrder" in json.loads(line)["result"] for line in ran.out.splitlines())
