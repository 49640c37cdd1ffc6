"""Experiments on a Dask cluster on this machine; skipped where Dask is not installed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stowplan.experiments.experiment_run import ExperimentProgress, experiment
from stowplan.experiments.experiment_stopped import ExperimentStopped
from stowplan.experiments.plan.plan_inputs import versions
from stowplan.experiments.runner import dask_executor
from stowplan.inputs.input_error import InputError
from tests.experiments.test_experiment import PLAN, contents

# Dask's own warnings, about its parts.
pytestmark = pytest.mark.filterwarnings("default")

SMALL = {**PLAN, "options": {"sampleEvery": "12h"}, "seeds": 1}


CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False,
                           dashboard_address=None, protocol="tcp://", host="127.0.0.1")
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


def score_plugin(name: str) -> dict[str, Any]:
    """A configuration with this score plugin."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"enabled": [{"name": name}]}}}],
    }


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to answer."""
    monkeypatch.setattr(dask_executor, "CONNECT_S", 120.0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The scheduler of a cluster in a process of its own, which ends with its input."""
    pytest.importorskip("distributed", reason="stowplan[dask] is not installed")
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdout is not None
        yield cluster.stdout.readline().strip()
        cluster.kill()


def test_a_dask_cluster_gives_the_same_bytes(address: str, tmp_path: Path) -> None:
    on_dask = experiment(SMALL, out=tmp_path / "dask", dask=address)
    here = experiment(SMALL, out=tmp_path / "here", jobs=1)
    assert [run.status for run in on_dask.runs] == ["done"] * 2
    assert contents(tmp_path / "dask") == contents(tmp_path / "here")
    assert on_dask.n_executed == here.n_executed == 2
    assert experiment(SMALL, out=tmp_path / "dask", dask=address).n_executed == 0


def test_a_failing_run_on_dask_is_reported(address: str, tmp_path: Path) -> None:
    plugin = tmp_path / "failing.py"
    plugin.write_text(
        "from stowplan.framework import score\n\n"
        "@score('failing')\ndef failing(pod, node):\n    raise ValueError('no score today')\n"
    )
    failing = {"name": "failing", "configuration": score_plugin("failing"), "plugins": str(plugin)}
    plan = {**SMALL, "policies": ["default", failing], "mode": "fill", "options": {}}
    found = experiment(plan, out=tmp_path / "out", dask=address)
    assert sorted(run.status for run in found.runs) == ["done", "failed"]
    assert "no score today" in next(iter(found.failures.values()))


WAITING = """
import time
from pathlib import Path
from stowplan.framework import score

@score("waiting")
def waiting(pod, node):
    while not Path({marker!r}).exists():
        time.sleep(0.02)
    return 0
"""


def test_a_scheduler_that_is_lost_is_one_error_and_the_rest_is_run_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("distributed", reason="stowplan[dask] is not installed")
    marker, plugin = tmp_path / "marker", tmp_path / "waiting.py"
    plugin.write_text(WAITING.format(marker=str(marker)))
    waiting = {"name": "waiting", "configuration": score_plugin("waiting"), "plugins": str(plugin)}
    plan = {**SMALL, "policies": ["default", waiting], "mode": "fill", "options": {}}
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()

        def kill(progress: ExperimentProgress) -> None:
            if progress.n_done == 1:
                cluster.kill()

        with pytest.raises(
            ExperimentStopped, match=f"^--dask: {address}: the Dask scheduler was lost$"
        ):
            experiment(plan, out=tmp_path / "out", dask=address, on_progress=kill)
    assert not [record for record in caplog.records if record.exc_info]
    marker.write_text("")
    again = experiment(plan, out=tmp_path / "out", jobs=1)
    assert (again.n_present, again.n_executed, again.failures) == (1, 1, {})
    experiment(plan, out=tmp_path / "here", jobs=1)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_a_task_that_a_worker_cannot_begin_fails_alone() -> None:
    """A worker that joined after the check, without Stowplan."""
    future: Future[Any] = Future()
    future.set_exception(ModuleNotFoundError("No module named 'stowplan'"))
    module = SimpleNamespace(KilledWorker=MemoryError)
    found = dask_executor._outcome_of("k", future, module)
    assert (found.key, found.error) == ("k", "ModuleNotFoundError: No module named 'stowplan'")
    killed: Future[Any] = Future()
    killed.set_exception(MemoryError("tried 4 times"))
    found = dask_executor._outcome_of("k", killed, module)
    assert found.error == "its worker died: tried 4 times"


def test_threads_of_a_worker_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []
    most: list[int] = []

    def run(task: Any) -> Any:
        running.append(task)
        # Gives other threads the chance to begin.
        time.sleep(0.01)
        most.append(len(running))
        running.remove(task)
        return task

    monkeypatch.setattr(dask_executor, "run_task", run)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(dask_executor.run_alone, "abcd")) == list("abcd")
    assert most == [1, 1, 1, 1]


class StubClient:
    """Answers of a Dask client. scheduler: its version of distributed. worker: what it answers."""

    def __init__(self, scheduler: str, worker: object) -> None:
        self.scheduler = scheduler
        self.worker = worker

    def get_versions(self) -> dict[str, Any]:
        return {"scheduler": {"packages": {"distributed": self.scheduler}}}

    def wait_for_workers(self, n_workers: int, timeout: float) -> None:
        if self.worker is None:
            raise TimeoutError

    def run(self, function: object, on_error: str) -> dict[str, object]:
        return {"tcp://worker:1": self.worker}


@pytest.mark.parametrize(
    ("scheduler", "worker", "expected"),
    [
        ("2019.1.0", {}, r"the scheduler has dask.distributed 2019\.1\.0: expected 2026\.1\.0"),
        ("2026.1.0", None, "no worker in 60 s: expected at least one worker"),
        (
            "2026.1.0",
            {"stowplan": "9.9"},
            r"tcp://worker:1: stowplan 9\.9: expected stowplan",
        ),
        ("2026.1.0", ImportError("No module named 'stowplan'"), "stowplan cannot be imported"),
    ],
)
def test_a_cluster_of_another_version_is_refused(
    scheduler: str, worker: object, expected: str
) -> None:
    module = SimpleNamespace(__version__="2026.1.0")
    with pytest.raises(InputError, match=expected):
        dask_executor.check_workers(StubClient(scheduler, worker), "tcp://s:1", module)


def test_a_cluster_of_the_same_version_is_accepted() -> None:
    client = StubClient("2026.1.0", versions())
    dask_executor.check_workers(client, "tcp://s:1", SimpleNamespace(__version__="2026.1.0"))


def test_a_scheduler_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="stowplan[dask] is not installed")
    monkeypatch.setattr(dask_executor, "CONNECT_S", 0.5)
    with pytest.raises(InputError, match=r"--dask: tcp://127.0.0.1:9: no Dask scheduler there"):
        experiment(SMALL, out=tmp_path, dask="tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["nope", "tcp://here", "tcp://here:99999", "tcp://a b:8786"])
def test_an_address_is_checked_also_when_nothing_is_left_to_run(
    address: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"--dask: .*: no address: expected one such as tcp://"):
        experiment(SMALL, out=tmp_path, dask=address)
    assert not (tmp_path / "runs").exists()


def test_without_dask_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'stowplan\[dask\]'"):
        experiment(SMALL, out=tmp_path, dask="tcp://127.0.0.1:9")


def test_a_time_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--timeout"):
        experiment(SMALL, out=tmp_path, dask="tcp://127.0.0.1:9", timeout_s=1.0)
