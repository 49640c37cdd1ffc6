"""The commands, as a user types them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from stowplan.cli.commands.parity import parity_notes_in
from stowplan.cli.main import COMMANDS
from stowplan.cli.tables.explanations import print_explanation
from stowplan.cycle.explanation import Explanation, NodeScore, PluginScore
from tests.cli.run import check_one_line, run

DATA = Path(__file__).parents[1] / "conformance" / "data" / "attempts"

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {disk: ssd}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
spec: {taints: [{key: gpu, effect: NoSchedule}]}
status: {allocatable: {cpu: "8", memory: 16Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: fits}
spec: {containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: big}
spec: {containers: [{name: c, resources: {requests: {cpu: "5"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: placed}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def test_help_lists_every_command_without_importing_it() -> None:
    script = (
        "import sys\nfrom stowplan.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: print('numpy' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert all(name in output for name in COMMANDS)
    assert output.endswith("False\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    assert "Usage: stowplan" in ran.out


def test_simulate_prints_placements_and_reasons(cluster: str, tmp_path: Path) -> None:
    ran = run("simulate", "--cluster", cluster, "--out", str(tmp_path / "out"))
    assert ran.code == 0
    assert "1 of 2 pods placed" in ran.out
    assert "Insufficient cpu; node(s) had untolerated taint(s)" in ran.out
    lines = (tmp_path / "out" / "placements.jsonl").read_text().splitlines()
    assert [json.loads(line)["node"] for line in lines] == ["n1", ""]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["placed"] == 1


def test_simulate_strict_exits_with_1(cluster: str) -> None:
    assert run("simulate", "--cluster", cluster, "--strict").code == 1


def test_simulate_prints_json(cluster: str) -> None:
    ran = run("simulate", "--cluster", cluster, "-o", "json")
    assert json.loads(ran.out)["placed"] == 1


def test_simulate_generates_a_workload() -> None:
    ran = run("simulate", "--node-count", "20", "--pod-count", "50", "-o", "json")
    assert json.loads(ran.out)["pods"] == 50


TIMED = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata:
  name: first
  creationTimestamp: "2026-01-01T00:00:00Z"
  annotations: {stowplan.dev/run-seconds: "600"}
spec: {containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: second, creationTimestamp: "2026-01-01T00:01:40Z"}
spec: {containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
"""


@pytest.fixture
def timed(tmp_path: Path) -> str:
    path = tmp_path / "timed.yaml"
    path.write_text(TIMED)
    return str(path)


def test_simulate_replays_by_timestamps(timed: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("simulate", "--cluster", timed, "--speedup", "10", "--out", str(out))
    assert ran.code == 0, ran.err
    assert "2 of 2 pods placed" in ran.out
    assert "PENDING TIME" in ran.out
    assert {path.name for path in out.iterdir()} == {
        "placements.jsonl",
        "series.csv",
        "summary.json",
        "usage.json",
    }
    second = json.loads((out / "placements.jsonl").read_text().splitlines()[1])
    assert (second["arrived_s"], second["wait_s"]) == (10.0, 591.02)
    assert ran.err == ""


def test_simulate_notes_that_times_are_ignored_without_a_replay(timed: str) -> None:
    ran = run("simulate", "--cluster", timed)
    assert "1 of 2 pods placed" in ran.out
    assert "which only --replay uses" in ran.out


@pytest.mark.parametrize(
    ("arguments", "placed"),
    [
        (["--until", "5m"], 1),
        (["--replay"], 2),
        (["--no-departures"], 1),
        (["--churn", "100d/1s"], 2),
        (["--bind-latency", "2s", "--until", "99"], 1),
        (["--bind-latency", "0"], 2),
    ],
)
def test_options_about_time_imply_a_replay(timed: str, arguments: list[str], placed: int) -> None:
    found = json.loads(run("simulate", "--cluster", timed, "-o", "json", *arguments).out)
    assert found["placed"] == placed
    assert "waits_s" in found


def test_simulate_runs_several_seeds(tmp_path: Path) -> None:
    out = tmp_path / "out"
    size = ("--node-count", "10", "--pod-count", "30")
    ran = run("simulate", *size, "--seed", "4", "--seeds", "2", "--out", str(out))
    assert "2 seeds" in ran.out
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.json*")) == [
        "seed-4/placements.jsonl",
        "seed-4/summary.json",
        "seed-4/usage.json",
        "seed-5/placements.jsonl",
        "seed-5/summary.json",
        "seed-5/usage.json",
        "summary.json",
    ]
    found = json.loads(run("simulate", *size, "--seed", "4", "--seed", "5", "-o", "json").out)
    assert found["seeds"] == [4, 5]
    assert found["figures"]["placed"]["max"] >= found["figures"]["placed"]["mean"]
    placements = found.pop("placements")
    assert json.loads((out / "summary.json").read_text()) == found
    for seed in ("4", "5"):
        lines = (out / f"seed-{seed}" / "placements.jsonl").read_text().splitlines()
        assert placements[seed] == [json.loads(line) for line in lines]


