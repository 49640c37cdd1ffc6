"""`stowplan capacity` where Kueue admits jobs: how many more, and which quota is short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.run import Ran, run
from tests.simulation.kueue.test_job_admission import (
    Tree,
    flavor,
    job,
    kueue,
    node,
    queue,
    written,
)


def asked(directory: Path, wanted: Tree, *arguments: str, objects: list[Tree | list[Tree]]) -> Ran:
    (directory / "kueue.yaml").write_text("scheduler: kueue\n")
    (directory / "job.yaml").write_text(yaml.safe_dump(wanted))
    file = written(directory, node(), flavor(), *objects)
    files = "-f", str(file), "--config", str(directory / "kueue.yaml")
    return run("capacity", str(directory / "job.yaml"), *files, *arguments)


def test_jobs_are_counted_up_to_the_quota_of_the_cohort(tmp_path: Path) -> None:
    queues = queue("one", "4", "3", cohortName="all"), queue("two", "6", cohortName="all")
    objects: list[Tree | list[Tree]] = [*queues, job("a", "one", 1), job("b", "two", 7)]
    found = asked(tmp_path, job("more", "one", 2), "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["jobs"]
    assert found.code == 0
    # Four of its own, of which one is taken and one is lent.
    assert (one["job"], one["clusterQueue"], one["count"]) == ("job/more", "one", 1)
    assert (one["flavors"], one["preempted"], one["reason"]) == ({"f": 1}, [], "WaitingForQuota")
    (short,) = one["shortages"]
    assert (short["resource"], short["requested"], short["available"]) == ("cpu", "2", "0")
    assert (short["cohort"], short["borrowers"]) == ("all", {"two": "1"})
    assert one["admittedBy"][0] == (
        "nominalQuota 6 of cpu in flavor f of ClusterQueue one (it is 4)"
    )
    text = asked(tmp_path, job("more", "one", 2), objects=objects).out
    assert "Short: cpu in flavor f: requested 2, available 0 in cohort all, at most 7" in text
    assert "borrowed by two 1" in text


def test_a_job_that_never_fits(tmp_path: Path) -> None:
    found = asked(tmp_path, job("more", "one", 9), objects=[queue("one", "4")])
    assert found.code == 1
    assert "ExceedsMaxQuota" in found.out
    nowhere = asked(tmp_path, job("more", "nope", 1), objects=[queue("one", "4")])
    assert nowhere.code == 1
    assert "Misconfigured: LocalQueue nope doesn't exist" in nowhere.out


def test_copies_say_whom_they_preempt(tmp_path: Path) -> None:
    high = kueue("WorkloadPriorityClass", "high") | {"value": 9}
    own = queue("one", "4", preemption={"withinClusterQueue": "LowerPriority"})
    objects: list[Tree | list[Tree]] = [own, high, job("low", "one", 3)]
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    found = asked(tmp_path, job("more", "one", 1, labels=labels), "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["jobs"]
    assert (one["count"], one["preempted"]) == (4, ["job/low"])
    # Without a class nothing is preempted.
    found = asked(tmp_path, job("more", "one", 1), "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["jobs"]
    assert (one["count"], one["preempted"]) == (1, [])


def test_what_waits_comes_first(tmp_path: Path) -> None:
    own = queue("one", "4", queueingStrategy="StrictFIFO")
    objects: list[Tree | list[Tree]] = [own, job("big", "one", 3), job("next", "one", 3, minute=1)]
    found = asked(tmp_path, job("more", "one", 1), "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["jobs"]
    assert (one["count"], one["position"]) == (0, 2)
    best = queue("one", "4")
    found = asked(tmp_path, job("more", "one", 1), "-o", "json", objects=[best, *objects[1:]])
    (one,) = json.loads(found.out)["jobs"]
    assert one["count"] == 1


def test_the_limit_and_options_that_do_not_apply(tmp_path: Path) -> None:
    objects: list[Tree | list[Tree]] = [queue("one", "40")]
    found = asked(tmp_path, job("more", "one", 1), "--limit", "5", objects=objects)
    assert "5 or more" in found.out
    wrong = asked(tmp_path, job("more", "one", 1), "--fit", objects=objects)
    assert wrong.code == 2
    assert "with Kueue: --fit do not apply" in wrong.err
    plain = job("more", "one", 1)
    del plain["metadata"]["labels"]
    none = asked(tmp_path, plain, objects=objects)
    assert none.code == 2
    assert "expected pods, or workloads that have pods" in none.err
    del plain["spec"]["suspend"]
    none = asked(tmp_path, plain, objects=objects)
    assert none.code == 2
    assert "no jobs with a queue of Kueue" in none.err


@pytest.mark.parametrize("n", [1, 3, 7])
def test_as_many_are_counted_as_are_admitted_when_submitted(tmp_path: Path, n: int) -> None:
    queues = queue("one", "5", cohortName="all"), queue("two", str(n), cohortName="all")
    objects: list[Tree | list[Tree]] = [*queues, job("a", "two", 1)]
    found = asked(tmp_path, job("more", "one", 1), "-o", "json", objects=objects)
    count = json.loads(found.out)["jobs"][0]["count"]
    made = [job(f"more-{k}", "one", 1, minute=2) for k in range(20)]
    file = written(tmp_path, node(), flavor(), *objects, *made)
    listed = run("queues", "-f", str(file), "--config", str(tmp_path / "kueue.yaml"), "-o", "json")
    workloads = json.loads(listed.out)["workloads"]
    held = [one for one in workloads if one["status"] == "Admitted" and "more" in one["job"]]
    assert count == len(held)


def test_a_job_that_runs_already_is_asked_for_more(tmp_path: Path) -> None:
    """Its Workload has quota, and the copies have none."""
    running = kueue("Workload", "job-more")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "more", "uid": "u"}
    running["metadata"] |= {"ownerReferences": [owner], "uid": "w"}
    template = job("more", "one", 3)["spec"]["template"]
    running["spec"] = {"queueName": "one", "podSets": [{"name": "main", "count": 3}]}
    running["spec"]["podSets"][0]["template"] = template
    used = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
    held = [{"name": "main", "count": 3, **used}]
    running["status"] = {
        "admission": {"clusterQueue": "one", "podSetAssignments": held},
        "conditions": [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")],
    }
    objects: list[Tree | list[Tree]] = [queue("one", "10"), running]
    found = asked(tmp_path, job("more", "one", 3), "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["jobs"]
    assert one["count"] == 2
