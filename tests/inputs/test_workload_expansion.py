"""Workload expansion: numbers, owners and names of created pods, and existing pods."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apis.apps.daemon_pods import DAEMON_TOLERATIONS, HOST_NETWORK_TOLERATION
from stowplan.inputs.workloads.workload_expansion import (
    HASH_LABEL,
    JOB_INDEX,
    ExpandedCluster,
    expand_workloads,
)
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import label_selector_matches
from stowplan.objects.workload import ReplicaSet
from tests.inputs.test_manifests import inventory

Tree = dict[str, Any]

GROUPS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "ReplicationController": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "StorageClass": "storage.k8s.io/v1",
}
SPEC = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}


def thing(kind: str, name: str, /, metadata: Tree | None = None, **fields: Any) -> Tree:
    meta = {"name": name, **(metadata or {})}
    return {"apiVersion": GROUPS.get(kind, "v1"), "kind": kind, "metadata": meta, **fields}


def workload(kind: str, name: str, /, template: Tree | None = None, **spec: Any) -> Tree:
    """A controller whose pods are labelled app=NAME."""
    of_pods = {"metadata": {"labels": {"app": name}}, "spec": {**SPEC, **(template or {})}}
    selector = {"matchLabels": {"app": name}}
    if kind in ("Job", "ReplicationController"):
        return thing(kind, name, spec={"template": of_pods, **spec})
    return thing(kind, name, spec={"template": of_pods, "selector": selector, **spec})


def owned(tree: Tree, kind: str, name: str, uid: str = "") -> Tree:
    owner = {"apiVersion": GROUPS[kind], "kind": kind, "name": name, "controller": True}
    if uid:
        owner["uid"] = uid
    tree["metadata"]["ownerReferences"] = [owner]
    return tree


def node(name: str, /, labels: Tree | None = None, *taints: str) -> Tree:
    marks = [dict(zip(("key", "effect"), t.split(":"), strict=True)) for t in taints]
    return thing("Node", name, metadata={"labels": labels or {}}, spec={"taints": marks})


def population(*trees: Tree) -> ExpandedCluster:
    return expand_workloads(inventory(*trees))


def names(*trees: Tree) -> list[str]:
    return [pod.name for pod in population(*trees).pods]


def error_text(*trees: Tree) -> str:
    with pytest.raises(DecodeError) as caught:
        population(*trees)
    return str(caught.value)


# Number of pods.


@pytest.mark.parametrize(
    "kind", ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"]
)
@pytest.mark.parametrize(("spec", "count"), [({}, 1), ({"replicas": 3}, 3), ({"replicas": 0}, 0)])
def test_replicas(kind: str, spec: Tree, count: int) -> None:
    found = population(workload(kind, "web", **spec))
    assert [pod.name for pod in found.pods] == [f"web-{i}" for i in range(count)]
    assert found.n_created == count
    assert len({id(pod.spec) for pod in found.pods}) <= 1


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"completions": 5}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 2, "completions": 5}, 2),
        ({"parallelism": 0}, 0),
        ({"parallelism": 3, "suspend": True}, 0),
    ],
)
def test_a_job_has_as_many_pods_as_run_at_once(spec: Tree, count: int) -> None:
    assert len(names(workload("Job", "work", **spec))) == count


@pytest.mark.parametrize(
    ("status", "count"),
    [
        ({"succeeded": 3}, 2),
        ({"succeeded": 4}, 1),
        ({"succeeded": 5}, 0),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, 0),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, 0),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, 2),
    ],
)
def test_a_job_that_has_come_some_way(status: Tree, count: int) -> None:
    job = workload("Job", "work", parallelism=2, completions=5)
    assert len(names({**job, "status": status})) == count


def test_a_work_queue_gets_no_more_pods_after_the_first_success() -> None:
    job = {**workload("Job", "work", parallelism=3), "status": {"succeeded": 1}}
    assert names(job) == []


def test_an_indexed_job_goes_on_with_the_lowest_indexes() -> None:
    job = workload("Job", "w", parallelism=4, completions=8, completionMode="Indexed")
    job["status"] = {"completedIndexes": "0,3-4", "succeeded": 3}
    running = thing("Pod", "w-1-abcde", metadata={"annotations": {JOB_INDEX: "1"}})
    found = population(job, owned(running, "Job", "w"))
    made = [pod for pod in found.pods if pod.name != "w-1-abcde"]
    assert [pod.labels[JOB_INDEX] for pod in made] == ["2", "5", "6"]


@pytest.mark.parametrize(
    ("tree", "path", "got"),
    [
        (workload("Deployment", "d", replicas=-1), "spec.replicas", "-1"),
        (workload("StatefulSet", "d", replicas=10**9), "spec.replicas", "1000000000"),
        (workload("Job", "d", parallelism=-2), "spec.parallelism", "-2"),
        (workload("StatefulSet", "d", ordinals={"start": -1}), "spec.ordinals.start", "-1"),
    ],
)
def test_counts_have_bounds(tree: Tree, path: str, got: str) -> None:
    wanted = f"Invalid value: {got}: expected a whole number from 0 to 1000000"
    assert error_text(tree) == f"f.yaml: document 1: {tree['kind']} default/d: {path}: {wanted}"


def test_invalid_completed_indexes() -> None:
    job = workload("Job", "d", completionMode="Indexed", completions=2)
    job["status"] = {"completedIndexes": "1-x"}
    assert (
        "status.completedIndexes: Invalid value: '1-x': expected indexes such as 0,2-4"
        in error_text(job)
    )


# Owners and names.


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("ReplicaSet", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("ReplicationController", "v1"),
        ("Job", "batch/v1"),
    ],
)
def test_pods_know_their_controller(kind: str, version: str) -> None:
    tree = workload(kind, "web")
    tree["metadata"] |= {"namespace": "shop", "uid": "u1"}
    (pod,) = population(tree).pods
    owner = pod.controller
    assert pod.key == "shop/web-0"
    assert pod.labels["app"] == "web"
    assert owner is not None
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == (version, kind, "web", "u1")


def test_a_deployments_pods_belong_to_a_replica_set_that_is_made() -> None:
    found = population(workload("Deployment", "web", replicas=2))
    (made,) = (o for o in found.objects if isinstance(o, ReplicaSet))
    assert made.controller is not None
    assert (made.controller.kind, made.controller.name) == ("Deployment", "web")
    assert made.name == f"web-{made.labels[HASH_LABEL]}"
    for pod in found.pods:
        assert pod.controller is not None
        assert (pod.controller.kind, pod.controller.name) == ("ReplicaSet", made.name)
        assert label_selector_matches(made.spec.selector, pod.labels)


def test_the_hash_distinguishes_templates_and_nothing_else() -> None:
    def digest(**fields: Any) -> str:
        return population(workload("Deployment", "web", **fields)).pods[0].labels[HASH_LABEL]

    assert digest() == digest(replicas=2)
    assert digest() != digest(template={"hostNetwork": True})


def test_a_stateful_sets_pods_are_numbered_from_its_start() -> None:
    found = population(workload("StatefulSet", "db", replicas=2, ordinals={"start": 5}))
    assert [pod.name for pod in found.pods] == ["db-5", "db-6"]
    assert [pod.labels["apps.kubernetes.io/pod-index"] for pod in found.pods] == ["5", "6"]


def test_names_that_are_taken_are_passed_over() -> None:
    trees = [
        workload("Deployment", "web", replicas=2),
        workload("StatefulSet", "web", replicas=2),
        thing("Pod", "web-2"),
    ]
    found = population(*trees)
    by_kind = {p.name: p.controller.kind if p.controller else "" for p in found.pods}
    assert by_kind == {
        "web-3": "ReplicaSet",
        "web-4": "ReplicaSet",
        "web-0": "StatefulSet",
        "web-1": "StatefulSet",
        "web-2": "",
    }


def test_pods_take_the_position_of_their_controller() -> None:
    trees = [thing("Pod", "a"), workload("ReplicaSet", "b", replicas=2), thing("Pod", "c")]
    assert names(*trees) == ["a", "b-0", "b-1", "c"]


# Existing pods.


def live(*pods: str, replicas: int, sets: Tree | None = None) -> list[Tree]:
    """A dump: Deployment web, a ReplicaSet per revision, and its pods `SET:POD[:PHASE]`."""
    trees = [workload("Deployment", "web", replicas=replicas)]
    trees[0]["metadata"]["uid"] = "d1"
    for name, revision in (sets or {"web-1": 1}).items():
        tree = workload("ReplicaSet", name, replicas=0)
        tree["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": str(revision)}
        trees.append(owned(tree, "Deployment", "web", "d1"))
    for text in pods:
        owner, name, *phase = text.split(":")
        pod = thing("Pod", name, status={"phase": phase[0] if phase else "Running"})
        trees.append(owned(pod, "ReplicaSet", owner))
    return trees


@pytest.mark.parametrize(
    ("pods", "made"),
    [
        (["web-1:a", "web-1:b", "web-1:c"], []),
        (["web-1:a", "web-1:b", "web-1:c", "web-1:d"], []),
        (["web-1:a"], ["web-0", "web-1"]),
        ([], ["web-0", "web-1", "web-2"]),
        (["web-1:a", "web-1:b:Failed", "web-1:c:Succeeded"], ["web-0", "web-1"]),
        (["web-1:web-0", "web-1:b"], ["web-1"]),
    ],
)
def test_a_deployment_gets_the_missing_pods_only(pods: list[str], made: list[str]) -> None:
    dump = live(*pods, replicas=3)
    found = population(*dump)
    there = [text.split(":")[1] for text in pods]
    assert sorted(pod.name for pod in found.pods) == sorted(there + made)
    assert [o.name for o in found.objects if isinstance(o, ReplicaSet)] == ["web-1"]


def test_missing_pods_belong_to_the_newest_replica_set() -> None:
    dump = live("old:a", replicas=2, sets={"old": 9, "new": 10})
    made = [pod for pod in population(*dump).pods if pod.name != "a"]
    assert [pod.controller.name for pod in made if pod.controller] == ["new"]
    assert [pod.labels["app"] for pod in made] == ["new"]


def test_a_replica_set_whose_deployment_is_not_there_counts_for_itself() -> None:
    tree = owned(workload("ReplicaSet", "web-1", replicas=2), "Deployment", "web")
    assert names(tree) == ["web-1-0", "web-1-1"]


def test_a_namesake_of_the_owner_is_another_owner() -> None:
    tree = workload("ReplicaSet", "web", replicas=1)
    tree["metadata"]["uid"] = "new"
    pod = owned(thing("Pod", "a"), "ReplicaSet", "web", "old")
    assert names(tree, pod) == ["web-0", "a"]


def test_pods_that_are_being_deleted_are_replaced() -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = owned(thing("Pod", "a", metadata=meta), "ReplicaSet", "web")
    assert names(workload("ReplicaSet", "web"), leaving) == ["web-0", "a"]


def test_a_stateful_set_gets_the_ordinals_that_are_not_there() -> None:
    there = owned(thing("Pod", "db-1"), "StatefulSet", "db")
    assert names(workload("StatefulSet", "db", replicas=3), there) == ["db-0", "db-2", "db-1"]


# DaemonSets.


def daemons(*nodes: Tree, **template: Any) -> list[Pod]:
    return population(workload("DaemonSet", "agent", template=template), *nodes).pods


def targets(pods: list[Pod]) -> list[str]:
    found = []
    for pod in pods:
        assert pod.spec.affinity is not None
        assert pod.spec.affinity.node_affinity is not None
        required = pod.spec.affinity.node_affinity.required
        assert required is not None
        ((field,),) = (term.match_fields for term in required.node_selector_terms)
        assert (field.key, field.operator) == ("metadata.name", "In")
        found += field.values
    return found


def test_a_daemon_set_has_a_pod_for_every_node() -> None:
    pods = daemons(node("n1"), node("n2"))
    assert [pod.name for pod in pods] == ["agent-0", "agent-1"]
    assert targets(pods) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("template", "eligible"),
    [
        ({}, ["plain", "sick"]),
        ({"nodeSelector": {"disk": "ssd"}}, []),
        ({"tolerations": [{"operator": "Exists"}]}, ["plain", "ssd", "soon", "sick"]),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, ["plain", "ssd", "sick"]),
        (
            {
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "a", "operator": "Exists"}],
            },
            ["ssd"],
        ),
    ],
)
def test_a_daemon_set_keeps_to_nodes_that_fit(template: Tree, eligible: list[str]) -> None:
    nodes = [
        node("plain", {}, "soft:PreferNoSchedule"),
        node("ssd", {"disk": "ssd"}, "a:NoSchedule"),
        node("soon", {}, "b:NoExecute"),
        # Taints of node conditions do not keep daemons away.
        node(
            "sick",
            {},
            "node.kubernetes.io/not-ready:NoExecute",
            "node.kubernetes.io/unschedulable:NoSchedule",
            "node.kubernetes.io/memory-pressure:NoSchedule",
        ),
    ]
    assert targets(daemons(*nodes, **template)) == eligible


def test_a_daemon_set_keeps_to_its_node_affinity() -> None:
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = {"nodeAffinity": required}
    pods = daemons(node("n1"), node("n2", {"disk": "ssd"}), affinity=affinity)
    assert targets(pods) == ["n2"]


@pytest.mark.parametrize("on_host", [True, False])
def test_daemons_tolerate_what_happens_to_nodes(on_host: bool) -> None:
    broken = node("n1", {}, "node.kubernetes.io/network-unavailable:NoSchedule")
    assert len(daemons(broken, hostNetwork=on_host)) == on_host
    (pod,) = daemons(node("n1"), hostNetwork=on_host)
    assert set(DAEMON_TOLERATIONS) <= set(pod.tolerations)
    assert (HOST_NETWORK_TOLERATION in pod.tolerations) is on_host


def test_nodes_that_have_their_daemon_get_no_other() -> None:
    bound = owned(thing("Pod", "x", spec={"nodeName": "n1"}), "DaemonSet", "agent")
    (waiting,) = daemons(node("n2"))
    assert waiting.spec.affinity is not None
    pinned = thing("Pod", "y", spec={"affinity": _affinity_to("n2")})
    trees = [bound, owned(pinned, "DaemonSet", "agent"), node("n1"), node("n2"), node("n3")]
    found = population(workload("DaemonSet", "agent"), *trees)
    assert targets([pod for pod in found.pods if pod.name.startswith("agent")]) == ["n3"]


def _affinity_to(name: str) -> Tree:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


# Property: a dump of the expanded cluster expands to itself.


def as_dump(found: ExpandedCluster, *nodes: Tree) -> list[Tree]:
    """The objects that the API server lists after expansion."""
    trees = list(nodes)
    for value in (*found.objects, *found.pods):
        kind = type(value).__name__
        tree = msgspec.json.decode(msgspec.json.encode(value))
        trees.append({"apiVersion": GROUPS.get(kind, "v1"), "kind": kind, **tree})
    return trees


def without_owners(trees: list[Tree], kind: str) -> list[Tree]:
    return [
        {**tree, "metadata": {**tree["metadata"], "ownerReferences": []}}
        if tree["kind"] == kind
        else tree
        for tree in trees
    ]


CONTROLLERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"]
        ),
        st.sampled_from(["a", "b"]),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda generated: generated[:2],
)


def random_workloads(generated: list[tuple[str, str, int]]) -> list[Tree]:
    trees = []
    for kind, name, count in generated:
        spec = {"Job": {"parallelism": count}, "DaemonSet": {}}.get(kind, {"replicas": count})
        trees.append(workload(kind, name, **spec))
    return trees


NODES = (node("n1"), node("n2"))


@given(generated=CONTROLLERS)
def test_a_dump_of_what_controllers_made_makes_nothing_more(
    generated: list[tuple[str, str, int]],
) -> None:
    first = population(*random_workloads(generated), *NODES)
    assert first.n_created == len({pod.key for pod in first.pods})
    second = population(*as_dump(first, *NODES))
    assert second.n_created == 0
    assert second.pods == first.pods


@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet"])
def test_control_a_dump_that_lost_its_owners_makes_pods_again(kind: str) -> None:
    first = population(workload("Deployment", "a", replicas=2))
    assert population(*without_owners(as_dump(first), kind)).n_created == 2


def test_twice_is_the_same() -> None:
    trees = [workload("Deployment", "web", replicas=3), workload("Job", "work"), node("n1")]
    first, second = population(*trees), population(*trees)
    assert first.pods == second.pods
    assert first.objects == second.objects
