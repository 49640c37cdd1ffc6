"""StatefulSets: order, identity, claims, updates and revisions of their pods.

Sources: kubernetes.io/docs/tutorials/stateful-application/basic-stateful-set and
kubernetes.io/docs/concepts/workloads/controllers/statefulset, as sentences of the tests; texts and
hashes: kube-controller-manager v1.36, pkg/controller/statefulset.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.controllers.workloads.controller_revisions import revision_hash
from stowplan.controllers.workloads.stateful_set.pod_identity import parent_and_ordinal
from tests.apiserver.small_cluster import SmallCluster, Tree, container, pod, template

STATEFUL_SETS, REVISIONS = "apps/statefulsets", "apps/controllerrevisions"
CLAIMS = "persistentvolumeclaims"
NEVER_READY = {"stowplan.dev/ready-seconds": "1000000"}


def stateful_set(
    name: str, replicas: int, notes: dict[str, str] | None = None, **spec: Any
) -> Tree:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, notes),
            **spec,
        },
    }


def claim_template(name: str) -> Tree:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": spec}


def names(cluster: SmallCluster) -> list[str]:
    """Pods, sorted; `*`: ready, `-`: terminating."""
    found = []
    for each in cluster.pods():
        conditions = each["status"].get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        deleting = "deletionTimestamp" in each["metadata"]
        found.append(each["metadata"]["name"] + "*" * ready + "-" * deleting)
    return sorted(found)


def images(cluster: SmallCluster) -> list[str]:
    """Image tags of the pods, by name."""
    pods = sorted(cluster.pods(), key=lambda each: each["metadata"]["name"])
    return [each["spec"]["containers"][0]["image"].partition(":")[2] for each in pods]


def timeline(cluster: SmallCluster, seconds: float) -> list[str]:
    """The pods at each moment at which they change."""
    seen: list[str] = []

    def note(cluster: SmallCluster) -> None:
        line = " ".join(names(cluster))
        if not seen or seen[-1] != line:
            seen.append(line)

    cluster.run(seconds, note)
    return seen


def set_image(
    cluster: SmallCluster, name: str, tag: str, notes: dict[str, str] | None = None
) -> None:
    spec = template(name, notes, containers=[container(image=f"app:{tag}")])
    cluster.change(STATEFUL_SETS, name, template=spec)


def status(cluster: SmallCluster, name: str = "web") -> Tree:
    found: Tree = cluster.the(STATEFUL_SETS, name)["status"]
    return found


def events(cluster: SmallCluster, name: str = "web") -> list[tuple[str, str]]:
    found = [e for e in cluster.list("events") if e["involvedObject"]["name"] == name]
    return [(each["reason"], each["message"]) for each in found]


def test_pods_are_created_in_order_and_each_waits_for_the_one_before() -> None:
    """ "Pods are created sequentially, in order from {0..N-1}"."""
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 3))
    assert timeline(cluster, 10) == [
        "web-0",
        "web-0* web-1",
        "web-0* web-1* web-2",
        "web-0* web-1* web-2*",
    ]


def test_parallel_pod_management_creates_all_at_once() -> None:
    """ "Parallel pod management tells the StatefulSet controller to launch or terminate all Pods in
    parallel"."""
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/stop-seconds": "2"}
    cluster.create(STATEFUL_SETS, stateful_set("web", 3, notes, podManagementPolicy="Parallel"))
    assert timeline(cluster, 5) == ["web-0 web-1 web-2", "web-0* web-1* web-2*"]
    cluster.change(STATEFUL_SETS, "web", replicas=0)
    assert timeline(cluster, 60)[0] == "web-0*- web-1*- web-2*-"
    assert names(cluster) == []


def test_many_parallel_pods_are_created_in_several_syncs() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    cluster.create(STATEFUL_SETS, stateful_set("web", 230, podManagementPolicy="Parallel"))
    parts = cluster.cluster.controller_manager.parts
    controller = next(part for part in parts if part.name == "statefulset")
    assert controller.work_once()
    assert len(cluster.pods()) == 100
    cluster.settle()
    assert len(cluster.pods()) == 230


