"""A replay of workloads: controllers create pods, kubelets run them, the scheduler binds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import stowplan
from stowplan.assembly.deciders import deciders_of
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.messages import effects as to_do
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.cluster.effect_dispatcher import InjectedFault
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.workload_replay import WorkloadReplay

Tree = dict[str, Any]


def node(name: str, cpu: str = "8") -> Tree:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def template(cpu: str = "1", notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta = {"labels": {"app": "web"}, "annotations": notes or {}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def deployment(replicas: int, notes: dict[str, str] | None = None, cpu: str = "1") -> Tree:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": notes or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(cpu),
        },
    }


def deployment_of(name: str, replicas: int) -> Tree:
    made = deployment(replicas)
    made["metadata"]["name"] = name
    made["spec"]["selector"] = {"matchLabels": {"app": name}}
    made["spec"]["template"]["metadata"]["labels"] = {"app": name}
    return made


def job(
    completions: int, parallelism: int, run_s: int, notes: dict[str, str] | None = None
) -> Tree:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": notes or {}},
        "spec": {
            "completions": completions,
            "parallelism": parallelism,
            "template": template(
                "2", {"stowplan.dev/run-seconds": str(run_s)}, restartPolicy="Never"
            ),
        },
    }


def replay_of(folder: Path, *objects: Tree, seed: int = 0, **options: Any) -> WorkloadReplay:
    """The replay of these objects, before its start."""
    file = folder / "objects.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))
    cluster = read_cluster(file, keep_manifests=True)
    deciders = deciders_of([], [])
    scheduler = deciders.scheduler()
    return WorkloadReplay(cluster, deciders, scheduler, ReplayOptions(**options), seed)


def run(replay: WorkloadReplay) -> WorkloadReplay:
    replay.run(lambda now: None, 3600 * SECOND)
    return replay


def running(replay: WorkloadReplay) -> list[str]:
    """Nodes of the running pods."""
    pods = replay.cluster.pods.values()
    return sorted(pod.node_name for pod in pods if pod.status.phase == "Running")


def test_a_deployment_is_rolled_out_by_its_controller(tmp_path: Path) -> None:
    done = run(replay_of(tmp_path, node("n1"), node("n2"), deployment(4)))
    assert running(done) == ["n1", "n1", "n2", "n2"]
    names = {key.rpartition("-")[0] for key in done.cluster.pods}
    assert len(names) == 1, "the pods are those of one ReplicaSet"


def workload(kind: str, notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "annotations": notes or {}},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(), **spec},
    }


def test_pods_of_a_stateful_set_come_in_order_and_go_from_the_last(tmp_path: Path) -> None:
    notes = {"stowplan.dev/replica-changes": "60=1"}
    made = workload("StatefulSet", notes, serviceName="web", replicas=3)
    done = run(replay_of(tmp_path, node("n1"), made))
    histories = {key.rpartition("/")[2]: each for key, each in done.pod_histories.items()}
    assert {name: each.arrived // SECOND for name, each in histories.items()} == {
        "web-0": 0,
        "web-1": 1,
        "web-2": 2,
    }
    ended = {name: (each.ended or 0) // SECOND for name, each in histories.items()}
    assert ended == {"web-0": 0, "web-1": 62, "web-2": 61}


def test_a_pod_that_is_created_again_under_its_name_counts_as_restarted(tmp_path: Path) -> None:
    made = workload("StatefulSet", serviceName="web", replicas=1)
    churn = Churn(up_s=300, down_s=100)
    done = run(replay_of(tmp_path, node("n1"), node("n2"), made, churn=churn, until_s=3000.0))
    (history,) = done.pod_histories.values()
    assert history.arrived == 0
    assert (history.waited or 0) < SECOND, "to the first binding"
    assert history.restarts >= 2
    assert done.binds in (history.restarts, history.restarts + 1), "the last may wait for a node"


def test_a_node_that_comes_back_gets_its_daemon_pod_again(tmp_path: Path) -> None:
    churn = Churn(up_s=300, down_s=100)
    objects = (node("n1"), workload("DaemonSet"))
    done = run(replay_of(tmp_path, *objects, churn=churn, until_s=3000.0))
    assert len(done.pod_histories) >= 3
    assert done.binds == len(done.pod_histories)


def test_a_daemon_set_has_a_pod_on_every_node_that_there_is(tmp_path: Path) -> None:
    late = node("n3")
    late["metadata"]["annotations"] = {"stowplan.dev/arrival-seconds": "30"}
    done = run(replay_of(tmp_path, node("n1"), node("n2"), late, workload("DaemonSet")))
    assert running(done) == ["n1", "n2", "n3"]
    arrived = sorted(each.arrived // SECOND for each in done.pod_histories.values())
    assert arrived == [0, 0, 30]


def test_replicas_change_at_the_times_of_the_annotation(tmp_path: Path) -> None:
    notes = {"stowplan.dev/replica-changes": "60=6, 120=1"}
    done = run(replay_of(tmp_path, node("n1"), deployment(2, notes)))
    arrived = sorted(each.arrived // SECOND for each in done.pod_histories.values())
    assert arrived == [0, 0, 60, 60, 60, 60]
    ended = sorted((each.ended or 0) // SECOND for each in done.pod_histories.values())
    # Deleted at 120 s; each stops within the grace second.
    assert ended == [0, 121, 121, 121, 121, 121]
    assert len(running(done)) == 1


def test_a_job_arrives_and_runs_in_waves(tmp_path: Path) -> None:
    notes = {"stowplan.dev/arrival-seconds": "30"}
    done = run(replay_of(tmp_path, node("n1"), job(4, 2, 100, notes)))
    began = sorted((each.bound or 0) // SECOND for each in done.pod_histories.values())
    assert began[:2] == [30, 30]
    assert began[2] >= 131
    assert all(each.ended is not None for each in done.pod_histories.values())
    assert done.disrupted == 0


def test_pods_of_a_node_that_leaves_are_created_again_elsewhere(tmp_path: Path) -> None:
    churn = Churn(up_s=300, down_s=10_000)
    objects = (node("n1"), node("n2"), node("n3"), deployment(3))
    done = run(replay_of(tmp_path, *objects, churn=churn, until_s=600.0))
    assert done.node_churn is not None
    assert done.node_churn.count, "no node has left"
    assert len(done.pod_histories) > 3
    assert set(running(done)) <= set(done.cluster.nodes)


def test_a_lost_reply_binds_a_pod_once(tmp_path: Path) -> None:
    replay = replay_of(tmp_path, node("n1"), deployment(3))
    lost: list[str] = []

    def fault(effect: to_do.Effect) -> InjectedFault | None:
        if isinstance(effect, to_do.Bind) and effect.name not in lost:
            lost.append(effect.name)
            return InjectedFault(0, done=True)
        return None

    replay.instance.dispatcher.inject = fault
    run(replay)
    assert len(lost) == 3
    assert running(replay) == ["n1"] * 3


def test_the_same_seed_gives_the_same_histories(tmp_path: Path) -> None:
    def histories(seed: int) -> list[Any]:
        objects = (node("n1"), node("n2"), deployment(5), job(3, 1, 20))
        done = run(replay_of(tmp_path, *objects, seed=seed))
        return [
            (key, each.node, each.bound, each.started, each.ended)
            for key, each in done.pod_histories.items()
        ]

    assert histories(1) == histories(1)
    assert histories(1) != histories(2), "names of pods are random"


def test_stored_objects_keep_uid_and_status(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "old", "namespace": "default", "uid": "u-1", "resourceVersion": "7"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    }
    done = run(replay_of(tmp_path, node("n1"), pod, deployment(1)))
    assert done.cluster.pods["default/old"].uid == "u-1"
    assert done.pod_histories["default/old"].bound_at_start
    assert done.binds == 1


def test_a_trace_of_bare_pods_needs_no_controllers(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "annotations": {"stowplan.dev/run-seconds": "10"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    file = tmp_path / "pods.json"
    file.write_bytes(msgspec.json.encode({"kind": "List", "items": [node("n1"), pod]}))
    result = stowplan.simulate(file, replay=ReplayOptions())
    assert result.placements[0].pod == "default/one"
    assert result.placements[0].ended_s == pytest.approx(11.01)


@pytest.mark.parametrize(
    ("notes", "text"),
    [
        ({"stowplan.dev/arrival-seconds": "soon"}, "'soon'"),
        ({"stowplan.dev/replica-changes": "60:5"}, "SECONDS=REPLICAS"),
        ({"stowplan.dev/replica-changes": "-1=5"}, "seconds from 0"),
    ],
)
def test_unreadable_annotations_end_with_one_error(
    tmp_path: Path, notes: dict[str, str], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        replay_of(tmp_path, node("n1"), deployment(1, notes))


def test_a_pod_that_the_server_rejects_is_not_created(tmp_path: Path) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template()["spec"]}
        for name in ("one", "two")
    ]
    done = run(replay_of(tmp_path, node("n1"), quota, *pods, deployment(1)))
    (key, why), *others = done.not_created.items()
    assert (key, others) == ("default/two", [])
    assert why.startswith('pods "two" is forbidden: exceeded quota: small')
    assert list(done.cluster.pods) == ["default/one"], "the quota holds for the ReplicaSet too"


def test_a_cron_job_needs_an_end(tmp_path: Path) -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template()}}},
    }
    with pytest.raises(InputError, match="--until"):
        replay_of(tmp_path, node("n1"), cron)


def test_a_cron_job_runs_on_its_schedule_in_a_replay(tmp_path: Path) -> None:
    spec = job(1, 1, 20)["spec"]
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "often"},
        "spec": {"schedule": "*/10 * * * *", "jobTemplate": {"spec": spec}},
    }
    replay = replay_of(tmp_path, node("n1"), cron, until_s=3500)
    run(replay)
    bound = sorted(each.bound for each in replay.pod_histories.values())
    # Virtual time 0 is midnight; a start is made 100 ms after it is due.
    assert [round(at / SECOND) // 60 for at in bound] == [10, 20, 30, 40, 50]


def autoscaler() -> Tree:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 6,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def test_an_autoscaler_scales_a_deployment_in_a_replay(tmp_path: Path) -> None:
    # Pods request 1 CPU: a load of 2 at 50 % takes 4 of them.
    web = deployment(1, {"stowplan.dev/load-cpu": "2"})
    done = run(replay_of(tmp_path, node("n1"), web, autoscaler(), until_s=300))
    assert len(running(done)) == 4


def test_an_autoscaler_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--until"):
        replay_of(tmp_path, node("n1"), deployment(1), autoscaler())


def test_pods_without_a_controller_here_are_replayed_beside_a_workload(tmp_path: Path) -> None:
    task = {"name": "w", "replicas": 2, "template": template(restartPolicy="Never")}
    gang = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "gang"},
        "spec": {"minAvailable": 2, "schedulerName": "default-scheduler", "tasks": [task]},
    }
    done = run(replay_of(tmp_path, node("n1", "16"), deployment(3), gang))
    names = sorted(key.partition("/")[2].split("-")[0] for key in done.cluster.pods)
    assert names == ["gang", "gang", "web", "web", "web"]
    assert all(each.started is not None for each in done.pod_histories.values())


@pytest.mark.parametrize("kind", ["Deployment", "ReplicationController"])
def test_a_workload_without_a_selector_gets_one(tmp_path: Path, kind: str) -> None:
    bare = deployment(2)
    bare |= {"kind": kind, "apiVersion": "apps/v1" if kind == "Deployment" else "v1"}
    del bare["spec"]["selector"]
    assert len(running(run(replay_of(tmp_path, node("n1"), bare)))) == 2


def test_replica_changes_of_a_job_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"replica-changes.*ReplicaSet, .*StatefulSet"):
        replay_of(tmp_path, node("n1"), job(1, 1, 5, {"stowplan.dev/replica-changes": "5=3"}))


def test_a_pod_that_kubelets_cannot_run_is_noted_and_ends_the_replay(
    tmp_path: Path, faults: list[str]
) -> None:
    broken = deployment(1)
    del broken["spec"]["template"]["spec"]["containers"]
    done = run(replay_of(tmp_path, node("n1"), broken, deployment_of("good", 1)))
    assert running(done) == ["n1"]
    (note,) = done.failure_notes
    (bad,) = (key for key in done.cluster.pods if key.startswith("default/web"))
    assert note.startswith("1 object could not be processed by controllers; hollow-kubelets")
    assert {fault.partition(":")[0] for fault in faults} == {f"hollow-kubelets {bad}"}
    faults.clear()


def test_pods_of_a_replay_that_fail_are_grouped_by_their_owners(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    objects = [node("n1"), deployment(3, cpu="6")]
    file.write_bytes(msgspec.json.encode({"kind": "List", "items": objects}))
    result = stowplan.simulate(file, replay=ReplayOptions())
    (failure,) = result.failures
    assert (failure.namespace, failure.reason) == ("default", "Insufficient cpu")
    assert failure.owner == "deployment/web"
    assert len(failure.pods) == 2


# What a user reads of a replay.


SCALED = "stowplan.dev/replica-changes"


@pytest.mark.parametrize("change", ["60=100001", "5=2, 60=9999999999999999999"])
def test_too_many_replicas_are_an_error(tmp_path: Path, change: str) -> None:
    with pytest.raises(InputError, match="expected at most 100000 replicas"):
        replay_of(tmp_path, node("n1"), deployment(1, {SCALED: change}))


def simulated(folder: Path, *objects: Tree, explain: str = "", **options: Any) -> Any:
    file = folder / "objects.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))
    return stowplan.simulate(file, replay=ReplayOptions(**options), explain=explain)


def test_pods_deleted_before_they_are_bound_have_not_failed(tmp_path: Path) -> None:
    objects = node("n1", cpu="2"), deployment(5, {SCALED: "60=1"})
    run = simulated(tmp_path, *objects, until_s=300.0)
    assert (run.summary["pods"], run.summary["placed"], run.summary["deleted"]) == (2, 2, 3)
    assert run.summary["failed"] == {}
    assert run.failures == []
    assert "deleted before being bound, and not counted: 3 pods" in run.summary["notes"]
    # Before the change they are pending.
    run = simulated(tmp_path, *objects, until_s=30.0)
    assert (run.summary["pods"], run.summary["placed"], run.summary["deleted"]) == (5, 2, 0)


def test_a_workload_is_explained_by_its_pod_in_the_replay(tmp_path: Path) -> None:
    objects = node("n1", cpu="2"), deployment(3, {SCALED: "60=1"})
    run = simulated(tmp_path, *objects, explain="default/web-2", until_s=30.0)
    (pending,) = [one.pod for one in run.placements if not one.node]
    assert run.explanation.pod == pending
    run = simulated(tmp_path, *objects, explain="default/web-2", until_s=300.0)
    assert run.explanation is None
    assert "no pod of deployment/web is pending at the end: not explained" in run.summary["notes"]
