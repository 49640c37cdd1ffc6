"""explain_pod_group() and the CLI: whether a gang can start, and the effect of evictions."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.config.session_configuration import KUBE_BATCH_0_5
from stowplan.cycle.change import Change
from stowplan.forecast.explain_job import JobExplanation, explain_job, explain_pod_group
from stowplan.forecast.session_changes.gang_changes import PAIRS_LEFT_OUT
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.simulation.simulate_jobs import simulate_jobs
from tests.cli.run import run
from tests.insight.json_patch import applied
from tests.simulation.test_session_runner import (
    ALL,
    deciders,
    group,
    make_cluster,
    node,
    pod,
    queue,
)
from tests.soak import examples

Objects = list[dict[str, object]]


def explained(cluster: Cluster, name: str, text: str = ALL) -> JobExplanation:
    return explain_pod_group(f"default/{name}", cluster, config=deciders(text), changes=False)


def changed(cluster: Cluster, name: str, text: str = ALL) -> JobExplanation:
    """The explanation with the changes."""
    return explain_pod_group(f"default/{name}", cluster, config=deciders(text))


def gang(name: str, size: int, cpu: str, queue: str = "default", node: str = "") -> Objects:
    pods = [pod(f"{name}-{number}", name, cpu, node=node) for number in range(size)]
    return [group(name, size, queue), *pods]


def test_a_gang_that_needs_more_than_the_cluster_has(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, node("n1"), node("n2"), queue("default"), *gang("g", 5, "2"))
    explanation = explained(cluster, "g")
    assert explanation.never == ("needs 10 cpu, the cluster has 8",)
    assert (explanation.state, explanation.is_placed, explanation.evictions) == (
        "pending",
        False,
        (),
    )
    # The same for a pod of the gang.
    assert explain_job("default/g-0", cluster, config=deciders()).never == explanation.never


def test_what_runs_of_it_counts_to_what_it_needs(tmp_path: Path) -> None:
    some = [group("g", 5), *(pod(f"r{i}", "g", "2", node="n1") for i in range(2))]
    waiting = [pod(f"w{i}", "g", "2") for i in range(3)]
    cluster = make_cluster(tmp_path, node("n1"), node("n2"), queue("default"), *some, *waiting)
    assert explained(cluster, "g").never == ("needs 10 cpu, the cluster has 8",)


def test_a_gang_above_the_capability_of_its_queue(tmp_path: Path) -> None:
    limited = queue("q") | {"spec": {"weight": 1, "capability": {"cpu": 3, "pods": 2}}}
    cluster = make_cluster(tmp_path, node("n1", "8"), limited, *gang("g", 4, "1", "q"))
    assert explained(cluster, "g").never == (
        "needs 4 cpu, the capability of queue 'q' is 3",
        "needs 4 pods, the capability of queue 'q' is 2",
    )


def test_a_gang_of_which_a_pod_is_larger_than_any_node(tmp_path: Path) -> None:
    pods = [pod("small", "g"), pod("large", "g", "5")]
    nodes = (node("n1"), node("n2"))
    cluster = make_cluster(tmp_path, *nodes, queue("default"), group("g", 2), *pods)
    assert explained(cluster, "g").never == (
        "pod default/large needs 5 cpu, the largest node has 4",
    )
    # With a smaller minMember it can start.
    cluster = make_cluster(tmp_path, *nodes, queue("default"), group("g", 1), *pods)
    assert explained(cluster, "g").never == ()


def test_a_gang_that_empty_nodes_do_not_take_together(tmp_path: Path) -> None:
    cluster = make_cluster(
        tmp_path, node("n1"), node("n2"), queue("default"), *gang("g", 3, "2500m")
    )
    assert explained(cluster, "g").never == ("2 of its pods fit on empty nodes, 3 are needed",)


def test_a_gang_that_waits_for_others_to_end_can_start(tmp_path: Path) -> None:
    running = gang("old", 4, "2", node="n1")[:3]
    cluster = make_cluster(
        tmp_path, node("n1"), node("n2"), queue("default"), *running, *gang("g", 4, "2")
    )
    explanation = explained(cluster, "g")
    assert (explanation.never, explanation.is_placed) == ((), False)


def spared() -> Objects:
    """Six nodes with a pod of another queue each; five pods of that gang may be evicted."""
    nodes = [node(f"n{number}") for number in range(6)]
    old = [pod(f"old-{number}", "old", "4", node=f"n{number}") for number in range(6)]
    queues = [queue("poor", 1), queue("rich", 30)]
    return [*nodes, *queues, group("old", 1, "poor"), *old]


def test_why_reclaim_does_not_help(tmp_path: Path) -> None:
    # A gang with minMember 2 keeps one pod more than one with minMember 1.
    kept = [one if one["kind"] != "PodGroup" else group("old", 2, "poor") for one in spared()]
    cluster = make_cluster(tmp_path, *kept, *gang("g", 6, "4", "rich"))
    explanation = explained(cluster, "g")
    assert explanation.evicted == {}
    frees = explanation.evictions[0]
    assert frees.startswith("reclaim does not help: it frees ")
    assert frees.endswith(" of 6 slots")
    assert 0 < int(frees.split()[6]) < 6
    assert explanation.evictions[1] == (
        "preempt does not help: no pod of lower priority in its queue may be evicted for it"
    )


def test_reclaim_that_is_not_configured_and_would_help(tmp_path: Path) -> None:
    text = ALL.replace("reclaim, ", "").replace(", preempt", "")
    cluster = make_cluster(tmp_path, *spared(), *gang("g", 2, "4", "rich"))
    explanation = explained(cluster, "g", text)
    assert explanation.evictions == (
        "reclaim could free resources for it, but is not a configured action",
    )
    assert len(explained(cluster, "g").evicted) == 2


def test_a_queue_that_has_all_it_deserves_does_not_reclaim(tmp_path: Path) -> None:
    cluster = make_cluster(
        tmp_path,
        *(node("n1"), queue("a"), queue("b")),
        *(*gang("mine", 2, "1", "a", node="n1"), *gang("theirs", 2, "1", "b", node="n1")),
        *(*gang("more", 2, "1", "a"), *gang("wanted", 2, "1", "b")),
    )
    explanation = explained(cluster, "more")
    assert (
        explanation.evictions[0]
        == "reclaim does not help: queue 'a' already has its deserved share"
    )


def test_only_evictions_for_it_are_listed(tmp_path: Path) -> None:
    objects = [*spared(), *gang("one", 1, "4", "rich"), *gang("two", 2, "4", "rich")]
    cluster = make_cluster(tmp_path, *objects)
    one, two = explained(cluster, "one"), explained(cluster, "two")
    assert (len(one.evicted), one.evicted_for_others) == (1, 2)
    assert (len(two.evicted), two.evicted_for_others) == (2, 1)
    assert not one.evicted.keys() & two.evicted.keys()
    assert explain_job("default/two-0", cluster, config=deciders()).evicted == two.evicted


def test_a_group_without_pods_and_one_that_is_not_there(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), group("g", 3))
    explanation = explained(cluster, "g")
    assert (
        explanation.message
        == "no pod with schedulerName kube-batch or volcano belongs to it, minMember is 3"
    )
    with pytest.raises(InputError, match=r'podgroups "h" not found in namespace "default".*1 Pod'):
        explained(cluster, "h")


def test_a_session_that_looks_changes_nothing(tmp_path: Path) -> None:
    """An explanation leaves no trace: a later session decides as without it."""
    cluster = make_cluster(
        tmp_path, *spared(), *gang("g", 6, "4", "rich"), *gang("h", 1, "1", "rich")
    )
    before = simulate_jobs(cluster, config=deciders()).placements
    explained(cluster, "g")
    assert simulate_jobs(cluster, config=deciders()).placements == before


# The command.


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    objects = [node("n1"), queue("default"), *gang("big", 3, "2"), *gang("fits", 2, "1")]
    objects += [pod("fits", cpu="1")]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "batch.yaml").write_text(ALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


CLUSTER_ARGUMENTS = ("--cluster", "cluster.yaml")


@pytest.mark.parametrize("name", ["podgroup/big", "pg/big", "big", "default/big"])
def test_a_group_is_explained_by_its_name(name: str, files: Path) -> None:
    ran = run("explain", name, *CLUSTER_ARGUMENTS, "--config", "batch.yaml")
    assert ran.code == 1
    assert ran.out.startswith(
        "podgroup default/big (kube-batch, by sessions): pending; "
        "it cannot run in this cluster: needs 6 cpu, the cluster has 4\n"
    )
    answer = json.loads(
        run("explain", name, *CLUSTER_ARGUMENTS, "--config", "batch.yaml", "-o", "json").out
    )
    assert (answer["podGroup"], answer["never"]) == (
        "default/big",
        ["needs 6 cpu, the cluster has 4"],
    )


VOLCANO = """
scheduler: volcano
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def test_queue_models_name_what_can_never_run(files: Path) -> None:
    text = (files / "cluster.yaml").read_text()
    text = text.replace("scheduling.incubator.k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1")
    (files / "cluster.yaml").write_text(text.replace("kube-batch", "volcano"))
    (files / "volcano.yaml").write_text(VOLCANO)
    ran = run("explain", "pg/big", *CLUSTER_ARGUMENTS, "--config", "volcano.yaml", "--no-changes")
    assert ran.out.startswith(
        "podgroup default/big (volcano, by sessions): pending; "
        "it cannot run in this cluster: needs 6 cpu, the cluster has 4\n"
    )
    ran = run("explain", "pg/fits", *CLUSTER_ARGUMENTS, "--config", "volcano.yaml")
    assert "it cannot run" not in ran.out