def test_simulate_scales_the_cluster(cluster: str) -> None:
    found = json.loads(run("simulate", "--cluster", cluster, "--node-count", "4", "-o", "json").out)
    assert found["nodes"] == 4
    assert "4 nodes instead of 2, of the same mix" in found["notes"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["--until", "soon"],
            ('invalid argument "soon" for "--until" flag: must be', "90s, 15m, 12h or 30d"),
        ),
        (["--churn", "30d"], ('invalid argument "30d" for "--churn" flag: must be UP/DOWN',)),
        (["--churn", "0/1h"], ('invalid argument "0/1h" for "--churn" flag',)),
        (
            ["--speedup", "0"],
            ('invalid argument "0" for "--speedup" flag: must be a number greater than 0',),
        ),
        (["--speedup", "nan"], ('invalid argument "nan" for "--speedup" flag',)),
        (["--until", "0"], ('invalid argument "0" for "--until" flag: must be greater than 0',)),
        (["--sample-every", "0s"], ('invalid argument "0s" for "--sample-every" flag',)),
        (["--extender", "none.py"], ("none.py: cannot read the file",)),
        (
            ["--seed", "1", "--seed", "2", "--seeds", "2"],
            ("--seeds cannot be used with several --seed",),
        ),
    ],
)
def test_simulate_rejects_invalid_arguments(arguments: list[str], parts: tuple[str, ...]) -> None:
    ran = run("simulate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert all(part in ran.err for part in parts), ran.err


def test_a_replay_shows_progress_on_a_terminal_only(timed: str) -> None:
    leader, follower = pty.openpty()
    code = "from stowplan.cli.main import main; main()"
    command = [sys.executable, "-c", code, "simulate", "--cluster", timed, "--replay"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=env) as running:
        os.close(follower)
        output = b""
        # A terminal whose other end is closed is an error to read from.
        with contextlib.suppress(OSError):
            while more := os.read(leader, 4096):
                output += more
        os.close(leader)
        assert running.stdout is not None
        printed = running.stdout.read()
    assert running.returncode == 0
    assert re.search(rb"replaying, \d\d:\d\d:\d\d, \d pending", output), output
    assert b"PENDING TIME" in printed
    assert b"replaying" not in printed


def test_simulate_calls_extenders(timed: str, tmp_path: Path) -> None:
    config, mind = tmp_path / "config.yaml", tmp_path / "mind.py"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: 'http://fit', filterVerb: filter, nodeCacheCapable: true}]\n"
    )
    mind.write_text("class Never:\n    def filter(self):\n        return 'not today'\n")
    base = ("simulate", "--cluster", timed, "--config", str(config))
    ran = run(*base)
    assert "1 of 2 pods placed" in ran.out
    assert re.search(r"http://fit +agreement +\d filter +0", ran.out), ran.out
    assert "extender http://fit is not simulated" in ran.out
    ran = run(*base, "--extender", str(mind))
    assert "0 of 2 pods placed" in ran.out
    assert re.search(r"2 +not today", ran.out), ran.out
    assert re.search(r"http://fit +Never +2 filter +0", ran.out), ran.out


def test_the_page_about_extenders(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extenders.md").read_text()
    config, mind = tmp_path / "scheduler.yaml", tmp_path / "cards.py"
    config.write_text(page.partition('```yaml title="scheduler.yaml"\n')[2].partition("```")[0])
    mind.write_text(page.partition('```python title="cards.py"\n')[2].partition("```")[0])
    assert run("config", "check", str(config)).code == 0
    ran = run(
        *("simulate", "--node-count", "3", "--pod-count", "9", "--config", str(config)),
        *("--extender", str(mind), "--replay"),
    )
    assert (ran.code, ran.err) == (0, "")
    assert "Cards" in ran.out


def test_a_simulation_that_fails_leaves_nothing_behind(timed: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    broken = tmp_path / "broken.py"
    broken.write_text(
        'class B:\n    name = "B"\n\n    def __init__(self):\n        raise KeyError("x")\n\n'
        "    def filter(self):\n        return 7\n"
    )
    ran = run("simulate", "--cluster", timed, "--out", str(out), "--plugin", str(broken))
    assert ran.code == 2
    ran = run("simulate", "--cluster", "none.yaml", "--out", str(out))
    assert ran.code == 2
    assert not (tmp_path / "new").exists()


def test_the_page_about_simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "cluster.yaml").write_text(TIMED)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert (tmp_path / "results" / "series.csv").exists()
    output = run("simulate", "--help").out
    for option in re.findall(r"`(--[a-z-]+)", page):
        assert option in output, option


def test_evaluate_prints_a_line_per_case() -> None:
    ran = run("evaluate", str(DATA / "gates.jsonl.gz"))
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert len(answers) == 24
    assert answers[0]["result"]["outcome"] == "gated"


def test_evaluate_reports_invalid_lines_and_evaluates_the_others(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    good = {"id": "good", "pod": {"metadata": {"name": "p"}, "spec": {"containers": []}}}
    lines = [
        json.dumps({"id": "typed", "pod": {"metadata": {"name": 7}}}),
        "{",
        json.dumps({"id": "deep"})[:-1] + ', "pod": ' + "[" * 5000 + "]" * 5000 + "}",
        json.dumps({**good, "id": "amount", "nodes": [{"status": {"allocatable": {"cpu": "x"}}}]}),
        json.dumps({**good, "id": "profile", "profile": {"profilez": []}}),
        json.dumps({**good, "id": "gate", "featureGates": {"NoSuchGate": True}}),
        json.dumps(good),
    ]
    path.write_text("\n".join(lines) + "\n")
    ran = run("evaluate", str(path))
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, ran.out.splitlines())}
    assert list(answers) == ["typed", "line 2", "line 3", "amount", "profile", "gate", "good"]
    assert answers["good"]["outcome"] == "unschedulable"
    found = ran.err.splitlines()
    for line, result in zip(found, list(answers.values())[:-1], strict=True):
        assert (result["outcome"], result["reason"]) == ("error", "Invalid")
        assert line == f"error: {result['message']}"
    assert ran.code == 2
    assert found[0].startswith(f"error: {path}: line 1: $.pod.metadata.name: ")
    assert "NoSuchGate" in found[-1]


