"""The audit of queues: each case has a cluster, and what is found of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.queue_models.kai.actions import min_runtime
from stowplan.batch.queue_models.kai.model.kai_model import KaiModel
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.forecast.queue_reports import kai_queue_rules
from stowplan.forecast.queue_reports.audited_queue import AuditedQueue, AuditedTree, AuditFinding
from stowplan.forecast.queue_reports.promise_rules import PROMISE_RULES
from stowplan.forecast.queue_reports.queue_audit import QueueAudit, audit_queues
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.simulation.session_runner import SessionRunner
from tests.batch.queue_models import test_kai_model as kai
from tests.batch.queue_models import test_volcano_model as volcano
from tests.cli.run import run
from tests.soak import seeds

MARK = 12345.0
Tree = dict[str, Any]
Rule = Callable[[AuditedTree], Iterator[AuditFinding]]
KUBE_BATCH = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: proportion\n"


def audited(tmp_path: Path, *objects: Tree, config: str = "scheduler: kai") -> QueueAudit:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    cluster = read_cluster(path)
    return audit_queues(cluster, SessionRunner(cluster, deciders_of([ConfigText(config, "c")])))


def found(audit: QueueAudit) -> dict[tuple[str, str], str]:
    """(object, reason) -> message, without quotas that are not used."""
    return {
        (f"{one.kind}/{one.name}" if one.name else one.kind, one.reason): one.message
        for one in audit.findings
        if one.reason not in ("IdleQuota", "NoQuota")
    }


def leaf(name: str, **resources: Tree) -> Tree:
    tree = kai.queue(name, 1)
    tree["spec"]["resources"] |= resources
    return tree


NODE = kai.node("a", 8)
BOUND = {"quota": 2, "limit": 2, "overQuotaWeight": 1}

CASES: dict[str, tuple[list[Tree], dict[tuple[str, str], str]]] = {
    "nothing": ([kai.queue("top", 8), kai.queue("red", 8, parent="top")], {}),
    "quota above its own limit": (
        [kai.queue("red", 6, limit=4)],
        {
            ("queue/red", "QuotaOverLimit"): (
                "quota 6 nvidia.com/gpu is above its limit 4: 2 of it can never be used"
            )
        },
    ),
    "quota above a limit above it": (
        [kai.queue("top", -1, limit=3), kai.queue("red", 4, parent="top")],
        {
            ("queue/red", "QuotaOverLimit"): (
                "quota 4 nvidia.com/gpu is above the limit 3 of queue top above it: "
                "1 of it can never be used"
            )
        },
    ),
    "children above their parent": (
        [kai.queue("top", 4), *(kai.queue(name, 3, parent="top") for name in ("red", "blue"))],
        {
            ("queue/top", "ChildrenOverQuota"): (
                "quota 4 nvidia.com/gpu, and the 2 queues below it have 6 together: "
                "not all can be met at once"
            )
        },
    ),
    "one child above its parent": (
        [kai.queue("top", 4), kai.queue("red", 5, parent="top")],
        {
            ("queue/red", "QuotaOverParent"): (
                "quota 5 nvidia.com/gpu is above that of queue top, quota 4 nvidia.com/gpu"
            )
        },
    ),
    "quota above the cluster": (
        [kai.queue("red", 9)],
        {
            ("queue/red", "QuotaOverCluster"): (
                "quota 9 nvidia.com/gpu is above the 8 of the cluster"
            )
        },
    ),
    "quotas above the cluster together": (
        [kai.queue("red", 5), kai.queue("blue", 5)],
        {
            ("cluster", "QuotaSumOverCluster"): (
                "the top queues have quotas of 10 nvidia.com/gpu together, the cluster has 8: "
                "not all can be met at once"
            )
        },
    ),
    "parent that does not exist": (
        [kai.queue("red", 1, parent="gone")],
        {
            ("queue/red", "ParentNotFound"): (
                'parent queue "gone" not found: it and the queues below it start no jobs'
            )
        },
    ),
    "queues above themselves": (
        [kai.queue("a", 1, parent="b"), kai.queue("b", 1, parent="a")],
        {
            (f"queue/{one}", "ParentCycle"): (
                f'parent queue "{other}" is below it: the queues of this cycle start no jobs'
            )
            for one, other in ("ab", "ba")
        },
    ),
    "neither quota nor weight": (
        [leaf("red", gpu={"quota": 0, "limit": -1, "overQuotaWeight": 0})],
        {
            ("queue/red", "NoShare"): (
                "no quota and no over-quota weight of nvidia.com/gpu: its fair share is 0, it "
                "reclaims nothing, and all that it has can be reclaimed"
            )
        },
    ),
    "limit 0": (
        [leaf("red", gpu={"quota": 0, "limit": 0, "overQuotaWeight": 1})],
        {
            ("queue/red", "LimitOfNothing"): (
                "limit 0 nvidia.com/gpu: pods that ask for it do not start"
            )
        },
    ),
    "cpu in cores": (
        [leaf("red", cpu={"quota": 8, "limit": -1, "overQuotaWeight": 1})],
        {
            ("queue/red", "SmallAmount"): (
                "cpu quota 8 is 0.008 cores: it counts thousandths of a core"
            )
        },
    ),
    "queue that does not exist": (
        [kai.queue("red", 8), kai.pod("p", labels={"kai.scheduler/queue": "rad"})],
        {("queue/rad", "QueueNotFound"): "not found, and 1 pod names it: default/p"},
    ),
    "queue that is no leaf": (
        [
            kai.queue("top", 8),
            kai.queue("red", 8, parent="top"),
            kai.pod("p", labels={"kai.scheduler/queue": "top"}),
        ],
        {("job/default/p", "QueueNotLeaf"): ("queue top has queues below it, and starts no jobs")},
    ),
    "group that does not exist": (
        [kai.queue("red", 8), kai.pod("p", of="gone")],
        {("podgroup/default/gone", "PodGroupNotFound"): "not found, and 1 pod names it"},
    ),
    "job above a limit": (
        [
            kai.queue("red", 2, limit=2),
            kai.group("g", "red", 3),
            *(kai.pod(f"g-{i}", "g") for i in range(3)),
        ],
        {
            ("podgroup/default/g", "NeedsOverLimit"): (
                "needs 3 nvidia.com/gpu to start, the limit of queue red is 2"
            )
        },
    ),
    "job above a quota": (
        [
            kai.queue("red", 1),
            kai.group("g", "red", 1, preemptibility="non-preemptible"),
            kai.pod("g-0", "g", gpus=2),
        ],
        {
            ("podgroup/default/g", "NeedsOverQuota"): (
                "may not be preempted, needs 2 nvidia.com/gpu to start, the quota of queue red is 1"
            )
        },
    ),
    "pod above every node": (
        [kai.queue("red", 8), kai.group("g", "red", 1), kai.pod("g-0", "g", gpus=9)],
        {("podgroup/default/g", "NeverFits"): ("needs 9 nvidia.com/gpu, the cluster has 8")},
    ),
    "group with too few pods": (
        [kai.queue("red", 8), kai.group("g", "red", 3), kai.pod("g-0", "g")],
        {
            ("podgroup/default/g", "NotEnoughPods"): (
                "minMember 3 not reached: 0 placed, 1 waiting, 0 gated"
            )
        },
    ),
    "starved beside a borrower": (
        [
            kai.queue("rich", 2),
            kai.queue("poor", 4),
            kai.group("old", "rich", 1),
            kai.pod("old", "old", gpus=7, node="a"),
            kai.group("new", "poor", 1),
            kai.pod("new", "new", gpus=3),
        ],
        {
            ("queue/poor", "Starved"): (
                "has 0 of its quota 4 nvidia.com/gpu and asks for 3 more of it, while rich has 5 "
                "beyond its quota"
            )
        },
    ),
    "above a limit that was lowered": (
        [kai.queue("red", 2, limit=2), kai.group("g", "red", 1), kai.pod("g", "g", 3, node="a")],
        {
            ("queue/red", "AboveLimit"): (
                "has 3 nvidia.com/gpu, above its limit 2: no more starts, and nothing is evicted "
                "for it"
            )
        },
    ),
    "above a quota with jobs that stay": (
        [
            kai.queue("red", 2),
            kai.group("g", "red", 1, preemptibility="non-preemptible"),
            kai.pod("g", "g", 3, node="a"),
        ],
        {
            ("queue/red", "FixedAboveQuota"): (
                "jobs that may not be preempted have 3 nvidia.com/gpu, above its quota 2: "
                "it cannot be reclaimed"
            )
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_found(case: str, tmp_path: Path) -> None:
    objects, expected = CASES[case]
    assert found(audited(tmp_path, NODE, *objects)) == expected


def test_a_resource_that_no_node_has(tmp_path: Path) -> None:
    audit = audited(tmp_path, kai.node("a", 0), kai.queue("red", 2))
    message = "quota 2 nvidia.com/gpu, and no ready node has nvidia.com/gpu"
    assert found(audit) == {("queue/red", "QuotaOfNoNode"): message}


def test_quotas_that_are_not_used_are_named(tmp_path: Path) -> None:
    objects = [kai.queue("red", 6), kai.group("g", "red", 1), kai.pod("g", "g", 2, node="a")]
    (one,) = audited(tmp_path, NODE, *objects).findings
    assert (one.severity, one.reason) == ("info", "IdleQuota")
    assert one.message == (
        "has 2 of its quota 6 nvidia.com/gpu and asks for no more: 4 can be lent"
    )


# Minimum run times.


def with_runtime(tree: Tree, action: str = "reclaim") -> Tree:
    tree["spec"][f"{action}MinRuntime"] = "10m"
    return tree


def unread(audit: QueueAudit) -> set[str]:
    return {one.name for one in audit.findings if one.reason == "UnreadMinRuntime"}


def test_runtimes_that_no_session_reads(tmp_path: Path) -> None:
    # Only `red` is below `left`: others that reclaim from it ask `left`, then the ones above.
    objects = [
        kai.queue("top", 8),
        with_runtime(kai.queue("left", 4, parent="top")),
        with_runtime(kai.queue("red", 4, parent="left")),
        with_runtime(kai.queue("right", 4, parent="top"), "preempt"),
        with_runtime(kai.queue("blue", 4, parent="right"), "preempt"),
    ]
    assert unread(audited(tmp_path, NODE, *objects)) == {"red", "right"}
    without = "scheduler: kai\nactions: allocate, preempt"
    assert unread(audited(tmp_path, NODE, *objects, config=without)) == {"left", "red", "right"}


def random_tree(seed: int) -> list[Tree]:
    rng = random.Random(seed)
    names: list[str] = []
    trees = []
    for number in range(rng.randint(2, 8)):
        parent = rng.choice(["", *names])
        trees.append(kai.queue(f"q{number}", 1, parent=parent))
        names.append(f"q{number}")
        if rng.random() < 0.5:
            with_runtime(trees[-1], rng.choice(("reclaim", "preempt")))
    parents = {tree["spec"].get("parentQueue") for tree in trees}
    # Jobs in every leaf, so that each may lose something to each.
    for name in names:
        if name not in parents:
            trees += [kai.group(f"g-{name}", name, 1), kai.pod(f"p-{name}", f"g-{name}", node="a")]
    return trees


def read_by_sessions(tmp_path: Path, trees: list[Tree]) -> set[str]:
    """Queues with a runtime that decides for some pair of jobs."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([NODE, *trees]))
    runner = SessionRunner(read_cluster(path), deciders_of([ConfigText("scheduler: kai", "c")]))
    runner.disable_actions()
    runner.run_session()
    decider = runner.decider
    assert isinstance(decider, ModelDecider)
    assert isinstance(decider.model, KaiModel)
    session = decider.model._state.open(decider.cluster(now=1), decider.plan.settings)
    jobs, seen = [*session.jobs.values()], set()
    for queue in session.queues.queues.values():
        terms = queue.terms
        for name in ("reclaim_min_runtime", "preempt_min_runtime"):
            if getattr(terms, name) is None:
                continue
            queue.terms = replace(terms, **{name: MARK})
            for victim in jobs:
                others = [job for job in jobs if job.queue != victim.queue]
                times = [min_runtime.reclaim_runtime(session, job, victim) for job in others]
                if MARK in (*times, min_runtime.preempt_runtime(session, victim)):
                    seen.add(queue.name)
            queue.terms = terms
    return seen


