"""Objects of queueing systems on the embedded server: what their own servers would refuse."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from stowplan.apis.custom.custom_kinds import custom_update_causes
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.custom_object_checks import CustomObjectChecks
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.inputs.validation.api_rules import ApiServerRules
from tests.apiserver.small_cluster import SmallCluster

Tree = dict[str, Any]

KAI_QUEUES = "scheduling.run.ai/queues"
KAI_GROUPS = "scheduling.run.ai/podgroups"
REQUESTS = "scheduling.run.ai/bindrequests"
LEVELS = "kai.scheduler/topologies"
VOLCANO_QUEUES = "scheduling.volcano.sh/queues"
CLUSTER_QUEUES = "kueue.x-k8s.io/clusterqueues"


@cache
def shared() -> SmallCluster:
    return SmallCluster(volcano=True, kai=True, kueue=KueueOptions())


def quota(**amounts: Any) -> Tree:
    """The spec of a ClusterQueue with a quota of cpu."""
    flavor = {"name": "f", "resources": [{"name": "cpu", **amounts}]}
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}


AMOUNT = "spec.resourceGroups[0].flavors[0].resources[0]"


INVALID: list[tuple[str, Tree, str]] = [
        (KAI_QUEUES, {"resources": {"gpu": {"quota": -5}}},
         "spec.resources.gpu.quota: Invalid value: -5: expected a number of at least 0, or -1"),
        (KAI_QUEUES, {"resources": {"gpu": {"quota": "two"}}},
         'spec.resources.gpu.quota: Invalid value: "string": spec.resources.gpu.quota in body must '
         'be of type number: "string"'),
        (KAI_QUEUES, {"preemptMinRuntime": "soon"},
         'spec.preemptMinRuntime: Invalid value: "soon": expected a duration'),
        (KAI_GROUPS, {"minMember": -1},
         "spec.minMember: Invalid value: -1: spec.minMember in body should be greater than or"),
        (KAI_GROUPS, {"subGroups": [{"name": "a", "minSubGroup": 1}]},
         "spec.subGroups[0].minSubGroup: Forbidden: a subGroup without children has minMember"),
        (LEVELS, {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]},
         'spec.levels[0].nodeLabel: Invalid value: "kubernetes.io/hostname": must be the lowest'),
        (REQUESTS, {"backoffLimit": "many"},
         'spec.backoffLimit: Invalid value: "string": spec.backoffLimit in body must be of type'),
        (VOLCANO_QUEUES, {"weight": -1},
         "spec.weight: Invalid value: -1: spec.weight in body should be greater than or equal to"),
        ("scheduling.volcano.sh/podgroups", {"minMember": -2},
         "spec.minMember: Invalid value: -2: must be greater than or equal to 0"),
        (CLUSTER_QUEUES, quota(nominalQuota="-4"),
         f'{AMOUNT}.nominalQuota: Invalid value: "-4": must be greater than or equal to 0'),
        (CLUSTER_QUEUES, quota(nominalQuota="four"),
         f'{AMOUNT}.nominalQuota: Invalid value: "four": {AMOUNT}.nominalQuota in body should'),
        (CLUSTER_QUEUES, quota(), f"{AMOUNT}.nominalQuota: Required value"),
        (CLUSTER_QUEUES, quota(nominalQuota=4, borrowingLimit=1),
         f"{AMOUNT}.borrowingLimit: Forbidden: only a queue in a cohort has one"),
        (CLUSTER_QUEUES, {**quota(nominalQuota=4, lendingLimit=5), "cohortName": "c"},
         f'{AMOUNT}.lendingLimit: Invalid value: "5": must be less than or equal to the nominal'),
        (CLUSTER_QUEUES, {"queueingStrategy": "LIFO"},
         'spec.queueingStrategy: Unsupported value: "LIFO": supported values: "StrictFIFO"'),
        (CLUSTER_QUEUES, {"namespaceSelector": {"matchExpressions": [{"operator": "In"}]}},
         "spec.namespaceSelector.matchExpressions[0].values: Required value"),
        ("kueue.x-k8s.io/cohorts", {"parentName": "x"},
         'spec.parentName: Invalid value: "x": a cohort is not its own parent'),
        ("kueue.x-k8s.io/localqueues", {"stopPolicy": "Later"},
         'spec.stopPolicy: Unsupported value: "Later"'),
        ("kueue.x-k8s.io/resourceflavors", {"nodeTaints": [{"key": "a", "effect": "Never"}]},
         'spec.nodeTaints[0].effect: Unsupported value: "Never"'),
        ("kueue.x-k8s.io/topologies", {}, "spec.levels: Required value"),
        ("kueue.x-k8s.io/admissionchecks", {}, "spec.controllerName: Required value"),
        ("kueue.x-k8s.io/workloads", {"podSets": [{"name": "a", "count": -1}]},
         "spec.podSets[0].count: Invalid value: -1: must be greater than or equal to 0"),
        ("kueue.x-k8s.io/workloads",
         {"podSets": [{"name": "a", "count": 1, "template": {"spec": {"containers": 3}}}]},
         "spec.podSets[0].template.spec.containers: json: cannot unmarshal number into Go"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "spec", "text"), INVALID)
def test_what_is_invalid_is_refused(path: str, spec: Tree, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        shared().create(path, {"metadata": {"name": "x"}, "spec": spec})
    assert (caught.value.code, text in caught.value.message) == (422, True), caught.value.message


@pytest.mark.parametrize(("path", "spec", "text"), INVALID)
def test_it_is_in_files_too_in_the_same_words(path: str, spec: Tree, text: str) -> None:
    """But for values of wrong types, which the definition names in words of its own."""
    resource = shared().server.registry.by_path(path)
    assert resource is not None
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "x"}}
    found = [*ApiServerRules().mistakes({**head, "spec": spec})]
    texts = [one.path if one.is_unreadable else f"{one.path}: {one.text}" for one in found]
    is_type = any(one.is_unreadable for one in found)
    assert any(one in text if is_type else text in one for one in texts), texts


def test_a_queue_of_kai_with_others_below_it_is_not_deleted() -> None:
    cluster = SmallCluster(kai=True)
    for name, parent in (("org", ""), ("team-b", "org"), ("team-a", "org")):
        cluster.create(KAI_QUEUES, {"metadata": {"name": name}, "spec": {"parentQueue": parent}})
    text = r'"org" is forbidden: cannot delete queue org: it has child queues \[team-a team-b\]'
    with pytest.raises(ApiError, match=text) as caught:
        cluster.delete(KAI_QUEUES, "org")
    assert caught.value.code == 403
    for name in ("team-a", "team-b", "org"):
        cluster.delete(KAI_QUEUES, name)
    assert cluster.list(KAI_QUEUES) == []


def test_podgroups_of_kai_have_their_short_name() -> None:
    """`kubectl get pg`, as KAI's definition has it; its other kinds have none."""
    names = {
        one["metadata"]["name"]: one["spec"]["names"].get("shortNames", [])
        for one in shared().list("apiextensions.k8s.io/customresourcedefinitions")
        if one["metadata"]["name"].endswith(("run.ai", "kai.scheduler"))
    }
    assert names.pop("podgroups.scheduling.run.ai") == ["pg"]
    assert len(names) == 3
    assert not any(names.values())


