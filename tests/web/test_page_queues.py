"""Queues and gangs of the page: the amounts of `stowplan queues`, and why a pod of a gang waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch.queue_models.kueue.reports.usage_reports import LocalQueueUse
from stowplan.batch.queue_models.kueue.reports.workload_reports import KueueReport, WorkloadReport
from stowplan.examples.demo_cluster import demo_deciders
from stowplan.examples.demo_manifests import BATCH
from stowplan.forecast.queue_shares import shares_of
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.simulation.session_runner import SessionRunner
from stowplan.testing.builders import node, pod
from stowplan.web.model.queue_tree import workload_trees
from stowplan.web.serving.cluster_questions import ClusterQuestions, ObjectsAtOnce
from stowplan.web.serving.page_source import BadRequest, NotFound


def member(name: str, group: str, on: str = "") -> Pod:
    made = pod(name, uid=name, cpu="2", on=on, scheduler=BATCH, created_at=5)
    notes = {GROUP_ANNOTATIONS[0]: group}
    phase = replace(made.status, phase="Running" if on else "Pending")
    return replace(made, metadata=replace(made.metadata, annotations=notes), status=phase)


def group(name: str, queue: str, size: int) -> PodGroup:
    spec = PodGroupSpec(min_member=size, queue=queue)
    return PodGroup(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=spec)


def queue(name: str, weight: int) -> Queue:
    return Queue(metadata=ObjectMeta(name=name, uid=name), spec=QueueSpec(weight=weight))


def objects() -> ObjectsAtOnce:
    """Two nodes of four cores; `one` has borrowed all of them, `two` waits."""
    nodes = [node("n0"), node("n1")]
    running = [member(f"a{place}", "a", on=f"n{place % 2}") for place in range(4)]
    waiting = [member(f"b{place}", "b") for place in range(3)]
    others = [queue("one", 1), queue("two", 3), group("a", "one", 4), group("b", "two", 3)]
    return ObjectsAtOnce(nodes, [*running, *waiting], list(others))


def test_queues_are_those_of_the_command() -> None:
    at_once, deciders = objects(), demo_deciders()
    questions = ClusterQuestions(deciders)
    tree = asyncio.run(questions.queues(at_once, 5000.0))
    (found,) = tree["schedulers"]
    expected = msgspec.to_builtins(shares_of(SessionRunner(at_once.cluster(), deciders)))
    assert found["total"] == expected["total"]
    assert found["loans"] == expected["loans"]
    for mine, other in zip(found["queues"], expected["queues"], strict=True):
        assert other.items() <= mine.items()
    by_name = {one["name"]: one for one in found["queues"]}
    assert by_name["one"]["allocated"]["cpu"] == 8
    # Its part is a quarter of eight cores.
    assert by_name["one"]["borrowed"]["cpu"] == 6
    assert by_name["two"]["lent"]["cpu"] == 6
    counts = {one["gang"]: (one["running"], one["pending"]) for one in tree["gangs"]}
    assert counts == {"default/a": (4, 0), "default/b": (0, 3)}
    series = questions.history.tree(0)["series"]
    fields = {(one["queue"], one["resource"], one["field"]): one["values"] for one in series}
    assert fields["one", "cpu", "allocated"] == [8]


def test_why_a_pod_of_a_gang_waits() -> None:
    questions = ClusterQuestions(demo_deciders())
    tree = asyncio.run(questions.why("default/b0", objects()))
    assert (tree["state"], tree["queue"]) == ("pending", "two")
    assert tree["gang"] == {
        "gang": "default/b",
        "queue": "two",
        "phase": "",
        "min": 3,
        "running": 0,
        "pending": 3,
        "missing": 0,
    }
    assert tree["nodes"] == 2 or tree["wouldGoTo"]
    # The search for changes runs sessions: the page first asks for the rest.
    quick = asyncio.run(questions.why("default/b0", objects(), quickly=True))
    assert quick["changes"] is None
    assert tree["changes"] or tree["notSearched"]
    same = {"changes": None, "notSearched": None}
    assert quick | same == tree | same


def test_what_is_not_there_is_not_found() -> None:
    questions = ClusterQuestions(demo_deciders())
    with pytest.raises(NotFound, match='pods "nope" not found in namespace "default"'):
        asyncio.run(questions.why("default/nope", objects()))
    with pytest.raises(BadRequest, match="not possible here"):
        asyncio.run(questions.what_if({"changes": [{"config": "/etc/passwd"}]}, objects()))


def test_a_changed_weight_is_answered_by_queue() -> None:
    questions = ClusterQuestions(demo_deciders())
    tree = asyncio.run(questions.what_if({"changes": [{"queue": "two.weight=1"}]}, objects()))
    assert tree["changes"]


VOLCANO = """
actions: "enqueue, allocate, reclaim"
tiers:
- plugins:
  - name: gang
  - name: capacity
    enableHierarchy: true
  - name: predicates