def test_pods_are_scaled_down_from_the_highest_ordinal_one_at_a_time() -> None:
    """ "When Pods are being deleted, they are terminated in reverse order, from {N-1..0}"."""
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/stop-seconds": "2"}
    cluster.create(STATEFUL_SETS, stateful_set("web", 3, notes))
    cluster.run(10)
    cluster.change(STATEFUL_SETS, "web", replicas=1)
    assert timeline(cluster, 20) == [
        "web-0* web-1* web-2*-",
        "web-0* web-1*-",
        "web-0*",
    ]
    assert status(cluster)["replicas"] == 1
    deleted = [e for e in cluster.list("events") if e["reason"] == "SuccessfulDelete"]
    assert [each["count"] for each in deleted] == [1, 1], "a terminating pod is left alone"


def test_an_unready_pod_stops_scaling_in_both_directions() -> None:
    """ "Before a scaling operation is applied to a Pod, all of its predecessors must be Running and
    Ready"."""
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 2, NEVER_READY))
    cluster.run(10)
    assert names(cluster) == ["web-0"]
    cluster.change(STATEFUL_SETS, "web", replicas=0)
    cluster.run(60)
    assert names(cluster) == [], "the first unready pod may be deleted itself"


def set_ready(cluster: SmallCluster, name: str, ready: bool) -> None:
    """Report a pod as its kubelet would; for clusters without kubelets."""
    found = cluster.the("pods", name)
    found["status"]["phase"] = "Running"
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    found["status"]["conditions"] = [condition]
    cluster.api.update_status("pods", found)
    cluster.settle()


def test_an_unready_pod_is_not_deleted_before_one_below_it() -> None:
    cluster = SmallCluster(1, simulates_nodes=False, schedules=False)
    cluster.create(STATEFUL_SETS, stateful_set("web", 3))
    cluster.settle()
    for name in ("web-0", "web-1", "web-2"):
        set_ready(cluster, name, True)
    for name in ("web-1", "web-2"):
        set_ready(cluster, name, False)
    cluster.change(STATEFUL_SETS, "web", replicas=1)
    cluster.settle()
    assert names(cluster) == ["web-0*", "web-1", "web-2"]
    set_ready(cluster, "web-2", True)
    assert names(cluster) == ["web-0*"], "then web-1 is the first unready pod itself"


def test_parallel_pods_are_updated_one_at_a_time() -> None:
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/stop-seconds": "2"}
    cluster.create(STATEFUL_SETS, stateful_set("web", 2, notes, podManagementPolicy="Parallel"))
    cluster.run(10)
    set_image(cluster, "web", "2", notes)
    assert timeline(cluster, 60) == [
        "web-0* web-1*-",
        "web-0* web-1",
        "web-0*- web-1*",
        "web-0 web-1*",
        "web-0* web-1*",
    ]


def test_ordinals_begin_at_the_start() -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 2, ordinals={"start": 5}))
    cluster.run(10)
    assert names(cluster) == ["web-5*", "web-6*"]
    cluster.change(STATEFUL_SETS, "web", ordinals={"start": 6})
    cluster.run(60)
    assert names(cluster) == ["web-6*", "web-7*"]