def test_pods_of_kai_have_annotations_that_say_something() -> None:
    notes = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}
    container = {"name": "c", "image": "x"}
    pod: Tree = {
        "metadata": {"name": "x", "annotations": notes},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }
    with pytest.raises(ApiError, match=r"\[gpu-fraction-num-devices\]: Invalid value") as caught:
        shared().create("pods", pod)
    assert caught.value.code == 403
    pod["spec"]["schedulerName"] = "default-scheduler"
    assert shared().create("pods", pod)["metadata"]["annotations"] == notes


@pytest.mark.parametrize(
    ("path", "tree"),
    [
        (KAI_QUEUES, {"spec": {"parentQueue": "p", "resources": {"gpu": {"quota": -1}}}}),
        (KAI_GROUPS, {"spec": {"subGroups": [{"name": "a", "minMember": 1}]}}),
        (REQUESTS, {"spec": {"podName": "p", "selectedNode": "n", "selectedGPUGroups": ["0"]}}),
        (LEVELS, {"spec": {"levels": [{"nodeLabel": "example.com/rack", "alias": "rack"}]}}),
        (VOLCANO_QUEUES, {"spec": {"weight": 0, "capability": {"cpu": "4"}}}),
        (CLUSTER_QUEUES, {"spec": {**quota(nominalQuota="4", lendingLimit=2), "cohortName": "c"}}),
        (CLUSTER_QUEUES, {"spec": {}}),
        ("kueue.x-k8s.io/workloadpriorityclasses", {"value": -5, "description": "last"}),
        ("kueue.x-k8s.io/localqueues", {"spec": {"clusterQueue": "q"}}),
    ],
)
def test_what_is_valid_is_stored_as_it_is(path: str, tree: Tree) -> None:
    cluster = SmallCluster(volcano=True, kai=True, kueue=KueueOptions())
    made = cluster.create(path, {"metadata": {"name": "good"}, **tree})
    for name, value in tree.items():
        assert made[name] == {**value, **made[name]} if isinstance(value, dict) else made[name]