def check_runtimes(tmp_path: Path, seeds_: Iterable[int]) -> None:
    for seed in seeds_:
        trees = random_tree(seed)
        fields = {"reclaimMinRuntime", "preemptMinRuntime"}
        queues = (tree for tree in trees if tree["kind"] == "Queue")
        names = {tree["metadata"]["name"] for tree in queues if fields & {*tree["spec"]}}
        expected = names - read_by_sessions(tmp_path, trees)
        assert unread(audited(tmp_path, NODE, *trees)) == expected


def test_a_runtime_is_unread_where_no_pair_of_jobs_reads_it(tmp_path: Path) -> None:
    check_runtimes(tmp_path, seeds(12))


def test_a_rule_that_asks_parents_alone_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kai_queue_rules, "_next_set", lambda path, runtimes: path[0])
    with pytest.raises(AssertionError):
        check_runtimes(tmp_path, seeds(12))


# Promises of random trees: what is reported cannot be met, and a tree that can be met is quiet.


def random_queues(seed: int) -> AuditedTree:
    rng = random.Random(seed)
    queues: list[AuditedQueue] = []
    for number in range(rng.randint(1, 7)):
        parent = rng.choice(["", *(one.name for one in queues)])
        quota = {"gpu": float(rng.randint(0, 6))}
        limit = {"gpu": float(rng.randint(1, 8))} if rng.random() < 0.5 else {}
        queues.append(AuditedQueue(f"q{number}", parent, promises={"quota": quota}, limit=limit))
    return AuditedTree(queues, {"gpu": 10.0})