def test_pods_have_a_stable_identity() -> None:
    """ "Pod identity: an ordinal, a stable network identity, and stable storage"."""
    cluster = SmallCluster(3)
    made = stateful_set("web", 1, volumeClaimTemplates=[claim_template("www")])
    volumes = [{"name": "www", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    made["spec"]["template"]["spec"]["volumes"] = volumes
    cluster.create(STATEFUL_SETS, made)
    cluster.settle()
    found = cluster.the("pods", "web-0")
    labels = found["metadata"]["labels"]
    revision = cluster.list(REVISIONS)[0]
    assert labels["statefulset.kubernetes.io/pod-name"] == "web-0"
    assert labels["apps.kubernetes.io/pod-index"] == "0"
    assert labels["controller-revision-hash"] == revision["metadata"]["name"]
    assert (found["spec"]["hostname"], found["spec"]["subdomain"]) == ("web-0", "web")
    # A claim replaces the template's volume of its name.
    assert found["spec"]["volumes"] == [
        {"name": "www", "persistentVolumeClaim": {"claimName": "www-web-0"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    assert cluster.the(CLAIMS, "www-web-0")["metadata"]["labels"] == {"app": "web"}
    assert events(cluster) == [
        ("SuccessfulCreate", "Create Claim www-web-0 Pod web-0 in StatefulSet web success"),
        ("SuccessfulCreate", "Create Pod web-0 in StatefulSet web successful"),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-0", ("web", 0)),
        ("web-a-12", ("web-a", 12)),
        ("web", ("", -1)),
        ("web-", ("", -1)),
        ("web-1a", ("", -1)),
        ("web-2147483647", ("web", 2147483647)),
        ("web-2147483648", ("web", -1)),
    ],
)
def test_ordinals_are_parsed_from_names(name: str, expected: tuple[str, int]) -> None:
    assert parent_and_ordinal(name) == expected


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_finished_pod_is_created_again(phase: str) -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 2))
    cluster.run(10)
    before = cluster.the("pods", "web-0")
    before["status"]["phase"] = phase
    cluster.api.update_status("pods", before)
    cluster.run(60)
    after = cluster.the("pods", "web-0")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert names(cluster) == ["web-0*", "web-1*"]
    assert ("SuccessfulDelete", "Delete Pod web-0 in StatefulSet web successful") in events(cluster)


def test_a_rolling_update_replaces_pods_from_the_highest_ordinal() -> None:
    """ "The StatefulSet controller will delete and recreate each Pod [...] in the same order as Pod
    termination (from the largest ordinal to the smallest), updating each Pod one at a time. It will
    wait until an updated Pod is Running and Ready prior to updating its predecessor"."""
    cluster = SmallCluster(3)
    notes = {"stowplan.dev/stop-seconds": "2"}
    cluster.create(STATEFUL_SETS, stateful_set("web", 3, notes))
    cluster.run(10)
    set_image(cluster, "web", "2", notes)
    assert timeline(cluster, 60) == [
        "web-0* web-1* web-2*-",
        "web-0* web-1* web-2",
        "web-0* web-1*- web-2*",
        "web-0* web-1 web-2*",
        "web-0*- web-1* web-2*",
        "web-0 web-1* web-2*",
        "web-0* web-1* web-2*",
    ]
    assert images(cluster) == ["2", "2", "2"]
    found = status(cluster)
    assert found["currentRevision"] == found["updateRevision"]
    assert found["currentReplicas"] == found["updatedReplicas"] == 3


def test_max_unavailable_has_no_effect_while_its_feature_gate_is_off() -> None:
    """Feature gate MaxUnavailableStatefulSet: beta and off in v1.36."""
    cluster = SmallCluster(3)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
    notes = {"stowplan.dev/stop-seconds": "2"}
    cluster.create(STATEFUL_SETS, stateful_set("web", 3, notes, updateStrategy=strategy))
    cluster.run(10)
    set_image(cluster, "web", "2", notes)
    assert timeline(cluster, 1)[-1] == "web-0* web-1* web-2*-"


def test_a_partition_updates_only_the_ordinals_from_it_on() -> None:
    """ "All Pods with an ordinal that is greater than or equal to the partition will be updated";
    the others "are not updated, and, even if they are deleted, they will be recreated at the
    previous version"."""
    cluster = SmallCluster(3)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    cluster.create(STATEFUL_SETS, stateful_set("web", 3, updateStrategy=strategy))
    cluster.run(10)
    set_image(cluster, "web", "2")
    cluster.run(60)
    assert images(cluster) == ["1", "1", "2"]
    found = status(cluster)
    assert (found["currentReplicas"], found["updatedReplicas"]) == (2, 1)
    assert found["currentRevision"] != found["updateRevision"]
    cluster.delete("pods", "web-0")
    cluster.run(60)
    assert images(cluster) == ["1", "1", "2"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    cluster.change(STATEFUL_SETS, "web", updateStrategy=rolling)
    cluster.run(60)
    assert images(cluster) == ["2", "2", "2"]


def test_on_delete_updates_a_pod_when_it_is_deleted() -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 2, updateStrategy={"type": "OnDelete"}))
    cluster.run(10)
    set_image(cluster, "web", "2")
    cluster.run(30)
    assert images(cluster) == ["1", "1"]
    cluster.delete("pods", "web-1")
    cluster.run(60)
    assert images(cluster) == ["1", "2"]


def test_a_broken_update_waits_until_its_pod_is_deleted() -> None:
    """Forced rollback: "the controller waits for the broken Pod to become Ready (which never
    happens) before it will attempt to revert it back to the working configuration. After reverting
    the template, you must also delete any Pods that StatefulSet had already attempted to run with
    the bad configuration"."""
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 2))
    cluster.run(10)
    set_image(cluster, "web", "bad", NEVER_READY)
    cluster.run(60)
    assert (names(cluster), images(cluster)) == (["web-0*", "web-1"], ["1", "bad"])
    set_image(cluster, "web", "1")
    cluster.run(60)
    assert images(cluster) == ["1", "bad"]
    cluster.delete("pods", "web-1")
    cluster.run(60)
    assert (names(cluster), images(cluster)) == (["web-0*", "web-1*"], ["1", "1"])