def test_a_class_of_workloads_has_a_value() -> None:
    with pytest.raises(ApiError, match="value: Required value"):
        shared().create("kueue.x-k8s.io/workloadpriorityclasses", {"metadata": {"name": "x"}})


def update_of(old: Tree, new: Tree) -> list[str]:
    """Warnings of an update, whatever the old object is. Raises ApiError."""
    server = shared().server
    resource = server.registry.by_path(KAI_GROUPS)
    assert resource is not None
    rng, access = np.random.default_rng(0), AlwaysAllow()
    call = ApiCall(server, User(""), "update", resource, "default", rng=rng, access=access)
    head = {"metadata": {"name": "x"}}
    CustomObjectChecks([KAI_GROUPS]).validate(call, head | new, head | old)
    return call.warnings


def test_what_was_stored_before_may_stay_as_it_is() -> None:
    """As kube-apiserver lets stored objects be, whose rules came later."""
    bad = {"minMember": -1}
    update_of({"spec": bad}, {"spec": bad, "status": {"phase": "new"}})
    update_of({"spec": bad}, {"spec": {**bad, "queue": "q"}})
    with pytest.raises(ApiError, match=r"spec\.stalenessGracePeriod"):
        update_of({"spec": bad}, {"spec": {**bad, "stalenessGracePeriod": "later"}})


LEVELS_KEPT = "levels are mutable only when kubernetes.io/hostname is the lowest level both before"


def levels(*labels: str) -> Tree:
    return {"levels": [{"nodeLabel": label} for label in labels]}


@pytest.mark.parametrize(
    ("path", "before", "after", "problem"),
    [
        (LEVELS, levels("block", "rack"), levels("rack"),
         'spec.levels: Invalid value: "rack": nodeLabel structure is immutable'),
        (LEVELS, levels("block"), {"levels": [{"nodeLabel": "block", "alias": "b"}]}, ""),
        ("localqueues", {"clusterQueue": "a"}, {"clusterQueue": "b"},
         'spec.clusterQueue: Invalid value: "b": field is immutable'),
        ("localqueues", {}, {"clusterQueue": "b"}, ""),
        ("localqueues", {"clusterQueue": "a"}, {"clusterQueue": "a", "stopPolicy": "Hold"}, ""),
        ("topologies", levels("block", "rack"), levels("rack"),
         f'spec.levels: Invalid value: "rack": {LEVELS_KEPT}'),
        ("topologies", levels("rack", "kubernetes.io/hostname"), levels("rack"), LEVELS_KEPT),
        ("topologies", levels("block", "kubernetes.io/hostname"),
         levels("rack", "kubernetes.io/hostname"), ""),
        ("admissionchecks", {"controllerName": "a"}, {"controllerName": "b"},
         'spec.controllerName: Invalid value: "b": field is immutable'),
        ("resourceflavors", {"nodeLabels": {"a": "b"}, "topologyName": "t"},
         {"nodeLabels": {"a": "b"}, "topologyName": "u"},
         'spec: Invalid value: "u": topologyName is immutable when topologyName is set'),
        ("resourceflavors", {"nodeLabels": {"a": "b"}, "topologyName": "t"},
         {"nodeLabels": {"a": "b"}}, "topologyName is immutable"),
        ("resourceflavors", {"nodeLabels": {"a": "b"}},
         {"nodeLabels": {"a": "b"}, "topologyName": "u"}, ""),
    ],
)  # fmt: skip
def test_fields_that_do_not_change(path: str, before: Tree, after: Tree, problem: str) -> None:
    cluster = SmallCluster(kai=True, kueue=KueueOptions())
    path = path if "/" in path else f"kueue.x-k8s.io/{path}"
    cluster.create(path, {"metadata": {"name": "x"}, "spec": before})
    resource = cluster.server.registry.by_path(path)
    assert resource is not None
    new = {**cluster.the(path, "x"), "spec": after}

    def update() -> None:
        cluster.server.update(resource, new, cluster.now)

    if not problem:
        update()
        return
    with pytest.raises(ApiError, match=re.escape(problem)) as refused:
        update()
    assert refused.value.code == 422