def is_met_at_once(tree: AuditedTree) -> bool:
    """Whether each queue may have its whole quota, with what is below it in it."""

    def needs(name: str) -> float:
        below = sum(needs(one.name) for one in tree.below(name))
        return max(tree.queues[name].promises["quota"]["gpu"], below)

    for name, queue in tree.queues.items():
        quota = queue.promises["quota"]["gpu"]
        bounds = [one.limit.get("gpu", 99.0) for one in (queue, *tree.above(name))]
        if quota > min(bounds) or needs(name) > quota:
            return False
    return sum(needs(one.name) for one in tree.below("")) <= 10


def check_promises(seeds_: Iterable[int], rules: Sequence[Rule] = PROMISE_RULES) -> None:
    for seed in seeds_:
        tree = random_queues(seed)
        reasons = [one.reason for rule in rules for one in rule(tree)]
        assert (not reasons) == is_met_at_once(tree), (tree.queues, reasons)


def test_quotas_are_reported_where_they_cannot_be_met_at_once() -> None:
    check_promises(seeds(400))


@pytest.mark.parametrize("forgotten", PROMISE_RULES[1:])
def test_an_audit_without_one_of_its_rules_is_found(forgotten: Rule) -> None:
    rules = [rule for rule in PROMISE_RULES if rule is not forgotten]
    with pytest.raises(AssertionError):
        check_promises(seeds(400), rules)