def test_pods_are_available_after_min_ready_seconds() -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 2, minReadySeconds=20))
    cluster.run(10)
    assert names(cluster) == ["web-0*"]
    assert (status(cluster)["readyReplicas"], status(cluster)["availableReplicas"]) == (1, 0)
    cluster.run(15)
    assert names(cluster) == ["web-0*", "web-1*"]
    assert status(cluster)["availableReplicas"] == 1
    cluster.run(30)
    assert status(cluster)["availableReplicas"] == 2


def test_old_revisions_are_deleted_beyond_the_limit() -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 1, revisionHistoryLimit=2))
    for tag in range(1, 7):
        set_image(cluster, "web", str(tag))
        cluster.run(60)
    numbers = sorted(each["revision"] for each in cluster.list(REVISIONS))
    assert numbers == [4, 5, 6], "two of history, and that in use"


def test_a_revision_that_a_pod_has_is_kept() -> None:
    cluster = SmallCluster(3)
    strategy = {"type": "OnDelete"}
    made = stateful_set("web", 2, revisionHistoryLimit=0, updateStrategy=strategy)
    cluster.create(STATEFUL_SETS, made)
    for tag in ("2", "3", "4"):
        cluster.run(60)
        set_image(cluster, "web", tag)
        if tag == "2":
            cluster.delete("pods", "web-1")
    cluster.run(60)
    assert images(cluster) == ["1", "2"]
    assert sorted(each["revision"] for each in cluster.list(REVISIONS)) == [1, 2, 4]


def test_a_rollback_gives_the_old_revision_a_new_number() -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 1))
    cluster.run(10)
    first = status(cluster)["currentRevision"]
    set_image(cluster, "web", "2")
    cluster.run(60)
    set_image(cluster, "web", "1")
    cluster.run(60)
    assert status(cluster)["currentRevision"] == first
    found = {each["metadata"]["name"]: each["revision"] for each in cluster.list(REVISIONS)}
    assert found[first] == 3
    assert len(found) == 2


def test_a_revision_that_another_template_has_named_is_counted_as_a_collision() -> None:
    cluster = SmallCluster(3)
    cluster.create(STATEFUL_SETS, stateful_set("web", 0))
    cluster.settle()
    name = status(cluster)["updateRevision"]
    cluster.delete(STATEFUL_SETS, "web", propagation="Background")
    cluster.run(10)
    assert cluster.list(REVISIONS) == []
    other = {"metadata": {"name": name}, "data": {"spec": {}}, "revision": 1}
    cluster.create(REVISIONS, other)
    cluster.create(STATEFUL_SETS, stateful_set("web", 0))
    cluster.settle()
    assert status(cluster)["collisionCount"] == 1
    assert status(cluster)["updateRevision"] != name