def test_no_level_changes_in_the_first_version_of_kueue() -> None:
    hosts = levels("block", "kubernetes.io/hostname"), levels("kubernetes.io/hostname")
    old, new = ({"kind": "Topology", "spec": one} for one in hosts)
    for version, n in (("v1beta1", 1), ("v1beta2", 0)):
        head = {"apiVersion": f"kueue.x-k8s.io/{version}"}
        assert len(list(custom_update_causes(head | new, head | old))) == n


def test_a_minimum_that_no_number_of_pods_reaches_is_warned_about() -> None:
    """KAI's webhook warns, because the children may come later."""
    leaf = {"name": "a", "minMember": 1}
    (text,) = update_of({}, {"spec": {"minSubGroup": 2, "subGroups": [leaf]}})
    assert text.startswith("spec.minSubGroup: 2 is more than the number of child subGroups (1)")
    assert update_of({}, {"spec": {"minSubGroup": 1, "subGroups": [leaf]}}) == []


def answer(path: str, tree: Tree) -> tuple[int, str, tuple[tuple[str, str], ...]]:
    """Status code, body and headers of a creation as kubectl asks for it."""
    query = (("fieldValidation", "Strict"), ("dryRun", "All"))
    headers = {"content-type": "application/json"}
    request = HttpRequest("POST", path, query, headers, json.dumps(tree).encode())
    made = shared().server.handle(request, shared().now)
    assert isinstance(made, HttpResponse)
    return made.status, made.body.decode(), made.headers


@pytest.mark.parametrize(
    ("path", "kind", "spec", "field"),
    [
        ("scheduling.run.ai/v2/queues", "Queue", {"parentQeue": "p"}, "spec.parentQeue"),
        (
            "scheduling.run.ai/v1alpha2/namespaces/default/bindrequests",
            "BindRequest",
            {"podNam": "p"},
            "spec.podNam",
        ),
        ("kueue.x-k8s.io/v1beta2/clusterqueues", "ClusterQueue", quota(nominalQota=4),
         f"{AMOUNT}.nominalQota"),
        ("scheduling.volcano.sh/v1beta1/queues", "Queue", {"wait": 1}, "spec.wait"),
        ("topology.volcano.sh/v1alpha1/hypernodes", "HyperNode", {"teir": 1}, "spec.teir"),
    ],
)  # fmt: skip
def test_an_unknown_field_is_refused_as_by_kube_apiserver(
    path: str, kind: str, spec: Tree, field: str
) -> None:
    version = "/".join(path.split("/")[:2])
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    code, body, _ = answer(f"/apis/{path}", tree)
    assert (code, json.loads(body)["message"].partition(": ")[2]) == (
        400,
        f'strict decoding error: unknown field "{field}"',
    )


def test_an_unknown_field_of_a_template_is_warned_about() -> None:
    """Templates keep every field, as in most published definitions of their size."""
    template = {"spec": {"containers": [], "nodeSelectr": {"a": "b"}}}
    spec = {"podSets": [{"name": "a", "count": 1, "template": template}]}
    tree = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "x"}}
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
    code, _, headers = answer(path, {**tree, "spec": spec})
    field = "spec.podSets[0].template.spec.nodeSelectr"
    assert (code, any(field in text for _, text in headers)) == (201, True), headers