# Other models, and the command.


def test_guarantees_of_volcano_are_audited(tmp_path: Path) -> None:
    # As older servers of Volcano store it; in a file that a person wrote it is a mistake.
    top = volcano.queue("red")
    top["metadata"]["uid"] = "red"
    top["spec"] |= {"capability": {"cpu": "2"}, "guarantee": {"resource": {"cpu": "3"}}}
    found_ = found(audited(tmp_path, volcano.node("n"), top, config="scheduler: volcano"))
    assert found_["queue/red", "GuaranteeOverLimit"] == (
        "guarantee 3 cpu is above its limit 2: 1 of it can never be used"
    )


def test_queues_of_kube_batch_that_do_not_exist(tmp_path: Path) -> None:
    objects = [volcano.node("n"), volcano.group("g", 1, "gone", 1), volcano.pod("p", of="g")]
    for one in objects[1:]:
        if one["kind"] == "Pod":
            one["spec"]["schedulerName"] = "kube-batch"
    assert ("queue/gone", "QueueNotFound") in found(audited(tmp_path, *objects, config=KUBE_BATCH))


def test_the_command_reports_what_is_wrong_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, kai.queue("red", 9)]))
    table = run("queues", "--audit", "--compat", "kai", str(file))
    assert table.code == 1
    assert "queue/red  QuotaOverCluster" in table.out
    tree = json.loads(run("queues", "--audit", "--compat", "kai", str(file), "-o", "json").out)
    assert tree["apiVersion"] == "stowplan.dev/queue-audit/v1"
    assert tree["findings"][0]["reason"] == "QuotaOverCluster"
    file.write_text(yaml.safe_dump_all([NODE, kai.queue("red", 8)]))
    assert run("queues", "--audit", "--compat", "kai", str(file)).code == 0
