"""docs/batch.md: its files are read, its commands run, and their output is what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.run import check_one_line, run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "batch.md").read_text()
BATCH, VOLCANO, CLUSTER, TIMED = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
(PYTHON,) = re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line.split() for line in re.findall(r"^    stowplan (.*)$", PAGE, re.MULTILINE)]
WARNING = re.findall(r"^    (Warning: .*)$", PAGE, re.MULTILINE)[0]
QUEUE_LINE = "research borrows 3 cpu from product; product can reclaim 3 of it"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the page's files, which is where commands are run."""
    files = {"batch.yaml": BATCH, "cluster.yaml": CLUSTER, "large_first.py": PYTHON}
    files["volcano.yaml"] = VOLCANO
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output_of(*arguments: str) -> str:
    ran = run(*arguments)
    assert ran.code == 0, ran
    return ran.out


INPUT = ("--cluster", "cluster.yaml", "--config", "batch.yaml")


def test_config_check_output_is_a_configuration(here: Path) -> None:
    once = output_of("config", "check", "batch.yaml")
    assert yaml.safe_load(once) == yaml.safe_load(BATCH)
    (here / "again.yaml").write_text(once)
    assert output_of("config", "check", "again.yaml") == once
    (here / "again.yaml").write_text(once.replace("name: gang", "name: gan"))
    check_one_line(run("config", "check", "again.yaml"), "plugins[1].name", "did you mean 'gang'?")
    assert "name: gan\n" in output_of("config", "check", "again.yaml", "--compat", "kube-batch-0.5")
    check_one_line(run("config", "check", "gone.yaml"), "gone.yaml")
    fallen_back = output_of("config", "check", "gone.yaml", "--compat", "kube-batch-0.5")
    assert fallen_back.startswith("actions: allocate, backfill\n")


def test_simulate_replays_sessions_in_virtual_time(here: Path) -> None:
    out = output_of("simulate", *INPUT, "--replay", "--out", "out")
    # The Job replaces each pod that is evicted for the gang.
    assert "8 of 8 pods placed on 1 node" in out
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert summary["sessions"] >= 3
    again = output_of("simulate", *INPUT, "--replay", "--out", "again")
    assert "8 of 8 pods placed" in again
    for name in ("placements.jsonl", "series.csv"):
        assert (here / "out" / name).read_bytes() == (here / "again" / name).read_bytes()


def test_simulate_reclaims_for_the_gang(here: Path) -> None:
    out = output_of("simulate", *INPUT, "--out", "out")
    assert "2 of 2 pods placed on 1 node, 2 of 2 jobs ready" in out
    gone = ", ".join(f"default/survey-{number} (reclaim)" for number in (3, 2, 1))
    assert f"Evicted: {gone}" in out
    jobs = [json.loads(line) for line in (here / "out" / "jobs.jsonl").read_text().splitlines()]
    assert [(job["name"], job["phase"], job["ready"]) for job in jobs] == [
        ("default/train", "Running", 2),
        ("default/survey", "Running", 1),
    ]
    placed = (here / "out" / "placements.jsonl").read_text().splitlines()
    assert {json.loads(line)["node"] for line in placed} == {"n1"}


def test_simulate_rejects_options_that_sessions_do_not_support(here: Path) -> None:
    for more, message in (
        (("--seeds", "2"), "several seeds"),
        (("--node-count", "2"), "node-count"),
    ):
        ran = run("simulate", *INPUT, *more)
        assert ran.code == 2
        assert message in ran.err
    assert run("simulate", "--config", "batch.yaml").code == 2


def test_explain_prints_gang_and_evictions(here: Path) -> None:
    ran = run("explain", "train-0", *INPUT)
    assert ran.code == 1
    assert "RoomBeingFreed: " in ran.out
    assert "The session evicts default/survey-3 (reclaim)" in ran.out
    assert ran.out.count(" for it\n") == 1
    ran = run("explain", "podgroup/train", *INPUT)
    assert (ran.code, ran.out.count("survey-3 (reclaim)")) == (1, 1)
    (here / "batch.yaml").write_text(BATCH.replace("reclaim, ", ""))
    ran = run("explain", "train-0", *INPUT, "-o", "json")
    assert ran.code == 1
    answer = json.loads(ran.out)
    assert answer["job"]["reason"] == "NotEnoughResources"
    assert answer["job"]["message"] == (
        "2/2 tasks in gang unschedulable: 0/1 nodes are available: 1 Insufficient cpu."
    )
    assert answer["nodes"] == [
        {"name": "n1", "reasons": ["Insufficient cpu (needs 1500m, 0 left)"]},
    ]
    check_one_line(run("explain", "trian-0", *INPUT), 'did you mean "train-0"')