def test_the_scheduler_that_pods_of_a_gang_ask_for_is_named(tmp_path: Path) -> None:
    pods = [pod(f"g-{number}", "g", "5", schedulerName="volcano") for number in range(2)]
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), group("g", 2), *pods)
    assert explained(cluster, "g").scheduler_name == "volcano"
    assert explain_job("default/g-0", cluster, config=deciders()).scheduler_name == "volcano"


def test_a_pod_goes_before_a_group_of_the_same_name(files: Path) -> None:
    assert run("explain", "fits", *CLUSTER_ARGUMENTS, "--config", "batch.yaml").out.startswith(
        "default/fits ("
    )
    ran = run("explain", "pg/fits", *CLUSTER_ARGUMENTS, "--config", "batch.yaml")
    assert ran.code == 0
    ready = "(kube-batch, by sessions): pending; a session would schedule 2 pods, minMember is 2\n"
    assert ready in ran.out
    assert ": 0 of 2 pods have a node, 2 after the session, minMember 2; " in ran.out
    ran = run("explain", "pg/other", *CLUSTER_ARGUMENTS, "--config", "batch.yaml", "-n", "x")
    assert ran.code == 2
    assert 'podgroups "other" not found in namespace "x"' in ran.err


def test_missing_sessions_are_noted(files: Path) -> None:
    hint = "no sessions are configured (add --config FILE with actions and tiers)"
    ran = run("explain", "pg/big", *CLUSTER_ARGUMENTS)
    assert "it cannot run in this cluster" in ran.out
    assert f"Note: {hint}" in ran.out
    assert hint in run("explain", "big-0", *CLUSTER_ARGUMENTS).err
    text = (files / "cluster.yaml").read_text().replace("kube-batch", "default-scheduler")
    (files / "cluster.yaml").write_text(text)
    ran = run("explain", "big-0", *CLUSTER_ARGUMENTS)
    assert "1 of 1 nodes fit" in ran.out
    assert f"Note: the pod is in PodGroup default/big and was evaluated alone: {hint}" in ran.out
    assert (
        f"Note: 5 pods are in PodGroups and were tried alone: {hint}"
        in run("simulate", *CLUSTER_ARGUMENTS).out
    )
    ran = run("explain", "fits", *CLUSTER_ARGUMENTS)
    assert "Note" not in ran.out
    # A changed configuration is what the answer is about.
    for change, wanted in ((("--cordon", "n1"), True), (("--config", "batch.yaml"), False)):
        ran = run("what-if", *CLUSTER_ARGUMENTS, *change)
        assert ran.code == 0
        assert (hint in ran.out) == wanted


