"""Experiments: the pool, the store, resuming, shards and failures. Runs are small simulations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.experiments.experiment_run import (
    ExperimentProgress,
    ExperimentResult,
    ExperimentSettings,
    experiment,
)
from stowplan.experiments.store.run_store import PART, ExperimentStoreError
from stowplan.framework.problems import ConfigError, ContractError
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.inputs.workloads.arrivals import parse_arrivals, with_arrivals
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from stowplan.web.report import write_report

PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resources": [{"name": "cpu", "weight": 1}],
                        }
                    },
                }
            ]
        }
    ],
}
PLAN: dict[str, Any] = {
    "title": "Packing",
    "mode": "replay",
    "workloads": [{"name": "small", "generated": {"nodes": 4, "pods": 12}}],
    "policies": ["default", {"name": "packing", "configuration": PACKING}],
    # Samples are most of the time of so small a replay.
    "options": {"speedup": [1, 20], "sampleEvery": "12h"},
    "seeds": 2,
}
GATHERED = ("experiment.json", "measures.csv", "comparison.json", "index.sqlite", "report.html")


def contents(folder: Path) -> dict[str, bytes]:
    """All result files, without the locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".lock")
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResult:
    """The plan, run by one worker."""
    return experiment(PLAN, out=tmp_path_factory.mktemp("plain"), jobs=1)


def test_a_run_is_a_folder_and_files_gather_them(plain: ExperimentResult) -> None:
    names = {path.name for path in plain.folder.iterdir()}
    assert names - {".lock", ".lock-gather"} == {*GATHERED, "runs"}
    assert [run.status for run in plain.runs] == ["done"] * 8
    described = json.loads((plain.folder / "experiment.json").read_bytes())
    assert described["policies"] == ["default", "packing"]
    assert [run["key"] for run in described["runs"]] == [run.key for run in plain.runs]
    for run in plain.runs:
        folder = plain.folder / "runs" / run.key
        found = json.loads((folder / "run.json").read_bytes())
        assert (found["policy"], found["seed"], found["options"]) == (
            run.policy,
            run.seed,
            run.options,
        )
        summary = json.loads((folder / "summary.json").read_bytes())
        assert summary["replay"]["speedup"] == run.options["speedup"]
        assert json.loads((folder / "measures.json").read_bytes())["placed"] == summary["placed"]
    lines = (plain.folder / "measures.csv").read_text().splitlines()
    assert lines[0] == "policy,workload,speedup,sampleEvery,seed,measure,value"
    assert lines[1:] == sorted(lines[1:])
    assert repr(plain) == f"ExperimentResult(8 of 8 runs in {plain.folder})"
    assert plain.files == GATHERED


def test_the_report_can_be_left_out_and_written_later(
    plain: ExperimentResult, tmp_path: Path
) -> None:
    one = ["speedup=1", "policy=default"]
    found = experiment(PLAN, out=tmp_path, jobs=1, only=one, report=False)
    assert "report.html" not in found.files
    assert not (tmp_path / "report.html").exists()
    write_report(tmp_path)
    # It would show what another call has changed.
    experiment(PLAN, out=tmp_path, jobs=1, only=one, report=False)
    assert not (tmp_path / "report.html").exists()
    text = write_report(tmp_path).read_text()
    again = experiment(PLAN, out=tmp_path, jobs=1, only=one)
    assert (again.n_executed, again.files[-1]) == (0, "report.html")
    assert (tmp_path / "report.html").read_text() == text
    # It has nothing of the machine, and names the plan where that has no title.
    assert str(tmp_path) not in text
    untitled = {name: value for name, value in PLAN.items() if name != "title"}
    experiment(untitled, out=tmp_path, jobs=1, only=one)
    assert "<title>plan</title>" in (tmp_path / "report.html").read_text()


def test_of_shards_the_last_one_writes_the_report(tmp_path: Path) -> None:
    only = ["speedup=1", "seed=0"]
    names = [
        experiment(PLAN, out=tmp_path, jobs=1, only=only, shard=shard).files[-1]
        for shard in ("1/2", "2/2")
    ]
    assert names == ["index.sqlite", "report.html"]


def test_notebooks_show_what_differs(plain: ExperimentResult) -> None:
    html = plain._repr_html_()
    assert html.startswith(f"<div><strong>{plain!r}</strong><table>")
    assert "<td>small (sampleEvery=12h, speedup=1)</td><td>packing against default: " in html
    assert "<td>wait_mean</td><td>packing</td>" in html
    failed = ExperimentResult(Path("o"), [], 0, 1, {"k": "<b>"}, (), [], None)
    assert "<tr><td>k</td><td>&lt;b&gt;</td></tr>" in failed._repr_html_()


