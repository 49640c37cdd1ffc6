"""Sessions on clusters from files: input, reports, and loans between queues."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.batch.job_report import JobReport
from stowplan.batch.state.task_requests import format_resource
from stowplan.cli.tables.jobs import _headline
from stowplan.config.session_configuration import KUBE_BATCH_0_5
from stowplan.forecast.explain_job import explain_job
from stowplan.forecast.queue_shares import Shares, shares_of
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.objects.podgroup import GROUP_API_VERSIONS
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.session_runner import SessionRun, SessionRunner
from stowplan.simulation.simulate_jobs import simulate_jobs
from tests.soak import examples

ALL = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
V1ALPHA1 = GROUP_API_VERSIONS[0]


def node(name: str, cpu: str = "4") -> dict[str, object]:
    offer = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": offer},
    }


def queue(name: str, weight: int = 1, version: str = V1ALPHA1) -> dict[str, object]:
    meta = {"name": name}
    return {"apiVersion": version, "kind": "Queue", "metadata": meta, "spec": {"weight": weight}}


def group(
    name: str, least: int, queue: str = "default", version: str = V1ALPHA1, priority: str = ""
) -> dict[str, object]:
    spec = {"minMember": least, "queue": queue, "priorityClassName": priority}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def pod(
    name: str, of: str = "", cpu: str = "1", node: str = "", owner: str = "", **spec: object
) -> dict[str, object]:
    meta: dict[str, object] = {"name": name}
    if of:
        meta["annotations"] = {"scheduling.k8s.io/group-name": of}
    if owner:
        meta["ownerReferences"] = [reference(owner)]
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    whole = {"schedulerName": "kube-batch", "nodeName": node, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}


def reference(owner: str) -> dict[str, object]:
    return {"kind": "Crew", "name": owner, "uid": f"uid-{owner}", "controller": True}


def make_cluster(tmp_path: Path, *objects: dict[str, object]) -> Cluster:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return read_cluster(file)


def deciders(text: str = ALL, compat: str = "") -> Deciders:
    return deciders_of([ConfigText(text, "batch.yaml")], (), compat)


def first_round(cluster: Cluster, text: str = ALL) -> SessionRun:
    return SessionRunner(cluster, deciders(text)).run_session()


def job(held: SessionRun, name: str) -> JobReport:
    (found,) = (job for job in held.jobs if job.name == name)
    return found


@pytest.mark.parametrize("version", GROUP_API_VERSIONS)
def test_groups_and_queues_of_every_api_group(version: str, tmp_path: Path) -> None:
    cluster = make_cluster(
        tmp_path,
        node("n1"),
        queue("q", 2, version),
        group("g", 2, "q", version),
        pod("a", "g"),
        pod("b", "g"),
    )
    assert not cluster.ignored
    held = first_round(cluster)
    assert held.bound == {"default/a": "n1", "default/b": "n1"}
    assert job(held, "default/g").queue == "q"


def test_groups_of_another_api_group_are_ignored(tmp_path: Path) -> None:
    cluster = make_cluster(
        tmp_path, node("n1"), group("g", 1, version="scheduling.x-k8s.io/v1alpha1")
    )
    assert cluster.ignored == {"PodGroup.scheduling.x-k8s.io": 1}


def test_a_bad_capability_is_named(tmp_path: Path) -> None:
    bad = queue("q") | {"spec": {"weight": 1, "capability": {"cpu": "lots"}}}
    with pytest.raises(InputError, match=r"Queue q: spec\.capability\.cpu: Invalid value: 'lots'"):
        make_cluster(tmp_path, node("n1"), bad)


def test_a_gang_without_enough_pods_is_explained(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), group("g", 3), pod("a", "g"))
    found = job(first_round(cluster), "default/g")
    assert found.reason == "NotEnoughTasks"
    assert found.message.endswith("valid: 1, min: 3")
    assert not found.is_ready


def test_an_unready_gang_reports_reasons_by_node(tmp_path: Path) -> None:
    tainted = node("n2") | {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    gang = (pod(name, "g", "3") for name in ("a", "b"))
    cluster = make_cluster(tmp_path, node("n1"), tainted, queue("default"), group("g", 2), *gang)
    found = job(first_round(cluster), "default/g")
    assert (found.reason, found.ready, found.placed) == ("NotEnoughResources", 0, {})
    assert sorted(found.waiting) == ["default/a", "default/b"]
    explanation = explain_job("default/b", cluster, config=deciders())
    assert [(node.name, node.reasons) for node in explanation.nodes] == [
        ("n1", ()),
        ("n2", ("node(s) had untolerated taint(s)",)),
    ]


def test_what_is_named_and_not_there(tmp_path: Path) -> None:
    lost = (group("g", 1, "nowhere"), pod("a", "g"), pod("b", "unknown"))
    cluster = make_cluster(tmp_path, node("n1"), *lost)
    held = first_round(cluster)
    assert job(held, "default/g").reason == "QueueNotFound"
    assert job(held, "default/unknown").reason == "PodGroupNotFound"
    # The minMember of a missing PodGroup is unknown.
    assert job(held, "default/unknown").min_member == 0
    assert not job(held, "default/unknown").is_ready
    assert simulate_jobs(cluster, config=deciders()).summary["jobs_ready"] == 0
    found = shares_of(SessionRunner(cluster, deciders()))
    assert (found.strays, found.ungrouped) == ({"nowhere": 1}, {"default/unknown": 1})
    lines = _headline(explain_job("default/b", cluster, config=deciders()))
    assert lines.endswith('pending; podgroups "unknown" not found in namespace "default"')
    lines = _headline(explain_job("default/a", cluster, config=deciders()))
    assert lines.endswith('pending; queues "nowhere" not found')


def test_a_negative_min_member_is_reported(tmp_path: Path) -> None:
    # As a server without these checks has stored it; a person's file is refused.
    stored = group("g", -1)
    stored["metadata"] |= {"uid": "g", "resourceVersion": "1"}
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), stored, pod("a", "g"))
    held = first_round(cluster)
    found = job(held, "default/g")
    assert held.bound == {}
    assert (found.reason, found.message) == (
        "InvalidPodGroup",
        "spec.minMember: Invalid value: -1: must be greater than or equal to 0",
    )
    assert (found.phase, found.is_ready) == ("Pending", False)


def test_queues_of_volcano_are_as_they_say(tmp_path: Path) -> None:
    kept = queue("kept", version=GROUP_API_VERSIONS[2])
    kept["spec"] = {"weight": 1, "reclaimable": False}
    shut = queue("shut", version=GROUP_API_VERSIONS[2]) | {"status": {"state": "Closed"}}
    running = [pod(f"r{i}", "r", node="n1") for i in range(4)]
    groups = (group("r", 1, "kept"), group("w", 1), group("s", 1, "shut"))
    cluster = make_cluster(
        tmp_path,
        *(node("n1"), queue("default"), kept, shut, *groups, *running),
        *(pod("w", "w"), pod("s", "s")),
    )
    held = first_round(cluster)
    assert held.evicted == {}
    assert job(held, "default/s").reason == "QueueClosed"
    text = (tmp_path / "cluster.yaml").read_text().replace("reclaimable: false", "")
    (tmp_path / "cluster.yaml").write_text(text.replace("state: Closed", "state: Open"))
    held = first_round(read_cluster(tmp_path / "cluster.yaml"))
    assert len(held.evicted) == 2


def test_a_queue_is_to_blame_only_where_there_would_be_room(tmp_path: Path) -> None:
    """Both wait in a queue that has its deserved share; one of them fits on no node."""
    cluster = make_cluster(
        tmp_path,
        *(node("n1"), node("n2"), queue("a"), queue("b")),
        *(group("old", 1, "a"), group("more", 1, "a"), group("picky", 1, "a"), group("w", 1, "b")),
        *(pod(f"old-{i}", "old", node="n1") for i in range(4)),
        *(pod("more", "more"), pod("picky", "picky", nodeSelector={"disk": "fast"})),
        pod("w", "w", "5"),
    )
    held = first_round(cluster)
    assert job(held, "default/more").reason == "QueueOverused"
    assert job(held, "default/more").message == "queue 'a' already has its deserved share"
    assert job(held, "default/picky").reason == "NotEnoughResources"
    assert "node affinity/selector" in job(held, "default/picky").message


def test_with_compat_a_file_of_profiles_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "batch.yaml").write_text(ALL)
    (tmp_path / "profile.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    batch, profile, gone = (tmp_path / name for name in ("batch.yaml", "profile.yaml", "gone"))
    compat = "kube-batch-0.5"
    with pytest.raises(InputError, match="gone"):
        read_deciders([batch, gone], compat=compat)
    with pytest.raises(InputError, match="gone"):
        read_deciders([gone, profile])
    found = read_deciders([profile, gone], compat=compat)
    assert found.batch is not None
    assert found.batch.actions == ("allocate", "backfill")
    assert found.configuration.profiles


def test_a_budget_reports_how_many_are_needed(tmp_path: Path) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "ownerReferences": [reference("crew")]},
        "spec": {"minAvailable": 3},
    }
    pods = [pod(name, owner="crew", cpu="2") for name in ("a", "b", "c")]
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), budget, *pods)
    held = first_round(cluster)
    found = job(held, "default/Crew/crew")
    assert (found.kind, found.min_member, held.bound) == ("PodDisruptionBudget", 3, {})
    without = make_cluster(tmp_path, node("n1"), queue("default"), *pods)
    held = first_round(without)
    assert (job(held, "default/Crew/crew").kind, len(held.bound)) == ("Pods", 2)


@pytest.mark.parametrize(("switch", "first"), [("true", "late"), ("false", "early")])
def test_priority_classes_count_unless_switched_off(
    switch: str, first: str, tmp_path: Path
) -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    groups = (group("early", 1), group("late", 1, priority="high"))
    pods = (pod("early", "early", "3"), pod("late", "late", "3"))
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), high, *groups, *pods)
    held = first_round(cluster, f"{ALL}batch: {{priorityClass: {switch}}}")
    assert held.bound == {f"default/{first}": "n1"}


def test_sessions_are_held_until_one_changes_nothing(tmp_path: Path) -> None:
    running = [pod(f"old-{i}", "old", node="n1") for i in range(4)]
    waiting = [pod(f"new-{i}", "new", "1500m") for i in range(2)]
    cluster = make_cluster(
        tmp_path,
        *(node("n1"), queue("poor", 1), queue("rich", 3), group("old", 1, "poor")),
        *(group("new", 2, "rich"), *running, *waiting, pod("other", schedulerName="x")),
    )
    run = simulate_jobs(cluster, config=deciders())
    assert run.evicted == {f"default/old-{i}": "reclaim" for i in (3, 2, 1)}
    assert {p.pod: p.node for p in run.placements} == {"default/new-0": "n1", "default/new-1": "n1"}
    assert run.summary["sessions"] == 3
    assert (
        "1 pending pods have another schedulerName than 'kube-batch' or 'volcano': not scheduled"
        in run.summary["notes"]
    )
    # A second run from the same cluster gives identical bytes.
    assert simulate_jobs(cluster, config=deciders()).files() == run.files()


def test_pods_on_nodes_that_are_not_there_are_no_obstacle(tmp_path: Path) -> None:
    there = (node("n1"), queue("default"), group("g", 1))
    cluster = make_cluster(tmp_path, *there, pod("lost", "g"), pod("a", "g"))
    lost, other = cluster.pods
    # Not possible from files: a node may be deleted while a scheduler runs.
    cluster.pods = [replace(lost, spec=replace(lost.spec, node_name="gone")), other]
    assert first_round(cluster).bound == {"default/a": "n1"}
    assert explain_job("default/a", cluster, config=deciders()).node == "n1"


@pytest.mark.parametrize("compat", ["", KUBE_BATCH_0_5], ids=["mended", "as ever"])
def test_sessions_end_with_pods_without_a_group(compat: str, tmp_path: Path) -> None:
    running = [pod(f"r{i}", node="n1", priority=1) for i in range(4)]
    waiting = [pod(f"p{i}", priority=5) for i in range(2)]
    members = [pod(f"m{i}", "g", priority=9) for i in range(2)]
    rest = (queue("default"), queue("q", 3), group("g", 2, "q"))
    cluster = make_cluster(tmp_path, node("n1"), *rest, *running, *waiting, *members)
    run = simulate_jobs(cluster, config=deciders(compat=compat))
    assert {p.pod for p in run.placements if p.node} >= {"default/m0", "default/m1"}
    assert len(run.evicted) >= 2


def test_missing_session_configuration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sessions"):
        SessionRunner(make_cluster(tmp_path, node("n1")), deciders_of([]))


def test_amounts_as_people_write_them() -> None:
    amounts = [
        format_resource("cpu", 1500.0),
        format_resource("cpu", 2000.0),
        format_resource("gpu/x", 3000.0),
    ]
    amounts += [format_resource("memory", 3 * 2.0**30), format_resource("memory", 1536 * 2.0**20)]
    assert amounts == ["1500m", "2", "3", "3Gi", "1.5Gi"]


# Loans.

QUEUES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=4
)


def shares(queues: list[tuple[int, int, int]], tmp_path: Path) -> Shares:
    """The queues (weight, running pods, pending pods), each pod of one CPU."""
    objects = [node("n1", "20")]
    for number, (weight, n_running, n_pending) in enumerate(queues):
        objects += [queue(f"q{number}", weight), group(f"g{number}", 1, f"q{number}")]
        objects += [pod(f"r{number}-{i}", f"g{number}", node="n1") for i in range(n_running)]
        objects += [pod(f"p{number}-{i}", f"g{number}") for i in range(n_pending)]
    return shares_of(SessionRunner(make_cluster(tmp_path, *objects), deciders()))


def unbalanced(found: Shares) -> list[str]:
    """Loans that differ from what queues have beyond their parts, or exceed unused parts."""
    wrong = []
    for one in found.queues:
        beyond = one.allocated["cpu"] - one.part["cpu"]
        cpu = [loan for loan in found.loans if loan.resource == "cpu"]
        borrowed = sum(loan.amount for loan in cpu if loan.borrower == one.name)
        borrowed_from = sum(loan.amount for loan in cpu if loan.lender == one.name)
        if abs(borrowed - max(beyond, 0.0)) > 0.01:
            wrong.append(f"{one.name} borrows {borrowed}, and has {beyond} beyond its part")
        if borrowed_from > max(-beyond, 0.0) + 0.01:
            wrong.append(f"{one.name} lends {borrowed_from} of {-beyond}")
    return wrong


@settings(max_examples=examples(20), deadline=None)
@given(QUEUES)
def test_what_is_borrowed_is_what_others_leave(
    tmp_path_factory: pytest.TempPathFactory, queues: list[tuple[int, int, int]]
) -> None:
    assert not unbalanced(shares(queues, tmp_path_factory.mktemp("q")))


def test_what_a_lender_finds_idle_it_does_not_want_back(tmp_path: Path) -> None:
    """Two queues deserve 10 of 20 CPUs each; one uses 13, the other has 3 and requests 5."""
    found = shares([(1, 13, 0), (1, 3, 5)], tmp_path)
    (loan,) = (loan for loan in found.loans if loan.resource == "cpu")
    assert (loan.amount, loan.wanted_back) == (3.0, 1.0)
    found = shares([(1, 13, 0), (1, 3, 4)], tmp_path)
    (loan,) = (loan for loan in found.loans if loan.resource == "cpu")
    assert (loan.amount, loan.wanted_back) == (3.0, 0.0)


def test_the_property_sees_a_lender_counted_twice(tmp_path: Path) -> None:
    found = shares([(1, 5, 0), (1, 0, 2), (4, 0, 1)], tmp_path)
    assert found.loans
    assert not unbalanced(found)
    found.loans.append(found.loans[0])
    assert unbalanced(found)
