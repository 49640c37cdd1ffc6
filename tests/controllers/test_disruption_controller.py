"""Disruption budgets: counts, and which evictions they allow."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.go_format import go_selector
from stowplan.apis.machinery.resource import SubresourceResult
from tests.apiserver.small_cluster import (
    DEPLOYMENTS,
    JOBS,
    SmallCluster,
    Tree,
    deployment,
    job,
    pod,
)

BUDGETS = "policy/poddisruptionbudgets"
DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"


def budget(name: str, **spec: Any) -> Tree:
    spec.setdefault("selector", {"matchLabels": {"app": "web"}})
    return {"metadata": {"name": name}, "spec": spec}


def guarded_deployment(replicas: int = 3, **spec: Any) -> SmallCluster:
    made = SmallCluster(3)
    made.create(DEPLOYMENTS, deployment("web", replicas))
    made.create(BUDGETS, budget("b", **spec))
    made.run(5)
    return made


def counts(of: SmallCluster, name: str = "b") -> tuple[int, int, int, int]:
    status = of.the(BUDGETS, name)["status"]
    return (
        status["disruptionsAllowed"],
        status["currentHealthy"],
        status["desiredHealthy"],
        status["expectedPods"],
    )


def evict(of: SmallCluster, name: str) -> SubresourceResult:
    return of.server.evict("default", name, of.now)


def is_evicted(of: SmallCluster, name: str) -> bool:
    try:
        evict(of, name)
    except ApiError as error:
        if error.code != 429:
            raise
        return False
    return True


def refusal(of: SmallCluster, name: str) -> tuple[int, str]:
    with pytest.raises(ApiError) as raised:
        evict(of, name)
    causes = (raised.value.details or {}).get("causes") or [{}]
    return raised.value.code, causes[0].get("message", raised.value.message)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"minAvailable": 2}, (1, 3, 2, 3)),
        ({"minAvailable": "50%"}, (1, 3, 2, 3)),
        ({"maxUnavailable": 1}, (1, 3, 2, 3)),
        ({"maxUnavailable": "50%"}, (2, 3, 1, 3)),
        ({"minAvailable": 5}, (0, 3, 5, 3)),
        ({"maxUnavailable": 0}, (0, 3, 3, 3)),
    ],
)
def test_numbers_and_percentages(spec: Tree, wanted: tuple[int, int, int, int]) -> None:
    assert counts(guarded_deployment(**spec)) == wanted


def test_percentages_are_of_the_scale() -> None:
    made = guarded_deployment(4, maxUnavailable="50%")
    made.schedules = False
    made.delete("pods", made.pods()[0]["metadata"]["name"])
    made.settle()
    allowed, healthy, desired, expected = counts(made)
    assert (healthy, desired, expected, allowed) == (3, 2, 4, 1)


def test_a_pod_without_controller_cannot_be_counted_in_percent() -> None:
    made = SmallCluster(2)
    made.create("pods", pod("web"))
    made.create(BUDGETS, budget("b", minAvailable=1))
    made.create(BUDGETS, budget("c", minAvailable="50%"))
    made.run(5)
    assert counts(made, "b") == (0, 1, 1, 1)
    assert counts(made, "c") == (0, 1, 0, 0)
    (event,) = [one for one in made.list("events") if one["reason"] == "UnmanagedPods"]
    text = "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:"
    assert f"selector: {text}[]LabelSelectorRequirement{{}},}})" in event["message"]


def test_expressions_of_a_selector_in_gos_form() -> None:
    # As a real controller manager wrote it.
    selector = {
        "matchLabels": {"b": "c", "app": "lone"},
        "matchExpressions": [
            {"key": "x", "operator": "NotIn", "values": ["a", "b"]},
            {"key": "z", "operator": "DoesNotExist"},
        ],
    }
    assert go_selector(selector) == (
        "&LabelSelector{MatchLabels:map[string]string{app: lone,b: c,},"
        "MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:x,Operator:NotIn,Values:[a b],},"
        "LabelSelectorRequirement{Key:z,Operator:DoesNotExist,Values:[],},},}"
    )


def test_a_pod_with_two_budgets_is_warned_of() -> None:
    made = SmallCluster(1)
    for name in ("b", "a"):
        made.create(BUDGETS, budget(name, minAvailable=1))
    made.create("pods", pod("web"))
    made.settle()
    found = {
        (event["involvedObject"]["name"], event["type"], event["message"])
        for event in made.list("events")
        if event["reason"] == "MultiplePodDisruptionBudgets"
    }
    text = 'Pod "default"/"web" matches multiple PodDisruptionBudgets.  Chose "a" arbitrarily.'
    assert found == {("web", "Warning", text)}


def test_a_budget_that_selects_no_pod_reports_it() -> None:
    made = SmallCluster(1)
    made.create(BUDGETS, budget("b", maxUnavailable=1))
    made.settle()
    assert counts(made) == (0, 0, 0, 0)
    (event,) = made.list("events")
    assert (event["type"], event["reason"]) == ("Normal", "NoPods")
    assert event["message"] == "No matching pods found"


def failure(of: SmallCluster) -> str:
    (found,) = of.the(BUDGETS, "b")["status"]["conditions"]
    assert found["reason"] == "SyncFailed"
    return str(found["message"])


def owned(name: str, api_version: str, kind: str, uid: str = "u") -> Tree:
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": uid, "controller": True}
    made = pod(name)
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_jobs_have_no_scale() -> None:
    made = SmallCluster(1)
    made.create(JOBS, job("web"))
    made.create(BUDGETS, budget("b", maxUnavailable=1))
    made.settle()
    assert failure(made) == "jobs.batch does not implement the scale subresource"
    assert made.the(BUDGETS, "b")["status"]["disruptionsAllowed"] == 0


def test_a_controller_of_a_kind_that_is_not_served() -> None:
    made = SmallCluster(1)
    made.create("pods", owned("web", "kruise.example/v1", "StatefulSet"))
    made.create(BUDGETS, budget("b", maxUnavailable=1))
    made.settle()
    assert failure(made) == ('no matches for kind "StatefulSet" in version "kruise.example/v1"')


def test_replication_controllers_have_a_scale() -> None:
    made = SmallCluster(2)
    template = {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
    spec = {"replicas": 3, "selector": {"app": "web"}, "template": template}
    made.create("replicationcontrollers", {"metadata": {"name": "web"}, "spec": spec})
    made.create(BUDGETS, budget("b", minAvailable="50%"))
    made.run(5)
    assert counts(made) == (1, 3, 2, 3)


def test_the_scale_of_a_custom_kind() -> None:
    made = SmallCluster(1)
    made.create(DEFINITIONS, definition({"specReplicasPath": ".spec.size.n",
                                         "statusReplicasPath": ".status.n"}))  # fmt: skip
    made.settle()
    uid = made.create("a.example/webs", web({"size": {"n": 4}}))["metadata"]["uid"]
    made.create("pods", owned("web", "a.example/v1", "Web", uid))
    made.create(BUDGETS, budget("b", maxUnavailable="50%"))
    made.run(5)
    assert counts(made) == (0, 1, 2, 4)


def test_a_custom_kind_without_scale() -> None:
    made = SmallCluster(1)
    made.create(DEFINITIONS, definition(None))
    made.settle()
    uid = made.create("a.example/webs", web({}))["metadata"]["uid"]
    made.create("pods", owned("web", "a.example/v1", "Web", uid))
    made.create(BUDGETS, budget("b", maxUnavailable="50%"))
    made.settle()
    assert failure(made) == "webs.a.example does not implement the scale subresource"


def web(spec: Tree) -> Tree:
    return {"apiVersion": "a.example/v1", "kind": "Web", "metadata": {"name": "o"}, "spec": spec}


def definition(scale: Tree | None) -> Tree:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Tree = {"name": "v1", "served": True, "storage": True,
                     "schema": {"openAPIV3Schema": schema}}  # fmt: skip
    if scale is not None:
        version["subresources"] = {"scale": scale}
    names = {"plural": "webs", "kind": "Web"}
    spec = {"group": "a.example", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "webs.a.example"}, "spec": spec}


def test_the_disruption_allowed_condition() -> None:
    made = guarded_deployment(minAvailable=2)
    (found,) = made.the(BUDGETS, "b")["status"]["conditions"]
    assert (found["status"], found["reason"]) == ("True", "SufficientPods")
    made.change(BUDGETS, "b", minAvailable=3)
    made.settle()
    (found,) = made.the(BUDGETS, "b")["status"]["conditions"]
    assert (found["status"], found["reason"]) == ("False", "InsufficientPods")


def test_an_eviction_takes_what_is_allowed_and_the_next_must_wait() -> None:
    made = guarded_deployment(minAvailable=2)
    first, second, _ = sorted(p["metadata"]["name"] for p in made.pods())
    assert evict(made, first).code == 201
    status = made.the(BUDGETS, "b")["status"]
    assert list(status["disruptedPods"]) == [first]
    assert refusal(made, second) == (
        429,
        "The disruption budget b does not allow evicting pods currently",
    )
    made.settle()
    assert (
        refusal(made, second)[1]
        == "The disruption budget b needs 2 healthy pods and has 2 currently"
    )
    made.run(10)
    assert evict(made, second).code == 201


def test_a_drain_proceeds_as_replacements_become_ready() -> None:
    made = guarded_deployment(3, minAvailable=2)
    drained = sorted(p["metadata"]["name"] for p in made.pods())
    healthy: list[int] = []
    while drained:
        if is_evicted(made, drained[0]):
            drained.pop(0)
        made.run(0.5)
        healthy.append(counts(made)[1])
    made.run(10)
    assert min(healthy) == 2
    assert counts(made) == (1, 3, 2, 3)


def test_two_budgets_on_a_pod_refuse_eviction() -> None:
    made = guarded_deployment(minAvailable=1)
    made.create(BUDGETS, budget("c", minAvailable=1))
    made.settle()
    code, text = refusal(made, made.pods()[0]["metadata"]["name"])
    assert code == 500
    assert text.startswith("This pod has more than one PodDisruptionBudget")


def test_pods_that_are_not_ready_may_be_evicted() -> None:
    made = guarded_deployment(1, minAvailable=1)
    made.schedules = False
    pending = pod("web-x")
    pending["metadata"]["labels"] = {"app": "web"}
    made.create("pods", pending)
    made.settle()
    assert evict(made, "web-x").code == 201
    assert made.get("pods", "web-x") is None


def test_an_evicted_pod_counts_as_deleted_for_two_minutes() -> None:
    made = guarded_deployment(3, minAvailable=2)
    name = made.pods()[0]["metadata"]["name"]
    found = made.the(BUDGETS, "b")
    found["status"]["disruptedPods"] = {name: "2001-09-09T01:46:45Z"}
    made.api.update_status(BUDGETS, found)
    made.settle()
    assert counts(made) == (0, 2, 2, 3)
    made.run(130)
    assert counts(made) == (1, 3, 2, 3)