def test_with_the_reclaim_of_kube_batch_all_evictions_are_listed(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, *spared(), *gang("one", 1, "4", "rich"))
    explanation = explain_pod_group("default/one", cluster, config=deciders(compat=KUBE_BATCH_0_5))
    assert explanation.evicted
    assert explanation.evicted_for_others == 0


# Changes of the gang and of its queue.


def applied_to(folder: Path, change: Change) -> Cluster:
    """The cluster of the folder, read again after a change."""
    manifests = list(yaml.safe_load_all((folder / "cluster.yaml").read_text()))
    after = applied(manifests, msgspec.to_builtins(change)["objects"])
    return make_cluster(folder, *after)


def least_member(manifests: Objects, name: str, least: int) -> Objects:
    return [
        {**one, "spec": {**one["spec"], "minMember": least}}  # type: ignore[dict-item]
        if one["kind"] == "PodGroup" and one["metadata"]["name"] == name  # type: ignore[index]
        else one
        for one in manifests
    ]


def test_the_largest_gang_that_starts(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), queue("default"), *gang("g", 5, "2")]
    cluster = make_cluster(tmp_path, *objects)
    explanation = changed(cluster, "g")
    change, _, _ = explanation.changes
    assert (change.kind, change.cost, change.text) == (
        "gang",
        20,
        "lower minMember of PodGroup g from 5 to 4: it is 1 member short",
    )
    assert explanation.not_searched == ()
    assert explained(applied_to(tmp_path, change), "g").is_placed
    # No smaller step does: every larger minMember stays pending.
    for least in range(1, 6):
        other = make_cluster(tmp_path, *least_member(objects, "g", least))
        assert explained(other, "g").is_placed == (least <= 4)


