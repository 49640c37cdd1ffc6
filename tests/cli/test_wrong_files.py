"""Files that a plan names and that are not there, and files of another format: one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import check_one_line, run

HEAD = "apiVersion: stowplan.dev/experiment/v1\nkind: Experiment\n"
SMALL = "{generated: {nodes: 3, pods: 3}}"


@pytest.mark.parametrize(
    ("workload", "policy", "more", "field"),
    [
        (SMALL, "{name: x, config: gone.yaml}", "", "policies[1].config"),
        (SMALL, "{name: x, plugins: [gone.yaml]}", "", "policies[1].plugins"),
        (SMALL, "{name: x, extenders: [gone.yaml, b.py]}", "", "policies[1].extenders[0]"),
        ("{files: [gone.yaml]}", "{name: x}", "", "workloads[0].files"),
        ("{files: gone.yaml}", "{name: x}", "", "workloads[0].files"),
        ("gone.yaml", "{name: x}", "", "workloads[0]"),
        (SMALL, "gone.yaml", "", "policies[1]"),
        (SMALL, "{name: x}", "measures: ['gone.yaml:f']", "measures[0]"),
        (SMALL, "{name: x}", "mode: replay\noptions: {autoscale: gone.yaml}", "options.autoscale"),
    ],
)
def test_a_missing_file_of_a_plan_is_named_with_its_field(
    tmp_path: Path, workload: str, policy: str, more: str, field: str
) -> None:
    plan = tmp_path / "plan.yaml"
    text = f"{HEAD}workloads: [{workload}]\npolicies: [default, {policy}]\n{more}\n"
    plan.write_text(text)
    ran = run("experiment", str(plan), "--out", str(tmp_path / "out"))
    check_one_line(ran, f"{plan}: {field}: ", "gone.yaml: no such file or directory")


def test_a_manifest_is_no_file_of_cases(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\n" * 20)
    ran = run("evaluate", "--as", "queues", str(file))
    check_one_line(ran, f"{file}: none of its 40 lines", "JSON lines", "--as queues")


def test_cases_beside_lines_that_are_none_are_answered(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text('no case\n\n{"id": "a"}\n')
    ran = run("evaluate", str(file))
    assert [line[:15] for line in ran.out.splitlines()] == ['{"id":"line 1",', '{"id":"a","resu']
    assert ran.code == 2