def test_queues_prints_what_is_borrowed(here: Path) -> None:
    assert QUEUE_LINE in PAGE
    out = output_of("queues", *INPUT)
    assert QUEUE_LINE in out
    answer = json.loads(output_of("queues", *INPUT, "-o", "json"))
    product, research = answer["queues"]
    assert (product["name"], product["podsPending"], product["share"]) == ("product", 2, 0.0)
    assert product["deserved"]["cpu"] == product["part"]["cpu"] == 3
    assert research["allocated"] == {"cpu": 4, "memory": 0}
    assert research["share"] == 4.0
    # Without a file queues share by kube-batch's default.
    assert QUEUE_LINE in output_of("queues", "--cluster", "cluster.yaml")


def test_session_plugins_and_actions_of_a_file_are_used(here: Path) -> None:
    output_of("plugin", "check", "large_first.py")
    tree = yaml.safe_load(BATCH)
    tree["actions"] = "evacuate, allocate"
    tree["tiers"][0]["plugins"].append({"name": "large-first"})
    (here / "batch.yaml").write_text(yaml.safe_dump(tree))
    ran = run("config", "check", "batch.yaml")
    assert ran.code == 2
    assert "'evacuate'" in ran.err
    assert "'large-first'" in ran.err
    own = ("--plugin", "large_first.py")
    assert "large-first" in output_of("config", "check", "batch.yaml", *own)
    cordoned = CLUSTER.replace("{name: n1}\n", "{name: n1}\nspec: {unschedulable: true}\n")
    (here / "cluster.yaml").write_text(cordoned)
    out = output_of("simulate", *INPUT, *own)
    assert "Evicted: default/survey-0 (evacuate), default/survey-1 (evacuate)" in out
    assert "0 of 2 pods placed" in out
    assert "NotEnoughResources" in out


def test_an_installed_session_plugin_is_used_where_it_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = here / "site" / "acme_jobs-1.0.dist-info"
    info.mkdir(parents=True)
    (here / "site" / "acme_jobs.py").write_text(PYTHON)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-jobs\nVersion: 1.0\n")
    entries = "large-first = acme_jobs:LargeFirst\nevacuate = acme_jobs:Evacuate\n"
    (info / "entry_points.txt").write_text(f"[stowplan.plugins]\n{entries}")
    monkeypatch.syspath_prepend(here / "site")
    monkeypatch.delitem(sys.modules, "acme_jobs", raising=False)
    output_of("config", "check", "batch.yaml")
    assert "acme_jobs" not in sys.modules
    (here / "batch.yaml").write_text(BATCH.replace("name: gang", "name: large-first"))
    assert "large-first" in output_of("config", "check", "batch.yaml")
    assert "2 of 2 jobs ready" in output_of("simulate", *INPUT)


def test_profiles_and_sessions_side_by_side(here: Path) -> None:
    kind = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (here / "profiles.yaml").write_text(kind)
    other = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
    other += "spec: {containers: [{name: c}]}\n"
    (here / "cluster.yaml").write_text(CLUSTER + other)
    both = (*INPUT, "--config", "profiles.yaml")
    assert "web (default-scheduler): pending; would be scheduled on n1" in output_of(
        "explain", "web", *both
    )
    assert "by sessions" in run("explain", "train-0", *both).out
    assert "2 of 2 pods placed" in output_of("simulate", *both)
    checked = yaml.safe_load(output_of("config", "check", "profiles.yaml", "batch.yaml"))
    assert checked["batch"]["schedulerNames"] == ["kube-batch", "volcano"]
    assert checked["profiles"][0]["schedulerName"] == "default-scheduler"
    (here / "one.yaml").write_text(yaml.safe_dump(checked))
    assert yaml.safe_load(output_of("config", "check", "one.yaml")) == checked
    # Alone the profiles decide as they ever did, and sessions leave the others alone.
    ran = run("explain", "train-0", "--cluster", "cluster.yaml", "--config", "profiles.yaml")
    check_one_line(ran, "profile: Invalid value: 'volcano'", "no sessions are configured")
    assert "ignored by sessions" in run("explain", "web", *INPUT).out
    check_one_line(
        run("queues", *INPUT[:2], "--config", "profiles.yaml"),
        "no sessions: expected a file with actions",
    )


def test_an_exception_in_a_session_plugin_is_one_line(here: Path) -> None:
    text = PYTHON.replace("len(second.tasks) - len(first.tasks)", "second.size - first.size")
    (here / "large_first.py").write_text(text)
    tree = yaml.safe_load(BATCH)
    tree["tiers"][0]["plugins"] = [{"name": "large-first"}]
    (here / "batch.yaml").write_text(yaml.safe_dump(tree))
    # Two jobs wait in one queue, so that somebody asks for their order.
    again = [doc.replace("train", "again") for doc in CLUSTER.split("---\n") if "train" in doc]
    (here / "cluster.yaml").write_text("---\n".join([CLUSTER, *again]))
    for command in (("simulate",), ("explain", "train-0")):
        ran = run(*command, *INPUT, "--plugin", "large_first.py")
        check_one_line(ran, "large_first.py:", "job_order() raised AttributeError", "'size'")