def test_a_queue_whose_capability_is_too_small(tmp_path: Path) -> None:
    limited = queue("q") | {"spec": {"weight": 1, "capability": {"cpu": 3}}}
    objects = [node("n1"), limited, *gang("g", 2, "2", "q")]
    capacity = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: proportion}]}]\n'
    cluster = make_cluster(tmp_path, *objects)
    explanation = changed(cluster, "g", capacity)
    assert not explanation.is_placed
    kinds = {change.kind: change for change in explanation.changes}
    wider = kinds["queue"]
    assert wider.text.startswith("raise the cpu capability of Queue q from 3 to ")
    assert explained(applied_to(tmp_path, wider), "g", capacity).is_placed
    pod_answer = explain_job("default/g-0", cluster, config=deciders(capacity))
    assert "queue" in {change.kind for change in pod_answer.changes}


def test_a_gang_that_can_start_needs_no_change(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), *gang("g", 2, "2"))
    assert changed(cluster, "g").changes == ()


# Changes of the gang's pods and of nodes.

TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


def texts(cluster: Cluster, name: str = "g") -> dict[str, tuple[int, str]]:
    return {one.kind: (one.cost, one.text) for one in changed(cluster, name).changes}


def test_new_nodes_and_lower_requests_of_a_gang(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, node("n1"), queue("default"), *gang("g", 5, "2"))
    assert texts(cluster) == {
        "request": (60, "lower the cpu request of container c from 2 to 800m"),
        "gang": (60, "lower minMember of PodGroup g from 5 to 2: it is 3 members short"),
        "add-node": (2000, "add 2 nodes of pool cpu=4,memory=16Gi,pods=110"),
    }
    found = {one.kind: one for one in changed(cluster, "g").changes}
    assert [one.kind for one in found["request"].objects] == ["Pod"] * 5
    assert [one.name for one in found["add-node"].objects] == ["n1-new-1", "n1-new-2"]
    for change in found.values():
        make_cluster(tmp_path, node("n1"), queue("default"), *gang("g", 5, "2"))
        assert explained(applied_to(tmp_path, change), "g").is_placed, change.text


ALLOCATE = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]\n'
RUNNING = [
    pod("a", cpu="4", node="n1"),
    pod("b", cpu="1", node="n2", priority=-1),
    pod("c", cpu="1", node="n2"),
    pod("d", cpu="1", node="n2", priority=1),
]


@pytest.mark.parametrize(
    ("cpu", "size", "cost", "text"),
    [
        ("4", 1, 200, "free node n1 by ending default/a"),
        ("2", 1, 100, "free node n2 by ending default/b"),
        ("2", 3, 300, "free nodes n1, n2 by ending default/a and ending default/b"),
    ],
)
def test_running_pods_that_a_gang_needs_to_end(
    tmp_path: Path, cpu: str, size: int, cost: int, text: str
) -> None:
    objects = [node("n1"), node("n2"), queue("default"), *RUNNING, *gang("g", size, cpu)]
    cluster = make_cluster(tmp_path, *objects)
    found = {one.kind: one for one in changed(cluster, "g", ALLOCATE).changes}
    assert (found["free"].cost, found["free"].text) == (cost, text)
    assert explained(applied_to(tmp_path, found["free"]), "g", ALLOCATE).is_placed


def test_a_gang_is_helped_by_a_request_of_one_container(tmp_path: Path) -> None:
    # Without the whole request of d the other container still requests 1 CPU.
    member = pod("g-0", "g", "1")
    two = [
        {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}}
        for name, cpu in (("c", "1"), ("d", "3"))
    ]
    member["spec"] = {"schedulerName": "kube-batch", "containers": two}
    objects = [node("n1", "1"), queue("default"), group("g", 1), member]
    found = texts(make_cluster(tmp_path, *objects))
    assert found["request"] == (100, "drop the cpu request of container d (3)")


