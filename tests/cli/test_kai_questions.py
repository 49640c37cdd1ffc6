"""Questions about clusters of KAI-Scheduler whose answer is not by pods of profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.batch.queue_models.test_kai_model import group, node, pod, queue
from tests.cli.run import Ran, run

USAGE = "only the running scheduler has its record"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Cluster and configuration."""
    objects: list[dict[str, Any]] = [
        node("a", 2), queue("q", 2), group("g", "q", 3), *(pod(f"p{i}", "g") for i in range(3))
    ]  # fmt: skip
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    return str(tmp_path / "cluster.yaml"), str(tmp_path / "kai.yaml")


def ask(words: str, files: tuple[str, str], flag: str = "--config") -> Ran:
    return run(*words.split(), "-f", files[0], flag, files[1])


@pytest.mark.parametrize("command", ["explain", "eta", "preempt-preview"])
@pytest.mark.parametrize("what", ["queue/q", "Queue/nope", "clusterqueue/q"])
def test_a_queue_is_no_pod(command: str, what: str, files: tuple[str, str]) -> None:
    ran = ask(f"{command} {what}", files)
    assert ran.code == 2
    assert f'resource type "{what.partition("/")[0]}": expected pods, workloads or' in ran.err
    assert "`stowplan queues` shows queues" in ran.err


def test_eta_knows_the_groups_of_kai(files: tuple[str, str]) -> None:
    assert ask("eta podgroup/g", files).out.count("default") == 3
    ran = ask("eta podgroup/gg", files)
    assert 'podgroups "gg" not found in namespace "default" (did you mean "g"?)' in ran.err


@pytest.mark.parametrize("mode", ["--fit", "--compact"])
def test_nodes_are_looked_for_pod_by_pod(mode: str, files: tuple[str, str]) -> None:
    ran = ask(f"capacity {mode}", files)
    assert ran.code == 2
    assert f"{files[1]}: only sessions: expected profiles: these nodes are looked for" in ran.err
    ran = run("capacity", mode, "--profile", "default-scheduler", "-f", files[0])
    assert ran.code != 2


def test_a_profile_of_sessions_only(files: tuple[str, str]) -> None:
    ran = ask("what-if --cordon a --profile x", files, "--base-config")
    assert "profile: Invalid value: 'x': expected one of (none: it has only sessions)" in ran.err


def test_a_group_of_kai_counts_whole(files: tuple[str, str], tmp_path: Path) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(yaml.safe_dump_all([node("a", 7), queue("q", 7)]))
    rows = run("capacity", files[0], "-f", str(more), "--config", files[1]).out.splitlines()
    assert rows[1].split()[:6] == ["podgroup/g", "gang", "of", "3", "2", "6"]


def test_what_sessions_lack_is_no_number_of_nodes(files: tuple[str, str]) -> None:
    ran = ask(f"capacity {files[0]}", files)
    lines = [line for line in ran.out.splitlines() if line.startswith("No more of podgroup/g")]
    assert lines
    assert lines[0].startswith("No more of podgroup/g: 1/1 nodes fit pod")


@pytest.mark.parametrize(
    "words",
    [
        "queues", "queues --audit", "explain pod/p0", "explain podgroup/g", "explain --all-pending",
        "eta --all", "what-if --cordon a",
    ],
)  # fmt: skip
def test_shares_without_usage_are_noted(words: str, files: tuple[str, str]) -> None:
    flag = "--base-config" if words.startswith("what-if") else "--config"
    ran = ask(words, files, flag)
    assert USAGE not in ran.out + ran.err
    Path(files[1]).write_text("scheduler: kai\nusageDBConfig: {usageParams: {windowSize: 1h}}\n")
    ran = ask(words, files, flag)
    assert (ran.out + ran.err).replace("\n", " ").count(USAGE) == 1


@pytest.fixture
def unfair(tmp_path: Path) -> tuple[str, str]:
    """Queue `r` reclaims two cards of the four of job `long`, for the pods of job `short`."""
    objects = [node("a", 4), queue("q", 2), queue("r", 2), group("g", "q", 1), group("h", "r", 1)]
    objects += [pod(f"long-{i}", "g", node="a", **of_job("long")) for i in range(4)]
    objects += [pod(f"short-{i}", "h", **of_job("short")) for i in range(2)]
    (tmp_path / "unfair.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    return str(tmp_path / "unfair.yaml"), str(tmp_path / "kai.yaml")


def of_job(name: str) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"u-{name}"}
    return {"ownerReferences": [owner | {"controller": True}]}


def test_diagnose_counts_evictions_by_job(unfair: tuple[str, str], tmp_path: Path) -> None:
    record = str(tmp_path / "run.rec")
    run("simulate", "-f", unfair[0], "--config", unfair[1], "--record", record)
    text = run("diagnose", record, "--preemptions", "2").out
    assert "2 of its pods were evicted within 1s, by default/job/short (2): reclaim" in text


@pytest.mark.parametrize("what", ["job/short", "podgroup/h"])
def test_explain_names_the_victims_of_the_job(what: str, unfair: tuple[str, str]) -> None:
    text = ask(f"explain {what}", unfair).out
    assert "The session evicts default/long-3 (reclaim) for it" in text
    assert "for other jobs" not in text
    other = ask("explain podgroup/g", unfair).out
    assert "The session evicts 1 pod for other jobs" in other
