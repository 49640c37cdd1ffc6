"""The audit of Kueue's quotas: each case has a cluster, and what is found of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.forecast.queue_reports.kueue_audit import audit_kueue
from stowplan.forecast.queue_reports.queue_audit import QueueAudit
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.simulation.scheduler_configuration import read_deciders
from tests.cli.run import run
from tests.simulation.kueue.test_job_admission import (
    Tree,
    flavor,
    job,
    kueue,
    node,
    queue,
    written,
)

COHORT = {"cohortName": "all"}


def audited(directory: Path, *objects: Tree | list[Tree]) -> QueueAudit:
    file = directory / "kueue.yaml"
    file.write_text("scheduler: kueue\n")
    kueue_options = read_deciders(file, admits=True).kueue
    assert kueue_options is not None
    return audit_kueue(read_cluster(written(directory, *objects)), kueue_options)


def found(audit: QueueAudit) -> dict[tuple[str, str], str]:
    """(object, reason) -> message, without quota that is not used."""
    return {
        (f"{one.kind}/{one.name}" if one.name else one.kind, one.reason): one.message
        for one in audit.findings
        if one.reason != "IdleNominalQuota"
    }


def holding(name: str, in_queue: str, cpu: int) -> Tree:
    """A workload that holds quota."""
    assigned = {"name": "main", "count": cpu, "flavors": {"cpu": "f"}}
    pod = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    pods = {"name": "main", "count": cpu, "template": {"spec": pod}}
    made = kueue("Workload", name, queueName=in_queue, podSets=[pods])
    made["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"
    held = {**assigned, "resourceUsage": {"cpu": str(cpu)}}
    since = {"status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    made["status"] = {
        "admission": {"clusterQueue": in_queue, "podSetAssignments": [held]},
        "conditions": [{"type": kind, **since} for kind in ("QuotaReserved", "Admitted")],
    }
    return made


CASES: list[tuple[str, list[Any], dict[tuple[str, str], str]]] = [
    ("nothing", [node(), flavor(), queue("one", "64")], {}),
    (
        "quota above what the nodes of its flavor have",
        # The other node is of no flavor.
        [node(), node("n2", "b"), flavor(), queue("one", "65")],
        {
            ("clusterqueue/one", "NominalQuotaOverCluster"): (
                "nominal quota 65 cpu in flavor f is above the 64 of the cluster"
            )
        },
    ),
    (
        "a flavor without nodes",
        [node("n2", "b"), flavor(), queue("one", "1")],
        {
            ("clusterqueue/one", "NominalQuotaOfNoNode"): (
                "nominal quota 1 cpu in flavor f, and no ready node has cpu in flavor f"
            )
        },
    ),
    (
        "a node that is not ready",
        [node(unschedulable=True), flavor(), queue("one", "1")],
        {
            ("clusterqueue/one", "NominalQuotaOfNoNode"): (
                "nominal quota 1 cpu in flavor f, and no ready node has cpu in flavor f"
            )
        },
    ),
    (
        "quotas that are together above what the nodes have",
        [node(), flavor(), queue("one", "40", **COHORT), queue("two", "40", **COHORT)],
        {
            ("cluster", "NominalQuotaSumOverCluster"): (
                "queues and cohorts have nominal quotas of 80 cpu in flavor f together, the "
                "cluster has 64: not all can be met at once"
            )
        },
    ),
    (
        "a flavor that does not exist",
        [node(), queue("one", "4")],
        {
            ("clusterqueue/one", "Inactive"): "ResourceFlavor f not found: it admits nothing",
            ("clusterqueue/one", "NominalQuotaOfNoNode"): (
                "nominal quota 4 cpu in flavor f, and no ready node has cpu in flavor f"
            ),
        },
    ),
    (
        "a queue that is stopped",
        [node(), flavor(), queue("one", "4", stopPolicy="Hold")],
        {("clusterqueue/one", "Stopped"): "it is stopped: it admits nothing"},
    ),
    (
        "a LocalQueue of a queue that does not exist",
        [node(), flavor(), queue("one", "4"), kueue("LocalQueue", "lost", clusterQueue="gone")],
        {("localqueue/default/lost", "QueueNotFound"): "ClusterQueue gone not found"},
    ),
    (
        "a workload above what its queue may ever have",
        [node(), flavor(), queue("one", "4"), job("a", "one", 5), job("b", "one", 4)],
        {
            ("job/default/a", "ExceedsMaxQuota"): (
                "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor f, "
                "previously considered podsets requests (0) + current podset request (5) > "
                "maximum capacity (4)"
            )
        },
    ),
    (
        "a workload whose LocalQueue does not exist",
        [node(), flavor(), queue("one", "4"), job("a", "two", 1)],
        {("job/default/a", "Misconfigured"): "LocalQueue two doesn't exist"},
    ),
    (
        "no quota and nothing to borrow",
        [node(), flavor(), queue("one", "0")],
        {
            ("clusterqueue/one", "LimitOfNothing"): (
                "limit 0 cpu in flavor f: pods that ask for it do not start"
            )
        },
    ),
    (
        "a queue that waits for what another one borrows",
        [
            node(),
            flavor(),
            queue("one", "4", **COHORT),
            queue("two", "4", **COHORT),
            holding("w", "one", 6),
            job("a", "two", 3),
        ],
        {
            ("clusterqueue/two", "Starved"): (
                "has 0 of its nominal quota 4 cpu and asks for 3 more of it, while one has 2 "
                "beyond its nominal quota"
            )
        },
    ),
    (
        "more than a quota that was lowered",
        [node(), flavor(), queue("one", "4"), holding("w", "one", 6)],
        {
            ("clusterqueue/one", "AboveLimit"): (
                "has 6 cpu in flavor f, above its limit 4: no more starts, and nothing is evicted "
                "for it"
            )
        },
    ),
]


@pytest.mark.parametrize(
    ("objects", "wanted"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_each_finding(
    tmp_path: Path, objects: list[Any], wanted: dict[tuple[str, str], str]
) -> None:
    assert found(audited(tmp_path, *objects)) == wanted


def test_quota_that_no_workload_asks_for_is_idle(tmp_path: Path) -> None:
    queues = queue("one", "4", **COHORT), queue("two", "4", **COHORT)
    audit = audited(tmp_path, node(), flavor(), *queues, holding("w", "one", 3), job("a", "two", 4))
    (idle,) = audit.findings
    assert (idle.name, idle.reason) == ("one", "IdleNominalQuota")
    assert idle.message == ("has 3 of its nominal quota 4 cpu and asks for no more: 1 can be lent")


def test_memory_is_printed_with_its_unit(tmp_path: Path) -> None:
    quota = {"name": "memory", "nominalQuota": "128Gi"}
    group = {"coveredResources": ["memory"], "flavors": [{"name": "f", "resources": [quota]}]}
    one = kueue("ClusterQueue", "one", namespaceSelector={}, resourceGroups=[group])
    (message,) = found(audited(tmp_path, node(), flavor(), one)).values()
    assert message == "nominal quota 128Gi memory in flavor f is above the 64Gi of the cluster"


def test_the_command_exits_with_1_if_something_can_never_be_met(tmp_path: Path) -> None:
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    file = written(tmp_path, node(), flavor(), queue("one", "4"), job("a", "one", 5))
    arguments = ("queues", "--audit", "--config", str(tmp_path / "kueue.yaml"), "-f", str(file))
    result = run(*arguments)
    assert result.code == 1
    assert [line.split()[:3] for line in result.out.splitlines()[1:2]] == [
        ["error", "job/default/a", "ExceedsMaxQuota"]
    ]