def test_a_gang_whose_nodes_are_tainted_or_cordoned(tmp_path: Path) -> None:
    tainted = node("n1") | {"spec": {"taints": [TAINT]}}
    cordoned = node("n2") | {"spec": {"unschedulable": True}}
    cluster = make_cluster(tmp_path, tainted, cordoned, queue("default"), *gang("g", 2, "2"))
    found = texts(cluster)
    assert found["toleration"] == (10, "add a toleration for taint team=x:NoSchedule")
    assert found["taint"] == (20, "remove taint team=x:NoSchedule from node n1")
    assert found["uncordon"] == (10, "uncordon node n2")
    # Of four pods two fit on each node: both changes are needed.
    cluster = make_cluster(tmp_path, tainted, cordoned, queue("default"), *gang("g", 4, "2"))
    found = texts(cluster)
    assert not {"toleration", "taint", "uncordon"} & set(found)


def test_two_changes_that_help_a_gang_together(tmp_path: Path) -> None:
    both = node("n1") | {"spec": {"taints": [TAINT], "unschedulable": True}}
    least = gang("g", 2, "2", "q")
    # A pool of which no new node helps without a toleration.
    limited = queue("q") | {"spec": {"weight": 1}}
    cluster = make_cluster(tmp_path, both, limited, *least)
    explanation = changed(cluster, "g")
    (change,) = explanation.changes
    assert (change.kind, change.cost) == ("combined", 20)
    assert PAIRS_LEFT_OUT in explanation.not_searched
    assert change.text == "uncordon node n1 and add a toleration for taint team=x:NoSchedule"
    assert explained(applied_to(tmp_path, change), "g").is_placed


def test_the_template_of_a_gang_is_changed_once(tmp_path: Path) -> None:
    template = pod("x", "g", "1")
    job: dict[str, object] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "template": {
                "metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
                "spec": {**template["spec"], "restartPolicy": "Never"},  # type: ignore[dict-item]
            },
        },
    }
    tainted = node("n1") | {"spec": {"taints": [TAINT]}}
    cluster = make_cluster(tmp_path, tainted, queue("default"), group("g", 3), job)
    change = next(one for one in changed(cluster, "g").changes if one.kind == "toleration")
    (entry,) = change.objects
    assert (entry.kind, entry.name) == ("Job", "train")
    assert entry.patch[0]["path"] == "/spec/template/spec/tolerations"
    assert explained(applied_to(tmp_path, change), "g").is_placed


@st.composite
def clusters_with_a_gang(draw: st.DrawFn) -> Objects:
    nodes: Objects = []
    for number in range(draw(st.integers(1, 3))):
        spec: dict[str, object] = {}
        if draw(st.booleans()):
            spec["taints"] = [TAINT]
        if draw(st.integers(0, 3)) == 0:
            spec["unschedulable"] = True
        nodes.append(node(f"n{number}", str(draw(st.integers(2, 6)))) | {"spec": spec})
    running = [pod(f"r{i}", cpu="1", node="n0") for i in range(draw(st.integers(0, 2)))]
    size = draw(st.integers(1, 4))
    return [*nodes, queue("default"), *running, *gang("g", size, str(draw(st.integers(1, 4))))]


@settings(max_examples=examples(20), deadline=None)
@given(clusters_with_a_gang())
def test_every_change_starts_the_gang_and_no_smaller_step_does(objects: Objects) -> None:
    with TemporaryDirectory() as folder:
        cluster = make_cluster(Path(folder), *objects)
        before = changed(cluster, "g")
        for change in before.changes:
            make_cluster(Path(folder), *objects)
            assert explained(applied_to(Path(folder), change), "g").is_placed, change.text
        found = {one.kind: one for one in before.changes}
        more = found.get("add-node")
        if more is not None and len(more.objects) > 1:
            make_cluster(Path(folder), *objects)
            fewer = msgspec.structs.replace(more, objects=more.objects[1:])
            assert not explained(applied_to(Path(folder), fewer), "g").is_placed
        if before.is_placed:
            assert not found
            return
        running = [one for one in objects if one["metadata"]["name"].startswith("r")]  # type: ignore[index]
        n_ended = len(found["free"].objects) if "free" in found else len(running) + 1
        for some in (some for n in range(1, n_ended) for some in combinations(running, n)):
            left = make_cluster(Path(folder), *(one for one in objects if one not in some))
            assert not explained(left, "g").is_placed, some