"""
"""A tree: `science` deserves six of eight cores, `ads` two; `labs` and `archive` are below
`science`."""


def volcano_queue(name: str, parent: str, deserved: int, guarantee: int) -> dict[str, Any]:
    amounts = {"cpu": str(deserved), "memory": "8Gi"}
    spec = {"weight": 1, "parent": parent, "deserved": amounts}
    spec["guarantee"] = {"resource": {"cpu": str(guarantee)}}
    meta, version = {"name": name}, "scheduling.volcano.sh/v1beta1"
    return {"apiVersion": version, "kind": "Queue", "metadata": meta, "spec": spec}


def kai_queue(name: str, parent: str, quota: int, guarantee: int) -> dict[str, Any]:
    cpu = {"quota": quota * 1000, "limit": -1, "overQuotaWeight": 1}
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: dict[str, Any] = {"resources": {"cpu": cpu, "memory": free, "gpu": free}}
    if parent != "root":
        spec["parentQueue"] = parent
    version = "scheduling.run.ai/v2"
    return {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def model_cluster(model: str) -> list[dict[str, Any]]:
    """`ads` has six cores, four more than its own; a gang of `labs` waits for three."""
    is_kai = model == "kai"
    queue = kai_queue if is_kai else volcano_queue
    version = "scheduling.run.ai/v2alpha2" if is_kai else "scheduling.volcano.sh/v1beta1"
    annotation = "pod-group-name" if is_kai else "scheduling.volcano.sh/group-name"
    name = "kai-scheduler" if is_kai else "volcano"

    def gang(title: str, of: str, size: int, cpu: int, node: str = "") -> list[dict[str, Any]]:
        spec = {"queue": of, "minMember": size}
        meta = {"name": title, "namespace": "default"}
        found = [{"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}]
        for place in range(size):
            asked = {"requests": {"cpu": str(cpu)}}
            containers = [{"name": "c", "image": "i", "resources": asked}]
            found.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"{title}-{place}",
                        "namespace": "default",
                        "annotations": {annotation: title},
                    },
                    "spec": {"schedulerName": name, "containers": containers}
                    | ({"nodeName": node} if node else {}),
                    "status": {"phase": "Running" if node else "Pending"},
                }
            )
        return found

    offer = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    status = {"allocatable": offer, "capacity": offer}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status},
        queue("science", "root", 6, 2),
        queue("labs", "science", 4, 1),
        queue("archive", "science", 2, 1),
        queue("ads", "root", 2, 0),
        *gang("serve", "ads", 3, 2, "n"),
        *gang("train", "labs", 3, 1),
    ]


@pytest.mark.parametrize(("model", "config"), [("volcano", VOLCANO), ("kai", "scheduler: kai\n")])
def test_queues_of_queue_models_are_a_tree_with_loans(
    tmp_path: Path, model: str, config: str
) -> None:
    """What `stowplan queues` prints, the tree, and who borrows from whom, also over time."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(model_cluster(model)))
    deciders = deciders_of([ConfigText(config, "scheduler.yaml")])
    cluster = read_cluster(path)
    at_once = ObjectsAtOnce(list(cluster.nodes), list(cluster.pods), list(cluster.objects))
    questions = ClusterQuestions(deciders)
    tree = asyncio.run(questions.queues(at_once, 5000.0))
    (found,) = tree["schedulers"]
    expected = msgspec.to_builtins(shares_of(SessionRunner(cluster, deciders)))
    assert found["loans"] == expected["loans"]
    for mine, other in zip(found["queues"], expected["queues"], strict=True):
        assert other.items() <= mine.items()
    queues = {one["name"]: one for one in found["queues"]}
    above = "" if model == "kai" else "root"
    assert (queues["labs"]["parent"], queues["science"]["parent"]) == ("science", above)
    # KAI-Scheduler's guarantee is its quota.
    assert queues["labs"]["guarantee"]["cpu"] == (4 if model == "kai" else 1)
    assert queues["ads"]["allocated"]["cpu"] == 6
    assert queues["ads"]["borrowed"]["cpu"] == 4
    assert queues["science"]["lent"]["cpu"] == 4
    # Queues with different parents do not borrow from each other.
    assert "cpu" not in queues["labs"]["lent"]
    (loan,) = [one for one in found["loans"] if one["resource"] == "cpu"]
    # Three are asked for, and two are idle.
    assert (loan["borrower"], loan["lender"], loan["wantedBack"]) == ("ads", "science", 1)
    gangs = {one["gang"]: one for one in tree["gangs"]}
    assert (gangs["default/train"]["queue"], gangs["default/train"]["pending"]) == ("labs", 3)
    assert (gangs["default/serve"]["queue"], gangs["default/serve"]["running"]) == ("ads", 3)
    series = questions.history.tree(0)["series"]
    fields = {(one["queue"], one["resource"], one["field"]): one["values"] for one in series}
    assert fields["ads", "cpu", "borrowed"] == [4]
    assert fields["science", "cpu", "lent"] == [4]