def test_measures_are_parquet_files(plain: ExperimentResult, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    only = ["speedup=1", "policy=default"]
    experiment(PLAN, out=tmp_path, jobs=1)
    found = experiment(PLAN, out=tmp_path, jobs=1, only=only, report=False, parquet=True)
    assert found.files[-3:] == ("measures.parquet", "pods.parquet", "series.parquet")
    measures = parquet.read_table(tmp_path / "measures.parquet")
    assert measures.num_rows == len(found.rows)
    # Runs of the folder that are not asked for are not in it.
    runs = set(parquet.read_table(tmp_path / "pods.parquet")["run"].to_pylist())
    assert runs == {run.key for run in found.runs}


def test_parquet_without_pyarrow_is_refused_before_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"--parquet: .*stowplan\[parquet\]"):
        experiment(PLAN, out=tmp_path, parquet=True)
    assert not list(tmp_path.iterdir())


def test_where_the_system_does_not_say_all_processors_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert ExperimentSettings().limits().n_workers == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert ExperimentSettings().limits().n_workers == 1


ARRIVALS = {
    "workloads": [{"name": "gangs", "files": "gangs.swf"}],
    "policies": ["default"],
    "options": {"arrivals": [None, "poisson,rate=60,jobs=9"], "sampleEvery": "12h"},
    "seeds": 2,
}
JOB = "{0} {1} 0 100 1 -1 -1 1 300 -1 1 1 1 -1 1 -1 -1 -1\n"
SWF = "; MaxNodes: 2\n; MaxProcs: 4\n" + "".join(JOB.format(k, 60 * k) for k in range(1, 6))


@pytest.mark.parametrize("mode", ["fill", "replay"])
def test_arrivals_are_those_of_simulate(tmp_path: Path, mode: str) -> None:
    (tmp_path / "gangs.swf").write_text(SWF)
    plan = {**ARRIVALS, "mode": mode}
    if mode == "fill":
        plan["options"] = {"arrivals": [None, "poisson,rate=60,jobs=9"]}
    found = experiment(plan, out=tmp_path / "out", traces=tmp_path, jobs=1, report=False)
    assert not found.failures
    lines = {
        (run.options["arrivals"], run.seed): (
            found.folder / "runs" / run.key / "placements.jsonl"
        ).read_bytes()
        for run in found.runs
    }
    poisson = "poisson,rate=60,jobs=9"
    assert [lines[poisson, seed].count(b"\n") for seed in (0, 1)] == [9, 9]
    assert lines[None, 0].count(b"\n") == 5
    assert lines[poisson, 0] != lines[poisson, 1]
    trace = read_cluster([tmp_path / "gangs.swf"])
    for seed in (0, 1):
        sampled = with_arrivals(trace, parse_arrivals(poisson), seed)
        replay = ReplayOptions(sample_s=12 * 3600) if mode == "replay" else None
        same = simulate(sampled, seed=seed, replay=replay).files()["placements.jsonl"]
        assert same == lines[poisson, seed]


@pytest.mark.parametrize("jobs", [2, 4])
def test_results_do_not_depend_on_the_number_of_workers(
    jobs: int, plain: ExperimentResult, tmp_path: Path
) -> None:
    experiment(PLAN, out=tmp_path, jobs=jobs)
    assert contents(tmp_path) == contents(plain.folder)


def test_another_seed_would_be_noticed(plain: ExperimentResult, tmp_path: Path) -> None:
    """The control of the comparison of bytes."""
    other = experiment({**PLAN, "seeds": [0, 2]}, out=tmp_path, jobs=2)
    assert contents(other.folder).keys() != contents(plain.folder).keys()


def test_shards_share_a_folder_and_give_the_same(plain: ExperimentResult, tmp_path: Path) -> None:
    first = experiment(PLAN, out=tmp_path, jobs=1, shard="1/3")
    assert (first.n_executed, sum(run.status == "missing" for run in first.runs)) == (3, 5)
    done = [experiment(PLAN, out=tmp_path, jobs=1, shard=f"{i}/3").n_executed for i in (2, 3)]
    assert done == [3, 2]
    assert contents(tmp_path) == contents(plain.folder)


