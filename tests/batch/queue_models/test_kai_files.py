"""KAI's objects in files: pods outside of sub-groups, files without pending pods, and times that
only annotations show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.forecast.explain_job import explain_job, explain_pod_group
from stowplan.forecast.queue_shares import shares_of
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.objects.encoding.tree import Tree
from stowplan.simulation.session_runner import SessionRunner
from stowplan.simulation.simulate_jobs import simulate_jobs
from tests.batch.queue_models.test_kai_model import deciders, group, node, pod, queue
from tests.cli.run import run

MEMBER = {"labels": {"kai.scheduler/subgroup-name": "a"}}
OUTSIDE = {"labels": {"kai.scheduler/subgroup-name": "b"}}


def written(tmp_path: Path, *objects: Tree) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return file


def cluster_of(tmp_path: Path, *objects: Tree) -> Cluster:
    return read_cluster([written(tmp_path, *objects)])


def with_sub_group(name: str) -> Tree:
    return group(name, "red", 1, subGroups=[{"name": "a", "minMember": 1}])


def test_pods_of_no_sub_group_are_counted(tmp_path: Path) -> None:
    """KAI places none of them: they have a line, and a reason."""
    cluster = cluster_of(
        tmp_path,
        node("n", 4),
        queue("red", 4),
        with_sub_group("x"),
        pod("member", "x", **MEMBER),
        pod("plain", "x"),
        pod("outside", "x", **OUTSIDE),
    )
    run = simulate_jobs(cluster, config=deciders())
    (job,) = run.jobs
    assert (job.pods, job.ready, job.min_member) == (3, 1, 1)
    assert set(job.waiting) == {"default/plain", "default/outside"}
    text = "2 pods belong to none of its sub-groups (a): label kai.scheduler/subgroup-name"
    assert (job.reason, job.message) == ("SubGroupNotFound", text)
    assert {one.pod: one.node for one in run.placements} == {
        "default/member": "n",
        "default/plain": "",
        "default/outside": "",
    }
    found = explain_job("default/outside", cluster, config=deciders())
    assert (found.state, found.node) == ("pending", "")
    assert found.job is not None
    assert found.job.message == text
    shares = {one.name: one for one in shares_of(SessionRunner(cluster, deciders())).queues}
    assert shares["red"].pods_pending == 3


def test_a_job_without_a_pod_in_its_sub_groups_is_listed(tmp_path: Path) -> None:
    objects = node("n", 4), queue("red", 4), with_sub_group("x"), pod("outside", "x", **OUTSIDE)
    (job,) = simulate_jobs(cluster_of(tmp_path, *objects), config=deciders()).jobs
    assert (job.pods, job.ready, job.reason) == (1, 0, "SubGroupNotFound")
    assert not job.is_ready


def test_pods_that_ended_do_not_wait(tmp_path: Path) -> None:
    ended = pod("outside", "x", node="n", **OUTSIDE) | {"status": {"phase": "Succeeded"}}
    objects = node("n", 4), queue("red", 4), with_sub_group("x"), pod("m", "x", **MEMBER), ended
    (job,) = simulate_jobs(cluster_of(tmp_path, *objects), config=deciders()).jobs
    assert "default/outside" not in job.waiting


@pytest.mark.parametrize("options", [("--compat", "kai"), ("--config", "kai.yaml")])
def test_the_note_of_a_file_without_pending_pods(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions run; none of what kube-scheduler does with single pods holds."""
    placed = pod("p", "x", node="n") | {"status": {"phase": "Running"}}
    written(tmp_path, node("n", 4), queue("red", 4), group("x", "red", 1), placed)
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    monkeypatch.chdir(tmp_path)
    ran = run("simulate", "cluster.yaml", *options)
    assert "pods are tried once" not in ran.out
    assert "Note: sessions follow each other at once" in ran.out
    # Without a configuration nothing is tried.
    assert "Note" not in run("simulate", "cluster.yaml").out


def started(at: str) -> list[Tree]:
    """A gang on all cards, by an annotation of its group since this time, and one that preempts
    it once its minimum runtime of an hour is over."""
    first = group("x", "red", 1)
    first["metadata"]["annotations"] = {"kai.scheduler/last-start-timestamp": at}
    leaf = queue("red", 4)
    leaf["spec"] |= {"preemptMinRuntime": "1h"}
    running: dict[str, Any] = {"status": {"phase": "Running"}}
    urgent = group("y", "red", 1, priorityClassName="build-preemptible")
    return [
        node("n", 4),
        leaf,
        first,
        pod("x-0", "x", gpus=4, node="n") | running,
        urgent,
        pod("y-0", "y", gpus=4),
    ]


def test_a_minimum_runtime_counts_from_the_annotation(tmp_path: Path) -> None:
    """No other object shows a time: with 1970 for now it would end in decades."""
    cluster = cluster_of(tmp_path, *started("2026-03-01T10:00:00Z"))
    found = explain_pod_group("default/y", cluster, config=deciders())
    assert found.wait is not None
    assert found.wait.now == "2026-03-01T10:00:00Z"
    (moment,) = found.wait.moments
    assert (moment.at, moment.after_s) == ("2026-03-01T11:00:00Z", 3600.0)


def test_a_stale_gang_is_evicted_after_its_grace_period(tmp_path: Path) -> None:
    """The time of another annotation stands for now."""
    gang = group("x", "red", 2)
    since = {"kai.scheduler/stale-podgroup-timestamp": "2026-03-01T10:00:00Z"}
    gang["metadata"]["annotations"] = since
    running: dict[str, Any] = {"status": {"phase": "Running"}}
    other = group("z", "red", 1)
    objects = node("n", 4), queue("red", 4), gang, pod("x-0", "x", node="n") | running, other
    assert not simulate_jobs(cluster_of(tmp_path, *objects), config=deciders()).evicted
    later = {"kai.scheduler/last-start-timestamp": "2026-03-01T10:05:00Z"}
    other["metadata"]["annotations"] = later
    assert simulate_jobs(cluster_of(tmp_path, *objects), config=deciders()).evicted
