"""What would admit a job that waits for Kueue: each answer does so when it is tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.simulation.kueue.admitting_changes import admitting_changes
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.simulation.simulate import simulate
from tests.cli.run import run
from tests.simulation.kueue.test_job_admission import (
    QUEUE,
    Tree,
    flavor,
    job,
    kueue,
    node,
    queue,
    written,
)


def answers(directory: Path, name: str, *objects: Tree | list[Tree]) -> list[str]:
    cluster = read_cluster(written(directory, node(), flavor(), *objects))
    options = KueueOptions()
    report = admit_jobs(cluster, options).report
    assert report is not None
    found = next(one for one in report.workloads if one.job == f"job/{name}")
    return [one.text for one in admitting_changes(cluster, options, report, found)]


QUOTA = "of cpu in flavor f of ClusterQueue"


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (
            [queue("one", "4"), job("a", "one", 3), job("b", "one", 2, minute=1)],
            [f"nominalQuota 5 {QUOTA} one (it is 4)", "the end of job/a"],
        ),
        (
            # What b gets first is taken by c, which came before it.
            [queue("one", "4"), job("a", "one", 4), job("c", "one", 2), job("b", "one", 2)],
            [f"nominalQuota 8 {QUOTA} one (it is 4)", "the end of job/a"],
        ),
        (
            [
                queue("one", "2", "1", cohortName="all"),
                queue("two", "4", cohortName="all"),
                job("b", "one", 4),
            ],
            [f"nominalQuota 3 {QUOTA} one (it is 2)", f"borrowingLimit 2 {QUOTA} one (it is 1)"],
        ),
        (
            [
                queue("one", "4", queueingStrategy="StrictFIFO"),
                job("a", "one", 5),
                job("b", "one", 2, minute=1),
            ],
            ["queueingStrategy BestEffortFIFO of ClusterQueue one"],
        ),
        (
            [
                queue("one", "4"),
                *(job(name, "one", 1, minute=i) for i, name in enumerate("acde")),
                job("b", "one", 2, minute=9),
            ],
            [f"nominalQuota 6 {QUOTA} one (it is 4)", "the end of job/a and job/c"],
        ),
        ([queue("one", "4"), job("b", "two", 2)], []),
    ],
)
def test_the_changes_that_admit_a_job(
    tmp_path: Path, objects: list[Tree | list[Tree]], expected: list[str]
) -> None:
    assert answers(tmp_path, "b", *objects) == expected


def test_explain_shows_them(tmp_path: Path) -> None:
    jobs = job("a", "one", 3), job("b", "one", 2, minute=1)
    file = written(tmp_path, node(), flavor(), queue("one", "4"), *jobs)
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    arguments = ["explain", "job/b", "-f", str(file), "--config", str(tmp_path / "kueue.yaml")]
    ran = run(*arguments)
    assert "Would admit it: the end of job/a" in ran.out
    assert "Would admit it" not in run(*arguments, "--no-changes").out


def members(name: str, in_queue: str, n: int) -> list[Tree]:
    """The pods of a group as users write them, with the gate of Kueue."""
    made = job("x", in_queue, 1)["spec"]["template"]["spec"]
    labels = {QUEUE: in_queue, "kueue.x-k8s.io/pod-group-name": name}
    notes = {"kueue.x-k8s.io/pod-group-total-count": str(n)}
    spec = {**made, "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    created = "2026-01-01T11:00:00Z"
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{i}", "namespace": "default", "labels": labels,
                "annotations": notes, "creationTimestamp": created,
            },
            "spec": spec,
        }
        for i in range(n)
    ]  # fmt: skip


def test_the_end_of_a_pod_group_is_tried(tmp_path: Path) -> None:
    found = answers(tmp_path, "b", queue("one", "4"), members("g", "one", 3), job("b", "one", 2))
    assert found == [f"nominalQuota 5 {QUOTA} one (it is 4)", "the end of podgroup/g"]


def test_pods_of_an_admitted_group_are_placed_whatever_kept_them(tmp_path: Path) -> None:
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    objects = node(), flavor(), queue("one", "4"), members("g", "one", 3), members("h", "one", 3)
    result = simulate(written(tmp_path, *objects), config=tmp_path / "kueue.yaml")
    placed = {one.pod for one in result.placements if one.node}
    assert placed == {f"default/g-{i}" for i in range(3)}


def workload_of_group(name: str, in_queue: str, n: int) -> Tree:
    """The Workload of a group as Kueue makes it."""
    ref = {"apiVersion": "v1", "kind": "Pod"}
    owners = [{**ref, "name": f"{name}-{i}", "uid": f"u{i}"} for i in range(n)]
    template = {"spec": members(name, in_queue, 1)[0]["spec"]}
    pod_sets = [{"name": "main", "count": n, "template": template}]
    made = kueue("Workload", name, queueName=in_queue, podSets=pod_sets)
    made["metadata"] |= {"namespace": "default", "uid": "w", "ownerReferences": owners}
    made["metadata"]["creationTimestamp"] = "2026-01-01T11:00:00Z"
    return made


@pytest.mark.parametrize("has_pods", [True, False])
def test_a_workload_of_several_pods_is_that_of_their_group(tmp_path: Path, has_pods: bool) -> None:
    """As of a live cluster: its Workload counts, and once, whether its pods are there or not."""
    made = workload_of_group("g", "one", 3)
    pods = members("g", "one", 3) if has_pods else []
    found = answers(tmp_path, "b", queue("one", "6"), made, pods, job("b", "one", 4))
    assert found == [f"nominalQuota 7 {QUOTA} one (it is 6)", "the end of podgroup/g"]
    assert answers(tmp_path, "b", queue("one", "6"), made, pods, job("b", "one", 3)) == []
