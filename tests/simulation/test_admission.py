"""LimitRanges and ResourceQuotas apply to pods that no API server has stored.

The texts are those of kube-apiserver 1.36.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.forecast.explain import explain
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.simulation.simulate import simulate

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 64, memory: 64Gi, pods: 110, example.com/gpu: 8}}
"""


def limits(*items: str, name: str = "l") -> str:
    listed = ", ".join("{" + item + "}" for item in items)
    head = f"---\napiVersion: v1\nkind: LimitRange\nmetadata: {{name: {name}}}\n"
    return head + f"spec: {{limits: [{listed}]}}\n"


def quota(hard: str, more: str = "", name: str = "q") -> str:
    head = f"---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: {name}}}\n"
    return head + f"spec: {{hard: {{{hard}}}{more}}}\n"


def pod(name: str, resources: str = "", *, uid: str = "", spec: str = "", phase: str = "") -> str:
    meta = f", uid: {uid}, resourceVersion: '1'" if uid else ""
    head = f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{meta}}}\n"
    status = f"status: {{phase: {phase}}}\n" if phase else ""
    inside = f"{spec}, " if spec else ""
    container = f"{{name: main, resources: {{{resources}}}}}"
    return f"{head}spec: {{{inside}containers: [{container}]}}\n{status}"


def read(folder: Path, text: str) -> Cluster:
    path = folder / "a.yaml"
    path.write_text(NODE + text)
    return read_cluster(path)


def resources(cluster: Cluster, name: str) -> tuple[object, object]:
    (one,) = (each for each in cluster.pods if each.name == name)
    found = one.spec.containers[0].resources
    return found.requests, found.limits


# LimitRange.