def test_evaluate_reports_ten_invalid_lines_and_counts_the_others(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("{}\n" * 12)
    ran = run("evaluate", str(path))
    assert (ran.code, len(ran.out.splitlines())) == (2, 12)
    assert len(ran.err.splitlines()) == 11
    assert ran.err.endswith(f"error: {path}: 2 more invalid lines\n")


def test_explain_prints_requested_and_free(cluster: str) -> None:
    ran = run("explain", "big", "--cluster", cluster)
    assert ran.code == 1
    text = " ".join(ran.out.split())
    assert "0 of 2 nodes fit" in text
    assert "needs 5000m" in text
    assert "taint gpu:NoSchedule" in text


def test_explain_json_follows_its_schema(cluster: str) -> None:
    found = json.loads(run("explain", "placed", "--cluster", cluster, "-o", "json").out)
    assert found["apiVersion"] == "stowplan.dev/explanation/v1"
    assert (found["state"], found["currentNode"], found["node"]) == ("placed", "n1", "n1")
    refused = next(node for node in found["nodes"] if not node["fits"])
    assert refused["first"]["plugin"] == "TaintToleration"
    assert found["scores"][0]["plugins"]["TaintToleration"] == {"raw": 0, "weight": 3, "final": 300}


def test_explain_numbers_nodes_whose_names_are_long() -> None:
    plugins = {"NodeResourcesFit": PluginScore(68, 1, 68)}
    scores = tuple(NodeScore(f"ip-10-0-2-{i}.compute.internal", 90 - i, plugins) for i in range(3))
    explanation = Explanation("v", "a/p", "s", "pending", node=scores[0].name, scores=scores)
    text = io.StringIO()
    print_explanation(explanation, Console(file=text, width=60))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert "(1) ip-10-0-2-0.compute.internal" in lines
    assert any(line.split() == ["PLUGIN", "(1)", "(2)", "(3)"] for line in lines)


def test_explain_suggests_a_pod_with_a_similar_name(cluster: str) -> None:
    check_one_line(
        run("explain", "bigg", "--cluster", cluster),
        'pods "bigg" not found in namespace "default" (did you mean "big"?)',
    )


def test_config_check_prints_the_effective_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: gpu}]\n"
    )
    ran = run("config", "check", str(path))
    assert ran.code == 0
    assert "schedulerName: gpu" in ran.out


def test_config_check_reports_every_error(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "paralelism: 4\npercentageOfNodesToScore: 140\n"
        "profiles: [{plugins: {score: {enabled: [{name: NodeResourceFit}]}}}]\n"
    )
    ran = run("config", "check", str(path))
    assert ran.code == 2
    assert len(ran.err.strip().splitlines()) == 3
    assert "did you mean 'parallelism'?" in ran.err
    assert "140" in ran.err
    assert "did you mean 'NodeResourcesFit'?" in ran.err


def test_parity_lists_differences() -> None:
    ran = run("parity")
    assert "the winner of a tie depends on heap order" in ran.out
    assert "differences" in ran.out.splitlines()[-1]


def test_a_parity_note_ends_with_its_comment() -> None:
    source = '# Differs: one\n# two.\nx = 1\n"""Unproved: three\nfour.\n\nfive"""\n'
    found = [(mark.kind, mark.text) for mark in parity_notes_in("m", source)]
    assert found == [("Differs", "one two."), ("Unproved", "three four.")]
