"""A controller's exception concerns one object: retried with backoff, counted, recorded as an
event, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.apis.core.pod_deletion_cost import ANNOTATION, deletion_cost
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.machinery.strconv import int_or_none, uint_or_none
from stowplan.apis.machinery.timestamps import add_seconds, human_age, parse_time
from stowplan.apis.schema import canonical_time as schema_times
from stowplan.apiserver.discovery.operation_pages import OperationPages
from stowplan.apiserver.server_state import SYSTEM_USER
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import int_or_percent_of
from stowplan.controller_runtime.object_index import ObjectIndex
from stowplan.controllers.workloads.deployment import DeploymentController
from stowplan.kubelet.kubelets import Kubelets
from tests.apiserver.small_cluster import (
    DEPLOYMENTS,
    SETS,
    START,
    SmallCluster,
    Tree,
    deployment,
    pod,
    template,
)

LONG = "9" * 5000


def broken(monkeypatch: pytest.MonkeyPatch, where: type, name: str, only: str) -> None:
    """Have a method fail for what `only` names."""
    real = getattr(where, name)

    def fails(self: Any, about: Any = "", *rest: Any) -> Any:
        if str(getattr(about, "key", about)).endswith(only):
            raise ZeroDivisionError("x" * 5000)
        return real(self, about, *rest) if about else real(self)

    monkeypatch.setattr(where, name, fails)


def part(cluster: SmallCluster, kind: type) -> Any:
    return next(each for each in cluster.cluster.controller_manager.parts if isinstance(each, kind))


def test_a_fault_of_a_controller_is_its_object_s(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    cluster = SmallCluster(1)
    broken(monkeypatch, DeploymentController, "sync", "'bad')")
    for name in ("a", "bad", "z"):
        cluster.create(DEPLOYMENTS, deployment(name, 1))
    cluster.run(10)
    assert {p["metadata"]["labels"]["app"] for p in cluster.pods()} == {"a", "z"}
    # Looked at again later and later: 0.005 s, 0.01 s, ... come to a dozen times in ten seconds.
    assert 5 < len(faults) < 15
    assert set(faults) == {f"deployment default/bad: {ZeroDivisionError('x' * 5000)!r:.200}"}
    assert cluster.cluster.controller_manager.failing()["deployment"] == 1
    page = OperationPages().answer(
        HttpRequest("GET", "/metrics"), SYSTEM_USER, cluster.server, cluster.now
    )
    assert page is not None
    lines = page.body.decode().splitlines()
    assert f'stowplan_controller_faults_total{{component="deployment"}} {len(faults)}' in lines
    assert 'stowplan_controller_failing_objects{component="deployment"} 1' in lines
    assert 'stowplan_controller_failing_objects{component="job"} 0' in lines
    (event,) = [e for e in cluster.list("events") if e["reason"] == "SyncError"]
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == "bad"
    assert event["message"].startswith("error syncing: ZeroDivisionError('xxx")
    taken = cluster.cluster.faults.take()
    assert {fault.about for fault in taken} == {"default/bad"}
    assert cluster.cluster.faults.take() == []
    assert cluster.cluster.faults.counts["deployment"] == len(faults)
    faults.clear()
    monkeypatch.undo()
    cluster.run(1000)
    assert len(cluster.pods(app="bad")) == 1
    assert cluster.cluster.controller_manager.failing()["deployment"] == 0


@pytest.mark.parametrize(
    ("kind", "name"), [(ObjectIndex, "observe"), (DeploymentController, "observe")]
)
def test_a_change_that_observers_fail_on_is_stored(
    monkeypatch: pytest.MonkeyPatch, faults: list[str], kind: type, name: str
) -> None:
    cluster = SmallCluster(1)
    broken(monkeypatch, kind, name, "deployments/default/bad")
    cluster.create(DEPLOYMENTS, deployment("bad", 1))
    cluster.create(DEPLOYMENTS, deployment("good", 1))
    cluster.run(10)
    assert cluster.the(DEPLOYMENTS, "bad")
    assert len(cluster.pods(app="good")) == 1
    assert any("apps/deployments/default/bad" in fault for fault in faults)
    faults.clear()


def test_a_part_that_fails_as_a_whole_rests(
    monkeypatch: pytest.MonkeyPatch, faults: list[str]
) -> None:
    cluster = SmallCluster(1)
    broken(monkeypatch, Controller, "work_once", "")
    cluster.create(DEPLOYMENTS, deployment("web", 1))
    cluster.run(10)
    controllers = len(
        [p for p in cluster.cluster.controller_manager.parts if isinstance(p, Controller)]
    )
    # After 0, 1, 3 and 7 seconds.
    assert 0 < len(faults) <= 4 * controllers
    monkeypatch.undo()
    faults.clear()
    cluster.run(60)
    assert len(cluster.pods(app="web")) == 1


# What did raise.


def test_a_surge_of_thousands_of_digits() -> None:
    cluster = SmallCluster(1)
    rolling = {"maxSurge": f"{LONG}%", "maxUnavailable": 0}
    for number in range(3):
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        cluster.create(DEPLOYMENTS, deployment(f"web-{number}", 1, strategy=strategy))
    cluster.run(5)
    assert len(cluster.pods()) == 3


@pytest.mark.parametrize("name", ["desired-replicas", "max-replicas", "revision"])
def test_annotations_of_thousands_of_digits(name: str) -> None:
    cluster = SmallCluster(1)
    cluster.create(DEPLOYMENTS, deployment("web", 1))
    cluster.run(5)
    (found,) = cluster.list(SETS)
    found["metadata"]["annotations"][f"deployment.kubernetes.io/{name}"] = LONG
    cluster.api.update(SETS, found)
    cluster.change(DEPLOYMENTS, "web", replicas=2, minReadySeconds=1)
    cluster.run(5)
    assert len(cluster.pods()) == 2


@pytest.mark.parametrize("count", [1024, 1025, 2**31 - 2])
def test_restarts_beyond_count(count: int) -> None:
    cluster = SmallCluster(1)
    notes = {"stowplan.dev/run-seconds": "5", "stowplan.dev/exit-code": "1"}
    cluster.create("pods", pod("p", notes=notes))
    cluster.run(3)
    found = cluster.the("pods", "p")
    found["status"]["containerStatuses"][0]["restartCount"] = count
    cluster.api.update_status("pods", found)
    part(cluster, Kubelets)._workers.clear()
    cluster.run(5)
    found = cluster.the("pods", "p")
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == (
        "CrashLoopBackOff"
    )


def test_a_paused_deployment_keeps_its_status() -> None:
    """In the middle of a rollout, paused: two sets are active, and one look has to know both."""
    cluster = SmallCluster(1)
    cluster.create(DEPLOYMENTS, deployment("web", 4))
    cluster.run(5)
    found = cluster.the(DEPLOYMENTS, "web")
    found["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    found["spec"]["template"]["metadata"]["annotations"] = {"stowplan.dev/start-seconds": "100"}
    cluster.api.update(DEPLOYMENTS, found)
    cluster.run(1)
    assert len([s for s in cluster.list(SETS) if s["spec"]["replicas"]]) == 2
    cluster.change(DEPLOYMENTS, "web", paused=True)
    cluster.run(1)
    status = cluster.the(DEPLOYMENTS, "web")["status"]
    assert status["replicas"] == sum(s["spec"]["replicas"] for s in cluster.list(SETS)) > 4
    cluster.change(DEPLOYMENTS, "web", replicas=8)
    cluster.run(1)
    assert sum(s["spec"]["replicas"] for s in cluster.list(SETS)) == 10
    cluster.change(DEPLOYMENTS, "web", paused=False)
    cluster.run(400)
    assert len(cluster.pods(app="web")) == 8


@pytest.mark.parametrize("grace", [10**12, 2**63 - 1])
def test_a_grace_of_ages(grace: int) -> None:
    cluster = SmallCluster(1)
    slow = {"stowplan.dev/stop-seconds": "5"}
    cluster.create("pods", pod("p", notes=slow))
    cluster.run(5)
    cluster.delete("pods", "p", grace_s=grace)
    meta = cluster.the("pods", "p")["metadata"]
    assert meta["deletionGracePeriodSeconds"] == grace
    assert len(meta["deletionTimestamp"]) == 20
    assert abs(parse_time(meta["deletionTimestamp"]) - START) < 293 * 366 * 86400
    cluster.delete("pods", "p", grace_s=10)
    assert parse_time(cluster.the("pods", "p")["metadata"]["deletionTimestamp"]) <= START + 20
    cluster.run(10)
    assert cluster.get("pods", "p") is None


def test_seconds_are_added_as_go_adds_them() -> None:
    assert add_seconds(100.0, 30) == 130.0
    assert add_seconds(100.0, -30) == 70.0
    assert add_seconds(0.0, 9_223_372_037) < 0
    assert add_seconds(0.0, 9_223_372_036) == 9_223_372_036.0


@pytest.mark.parametrize("cost", [LONG, "+1", "007", "", "x", "2147483648", "1 ", "٣"])
def test_an_invalid_deletion_cost_is_ignored(cost: str) -> None:
    assert deletion_cost({ANNOTATION: cost}) is None
    cluster = SmallCluster(0)
    for path, obj in (
        ("pods", pod("p", notes={ANNOTATION: cost})),
        (DEPLOYMENTS, deployment("p", 1, {ANNOTATION: cost})),
    ):
        with pytest.raises(ApiError) as error:
            cluster.create(path, obj)
        assert error.value.code == 422
        assert f"annotations[{ANNOTATION}]: Invalid value" in error.value.message
        assert "must be a 32bit integer" in error.value.message
    assert cluster.list("pods") == []


def test_a_deletion_cost_that_was_stored_before() -> None:
    cluster = SmallCluster(0)
    made = cluster.create("pods", pod("p"))
    # The status subresource lets annotations through, there as here.
    made["metadata"]["annotations"] = {ANNOTATION: LONG}
    cluster.api.update_status("pods", made)
    assert cluster.api.get("pods", "default", "p") is not None
    found = cluster.the("pods", "p")
    assert found["metadata"]["annotations"][ANNOTATION] == LONG
    found["metadata"]["labels"]["a"] = "b"
    cluster.api.update("pods", found)
    assert cluster.cluster.controller_manager.index.pods["default", "p"].cost == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        (LONG, None),
        ("", None),
        ("-", None),
        ("1 ", None),
        ("1_000", None),
        ("٣", None),
    ],
)
def test_numbers_as_go_reads_them(text: str, number: int | None) -> None:
    assert int_or_none(text) == number
    assert uint_or_none(text) == (number if text[:1].isdecimal() else None)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("0500-01-01T00:00:00+01:00", "0499-12-31T23:00:00Z"),
        ("0001-01-01T00:00:01Z", "0001-01-01T00:00:01Z"),
        ("2024-02-29T01:00:00.5+02:00", "2024-02-28T23:00:00Z"),
    ],
)
def test_times_are_stored_with_four_digits_of_a_year(text: str, stored: str) -> None:
    assert schema_times.canonical_time(text) == stored
    assert schema_times.canonical_micro_time(stored.replace("Z", ".000001Z")) == stored.replace(
        "Z", ".000001Z"
    )
    assert parse_time(stored) < START * 2


@pytest.mark.parametrize("text", ["2023-02-29T00:00:00Z", "2023-04-31T00:00:00Z"])
def test_invalid_dates(text: str) -> None:
    with pytest.raises(schema_times.InvalidTime):
        schema_times.canonical_time(text)


def test_the_age_of_what_was_stored_unpadded() -> None:
    assert human_age("499-12-31T23:00:00Z", START) == "<invalid>"
    assert human_age(None, START) == "<unknown>"


def test_percentages() -> None:
    assert int_or_percent_of("50%", 3, round_up=True) == 2
    assert int_or_percent_of(f"{LONG}%", 3, round_up=True) == 0
    assert int_or_percent_of("7", 3, round_up=True) == 7


def test_the_table_of_a_scale() -> None:
    cluster = SmallCluster(1)
    cluster.create(DEPLOYMENTS, deployment("web", 2))
    cluster.run(5)
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = cluster.cluster.handle(HttpRequest("GET", path, (), accept), cluster.now)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 200
    table: Tree = json.loads(answer.body)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert table["rows"][0]["cells"] == ["web", 2, 2, "5s"]


def test_two_thousand_million_replicas_do_not_keep_others_waiting() -> None:
    cluster = SmallCluster(1)
    for name, replicas in (("huge", 2**31 - 1), ("web", 2)):
        selector = {"matchLabels": {"app": name}}
        spec = {"replicas": replicas, "selector": selector, "template": template(name)}
        cluster.create(
            "apps/statefulsets",
            {"metadata": {"name": name}, "spec": {**spec, "serviceName": name}},
        )
    cluster.run(5)
    assert len(cluster.pods(app="web")) == 2
    assert 0 < len(cluster.pods(app="huge")) < 10
