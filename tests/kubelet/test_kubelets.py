"""Hollow nodes and their pods: what they report, as their annotations configure."""

from __future__ import annotations

import pytest

from stowplan.apis.core.pod_lifecycle import (
    FOREVER,
    PodLifecycleDefaults,
    node_annotation_problems,
    pod_lifecycle,
)
from tests.apiserver.small_cluster import START, SmallCluster, Tree, container, pod


def state(cluster: SmallCluster, name: str) -> Tree:
    """The state of the pod's first container."""
    found: Tree = cluster.the("pods", name)["status"]["containerStatuses"][0]
    return found


def phase(cluster: SmallCluster, name: str) -> str:
    return str(cluster.the("pods", name)["status"]["phase"])


def conditions(cluster: SmallCluster, name: str) -> dict[str, str]:
    return {c["type"]: c["status"] for c in cluster.the("pods", name)["status"]["conditions"]}


def test_a_pod_is_created_runs_and_ends_by_the_clock() -> None:
    cluster = SmallCluster(1)
    notes = {
        "stowplan.dev/start-seconds": "2",
        "stowplan.dev/run-seconds": "5",
        "stowplan.dev/exit-code": "3",
    }
    cluster.create("pods", pod("a", notes=notes, restartPolicy="Never"))
    cluster.settle()
    assert phase(cluster, "a") == "Pending"
    assert state(cluster, "a")["state"]["waiting"]["reason"] == "ContainerCreating"
    assert conditions(cluster, "a")["Ready"] == "False"
    cluster.run(2)
    status = cluster.the("pods", "a")["status"]
    assert status["phase"] == "Running"
    assert (status["hostIP"], status["podIPs"]) == ("10.0.0.1", [{"ip": status["podIP"]}])
    assert "running" in state(cluster, "a")["state"]
    assert conditions(cluster, "a")["Ready"] == "True"
    cluster.run(5)
    assert phase(cluster, "a") == "Failed"
    ended = state(cluster, "a")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert conditions(cluster, "a")["Ready"] == "False"


def test_readiness_may_come_later() -> None:
    cluster = SmallCluster(1)
    cluster.create("pods", pod("a", notes={"stowplan.dev/ready-seconds": "10"}))
    cluster.run(5)
    assert (phase(cluster, "a"), conditions(cluster, "a")["Ready"]) == ("Running", "False")
    cluster.run(7)
    assert conditions(cluster, "a")["Ready"] == "True"


def test_a_readiness_gate_is_waited_for() -> None:
    cluster = SmallCluster(1)
    cluster.create("pods", pod("a", readinessGates=[{"conditionType": "example.com/up"}]))
    cluster.run(5)
    assert conditions(cluster, "a")["ContainersReady"] == "True"
    assert conditions(cluster, "a")["Ready"] == "False"
    opened = cluster.the("pods", "a")
    opened["status"]["conditions"].append({"type": "example.com/up", "status": "True"})
    cluster.api.update_status("pods", opened)
    cluster.settle()
    assert conditions(cluster, "a")["Ready"] == "True"


def test_init_containers_run_in_order() -> None:
    cluster = SmallCluster(1)
    inits = [
        container(name="i1"),
        container(name="i2"),
        container(name="s", restartPolicy="Always"),
    ]
    notes = {"stowplan.dev/init-seconds": "5"}
    cluster.create("pods", pod("a", notes=notes, initContainers=inits))
    cluster.run(10)
    assert phase(cluster, "a") == "Pending"
    assert conditions(cluster, "a")["Initialized"] == "False"
    assert state(cluster, "a")["state"]["waiting"]["reason"] == "PodInitializing"
    cluster.run(10)
    assert phase(cluster, "a") == "Running"
    statuses = cluster.the("pods", "a")["status"]["initContainerStatuses"]
    assert [next(iter(each["state"])) for each in statuses] == [
        "terminated",
        "terminated",
        "running",
    ]