def test_defaults_are_set_where_the_pod_has_no_value(tmp_path: Path) -> None:
    item = "type: Container, default: {cpu: 500m, memory: 1Gi}, defaultRequest: {cpu: 100m}"
    text = limits(item) + pod("bare") + pod("own", "requests: {cpu: 2}") + pod("old", uid="u")
    cluster = read(tmp_path, text)
    # A default limit is the default request if the LimitRange has none.
    both = {"cpu": "100m", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"}
    assert resources(cluster, "bare") == both
    assert resources(cluster, "old") == ({}, {})
    assert cluster.notes[0] == "1 pod with defaults of LimitRanges"
    # Its request is above the default limit.
    assert cluster.not_created == {
        "default/own": 'Pod "own" is invalid: spec.containers[0].resources.requests: Invalid value:'
        ' "2": must be less than or equal to cpu limit of 500m'
    }


def test_a_maximum_is_the_default_of_what_is_not_given(tmp_path: Path) -> None:
    cluster = read(tmp_path, limits("type: Container, max: {cpu: 2}") + pod("bare"))
    assert resources(cluster, "bare") == ({"cpu": 2}, {"cpu": 2})


def test_pods_of_a_template_share_what_they_are_given(tmp_path: Path) -> None:
    text = limits("type: Container, default: {cpu: 1}") + pod("a") + pod("b")
    one, other = read(tmp_path, text).pods
    assert one.spec is other.spec


VIOLATIONS = {
    "a limit above the maximum": (
        "type: Container, max: {cpu: 1}",
        "requests: {cpu: 1}, limits: {cpu: 2}",
        "maximum cpu usage per Container is 1, but limit is 2",
    ),
    "a request below the minimum": (
        "type: Container, min: {memory: 1Gi}",
        "requests: {memory: 512Mi}",
        "minimum memory usage per Container is 1Gi, but request is 512Mi",
    ),
    "no limit of a pod": (
        "type: Pod, max: {cpu: 1}",
        "requests: {cpu: 500m}",
        "maximum cpu usage per Pod is 1.  No limit is specified",
    ),
    "no request of a pod": (
        "type: Pod, min: {cpu: 1}",
        "",
        "minimum cpu usage per Pod is 1.  No request is specified",
    ),
    "a ratio": (
        "type: Container, maxLimitRequestRatio: {cpu: 2}",
        "requests: {cpu: 1}, limits: {cpu: 3}",
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
    ),
    "two at once": (
        "type: Container, max: {cpu: 1, memory: 1Gi}",
        "limits: {cpu: 2, memory: 2Gi}",
        "[maximum cpu usage per Container is 1, but limit is 2,"
        " maximum memory usage per Container is 1Gi, but limit is 2Gi]",
    ),
}


@pytest.mark.parametrize(("item", "asked", "wanted"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_pod_beyond_a_limit_range_is_not_created(
    tmp_path: Path, item: str, asked: str, wanted: str
) -> None:
    cluster = read(tmp_path, limits(item) + pod("web", asked) + pod("old", asked, uid="u"))
    assert cluster.not_created == {"default/web": f'pods "web" is forbidden: {wanted}'}
    assert [one.name for one in cluster.pods] == ["old"]


# ResourceQuota.


def test_pods_beyond_a_quota_are_not_created(tmp_path: Path) -> None:
    text = quota("requests.cpu: 5, pods: 10") + pod("old", "requests: {cpu: 2}", uid="u")
    text += "".join(pod(name, "requests: {cpu: 1500m}") for name in ("a", "b", "c"))
    cluster = read(tmp_path, text)
    assert [one.name for one in cluster.pods] == ["old", "a", "b"]
    assert cluster.not_created == {
        "default/c": 'pods "c" is forbidden: exceeded quota: q, requested: requests.cpu=1500m,'
        " used: requests.cpu=5, limited: requests.cpu=5"
    }
    assert cluster.notes[-1].startswith('1 pod not created: pods "c" is forbidden: exceeded')


def test_finished_pods_and_other_namespaces_use_nothing(tmp_path: Path) -> None:
    text = quota("pods: 1") + pod("done", uid="u", phase="Succeeded") + pod("a")
    text += pod("b").replace("{name: b}", "{name: b, namespace: other}")
    assert read(tmp_path, text).not_created == {}


def test_a_quota_on_requests_wants_them_named(tmp_path: Path) -> None:
    cluster = read(tmp_path, quota("requests.cpu: 5, limits.memory: 1Gi") + pod("web"))
    assert cluster.not_created["default/web"] == (
        'pods "web" is forbidden: failed quota: q: must specify limits.memory for: main;'
        " requests.cpu for: main"
    )


def test_a_default_of_a_limit_range_counts_in_the_quota(tmp_path: Path) -> None:
    text = limits("type: Container, defaultRequest: {memory: 1Gi}")
    text += quota("memory: 1536Mi") + pod("a") + pod("b")
    assert (
        read(tmp_path, text)
        .not_created["default/b"]
        .endswith("requested: memory=1Gi, used: memory=1Gi, limited: memory=1536Mi")
    )


def test_extended_resources_have_quotas(tmp_path: Path) -> None:
    text = quota("requests.example.com/gpu: 2")
    text += pod("a", "limits: {example.com/gpu: 2}") + pod("b", "limits: {example.com/gpu: 1}")
    assert "requests.example.com/gpu=1, used:" in read(tmp_path, text).not_created["default/b"]


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        (", scopes: [BestEffort]", ["b2"]),
        (", scopes: [NotBestEffort]", ["h1", "c2", "h2"]),
        (
            ", scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In,"
            " values: [high]}]}",
            ["h2"],
        ),
    ],
)
def test_a_quota_counts_what_its_scopes_cover(
    tmp_path: Path, scope: str, refused: list[str]
) -> None:
    text = "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\n"
    text += "value: 5\n" + quota("pods: 1", scope)
    high = "priorityClassName: high"
    for number in (1, 2):
        text += pod(f"b{number}") + pod(f"c{number}", "requests: {cpu: 1}")
        text += pod(f"h{number}", "requests: {cpu: 1}", spec=high)
    found = [key.partition("/")[2] for key in read(tmp_path, text).not_created]
    assert found == refused


def test_unenforced_limits_are_noted(tmp_path: Path) -> None:
    text = quota("services: 1, count/jobs.batch: 2, pods: 5")
    text += limits("type: PersistentVolumeClaim, max: {storage: 1Gi}")
    notes = read(tmp_path, text).notes
    assert "ResourceQuota: not enforced: count/jobs.batch, services" in notes
    assert "LimitRange: not enforced: PersistentVolumeClaim" in notes


def test_pods_of_controllers_are_admitted_one_by_one(tmp_path: Path) -> None:
    deployment = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main}]}}
"""
    path = tmp_path / "a.yaml"
    path.write_text(NODE + quota("pods: 2") + deployment)
    summary = simulate(path).summary
    assert (summary["pods"], summary["placed"]) == (2, 2)
    (refused,) = summary["not_created"].values()
    assert refused.endswith("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")


def test_explain_reports_why_a_pod_was_not_created(tmp_path: Path) -> None:
    cluster = read(tmp_path, quota("pods: 0") + pod("web"))
    with pytest.raises(InputError, match='not created: pods "web" is forbidden: exceeded quota'):
        explain("default/web", cluster)
