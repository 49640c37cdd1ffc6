"""`--record`, `replay`, `explain --at` and `diagnose` as a user sees them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.run import check_one_line, run

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z",
  annotations: {stowplan.dev/run-seconds: "7200"}}
spec: {containers: [{name: c, image: a, resources: {requests: {cpu: "2"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: second, namespace: shop, creationTimestamp: "2026-01-01T00:01:00Z",
  annotations: {stowplan.dev/run-seconds: "60"}}
spec: {containers: [{name: c, image: a, resources: {requests: {cpu: "1"}}}]}
"""
SESSIONS = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the cluster and the recording of its replay, made once."""
    folder = tmp_path_factory.mktemp("recording")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("cluster.yaml").write_text(CLUSTER)
        assert run("simulate", "cluster.yaml", "--replay", "--record", "run.rec").code == 0
    return folder


@pytest.fixture
def recorded(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(recording, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_replay_restores_the_state_at_a_moment(recorded: Path) -> None:
    early = json.loads(run("replay", "run.rec", "--until", "+90s", "-o", "json").out)
    assert (early["bound"], early["nodes"], early["pending"]["unschedulable"]) == (1, 1, 1)
    late = json.loads(run("replay", "run.rec", "-o", "json").out)
    assert late["pending"]["unschedulable"] == 0
    table = run("replay", "run.rec", "--until", "1970-01-01T00:01:30Z").out
    assert "run.rec: recorded by stowplan simulate --replay" in table
    assert "1 node; 1 pod bound, 0 assumed" in table


def test_replay_verifies(recorded: Path) -> None:
    ran = run("replay", "run.rec", "--verify")
    assert ran.code == 0
    assert ran.out.startswith("same decisions: ")


def test_explain_at_a_moment(recorded: Path) -> None:
    ran = run(
        "explain", "second", "-n", "shop", "--record", "run.rec", "--at", "+90s", "-o", "json"
    )
    assert ran.code == 1, ran.err
    found = json.loads(ran.out)
    assert found["state"] == "pending"
    assert "Insufficient cpu" in json.dumps(found)
    # It has run when the first one has ended.
    later = run(
        "explain", "second", "-n", "shop", "--record", "run.rec", "--at", "+7230s", "-o", "json"
    )
    assert json.loads(later.out)["state"] == "placed"


def test_diagnose_a_recording(recorded: Path) -> None:
    ran = run("diagnose", "run.rec", "--at", "+30m")
    assert ran.code == 1
    assert "pending-long" in ran.out
    assert "shop/pod/second" in ran.out
    assert "1 pod pending for up to 29m: Insufficient cpu" in ran.out
    assert run("diagnose", "run.rec", "--at", "+5m").out == "Nothing found.\n"
    earlier = json.loads(
        run("diagnose", "run.rec", "--at", "+5m", "--pending-for", "1m", "-o", "json").out
    )
    assert earlier["findings"][0]["pods"] == ["shop/second"]


def test_another_configuration(recorded: Path) -> None:
    Path("same.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    ran = run("replay", "run.rec", "--config", "same.yaml")
    assert ran.code == 0
    assert ran.out.startswith("2 pods: 0 on another node, 0 unplaced")


def test_sessions_are_recorded(recorded: Path) -> None:
    Path("sessions.yaml").write_text(SESSIONS)
    batch = CLUSTER.replace("spec: {containers", "spec: {schedulerName: kube-batch, containers")
    Path("batch.yaml").write_text(batch)
    for more in ((), ("--replay",)):
        given = ("simulate", "batch.yaml", "--config", "sessions.yaml", *more)
        assert run(*given, "--record", "batch.rec").code == 0
        ran = run("replay", "batch.rec", "--verify")
        assert (ran.code, ran.out[:15]) == (0, "same decisions:"), ran


def test_plugins_are_those_of_the_recording(recorded: Path) -> None:
    plugin = 'from stowplan.framework import score\n\n\n@score("ByName", weight=2)\n'
    plugin += "def by_name(pod, node):\n"
    Path("mine.py").write_text(plugin + "    return len(node.name)\n")
    given = ("simulate", "cluster.yaml", "--replay", "--plugin", "mine.py", "--record", "mine.rec")
    assert run(*given).code == 0
    assert run("replay", "mine.rec", "--verify").code == 0
    Path("mine.py").write_text(plugin + "    return 7\n")
    check_one_line(run("replay", "mine.rec", "--verify"), "mine.py", "is not of this recording")
    Path("mine.py").unlink()
    check_one_line(run("replay", "mine.rec"), "mine.py: no such file", "name it with --plugin")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("replay", "nope.rec"), ["nope.rec: no such file or directory"]),
        (("replay", "cluster.yaml"), ["cluster.yaml: not a recording"]),
        (("replay", "run.rec", "--until", "noon"), ["time 'noon'", "+90s"]),
        (("diagnose", "run.rec", "--at", "+1y"), ["time '+1y'"]),
        (("explain", "second", "--record", "nope.rec"), ["nope.rec"]),
        (("simulate", "cluster.yaml", "--record", "cluster.yaml/x"), ["unable to record"]),
    ],
)
def test_bad_input_is_one_line(
    recorded: Path, arguments: tuple[str, ...], parts: list[str]
) -> None:
    check_one_line(run(*arguments), *parts)


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "run.rec", "--verify", "--until", "+1s"),
        ("explain", "second", "--at", "+1s"),
        ("explain", "second", "-f", "cluster.yaml", "--record", "run.rec"),
        ("simulate", "cluster.yaml", "--record", "x.rec", "--seeds", "2"),
        ("simulate", "cluster.yaml", "--record", "x.rec", "--record-max-size", "1Ki"),
        ("diagnose", "--window", "1h"),
        ("diagnose", "run.rec", "--address", "localhost:1"),
        ("up", "--no-scheduler", "--record", "x.rec"),
    ],
)
def test_options_that_exclude_each_other(recorded: Path, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert not Path("x.rec").exists()