def test_a_plugin_name_that_exists_is_rejected(here: Path) -> None:
    text = PYTHON.replace('"large-first"', '"gang"')
    (here / "large_first.py").write_text(text)
    ran = run("simulate", *INPUT, "--plugin", "large_first.py")
    check_one_line(ran, "a plugin named 'gang' already exists", "large_first.py:")
    text = (
        "from stowplan.batch import SessionPlugin\n\n\nclass Nameless(SessionPlugin):\n    pass\n"
    )
    (here / "large_first.py").write_text(text)
    ran = run("simulate", *INPUT, "--plugin", "large_first.py")
    check_one_line(ran, "class Nameless has no `name`")


def test_volcano_s_file_is_checked_and_used_with_a_warning(here: Path) -> None:
    ran = run("config", "check", "volcano.yaml")
    assert ran.code == 0
    printed, _, _ = WARNING.partition("[...]")
    assert ran.err.startswith(printed)
    assert [line.split("'")[1] for line in ran.err.splitlines()] == [
        "enqueue",
        "overcommit",
        "binpack",
    ]
    assert yaml.safe_load(ran.out)["tiers"] == yaml.safe_load(VOLCANO)["tiers"]
    ran = run("simulate", *INPUT[:2], "--config", "volcano.yaml")
    assert "0 of 2 pods placed" in ran.out
    assert "Warning: volcano.yaml: actions: action 'enqueue'" in ran.err
    for command in (("queues",), ("explain", "train-0")):
        assert "Warning: " in run(*command, *INPUT[:2], "--config", "volcano.yaml").err


def test_backfilling_with_time_limits_takes_the_place_of_allocate(here: Path) -> None:
    (here / "batch.yaml").write_text(TIMED)
    tree = yaml.safe_load(output_of("config", "check", "batch.yaml"))
    assert tree["configurations"] == yaml.safe_load(TIMED)["configurations"]
    assert "train-0" in run("explain", "train-0", *INPUT).out


def test_every_block_of_the_page_is_tested_here() -> None:
    fenced = re.findall(r"```(\w*)[^\n]*\n.*?```", PAGE, re.DOTALL)
    assert fenced == ["yaml", "yaml", "yaml", "yaml", "python"]
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    printed = re.findall(r"^    (\S.*)$", prose, re.MULTILINE)
    others = [line for line in printed if not line.startswith("stowplan ")]
    assert others == [WARNING, QUEUE_LINE]
    assert len(printed) == len(others) + len(COMMANDS)


def test_pods_of_one_controller_are_one_job_that_needs_one_of_them(here: Path) -> None:
    assert "those of one controller one job that needs one of them" in PAGE
    annotation = "    metadata: {annotations: {scheduling.k8s.io/group-name: survey}}\n"
    text = CLUSTER.replace(annotation, "") + "---\n"
    text += "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: default}}\n"
    (here / "cluster.yaml").write_text(text)
    (here / "batch.yaml").write_text(BATCH.replace("reclaim, ", ""))
    output_of("simulate", *INPUT, "--out", "out")
    jobs = [json.loads(line) for line in (here / "out" / "jobs.jsonl").read_text().splitlines()]
    (alone,) = [job for job in jobs if job["name"] == "default/Job/survey"]
    assert (alone["minMember"], alone["queue"], alone["pods"]) == (1, "default", 4)


def test_the_capability_of_a_queue_is_a_limit_with_a_reason(here: Path) -> None:
    limited = CLUSTER.replace("spec: {weight: 3}", "spec: {weight: 3, capability: {cpu: 1}}")
    (here / "cluster.yaml").write_text(limited)
    ran = run("simulate", *INPUT)
    assert "0 of 2 pods placed" in ran.out
    assert "QueueCapabilityReached: " in ran.out
    assert "used: cpu=0, limited: cpu=1" in ran.out
    assert "Evicted" not in ran.out
    never = "it cannot run in this cluster: needs 3 cpu, the capability of queue 'product' is 1"
    assert never in run("explain", "pg/train", *INPUT).out
    table = output_of("queues", *INPUT)
    assert "CAPABILITY" in table
    answer = json.loads(output_of("queues", *INPUT, "-o", "json"))
    limits = {queue["name"]: queue["capability"] for queue in answer["queues"]}
    assert limits == {"product": {"cpu": 1}, "research": {}}


def test_the_page_s_commands_run(here: Path) -> None:
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        ran = run(*command)
        assert ran.code == (1 if command[0] == "explain" else 0), (command, ran)


@pytest.mark.slow
def test_the_example_passes_mypy(here: Path) -> None:
    config = ("--config-file", str(ROOT / "pyproject.toml"))
    cache = ("--cache-dir", str(ROOT / ".mypy_cache"))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *config, *cache, "large_first.py"],
        capture_output=True,
        text=True,
        cwd=here,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