def test_the_hash_of_a_revision_is_that_of_the_original() -> None:
    """testdata/compatibility_revision_1.34.0.json of the original: test-776999688b."""
    one = {
        "image": "test",
        "imagePullPolicy": "Always",
        "name": "test",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {
        "containers": [one],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    meta = {"annotations": {"test": "value"}, "labels": {"app": "foo"}}
    data = {"spec": {"template": {"$patch": "replace", "metadata": meta, "spec": spec}}}
    assert revision_hash(data, 0) == "776999688b"
    assert revision_hash(data, 1) != "776999688b"


def test_matching_orphans_of_the_name_are_adopted_and_others_left() -> None:
    cluster = SmallCluster(3)
    for name in ("web-0", "other"):
        made = pod(name)
        made["metadata"]["labels"] = {"app": "web"}
        cluster.create("pods", made)
    cluster.create(STATEFUL_SETS, stateful_set("web", 1, updateStrategy={"type": "OnDelete"}))
    cluster.run(30)
    adopted = cluster.the("pods", "web-0")["metadata"]
    assert adopted["ownerReferences"][0]["kind"] == "StatefulSet"
    assert adopted["labels"]["statefulset.kubernetes.io/pod-name"] == "web-0"
    assert ("SuccessfulUpdate", "Update Pod web-0 in StatefulSet web successful") in events(cluster)
    assert "ownerReferences" not in cluster.the("pods", "other")["metadata"]


def test_a_pod_of_the_name_that_does_not_match_is_in_the_way() -> None:
    cluster = SmallCluster(3)
    cluster.create("pods", pod("web-0"))
    cluster.create(STATEFUL_SETS, stateful_set("web", 1))
    cluster.run(30)
    assert status(cluster)["replicas"] == 0
    cluster.delete("pods", "web-0")
    cluster.run(30)
    assert status(cluster)["readyReplicas"] == 1


def test_a_creation_that_is_refused_is_reported_and_tried_again() -> None:
    cluster = SmallCluster(1)
    made = stateful_set("web", 1)
    made["spec"]["template"]["spec"]["priorityClassName"] = "nosuch"
    cluster.create(STATEFUL_SETS, made)
    cluster.settle()
    reason, message = events(cluster)[0]
    assert reason == "FailedCreate"
    assert message.startswith("Create Pod web-0 in StatefulSet web failed error: ")
    meta = {"metadata": {"name": "nosuch"}, "value": 5}
    cluster.create("scheduling.k8s.io/priorityclasses", meta)
    cluster.run(60)
    assert status(cluster)["readyReplicas"] == 1


@pytest.mark.parametrize(
    ("deleted", "scaled", "after_scaling", "after_deletion"),
    [
        ("Retain", "Retain", ["0", "1"], ["0", "1"]),
        ("Retain", "Delete", ["0"], ["0"]),
        ("Delete", "Retain", ["0", "1"], []),
        ("Delete", "Delete", ["0"], []),
    ],
)
def test_claims_are_kept_or_deleted_by_the_retention_policy(
    deleted: str, scaled: str, after_scaling: list[str], after_deletion: list[str]
) -> None:
    """Table of the documentation, "PersistentVolumeClaim retention"."""
    cluster = SmallCluster(3)
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    templates = [claim_template("www")]
    cluster.create(
        STATEFUL_SETS,
        stateful_set(
            "web",
            2,
            volumeClaimTemplates=templates,
            persistentVolumeClaimRetentionPolicy=policy,
        ),
    )
    cluster.run(10)

    def left() -> list[str]:
        return [each["metadata"]["name"].rpartition("-")[2] for each in cluster.list(CLAIMS)]

    assert left() == ["0", "1"]
    cluster.change(STATEFUL_SETS, "web", replicas=1)
    cluster.run(60)
    assert left() == after_scaling
    cluster.delete(STATEFUL_SETS, "web", propagation="Background")
    cluster.run(60)
    assert left() == after_deletion


def test_a_claim_that_goes_with_a_former_pod_is_waited_for() -> None:
    """Scaled down and up at once: the new pod gets a new claim."""
    cluster = SmallCluster(3)
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    made = stateful_set(
        "web",
        2,
        {"stowplan.dev/stop-seconds": "5"},
        volumeClaimTemplates=[claim_template("www")],
        persistentVolumeClaimRetentionPolicy=policy,
    )
    cluster.create(STATEFUL_SETS, made)
    cluster.run(10)
    before = cluster.the(CLAIMS, "www-web-1")["metadata"]["uid"]
    cluster.change(STATEFUL_SETS, "web", replicas=1)
    cluster.settle()
    owners = cluster.the(CLAIMS, "www-web-1")["metadata"]["ownerReferences"]
    assert [each["kind"] for each in owners] == ["Pod"]
    cluster.change(STATEFUL_SETS, "web", replicas=2)
    cluster.run(120)
    assert names(cluster) == ["web-0*", "web-1*"]
    assert cluster.the(CLAIMS, "www-web-1")["metadata"]["uid"] != before