def quota(gpus: int, flavor: str = "a100") -> dict[str, Any]:
    amounts = [{"name": "cpu", "nominalQuota": "32"}]
    amounts.append({"name": "nvidia.com/gpu", "nominalQuota": str(gpus)})
    return {"name": flavor, "resources": amounts}


def kueue_cluster() -> list[dict[str, Any]]:
    """`a` has borrowed four of `b`'s eight cards, six of which `b` now needs; `b` has cards of two
    flavors."""

    def one(kind: str, name: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
        version = "kueue.x-k8s.io/v1beta2"
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, **meta},
            "spec": spec,
        }

    def cluster_queue(name: str, *flavors: dict[str, Any]) -> dict[str, Any]:
        groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": list(flavors)}]
        spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups}
        return one("ClusterQueue", name, spec)

    def workload(name: str, of: str, pods: int, time: int) -> dict[str, Any]:
        requests = {"cpu": "1", "nvidia.com/gpu": "2"}
        containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
        template = {"spec": {"containers": containers, "nodeSelector": {"card": "a100"}}}
        pod_sets = [{"name": "main", "count": pods, "template": template}]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name}
        meta = {
            "namespace": "default",
            "uid": name,
            "creationTimestamp": f"2026-01-01T00:00:{time:02}Z",
            "ownerReferences": [{**owner, "controller": True}],
        }
        return one("Workload", f"job-{name}", {"queueName": of, "podSets": pod_sets}, **meta)

    big = workload("big", "for-a", 6, 1)
    flavors = {"cpu": "a100", "nvidia.com/gpu": "a100"}
    usage = {"cpu": "6", "nvidia.com/gpu": "12"}
    held = {"name": "main", "flavors": flavors, "resourceUsage": usage, "count": 6}
    big["status"] = {
        "admission": {"clusterQueue": "a", "podSetAssignments": [held]},
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
            for kind in ("QuotaReserved", "Admitted")
        ],
    }
    return [
        one("ResourceFlavor", "a100", {"nodeLabels": {"card": "a100"}}),
        one("ResourceFlavor", "t4", {"nodeLabels": {"card": "t4"}}),
        cluster_queue("a", quota(8)),
        cluster_queue("b", quota(8), quota(4, "t4")),
        one("LocalQueue", "for-a", {"clusterQueue": "a"}, namespace="default"),
        one("LocalQueue", "for-b", {"clusterQueue": "b"}, namespace="default"),
        big,
        workload("train-7", "for-b", 3, 2),
    ]


def test_quota_and_workloads_of_kueue_are_queues_and_gangs() -> None:
    """What `stowplan queues` prints, who has borrowed, and why a job waits that has no pods."""
    deciders = deciders_of([ConfigText("scheduler: kueue\n", "kueue.yaml")], admits=True)
    owner = OwnerReference(kind="Job", name="big", uid="big", controller=True)
    running = pod("big-x", on="n0")
    running = replace(running, metadata=replace(running.metadata, owner_references=(owner,)))
    at_once = ObjectsAtOnce([node("n0")], [running], [])
    questions = ClusterQuestions(deciders, kueue_cluster)
    tree = asyncio.run(questions.queues(at_once, 5000.0))
    (found,) = tree["schedulers"]
    queues = {one["name"]: one for one in found["queues"]}
    assert [(one["name"], one["parent"]) for one in found["queues"]] == [
        ("cohort/all", ""), ("a", "cohort/all"), ("b", "cohort/all")
    ]  # fmt: skip
    cards = "nvidia.com/gpu in a100"
    assert (queues["a"]["deserved"][cards], queues["a"]["allocated"][cards]) == (8, 12)
    assert queues["a"]["borrowed"] == {cards: 4}
    assert queues["b"]["lent"] == {cards: 4}
    assert queues["b"]["pending"][cards] == 6
    assert queues["b"]["deserved"]["nvidia.com/gpu in t4"] == 4
    assert (queues["a"]["podsPlaced"], queues["b"]["podsPending"]) == (6, 3)
    assert found["total"][cards] == 16
    (loan,) = found["loans"]
    assert (loan["borrower"], loan["lender"], loan["amount"], loan["wantedBack"]) == (
        "a",
        "b",
        4,
        2,
    )
    gangs = {one["gang"]: one for one in tree["gangs"]}
    big, waiting = gangs["default/job/big"], gangs["default/job/train-7"]
    assert (big["phase"], big["running"], big["missing"], big["message"]) == ("Admitted", 1, 5, "")
    assert (waiting["phase"], waiting["queue"], waiting["min"]) == ("Pending", "b", 3)
    assert "requested 6, available 4" in waiting["message"]
    assert "borrowed by a 4" in waiting["message"]
    assert waiting["message"].endswith("; position 1 in the queue")


