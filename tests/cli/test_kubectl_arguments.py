"""Arguments as kubectl takes them, in the commands that read a cluster."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.run import check_one_line, run

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: last, namespace: team}
spec: {containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
"""
REFUSED = "0/1 nodes are available: 1 Insufficient cpu."


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def test_explain_compares_with_simulate(cluster: str) -> None:
    ran = run("explain", "team/last", "-f", cluster)
    assert ran.code == 0
    alone = "pending; 1 of 1 nodes fit it alone, none does once the pods before it are scheduled"
    assert alone in ran.out
    # Scores of nodes that it does not get.
    assert "Scores" not in ran.out
    assert "Scores" in run("explain", "team/last", "-f", cluster, "-o", "wide").out
    (line,) = (line for line in ran.out.splitlines() if "stowplan simulate" in line)
    assert line.startswith("`stowplan simulate` does not schedule it, after 2 of 4 earlier pods")
    assert line.endswith(REFUSED)
    found = json.loads(run("explain", "team/last", "-f", cluster, "-o", "json").out)
    assert found["simulation"] == {"triedBefore": 4, "placedBefore": 2, "message": REFUSED}


def test_explain_names_the_profile_for_simulate(cluster: str) -> None:
    theirs = "spec: {schedulerName: other, containers"
    Path(cluster).write_text(CLUSTER.replace("spec: {containers", theirs))
    by = ("--profile", "default-scheduler")
    found = run("explain", "team/last", "-f", cluster, *by).out
    assert (
        "`stowplan simulate --profile default-scheduler` does not schedule it, after 2 of 4"
        in found
    )
    assert "2 of 5 pods placed" in run("simulate", cluster, *by).out
    assert "0 of 5 pods placed" in run("simulate", cluster).out


def test_explain_after_simulation_equals_simulate_explain(cluster: str) -> None:
    after = run("explain", "team/last", "-f", cluster, "--after-simulation")
    assert after.code == 1
    assert "unschedulable in the simulation; 0 of 1 nodes fit" in after.out
    assert "cpu: needs 3000m, 1000m free of 4000m" in after.out
    beside = run("simulate", cluster, "--explain", "team/last")
    assert beside.code == 0
    assert beside.out.endswith(after.out)
    found = json.loads(run("simulate", cluster, "--explain", "team/last", "-o", "json").out)
    assert found["explanation"]["judgedOn"] == "simulation"
    assert found["explanation"]["message"] == REFUSED


@pytest.mark.parametrize(
    ("arguments", "pod"),
    [
        (("pod/last", "-n", "team"), "team/last"),
        (("po/last", "--namespace", "team"), "team/last"),
        (("last", "-A"), "team/last"),
        (("deploy/web",), "default/web-3"),
        (("deployments.apps/web", "-A"), "default/web-3"),
    ],
)
def test_a_pod_is_named_as_in_kubectl(cluster: str, arguments: tuple[str, ...], pod: str) -> None:
    ran = run("explain", *arguments, "-f", cluster, "-o", "json")
    assert json.loads(ran.out)["pod"] == pod
    # As kubectl does, on standard error: standard output is JSON.
    chosen = "Found 4 pods, 4 of them pending, using pod/web-3\n"
    assert ran.err == (chosen if "web" in arguments[0] else "")


# What `explain job/a` is about, the best first: the name says what the pod is.
PODS_OF_A: dict[str, dict[str, Any]] = {
    "waits": {"status": {"phase": "Pending"}},
    "runs": {"status": {"phase": "Running"}, "spec": {"nodeName": "a"}},
    "leaves": {
        "status": {"phase": "Running"},
        "spec": {"nodeName": "a"},
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x.y/z"]},
    },
    "succeeded": {"status": {"phase": "Succeeded"}, "spec": {"nodeName": "a"}},
    "failed": {"status": {"phase": "Failed"}, "spec": {"nodeName": "a"}},
}


@pytest.mark.parametrize("best", PODS_OF_A)
@pytest.mark.parametrize("command", ["explain", "preempt-preview"])
def test_the_pod_of_an_owner_is_one_that_waits_or_runs(
    tmp_path: Path, best: str, command: str
) -> None:
    at = list(PODS_OF_A).index(best)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": True}
    trees: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": name, "ownerReferences": [owner]}
            | one.get("metadata", {}),
            "spec": {"containers": [{"name": "c", "image": "i"}]} | one.get("spec", {}),
            "status": one["status"],
        }
        for name, one in list(PODS_OF_A.items())[at:]
    ]
    trees.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump_all(trees))
    ran = run(command, "job/a", "-f", str(tmp_path / "dump.yaml"))
    if len(trees) > 2:
        assert f"using pod/{best}\n" in ran.err
    assert f"default/{best}" in ran.out + ran.err


