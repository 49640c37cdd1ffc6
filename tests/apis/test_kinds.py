"""Built-in kinds that no recording shows: services, jobs, quotas, workloads without a selector."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.apis.batch.job_status import validate_job_status_update
from stowplan.apis.machinery.errors import ApiError
from stowplan.apiserver import resource_registry
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import BUILTIN_KINDS, built_in_registry
from stowplan.apiserver.server import ApiServer
from tests.apiserver.plain import NOW
from tests.cli.run import check_one_line, run

Tree = dict[str, Any]


@pytest.fixture
def server() -> ApiServer:
    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    made = ApiServer(options, np.random.default_rng(5))
    create(made, "namespaces", {"metadata": {"name": "default"}})
    return made


def create(server: ApiServer, path: str, obj: Tree, name: str = "x") -> Tree:
    resource = server.registry.by_path(path)
    assert resource is not None
    meta = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
    return server.create(resource, {"metadata": meta, **obj}, NOW)


def change(server: ApiServer, path: str, **spec: Any) -> Tree:
    """Merge into the spec of `x`; None takes a field out."""
    resource = server.registry.by_path(path)
    assert resource is not None

    def merge(obj: Tree) -> None:
        obj["spec"] = {
            name: value for name, value in {**obj["spec"], **spec}.items() if value is not None
        }

    made = server.modify(resource, "default", "x", merge, NOW)
    assert made is not None
    return made


def refusal(server: ApiServer, path: str, obj: Tree) -> str:
    with pytest.raises(ApiError) as raised:
        create(server, path, obj, "y")
    assert raised.value.code == 422
    return raised.value.message


@pytest.mark.parametrize("text", [b"{", b"[" * 100_000])
def test_a_secret_that_should_be_json_is_refused(server: ApiServer, text: bytes) -> None:
    data = {".dockerconfigjson": base64.b64encode(text).decode()}
    secret = {"type": "kubernetes.io/dockerconfigjson", "data": data}
    assert "<secret contents redacted>" in refusal(server, "secrets", secret)


PORTS = [{"port": 80}]


def test_a_service_gets_an_address_and_keeps_it(server: ApiServer) -> None:
    made = create(server, "services", {"spec": {"ports": PORTS}})
    address = made["spec"]["clusterIP"]
    assert made["spec"]["clusterIPs"] == [address]
    assert (
        change(server, "services", clusterIP=None, clusterIPs=None)["spec"]["clusterIP"] == address
    )
    with pytest.raises(ApiError, match="may not change once set"):
        change(server, "services", clusterIP="10.0.0.77")


def test_a_service_changes_its_type(server: ApiServer) -> None:
    create(server, "services", {"spec": {"ports": PORTS, "type": "LoadBalancer"}})
    inside = change(server, "services", type="ClusterIP")["spec"]
    assert "nodePort" not in inside["ports"][0]
    assert "externalTrafficPolicy" not in inside
    away = change(server, "services", type="ExternalName", externalName="a.b")["spec"]
    assert not {"clusterIP", "clusterIPs", "ipFamilies"} & set(away)
    back = change(server, "services", type="NodePort", externalName=None)["spec"]
    assert back["clusterIP"].startswith("10.0.0.")
    assert back["ports"][0]["nodePort"] >= 30000


def test_node_ports_are_of_their_range_and_given_once(server: ApiServer) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}
    create(server, "services", {"spec": spec})
    assert "provided port is already allocated" in refusal(server, "services", {"spec": spec})
    spec["ports"] = [{"port": 80, "nodePort": 80}]
    assert "The range of valid ports is 30000-32767" in refusal(server, "services", {"spec": spec})


POD = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}


def test_a_suspended_job_may_go_elsewhere_and_need_more(server: ApiServer) -> None:
    create(server, "batch/jobs", {"spec": {"template": {"spec": POD}, "suspend": True}})
    job = server.get(server.registry.by_path("batch/jobs"), "default", "x")  # type: ignore[arg-type]
    assert job is not None
    template = job["spec"]["template"]
    template["spec"]["nodeSelector"] = {"a": "b"}
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    changed = change(server, "batch/jobs", template=template)
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    template["spec"]["containers"][0]["image"] = "j"
    with pytest.raises(ApiError, match=r"spec\.template\.spec: Invalid value"):
        change(server, "batch/jobs", template=template)
    del template["spec"]["containers"][0]["image"]


TRUE = {"status": "True"}
ENDED = {
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:01Z",
    "conditions": [{"type": "SuccessCriteriaMet", **TRUE}, {"type": "Complete", **TRUE}],
}


@pytest.mark.parametrize(
    ("status", "before", "text"),
    [
        (ENDED, {}, ""),
        ({**ENDED, "conditions": ENDED["conditions"][1:]}, {}, "SuccessCriteriaMet=true"),
        ({**ENDED, "active": 1}, {}, "active>0 is invalid for finished job"),
        ({**ENDED, "completionTime": "2025-01-01T00:00:00Z"}, {}, "equal to or after"),
        ({}, ENDED, "cannot disable the terminal Complete=True condition"),
        ({"failed": 1}, {"failed": 2}, "cannot decrease the failed counter"),
        ({"ready": 1}, {}, "cannot set more ready pods than active"),
        ({"active": -1}, {}, "must be greater than or equal to 0"),
    ],
)
def test_the_status_of_a_job_makes_sense(status: Tree, before: Tree, text: str) -> None:
    causes = list(
        validate_job_status_update({"spec": {}, "status": status}, {"spec": {}, "status": before})
    )
    assert bool(causes) == bool(text)
    assert any(text in one.message for one in causes) or not text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}, "unsupported scope applied to resource"),
        ({"scopes": ["Terminating", "NotTerminating"]}, "conflicting scopes"),
        ({"hard": {"foo": "1"}}, "must be a standard resource for quota"),
    ],
)
def test_quotas_are_about_what_their_scopes_are(server: ApiServer, spec: Tree, text: str) -> None:
    assert text in refusal(server, "resourcequotas", {"spec": spec})


@pytest.mark.parametrize("path", ["apps/deployments", "apps/replicasets", "apps/statefulsets"])
def test_a_workload_without_a_selector_selects_nothing(server: ApiServer, path: str) -> None:
    answer_text = refusal(server, path, {"spec": {}})
    assert "spec.selector: Required value" in answer_text
    assert "`selector` does not match template `labels`" in answer_text
    wrong = {"matchExpressions": [{"key": "a", "operator": "Z"}]}
    assert "not a valid selector operator" in refusal(server, path, {"spec": {"selector": wrong}})


def test_the_default_class_is_the_one_that_stands_now(server: ApiServer) -> None:
    """It is looked for again after every write of a class."""

    def priority() -> int:
        name = f"p{server.version}"
        spec = {"containers": [{"name": "c", "image": "i"}]}
        made = server.create(
            server.registry.by_path("pods"),  # type: ignore[arg-type]
            {"metadata": {"name": name, "namespace": "default"}, "spec": spec},
            NOW,
        )
        return int(made["spec"]["priority"])

    classes = server.registry.by_path("scheduling.k8s.io/priorityclasses")
    assert classes is not None
    assert priority() == 0
    create(
        server,
        "scheduling.k8s.io/priorityclasses",
        {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True},
    )
    assert priority() == 7
    changed = server.get(classes, "", "usual")
    assert changed is not None
    server.update(classes, {**changed, "globalDefault": False}, NOW)
    assert priority() == 0
    server.update(classes, {**server.get(classes, "", "usual"), "globalDefault": True}, NOW)  # type: ignore[dict-item]
    assert priority() == 7
    server.delete(classes, "", "usual", NOW)
    assert priority() == 0


DUAL = "this cluster is not configured for dual-stack services"
SEVERAL = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({"clusterIP": "None"}, (["IPv4", "IPv6"], "RequireDualStack")),
        ({"clusterIP": "None", "ipFamilies": ["IPv6"]}, (["IPv6", "IPv4"], "RequireDualStack")),
        ({"clusterIP": "None", "ipFamilyPolicy": "SingleStack"}, (["IPv4"], "SingleStack")),
        ({"clusterIP": "None", "selector": {"a": "b"}}, (["IPv4"], "SingleStack")),
        ({"ports": PORTS, "ipFamilyPolicy": "PreferDualStack"}, (["IPv4"], "PreferDualStack")),
        (
            {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"},
            f'spec.ipFamilyPolicy: Invalid value: "SingleStack": {SEVERAL}',
        ),
        (
            {"ports": PORTS, "ipFamilyPolicy": "RequireDualStack"},
            f'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": {DUAL}',
        ),
        (
            {"ports": PORTS, "ipFamilies": ["IPv6"]},
            'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster',
        ),
    ],
)
def test_families_of_services(server: ApiServer, spec: Tree, outcome: object) -> None:
    """As of a cluster with IPv4 only: seen with a kube-apiserver 1.36.2."""
    if isinstance(outcome, str):
        assert refusal(server, "services", {"spec": spec}) == f'Service "y" is invalid: {outcome}'
        return
    made = create(server, "services", {"spec": spec})["spec"]
    assert (made["ipFamilies"], made["ipFamilyPolicy"]) == outcome


def test_a_controller_revision_needs_data_and_a_number(server: ApiServer) -> None:
    path = "apps/controllerrevisions"
    made = create(server, path, {"data": {"spec": {}}, "revision": 3})
    assert made["revision"] == 3
    text = refusal(server, path, {"data": {}, "revision": -1})
    assert "revision: Invalid value: -1: must be greater than or equal to 0" in text


def test_a_kind_of_an_unknown_group_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    widget = dataclasses.replace(BUILTIN_KINDS[-1], group="example.com", kind="Widget")
    monkeypatch.setattr(resource_registry, "BUILTIN_KINDS", (*BUILTIN_KINDS, widget))
    ran = run("up", "--port", "0")
    check_one_line(
        ran,
        "error: kind 'Widget': unknown group 'example.com': expected one of GROUPS in "
        "stowplan.apiserver.resource_registry",
    )
    checklists = Path(__file__).parents[2] / "docs" / "contributing" / "checklists.md"
    assert f"`{ran.err.strip()}`" in checklists.read_text()