def test_what_is_there_is_not_run_again(plain: ExperimentResult, tmp_path: Path) -> None:
    part = experiment(PLAN, out=tmp_path, jobs=1, only=["policy=packing", "seed=1"])
    assert [(run.policy, run.seed) for run in part.runs] == [("packing", 1)] * 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/run.json")}
    whole = experiment(PLAN, out=tmp_path, jobs=1)
    assert (whole.n_present, whole.n_executed) == (2, 6)
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert contents(tmp_path) == contents(plain.folder)


def test_the_index_is_made_anew(plain: ExperimentResult) -> None:
    before = (plain.folder / "index.sqlite").read_bytes()
    (plain.folder / "index.sqlite").unlink()
    again = experiment(PLAN, out=plain.folder, jobs=1)
    assert again.n_executed == 0
    assert (plain.folder / "index.sqlite").read_bytes() == before


# Workers and clients that are killed.

ONCE = """
import os, signal
from pathlib import Path
from stowplan.framework import score

@score("suicide")
def suicide(pod, node):
    marker = Path({marker!r})
    if {condition}:
        marker.write_text("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return 0
"""


def plan_with_plugin(folder: Path, condition: str) -> dict[str, Any]:
    plugin = folder / "suicide.py"
    plugin.write_text(ONCE.format(marker=str(folder / "marker"), condition=condition))
    profile = {"plugins": {"score": {"enabled": [{"name": "suicide"}]}}}
    policy = {
        "name": "killed",
        "configuration": {**PACKING, "profiles": [profile]},
        "plugins": str(plugin),
    }
    return {**PLAN, "policies": ["default", policy], "options": {}, "mode": "fill"}


def test_a_run_whose_worker_died_is_run_once_more(tmp_path: Path) -> None:
    plan = plan_with_plugin(tmp_path, "not marker.exists()")
    found = experiment(plan, out=tmp_path / "out", jobs=2)
    assert (tmp_path / "marker").exists()
    assert not found.failures
    assert [run.status for run in found.runs] == ["done"] * 4


def test_a_run_that_kills_its_worker_twice_fails_alone(tmp_path: Path) -> None:
    plan = plan_with_plugin(tmp_path, "True")
    found = experiment(plan, out=tmp_path / "out", jobs=2)
    assert len(found.failures) == 2
    for key, error in found.failures.items():
        assert error.startswith("its worker was ended by SIGKILL")
        described = json.loads((tmp_path / "out" / "failures" / f"{key}.json").read_bytes())
        assert described["policy"] == "killed"
    assert sorted(run.status for run in found.runs) == ["done", "done", "failed", "failed"]
    assert not list((tmp_path / "out" / "runs").glob(f"*{PART}"))


CLIENT = """
import json, sys
from stowplan.experiments.experiment_run import experiment
experiment(json.loads(sys.argv[1]), out=sys.argv[2], jobs=2,
           on_progress=lambda progress: print(progress.n_done, flush=True))
"""


