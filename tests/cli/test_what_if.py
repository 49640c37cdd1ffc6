"""`stowplan what-if` and `preempt-preview` on the command line: outputs, exit codes, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import check_one_line, run
from tests.insight.test_what_if import low, node, pod, write


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    objects = [
        node("n1"),
        node("n2", zone="c"),
        pod("w", on="n2", owner="web"),
        pod("bare", on="n2"),
    ]
    return str(write(tmp_path, *objects))


def test_json_of_an_answer(cluster: str) -> None:
    ran = run("what-if", "-f", cluster, "--validate", "ignore", "--drain", "c", "-o", "json")
    found = json.loads(ran.out)
    assert ran.code == 0
    assert found["apiVersion"] == "stowplan.dev/whatif/v1"
    assert found["changes"][0]["kind"] == "drain"
    assert found["summary"]["moved"] == 1
    moved = next(one for one in found["pods"] if one["effect"] == "moved")
    assert (moved["pod"], moved["from"], moved["to"]) == ("default/w", "n2", "n1")
    assert found["resources"]["cpu"]["after"]["requested"] == 1000


def test_names_and_every_pod(cluster: str) -> None:
    asked = ("what-if", "-f", cluster, "--validate", "ignore", "--drain", "c")
    assert run(*asked, "-o", "name").out == "pod/bare\n"
    lines = run(*asked, "-o", "wide").out.splitlines()
    assert any(line.split()[:2] == ["moved", "default/w"] for line in lines)


def test_a_file_of_changes_and_a_condition(cluster: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("- drain: c\n- delete: [pod/bare]\n")
    asked = ("what-if", "-f", cluster, "--validate", "ignore", "--changes", str(plan))
    assert run(*asked, "--fail-if", "lost > 0 or moved > 1").code == 0
    ran = run(*asked, "--fail-if", "moved >= 1 and nodes < 2")
    assert ran.code == 1
    assert ran.err.endswith("Failed: moved >= 1 and nodes < 2 (moved is 1; nodes is 1)\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--drain", "zone-x"), "--drain zone-x: no node is named so"),
        (("--cordon", "n2", "--remove-node", "n2"), "contradicts --remove-node n2"),
        (("--cordon", "n1", "--fail-if", "x > 1"), "unknown measure 'x'"),
        (("--cordon", "n1", "--fail-if", "moved >"), "expected a number"),
        (("--changes", "nope.yaml"), "nope.yaml"),
        (("--submit", "nope.yaml"), "nope.yaml"),
    ],
)
def test_bad_input(cluster: str, words: tuple[str, ...], text: str) -> None:
    check_one_line(run("what-if", "-f", cluster, "--validate", "ignore", *words), text)


def test_usage_errors(cluster: str) -> None:
    for words, text in (
        ((), "no changes given"),
        (("--cordon", "n1", "--default-run", "1h"), "--default-run can be used with --for only"),
    ):
        ran = run("what-if", "-f", cluster, *words)
        assert ran.code == 2
        assert text in ran.err


def test_a_preview(tmp_path: Path) -> None:
    started = "2026-01-01T10:00:00Z"
    objects = [node("n1"), low("old", "n1", started=started), pod("new", "4", priority=1)]
    path = str(write(tmp_path, *objects))
    asked = ("preempt-preview", "pod/new", "-f", path, "--validate", "ignore")
    ran = run(*asked, "--now", "2026-01-01T12:00:00Z", "-o", "json")
    found = json.loads(ran.out)
    assert ran.code == 0
    assert found["apiVersion"] == "stowplan.dev/preemptionpreview/v1"
    assert found["steps"][0]["victims"][0]["ranS"] == 7200.0
    assert run(*asked, "-o", "name").out == "pod/old\n"
    new = write(tmp_path, pod("huge", "9"), name="huge.json")
    ran = run("preempt-preview", "-f", path, "--validate", "ignore", "--submit", str(new))
    named = run("preempt-preview", str(new), "-f", path, "--validate", "ignore")
    assert (named.code, named.out) == (ran.code, ran.out)
    assert ran.code == 1
    assert "default/huge: pending" in ran.out
    check_one_line(
        run("preempt-preview", "pod/old", "-f", path, "--validate", "ignore"), "on node n1"
    )
    assert run("preempt-preview", "-f", path).code == 2
    assert run(*asked, "--now", "soon").code == 2