def test_pods_that_are_not_found(cluster: str) -> None:
    check_one_line(
        run("explain", "deploy/nope", cluster),
        'no pods found for Deployment "nope" in namespace "default"',
    )
    check_one_line(
        run("explain", "web-9", cluster), 'pods "web-9" not found', '(did you mean "web-'
    )
    both = "metadata: {name: last}"
    Path(cluster).write_text(CLUSTER + f"---\napiVersion: v1\nkind: Pod\n{both}\nspec: {{}}\n")
    check_one_line(run("explain", "last", "-A", cluster), 'pods "last" found 2 times', "team/last")


def test_files_are_accepted_as_argument_and_as_option(cluster: str) -> None:
    printed = run("simulate", "--cluster", cluster, "-o", "csv").out
    assert run("simulate", cluster, "-o", "csv").out == printed
    assert run("simulate", "-f", cluster, "-o", "csv").out == printed
    assert run("simulate", "--filename", cluster, "-o", "csv").out == printed
    assert run("queues", cluster).out == run("queues", "--cluster", cluster).out
    first = run("explain", "deploy/web", cluster).out
    assert first == run("explain", "-f", cluster, "deploy/web").out


@pytest.mark.parametrize("command", [("explain", "web"), ("queues",)])
def test_a_cluster_is_required(command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert ran.code == 2
    assert "-f FILE" in ran.err
    assert "--kubeconfig FILE" in ran.err
    ran = run(*command, "-f", "a.yaml", "--context", "b")
    assert ran.code == 2
    assert "cannot be used with files" in ran.err


def test_simulate_lists_the_pods_that_failed(cluster: str) -> None:
    lines = [line.split() for line in run("simulate", cluster).out.splitlines()]
    because = ["Insufficient", "cpu"]
    assert ["NAMESPACE", "OWNER", "PODS", "REASON", "EXAMPLES"] in lines
    row = ["default", "deployment/web", "2", *because, "default/web-2,", "default/web-3"]
    assert row in lines
    assert ["<none>", "<none>", "1", *because, "team/last"] in lines
    wide = run("simulate", cluster, "-o", "wide").out.splitlines()
    assert [line.split()[:2] for line in wide if line.endswith(REFUSED)] == [
        ["default", "web-2"],
        ["default", "web-3"],
        ["team", "last"],
    ]


def test_queues_are_cluster_scoped(cluster: str) -> None:
    printed = run("queues", cluster).out
    assert run("queues", cluster, "-n", "team").out == printed
    assert run("queues", "-A", cluster).out == printed


def test_simulate_shows_one_namespace(cluster: str) -> None:
    ran = run("simulate", cluster, "-n", "team")
    assert "2 of 5 pods placed" in ran.out
    assert "In namespace team: 0 of 1 pods placed" in ran.out
    assert "deployment/web" not in ran.out
    found = json.loads(run("simulate", cluster, "-n", "team", "-o", "json").out)
    assert [one["pod"] for one in found["placements"]] == ["team/last"]
    assert [one["pods"] for one in found["failures"]] == [["team/last"]]
    assert run("simulate", cluster, "-n", "team", "-A", "-o", "csv").out.count("\n") == 6


@pytest.mark.parametrize("output", ["table", "json", "csv", "name"])
def test_a_namespace_without_pending_pods_is_named_on_standard_error(
    cluster: str, output: str
) -> None:
    ran = run("simulate", cluster, "-n", "nope", "-o", output)
    assert (ran.code, ran.err) == (0, 'No pending pods found in namespace "nope".\n')


def test_exit_codes_of_a_replay_are_those_of_a_run_without_one(cluster: str) -> None:
    for strict, code in ((), 0), (("--strict",), 1):
        for replay in (), ("--replay", "--until", "60"):
            ran = run("simulate", cluster, *strict, *replay)
            assert (ran.code, ran.err) == (code, ""), replay


def test_placements_are_printed_as_json_yaml_and_csv(cluster: str, tmp_path: Path) -> None:
    run("simulate", cluster, "--out", str(tmp_path / "out"))
    lines = (tmp_path / "out" / "placements.jsonl").read_text().splitlines()
    placements = [json.loads(line) for line in lines]
    assert len(placements) == 5
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        found = read(run("simulate", cluster, "-o", output).out)
        assert found["placements"] == placements
        assert found["failures"][0]["owner"] == "deployment/web"
    rows = list(csv.DictReader(io.StringIO(run("simulate", cluster, "-o", "csv").out)))
    assert rows == placements
    seeded = run("simulate", cluster, "--seed", "1", "--seed", "2", "-o", "csv").out
    seeds = [row.pop("seed") for row in csv.DictReader(io.StringIO(seeded))]
    assert seeds == ["1"] * 5 + ["2"] * 5
    replayed = run("simulate", cluster, "--replay", "-o", "csv").out
    assert "wait_s" in replayed.splitlines()[0].split(",")


def test_sessions_print_placements_too(cluster: str, tmp_path: Path) -> None:
    tiers = tmp_path / "tiers.yaml"
    tiers.write_text('actions: "allocate"\ntiers: [{plugins: [{name: gang}]}]\n')
    how = ("simulate", cluster, "--config", str(tiers), "-o")
    assert json.loads(run(*how, "json").out)["placements"] == []
    assert yaml.safe_load(run(*how, "yaml").out)["placements"] == []
    assert run(*how, "csv").out == "pod,node,reason,message\n"
    assert "0 of 0 pods placed" in run(*how, "wide").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate",),
        ("simulate", "-o", "wide"),
        ("explain", "deploy/web", "--after-simulation"),
        ("explain", "last", "-n", "team", "-o", "wide"),
        ("queues",),
    ],
)
def test_tables_fit_the_terminal(cluster: str, arguments: tuple[str, ...]) -> None:
    long = CLUSTER.replace("name: web}", "name: web-with-a-name-that-fills-half-of-a-terminal}")
    Path(cluster).write_text(long.replace("name: n1", "name: node-1.eu-west-1.compute.internal"))
    named = tuple(
        one.replace("/web", "/web-with-a-name-that-fills-half-of-a-terminal") for one in arguments
    )
    printed = in_terminal(60, *named, "-f", cluster)
    table = [line for line in printed if "  " in line.strip()]
    assert table
    assert [line for line in table if len(line) > 60] == []