def test_usage_of_local_queues_is_in_the_text_where_it_orders_workloads() -> None:
    uses = [
        LocalQueueUse("default", "other", 1, 1),
        LocalQueueUse("default", "for-b", 5, 1),
    ]
    one = WorkloadReport(
        "default", "job/j", "for-b", "b", 0, 3, "Pending", "R", "text", {}, usage=uses
    )
    (tree,) = workload_trees(KueueReport([one], [], 1), [])
    assert tree["message"] == (
        "R: text; order by usage: LocalQueue for-b in default 5 (weight 1); "
        "after LocalQueue other in default 1 (weight 1)"
    )


def test_pods_of_jobs_of_a_jobset_and_of_pod_groups_are_those_of_their_workload() -> None:
    """Their controllers are Jobs without a Workload, and none."""
    child = OwnerReference(kind="Job", name="train-workers-0", uid="u", controller=True)
    labels = {"jobset.sigs.k8s.io/jobset-name": "train"}
    of_set, of_group = pod("train-workers-0-x", on="n0"), pod("member")
    meta = replace(of_set.metadata, owner_references=(child,), labels=labels)
    of_set = replace(of_set, metadata=meta)
    marks = {"kueue.x-k8s.io/pod-group-name": "group"}
    of_group = replace(of_group, metadata=replace(of_group.metadata, labels=marks))
    reports = [
        WorkloadReport("default", job, "q", "q", 0, 1, "Admitted", "", "", {})
        for job in ("jobset/train", "podgroup/group")
    ]
    trees = workload_trees(KueueReport(reports, [], 1), [of_set, of_group])
    found = [(one["gang"], one["running"], one["pending"], one["missing"]) for one in trees]
    assert found == [("default/jobset/train", 1, 0, 0), ("default/podgroup/group", 0, 1, 0)]


def kueue_questions() -> tuple[ClusterQuestions, ObjectsAtOnce]:
    deciders = deciders_of([ConfigText("scheduler: kueue\n", "kueue.yaml")], admits=True)
    return ClusterQuestions(deciders, kueue_cluster), ObjectsAtOnce([node("n0")], [], [])


def test_other_quota_of_kueue_is_tried() -> None:
    questions, at_once = kueue_questions()
    change = {"queue": "b.nominalQuota[a100/nvidia.com/gpu]=10"}
    found = asyncio.run(questions.what_if({"changes": [change]}, at_once))
    assert (found["admitted"], found["pending"]) == ((1, 2), (1, 0))
    (one,) = found["workloads"]
    assert (one["job"], one["before"]["status"], one["after"]["status"]) == (
        "job/train-7",
        "Pending",
        "Admitted",
    )
    wrong = {"queue": "b.nominalQuota[a100/x]=10"}
    with pytest.raises(BadRequest, match="no quota of"):
        asyncio.run(questions.what_if({"changes": [wrong]}, at_once))
    with pytest.raises(BadRequest, match="together with delete only"):
        asyncio.run(questions.what_if({"changes": [change, {"drain": "n0"}]}, at_once))


def test_what_would_admit_a_workload_can_be_tried() -> None:
    """Every change that is named admits it, the end of a job of a live cluster included."""
    questions, at_once = kueue_questions()
    found = asyncio.run(questions.what_if({"workload": "default/job/train-7"}, at_once))
    assert (found["workload"]["status"], found["workload"]["position"]) == ("Pending", 1)
    assert "borrowed by a 4" in found["short"][0]
    texts = [one["text"] for one in found["admittedBy"]]
    assert texts == [
        "nominalQuota 10 of nvidia.com/gpu in flavor a100 of ClusterQueue b (it is 8)",
        "the end of job/big",
    ]
    for one in found["admittedBy"]:
        tried = asyncio.run(questions.what_if({"changes": one["changes"]}, at_once))
        fates = {each["job"]: each["after"] for each in tried["workloads"]}
        assert fates["job/train-7"]["status"] == "Admitted"
    for asked in ({"workload": "default/job/none"}, {"workload": 1}):
        with pytest.raises(BadRequest, match="workload: "):
            asyncio.run(questions.what_if(asked, at_once))
    plain = ClusterQuestions(demo_deciders())
    with pytest.raises(BadRequest, match="where Kueue admits"):
        asyncio.run(plain.what_if({"workload": "default/job/train-7"}, objects()))