def test_what_is_always_restarted_backs_off() -> None:
    cluster = SmallCluster(1)
    notes = {"stowplan.dev/run-seconds": "1", "stowplan.dev/exit-code": "1"}
    cluster.create("pods", pod("a", notes=notes))
    cluster.run(2.5)
    assert (state(cluster, "a")["restartCount"], next(iter(state(cluster, "a")["state"]))) == (
        1,
        "running",
    )
    cluster.run(1)
    assert state(cluster, "a")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert state(cluster, "a")["lastState"]["terminated"]["exitCode"] == 1
    cluster.run(10)
    assert state(cluster, "a")["restartCount"] == 2
    cluster.run(15)
    assert state(cluster, "a")["restartCount"] == 2
    cluster.run(10)
    assert state(cluster, "a")["restartCount"] == 3
    assert phase(cluster, "a") == "Running"


def test_on_failure_ends_with_the_first_success() -> None:
    cluster = SmallCluster(1)
    notes = {"stowplan.dev/run-seconds": "1", "stowplan.dev/exit-code": "1,0"}
    cluster.create("pods", pod("a", notes=notes, restartPolicy="OnFailure"))
    cluster.run(30)
    assert (phase(cluster, "a"), state(cluster, "a")["restartCount"]) == ("Succeeded", 1)


@pytest.mark.parametrize(
    ("capacity", "asked", "reason", "message"),
    [
        (
            {"cpu": "1"},
            {"cpu": "700m"},
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 700, used: 700, "
            "capacity: 1000",
        ),
        (
            {"memory": "1Gi"},
            {"memory": "600Mi"},
            "OutOfmemory",
            "Pod was rejected: Node didn't have enough resource: memory, requested: 629145600, "
            "used: 629145600, capacity: 1073741824",
        ),
        (
            {"pods": "1"},
            {},
            "OutOfpods",
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, "
            "capacity: 1",
        ),
    ],
)
def test_a_pod_beyond_capacity_is_refused(
    capacity: dict[str, str], asked: dict[str, str], reason: str, message: str
) -> None:
    cluster = SmallCluster(1, capacity=capacity)
    for name in ("a", "b"):
        spec = [container(resources={"requests": asked})]
        made = pod(name)
        made["spec"]["containers"] = spec
        cluster.create("pods", made)
    cluster.run(3)
    assert phase(cluster, "a") == "Running"
    refused = cluster.the("pods", "b")["status"]
    assert (refused["phase"], refused["reason"], refused["message"]) == ("Failed", reason, message)


def test_room_is_free_again_when_a_pod_ends() -> None:
    cluster = SmallCluster(1, capacity={"cpu": "150m"})
    cluster.create("pods", pod("a", notes={"stowplan.dev/run-seconds": "5"}, restartPolicy="Never"))
    cluster.run(10)
    cluster.create("pods", pod("b"))
    cluster.run(3)
    assert (phase(cluster, "a"), phase(cluster, "b")) == ("Succeeded", "Running")


def test_a_selector_that_the_node_does_not_match_is_refused() -> None:
    cluster = SmallCluster(1, schedules=False)
    made = cluster.create("pods", pod("a", nodeSelector={"disk": "fast"}))
    cluster.server.bind(made, "node-1", cluster.now)
    cluster.run(3)
    assert cluster.the("pods", "a")["status"]["reason"] == "NodeAffinity"


def test_a_host_port_is_used_once() -> None:
    cluster = SmallCluster(1)
    for name in ("a", "b"):
        made = pod(name)
        made["spec"]["containers"] = [container(ports=[{"containerPort": 80, "hostPort": 80}])]
        cluster.create("pods", made)
    cluster.run(3)
    assert cluster.the("pods", "b")["status"]["reason"] == "NodePorts"


def test_a_deleted_pod_takes_its_time_but_not_more_than_its_grace() -> None:
    cluster = SmallCluster(1)
    cluster.create("pods", pod("a", notes={"stowplan.dev/stop-seconds": "5"}))
    stubborn = {"stowplan.dev/stop-seconds": "100"}
    cluster.create("pods", pod("b", notes=stubborn, terminationGracePeriodSeconds=20))
    cluster.run(5)
    cluster.delete("pods", "a")
    cluster.delete("pods", "b")
    cluster.run(4.9)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["a", "b"]
    cluster.run(0.2)
    assert [p["metadata"]["name"] for p in cluster.pods()] == ["b"]
    cluster.run(15)
    assert cluster.pods() == []