def test_a_killed_client_leaves_whole_runs_and_no_worker(
    plain: ExperimentResult, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CLIENT, json.dumps(PLAN), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        lines = iter(client.stdout.readline, "")
        assert any(line.strip() == "2" for line in lines)
        workers = children(client.pid)
        client.kill()
    wait_until(lambda: not any(is_running(worker) for worker in workers))
    done = {path.parent.name for path in tmp_path.glob("runs/*/run.json")}
    assert 2 <= len(done) <= 8
    again = experiment(PLAN, out=tmp_path, jobs=1)
    assert (again.n_present, again.n_executed) == (len(done), 8 - len(done))
    assert contents(tmp_path) == contents(plain.folder)


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interrupt_stops_the_workers_and_leaves_nothing_half(tmp_path: Path) -> None:
    def interrupt(progress: ExperimentProgress) -> None:
        if progress.n_done == 1:
            raise KeyboardInterrupt

    # Other tests of this process may have a browser.
    before = children(os.getpid())
    with pytest.raises(KeyboardInterrupt):
        experiment(PLAN, out=tmp_path, jobs=2, on_progress=interrupt)
    assert list(tmp_path.glob("runs/*/run.json"))
    assert not list(tmp_path.glob(f"runs/*{PART}"))
    assert set(children(os.getpid())) <= set(before)


def test_what_a_crash_left_half_is_replaced(plain: ExperimentResult, tmp_path: Path) -> None:
    half = tmp_path / "runs" / f"{plain.runs[0].key}{PART}"
    half.mkdir(parents=True)
    (half / "junk").write_text("x")
    experiment(PLAN, out=tmp_path, jobs=1, only=["seed=0", "policy=default", "speedup=1"])
    assert not half.exists()
    whole = plain.folder / "runs" / plain.runs[0].key
    assert contents(tmp_path / "runs" / plain.runs[0].key) == contents(whole)


# Failures.

FAILING = """
from stowplan.framework import score

@score("failing")
def failing(pod, node):
    if {condition}:
        raise ValueError("no score today")
    return 0
"""


def test_a_failing_run_stops_no_other_and_is_run_again(tmp_path: Path) -> None:
    plugin = tmp_path / "failing.py"
    plugin.write_text(FAILING.format(condition="True"))
    profile = {"plugins": {"score": {"enabled": [{"name": "failing"}]}}}
    policy = {
        "name": "failing",
        "configuration": {**PACKING, "profiles": [profile]},
        "plugins": [str(plugin)],
    }
    plan = {**PLAN, "policies": [policy, "default"], "options": {}, "mode": "fill"}
    out = tmp_path / "out"
    found = experiment(plan, out=out, jobs=2)
    assert sorted(run.status for run in found.runs) == ["done", "done", "failed", "failed"]
    for error in found.failures.values():
        assert "no score today" in error
    described = json.loads(next((out / "failures").iterdir()).read_bytes())
    assert "Traceback" in described["traceback"]
    assert described["error"] in found.failures.values()
    plugin.write_text(FAILING.format(condition="False"))
    again = experiment(plan, out=out, jobs=1)
    # Another plugin file: another key; the failures of the old ones stay described.
    assert (again.n_present, again.n_executed, again.failures) == (2, 2, {})


def test_a_failure_is_forgotten_once_the_run_succeeds(tmp_path: Path) -> None:
    plan = plan_with_plugin(tmp_path, "not marker.is_dir()")
    first = experiment(plan, out=tmp_path / "out", jobs=1)
    assert len(first.failures) == 2
    (tmp_path / "marker").unlink()
    (tmp_path / "marker").mkdir()
    again = experiment(plan, out=tmp_path / "out", jobs=1)
    assert (again.n_present, again.n_executed, again.failures) == (2, 2, {})
    assert not list((tmp_path / "out" / "failures").iterdir())


def test_a_run_over_its_time_limit_fails(tmp_path: Path) -> None:
    plugin = tmp_path / "slow.py"
    plugin.write_text(
        "import time\nfrom stowplan.framework import score\n\n"
        "@score('slow')\ndef slow(pod, node):\n    time.sleep(600)\n    return 0\n"
    )
    profile = {"plugins": {"score": {"enabled": [{"name": "slow"}]}}}
    policy = {"name": "slow", "configuration": {**PACKING, "profiles": [profile]}}
    plan = {
        **PLAN,
        "policies": [{**policy, "plugins": str(plugin)}],
        "options": {},
        "mode": "fill",
        "seeds": 1,
    }
    found = experiment(plan, out=tmp_path / "out", jobs=1, timeout_s=1.0)
    assert list(found.failures.values()) == ["the time limit of 1 s was exceeded"]


def test_a_run_over_its_memory_limit_fails(tmp_path: Path) -> None:
    plugin = tmp_path / "large.py"
    plugin.write_text(
        "from stowplan.framework import score\n\n"
        "@score('large')\ndef large(pod, node):\n    return len(bytearray(1 << 44)) and 0\n"
    )
    profile = {"plugins": {"score": {"enabled": [{"name": "large"}]}}}
    policy = {"name": "large", "configuration": {**PACKING, "profiles": [profile]}}
    plan = {
        **PLAN,
        "policies": [{**policy, "plugins": str(plugin)}],
        "options": {},
        "mode": "fill",
        "seeds": 1,
    }
    found = experiment(plan, out=tmp_path / "out", jobs=1, memory_bytes=1 << 42)
    (error,) = found.failures.values()
    assert "MemoryError" in error


FULL_DISK = """
import resource, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
from stowplan.cli.main import main
main(sys.argv[1:])
"""


def test_a_full_disk_is_named_and_finished_runs_stay(
    plain: ExperimentResult, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    out = tmp_path / "out"
    only = ["policy=packing", "speedup=1", "seed=0"]
    one = experiment(plan, out=out, jobs=1, only=only)
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, "experiment", str(plan), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        # Python would keep half of a compiled module, and no later process could import it.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ran.returncode == 1
    assert f"error: {out}: file too large; finished runs are kept" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list(out.glob(f"runs/*{PART}"))
    assert (out / "runs" / one.runs[0].key / "run.json").is_file()
    assert experiment(plan, out=out, jobs=1).n_present >= 1
    assert {name for name in contents(out) if name.startswith("runs")} == {
        name for name in contents(plain.folder) if name.startswith("runs")
    }


def test_a_policy_file_that_changes_meanwhile_fails_its_runs(tmp_path: Path) -> None:
    """The key of a run stands for what the file was."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(PACKING))
    plan = {**PLAN, "policies": [{"name": "mine", "config": str(policy)}], "options": {}}

    def change(progress: ExperimentProgress) -> None:
        policy.write_text(json.dumps({**PACKING, "percentageOfNodesToScore": 50}))

    found = experiment({**plan, "seeds": 3}, out=tmp_path / "out", jobs=1, on_progress=change)
    assert found.failures
    assert all("changed since the experiment was started" in one for one in found.failures.values())


def test_two_clients_do_not_write_one_folder(tmp_path: Path) -> None:
    def start_another(progress: ExperimentProgress) -> None:
        if progress.n_done == 0:
            with pytest.raises(InputError, match="another `stowplan experiment` is writing it"):
                experiment(PLAN, out=tmp_path, jobs=1)

    experiment(PLAN, out=tmp_path, jobs=1, only=["seed=0"], on_progress=start_another)


# Bad input: nothing runs.


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a run was started")

    monkeypatch.setattr("stowplan.experiments.experiment_run.run_in_pool", refuse)


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"policies": ["nope.yaml"]}, r"nope\.yaml: no such file"),
        ({"policies": ["nope.conf"]}, r"nope\.conf: no such file"),
        ({"policies": [{"config": "default", "plugin": "x.py"}]}, "did you mean 'plugins'"),
        ({"policies": [{"name": "x", "plugins": "nope.py"}]}, r"nope\.py"),
        ({"policies": [{"name": "x", "profile": "nope"}]}, "profile: Invalid value: 'nope'"),
        ({"workloads": ["nope.csv"]}, r"nope\.csv: no such file"),
        ({"workloads": ["default"]}, "--traces: Required value: expected the folder of the OpenB"),
        ({"compare": {"baseline": "pack"}}, "did you mean 'packing'"),
        ({"measures": ["nope.py:f"]}, r"nope\.py"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    change: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises((InputError, ConfigError, ContractError), match=expected):
        experiment({**PLAN, **change}, out=tmp_path / "out")


@pytest.mark.usefixtures("no_run")
def test_bad_settings_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--traces: .*nope: no such directory"):
        experiment(PLAN, out=tmp_path, traces=tmp_path / "nope")
    with pytest.raises(InputError, match="--fail-if"):
        experiment(PLAN, out=tmp_path, fail_if=["wait_p99 >"])
    for condition, text in (
        ("wait_p9 > 3", "unknown measure 'wait_p9'"),
        ("nope.default > 3", "unknown measure 'nope.default'"),
        ("wait_p99: Z > A by 5%", "unknown policy 'Z'"),
    ):
        with pytest.raises(InputError, match=text):
            experiment(PLAN, out=tmp_path, fail_if=[condition])
    compared = {**PLAN, "compare": {"measures": ["wait_p99", "wait_p9"]}}
    with pytest.raises(InputError, match=r"compare\.measures: unknown measure 'wait_p9'"):
        experiment(compared, out=tmp_path)
    with pytest.raises(InputError, match="jobs: Invalid value: 0"):
        experiment(PLAN, out=tmp_path, jobs=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a directory"):
        experiment(PLAN, out=tmp_path / "file")


def test_a_regression_gate_fails_the_experiment(plain: ExperimentResult) -> None:
    kept = experiment(PLAN, out=plain.folder, jobs=1, fail_if=["placed: B < A by 99%"])
    assert kept.failed_conditions == []
    failed = experiment(PLAN, out=plain.folder, jobs=1, fail_if=["placed >= 0"])
    assert len(failed.failed_conditions) == 2


def test_a_store_that_cannot_be_written_stops_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise ExperimentStoreError("disk full")

    monkeypatch.setattr("stowplan.experiments.store.run_store.RunStore.write_failure", full)
    plan = plan_with_plugin(tmp_path, "True")
    before = children(os.getpid())
    with pytest.raises(ExperimentStoreError, match="disk full"):
        experiment(plan, out=tmp_path / "out", jobs=1)
    assert set(children(os.getpid())) <= set(before)
