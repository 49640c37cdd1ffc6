"""Deployments in virtual time: rollout, rollback, pause and status as recorded."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.controller_runtime.object_fields import find_condition
from tests.apiserver.small_cluster import (
    DEPLOYMENTS,
    SETS,
    SmallCluster,
    Tree,
    container,
    deployment,
    template,
)

REVISION = "deployment.kubernetes.io/revision"


def deployed(replicas: int = 3, **spec: Any) -> SmallCluster:
    made = SmallCluster(3)
    made.create(DEPLOYMENTS, deployment("web", replicas, **spec))
    made.run(5)
    return made


def update(of: SmallCluster, image: str, notes: dict[str, str] | None = None) -> None:
    of.change(
        DEPLOYMENTS, "web", template=template("web", notes, containers=[container(image=image)])
    )


def note(of: SmallCluster, type_: str) -> tuple[str, str]:
    found = find_condition(of.the(DEPLOYMENTS, "web")["status"]["conditions"], type_)
    return (found["status"], found["reason"]) if found else ("", "")


def images(of: SmallCluster) -> list[str]:
    pods = [pod for pod in of.pods() if not pod["metadata"].get("deletionTimestamp")]
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)


def sets(of: SmallCluster) -> dict[str, Tree]:
    return {each["metadata"]["annotations"][REVISION]: each for each in of.list(SETS)}


def events(of: SmallCluster) -> list[str]:
    found = [e for e in of.list("events") if e["reason"] == "ScalingReplicaSet"]
    return [event["message"] for event in found]


def test_a_new_deployment_becomes_available() -> None:
    made = deployed()
    status = made.the(DEPLOYMENTS, "web")["status"]
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    assert [status[name] for name in counts] == [3, 3, 3, 3]
    assert status["observedGeneration"] == 1
    assert note(made, "Available") == ("True", "MinimumReplicasAvailable")
    assert note(made, "Progressing") == ("True", "NewReplicaSetAvailable")
    assert made.the(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "1"


def test_a_replica_set_gets_its_revision_and_size_annotations_as_recorded() -> None:
    found = sets(deployed())["1"]
    name = found["metadata"]["name"]
    assert found["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
        "deployment.kubernetes.io/revision": "1",
    }
    hash_ = found["metadata"]["labels"]["pod-template-hash"]
    assert name == f"web-{hash_}"
    assert found["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hash_}
    assert found["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] == hash_


def test_an_update_rolls_within_its_bounds() -> None:
    made = deployed(4)
    update(made, "app:2")
    seen: list[tuple[int, int]] = []

    def watch(of: SmallCluster) -> None:
        pods = [pod for pod in of.pods() if not pod["metadata"].get("deletionTimestamp")]
        ready = [
            p
            for p in pods
            if (find_condition(p["status"].get("conditions", ()), "Ready") or {}).get("status")
            == "True"
        ]
        seen.append((len(pods), len(ready)))

    made.run(60, watch)
    assert images(made) == ["app:2"] * 4
    assert max(total for total, _ in seen) == 5
    assert min(ready for _, ready in seen) == 3
    assert note(made, "Progressing") == ("True", "NewReplicaSetAvailable")
    assert {name: each["spec"]["replicas"] for name, each in sets(made).items()} == {"1": 0, "2": 4}


def test_a_rollback_renumbers_the_old_replica_set() -> None:
    made = deployed(2)
    update(made, "app:2")
    made.run(60)
    update(made, "app:1")
    made.run(60)
    found = sets(made)
    assert sorted(found) == ["2", "3"]
    assert found["3"]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
    assert made.the(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "3"
    assert images(made) == ["app:1"] * 2


def test_scaling_does_not_start_a_rollout() -> None:
    made = deployed(3)
    made.change(DEPLOYMENTS, "web", replicas=5)
    made.run(5)
    assert len(made.pods()) == 5
    assert len(sets(made)) == 1
    annotations = sets(made)["1"]["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/desired-replicas"] == "5"
    assert annotations["deployment.kubernetes.io/max-replicas"] == "7"
    made.change(DEPLOYMENTS, "web", replicas=0)
    made.run(60)
    assert made.pods() == []
    assert [text.split(" set ")[0] for text in events(made)].count("Scaled down replica") == 1


def test_recreate_ends_all_old_pods_before_it_makes_new_ones() -> None:
    made = deployed(3, strategy={"type": "Recreate"})
    slow = {"stowplan.dev/stop-seconds": "5"}
    update(made, "app:1", slow)
    made.run(60)
    update(made, "app:2", slow)
    mixed = []

    def watch(of: SmallCluster) -> None:
        found = {pod["spec"]["containers"][0]["image"] for pod in of.pods()}
        mixed.append(len(found) > 1)

    made.run(60, watch)
    assert images(made) == ["app:2"] * 3
    assert not any(mixed)


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    made = deployed(2)
    made.change(DEPLOYMENTS, "web", paused=True)
    made.settle()
    assert note(made, "Progressing") == ("Unknown", "DeploymentPaused")
    update(made, "app:2")
    made.change(DEPLOYMENTS, "web", replicas=3)
    made.run(20)
    assert images(made) == ["app:1"] * 3
    made.change(DEPLOYMENTS, "web", paused=False)
    made.run(60)
    assert images(made) == ["app:2"] * 3


def test_a_stalled_rollout_is_reported() -> None:
    made = deployed(2, progressDeadlineSeconds=30)
    update(made, "app:2", {"stowplan.dev/ready-seconds": "forever"})
    made.run(25)
    assert note(made, "Progressing") == ("True", "ReplicaSetUpdated")
    made.run(20)
    assert note(made, "Progressing") == ("False", "ProgressDeadlineExceeded")
    update(made, "app:1")
    made.run(30)
    assert note(made, "Progressing") == ("True", "NewReplicaSetAvailable")


def test_min_ready_seconds_delay_availability() -> None:
    made = deployed(2, minReadySeconds=20)
    status = made.the(DEPLOYMENTS, "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (2, 0)
    assert note(made, "Available") == ("False", "MinimumReplicasUnavailable")
    made.run(30)
    assert note(made, "Available") == ("True", "MinimumReplicasAvailable")


def test_revision_history_limit() -> None:
    made = deployed(1, revisionHistoryLimit=2)
    for version in range(2, 6):
        update(made, f"app:{version}")
        made.run(60)
    assert sorted(sets(made)) == ["3", "4", "5"]


def test_scaling_in_mid_rollout_keeps_both_sets_going() -> None:
    made = deployed(8)
    update(made, "app:2", {"stowplan.dev/ready-seconds": "forever"})
    made.run(20)
    before = {name: each["spec"]["replicas"] for name, each in sets(made).items()}
    made.change(DEPLOYMENTS, "web", replicas=16)
    made.run(20)
    after = {name: each["spec"]["replicas"] for name, each in sets(made).items()}
    assert before == {"1": 6, "2": 4}
    assert after == {"1": 12, "2": 8}


@pytest.mark.parametrize("labels", [{"app": "web", "x": "y"}])
def test_a_matching_orphan_replica_set_is_adopted(labels: dict[str, str]) -> None:
    made = SmallCluster(2)
    lone = template("web")
    lone["metadata"]["labels"] = labels
    made.create(
        SETS,
        {
            "metadata": {"name": "lone", "labels": labels},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": lone},
        },
    )
    made.run(5)
    made.create(DEPLOYMENTS, deployment("web", 2))
    made.run(60)
    lone_set = made.the(SETS, "lone")
    assert lone_set["metadata"]["ownerReferences"][0]["name"] == "web"
    assert lone_set["spec"]["replicas"] == 0
    assert len(made.pods()) == 2