def test_a_pod_has_a_deadline_of_its_own() -> None:
    cluster = SmallCluster(1)
    cluster.create("pods", pod("a", activeDeadlineSeconds=10))
    cluster.run(9)
    assert phase(cluster, "a") == "Running"
    cluster.run(2)
    status = cluster.the("pods", "a")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_annotations_that_cannot_be_read_count_as_absent() -> None:
    notes = {
        "stowplan.dev/start-seconds": "-1",
        "stowplan.dev/run-seconds": "soon",
        "stowplan.dev/exit-code": "1,x",
        "stowplan.dev/stop-seconds": "nan",
    }
    made = pod_lifecycle(
        pod("a", notes=notes, restartPolicy="Never"), PodLifecycleDefaults(start_s=3, run_s=7)
    )
    assert (made.start_s, made.run_s, made.stop_s, made.exit_codes) == (3, 7, 0, (0,))
    long = pod_lifecycle(
        pod("a", notes={"stowplan.dev/exit-code": "9" * 5000}), PodLifecycleDefaults()
    )
    assert long.exit_codes == (0,)
    forever = pod_lifecycle(
        pod("a", notes={"stowplan.dev/run-seconds": "forever"}), PodLifecycleDefaults()
    )
    assert forever.run_s == FOREVER
    assert pod_lifecycle(pod("a"), PodLifecycleDefaults()).run_s == FOREVER


def events(cluster: SmallCluster, reason: str) -> list[str]:
    found = cluster.server.list(cluster.server.registry.by_path("events"))  # type: ignore[arg-type]
    return [event["message"] for event in found if event["reason"] == reason]


def test_invalid_annotations_are_reported() -> None:
    cluster = SmallCluster(1)
    notes = {
        "stowplan.dev/run-seconds": "soon",
        "stowplan.dev/stop-seconds": "-1",
        "stowplan.dev/start-seconds": "nan",
        "stowplan.dev/exit-code": "1,x" + "y" * 90,
        "stowplan.dev/run-second-seconds": "1",
        "stowplan.dev/init-seconds": "1",
        "stowplan.dev/queue": "of somebody else",
    }
    cluster.create("pods", pod("a", notes=notes))
    cluster.create("pods", pod("b", notes={"stowplan.dev/run-seconds": "forever"}))
    cluster.run(5)
    recorded = events(cluster, "UnreadAnnotation")
    wanted = 'must be seconds >= 0, or "forever"'
    code = f'Invalid value: "1,x{"y" * 37}...": must be 0 to 255, as in "1,1,0"'
    assert sorted(recorded) == [
        f"stowplan.dev/exit-code: {code}",
        "stowplan.dev/run-second-seconds: unknown annotation: supported values: "
        "stowplan.dev/start-seconds, stowplan.dev/init-seconds, stowplan.dev/ready-seconds, "
        "stowplan.dev/run-seconds, stowplan.dev/stop-seconds, stowplan.dev/prepare-seconds, "
        "stowplan.dev/unprepare-seconds",
        f'stowplan.dev/run-seconds: Invalid value: "soon": {wanted}',
        f'stowplan.dev/start-seconds: Invalid value: "nan": {wanted}',
        f'stowplan.dev/stop-seconds: Invalid value: "-1": {wanted}',
    ]


def test_an_invalid_kubelet_annotation_is_reported() -> None:
    expected = {
        value: list(node_annotation_problems({"stowplan.dev/kubelet": value}))
        for value in ("off", "on", "Off", "")
    }
    assert [value for value, recorded in expected.items() if recorded] == ["Off", ""]


def test_heartbeats_are_spread_over_time_and_few_at_once() -> None:
    cluster = SmallCluster(200, schedules=False)
    cluster.run(20)
    beats: dict[float, int] = {}
    before = cluster.server.version
    start = cluster.now

    def watch(of: SmallCluster) -> None:
        nonlocal before
        beats[of.now - start] = of.server.version - before
        before = of.server.version

    cluster.run(10, watch)
    assert sum(beats.values()) == 200
    assert max(beats.values()) <= 200 * 0.25 / 10 + 3
    assert all((START + at) % 0.25 == 0 for at in beats if beats[at])
