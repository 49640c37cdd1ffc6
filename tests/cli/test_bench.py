"""`stowplan bench`, as a user types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stowplan.benchmarks.catalog import NAMES
from stowplan.cli.runs import bench
from tests.cli.run import check_one_line, run

SMALL = ("--nodes", "10", "--pods", "20", "--repeat", "1")


def report(*arguments: str) -> dict[str, Any]:
    ran = run("bench", *arguments, "--in-process", "-o", "json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_json_has_the_machine_and_a_result_per_case() -> None:
    found = report("basic", "Unschedulable", *SMALL)
    assert found["machine"]["numpy"]
    assert found["failed"] == {}
    first, second = found["results"]
    assert (first["shape"], first["nodes"], first["pods"]) == ("basic", 10, 20)
    assert first["pods_per_s"] / first["floor"] == pytest.approx(first["factor"], abs=0.01)
    assert second["floor"] == 170
    assert "ratio" not in first


def test_the_table_has_figures_and_standard_error_has_progress() -> None:
    ran = run("bench", "basic", "events", *SMALL, "--stages", "--in-process")
    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0][:4] == ["NAME", "NODES", "PODS", "PER"]
    assert lines[1][:3] == ["basic", "10", "20"]
    assert lines[2][:4] == ["events", "10", "20", "events"]
    assert ["NAME", "DECISION", "QUEUE", "CACHE", "EFFECTS", "REST"] in lines
    assert "kube-scheduler 1.36.2" in ran.out
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["basic", "events"]


def test_earlier_figures_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(report("basic", *SMALL)))
    found = report("basic", "anti", *SMALL, "--compare", str(path))
    basic, anti = found["results"]
    assert basic["ratio"] == pytest.approx(basic["pods_per_s"] / basic["old_pods_per_s"], abs=0.001)
    assert (anti["old_pods_per_s"], anti["ratio"]) == (None, None)
    ran = run("bench", "basic", *SMALL, "--compare", str(path), "--in-process")
    assert ran.out.splitlines()[0].split()[-2:] == ["OLD", "RATIO"]


def test_a_cluster_that_is_too_small_exits_with_1() -> None:
    ran = run("bench", "basic", "--nodes", "1", "--pods", "200", "--repeat", "1", "--in-process")
    assert ran.code == 1
    assert "only 110 of 200" in ran.err
    assert "110 of 200" in ran.out


def test_a_case_has_its_own_process() -> None:
    ran = run("bench", "templates", *SMALL, "--templates", "3", "--existing", "5", "-o", "json")
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)["results"]
    assert (result["shape"], result["done"]) == ("templates", 20)


def test_a_process_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        text = json.dumps({"results": [{"shape": "anti", "nodes": 1, "pods": 1, "done": 1}]})
        if "basic" in command:
            return subprocess.CompletedProcess(command, -9, "", "first line\nkilled\n")
        return subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(bench.subprocess, "run", ended)
    ran = run("bench", "basic", "anti", "-o", "json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert found["failed"] == {"basic": "the measuring process exited with code -9: killed"}
    assert [result["shape"] for result in found["results"]] == ["anti"]


def test_every_case_is_listed() -> None:
    ran = run("bench", "--list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == list(NAMES)


def test_the_start_is_printed_in_seconds() -> None:
    ran = run("bench", "start", "--nodes", "3", "--repeat", "1", "--in-process")
    assert ran.code == 0, ran.err
    assert re.fullmatch(r"start: cold \d.* s, warm \d.* s, help \d.* s\n", ran.out)


def test_an_unknown_case_is_one_line() -> None:
    check_one_line(run("bench", "basics"), "'basics'", "did you mean 'basic'?", "--list")


def test_a_file_to_compare_with_must_be_there(tmp_path: Path) -> None:
    check_one_line(run("bench", "basic", "--compare", str(tmp_path / "no.json")), "no.json")


def test_help_does_not_measure() -> None:
    command = [sys.executable, "-m", "stowplan", "bench", "--help"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--compare OLD.json" in output