def in_terminal(columns: int, *arguments: str) -> list[str]:
    """The lines of standard output in a terminal, which says of itself that it is a plain one."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "stowplan", *arguments]
    with subprocess.Popen(
        command, stdout=follower, stderr=subprocess.DEVNULL, env={**env, "TERM": "dumb"}
    ):
        os.close(follower)
        printed = b""
        try:
            while more := os.read(leader, 4096):
                printed += more
        except OSError:
            # The other end is closed.
            pass
        os.close(leader)
    return printed.decode().splitlines()


def test_tables_are_not_padded_where_they_are_piped(cluster: str) -> None:
    for arguments in (("simulate",), ("explain", "deploy/web"), ("queues",)):
        lines = run(*arguments, "-f", cluster).out.splitlines()
        assert lines
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("command", ["explain", "eta", "preempt-preview", "simulate --explain"])
@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("podgrp/x", 'a resource type "podgrp" (did you mean "podgroup"?)'),
        ("Deplo/web", 'a resource type "Deplo" (did you mean "deploy"?)'),
        # Closer to a namespace of the cluster.
        ("tean/last", 'pods "last" not found in namespace "tean" (did you mean "team/last"?)'),
        ("other/last", 'pods "last" not found in namespace "other" (did you mean "team/last"?)'),
    ],
)  # fmt: skip
def test_an_unknown_resource_type_is_named(
    cluster: str, command: str, argument: str, error: str
) -> None:
    if "resource type" in error:
        error = f"the server doesn't have {error}"
    check_one_line(run(*command.split(), argument, "-f", cluster), error)


@pytest.mark.parametrize("command", ["explain", "eta"])
def test_a_resource_type_may_be_in_upper_case(cluster: str, command: str) -> None:
    lower = run(command, "deploy/web", "-f", cluster)
    upper = run(command, "Deployment/web", "-f", cluster)
    assert (upper.code, upper.out) == (lower.code, lower.out)
    assert run(command, "Pod/last", "-n", "team", "-f", cluster).code != 2
