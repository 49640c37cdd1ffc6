"""Usage of LocalQueues orders jobs in replays, `eta` and `explain`, where the admission scope of
their ClusterQueue says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stowplan.inputs.input_error import InputError
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from tests.cli.run import Ran, run
from tests.simulation.kueue.test_job_admission import (
    Tree,
    flavor,
    job,
    kueue,
    node,
    queue,
    simulated,
    workload_of,
    written,
)
from tests.simulation.kueue.test_replayed_jobs import timed

CONFIG = """
scheduler: kueue
admissionFairSharing: {usageHalfLifeTime: 10m, usageSamplingInterval: 5m}
"""
SCOPE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}


def queues(cpu: str, **consumed: str) -> list[Tree]:
    """A ClusterQueue q with LocalQueues, each with the CPUs that it has used by its status."""
    found = queue("q", cpu, **SCOPE)
    for name, used in consumed.items():
        local = kueue("LocalQueue", name, clusterQueue="q")
        status = {"consumedResources": {"cpu": used}, "lastUpdate": "2026-01-01T11:00:00Z"}
        local["status"] = {"fairSharing": {"admissionFairSharingStatus": status}}
        found.append(local)
    return found


def asked(directory: Path, *arguments: str, config: str = CONFIG, objects: list[Tree]) -> Ran:
    (directory / "kueue.yaml").write_text(config)
    file = written(directory, node(), flavor(), *objects)
    return run(*arguments, "-f", str(file), "--config", str(directory / "kueue.yaml"))


def test_a_replay_lets_the_queue_that_used_less_go_first(tmp_path: Path) -> None:
    jobs = [timed(f"{name}{i}", name, 2, 300) for name in "ab" for i in range(3)]
    (tmp_path / "kueue.yaml").write_text(CONFIG)
    file = written(tmp_path, node(), flavor(), queues("2", a="0", b="0"), *jobs)
    result = simulate(file, config=tmp_path / "kueue.yaml", replay=ReplayOptions())
    times = {name: workload_of(result, f"job/{name}")["admitted_s"] for name in ("a1", "b0", "b1")}
    # Without usage all of a's jobs, which are first by name, would go before those of b.
    assert times["b0"] < times["a1"] < times["b1"]
    assert {one["status"] for one in result.summary["workloads"]} == {"Finished"}


def test_a_replay_ends_when_the_order_changes_no_more(tmp_path: Path) -> None:
    """Samples alone do not keep it going while jobs wait for ever under StrictFIFO."""
    late = (timed(name, queue, 9, 60, minute=1) for name, queue in (("never", "b"), ("last", "a")))
    jobs = timed("runs", "a", 2, 3600), *late
    objects = queues("2", a="0", b="1")
    objects[0]["spec"]["queueingStrategy"] = "StrictFIFO"
    (tmp_path / "kueue.yaml").write_text(CONFIG)
    file = written(tmp_path, node(), flavor(), objects, *jobs)
    result = simulate(file, config=tmp_path / "kueue.yaml", replay=ReplayOptions())
    states = {one["job"]: one["status"] for one in result.summary["workloads"]}
    assert states == {"job/runs": "Finished", "job/never": "Pending", "job/last": "Pending"}
    assert result.summary["makespan_s"] < 3700


@pytest.mark.parametrize(("config", "first"), [(CONFIG, "b"), ("scheduler: kueue\n", "a")])
def test_eta_follows_usage(tmp_path: Path, config: str, first: str) -> None:
    """The usage of statuses counts on."""
    jobs = [timed("a", "a", 2, 300, minute=0), timed("b", "b", 2, 300, minute=0)]
    found = asked(
        tmp_path, "eta", "--all", "-o", "json",
        config=config, objects=[*queues("2", a="5", b="1"), *jobs],
    )  # fmt: skip
    times = {one["job"]: one["admittedS"] for one in json.loads(found.out)["workloads"]}
    assert min(times, key=lambda one: times[one]) == f"job/{first}"


def test_explain_reports_what_the_local_queue_has_used(tmp_path: Path) -> None:
    jobs = [job("a", "a", 2), job("b", "b", 3), job("c", "b", 2)]
    objects = [*queues("2", a="5", b="1"), *jobs]
    found = asked(tmp_path, "explain", "job/a", "--no-changes", objects=objects)
    assert "Position in the queue: 2" in found.out
    assert (
        "Order by usage: LocalQueue a in default 5 (weight 1); after LocalQueue b in" in found.out
    )
    tree = json.loads(asked(tmp_path, "explain", "job/a", "-o", "json", objects=objects).out)
    assert [one["name"] for one in tree["usage"]] == ["b", "a"]
    plain = asked(tmp_path, "explain", "job/a", config="scheduler: kueue\n", objects=objects)
    assert "Order by usage" not in plain.out


def test_a_wrong_admission_mode_is_refused(tmp_path: Path) -> None:
    wrong = queue("q", "2", admissionScope={"admissionMode": "Usage"})
    with pytest.raises(InputError, match=r'admissionMode: Unsupported value: "Usage"'):
        simulated(tmp_path, node(), flavor(), wrong, job("a", "q", 1))
