"""DaemonSets: which nodes have a pod, how pods are replaced, failed pods, revisions, status.

Sources: kubernetes.io/docs/concepts/workloads/controllers/daemonset and
kubernetes.io/docs/tasks/manage-daemon/update-daemon-set, as sentences of the tests; texts and
rules: kube-controller-manager v1.36, pkg/controller/daemon.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stowplan.controllers.workloads.daemon_set.daemon_pod_sync import (
    DaemonSetView,
    NodePlacement,
    excess_pods,
    rolling_update,
)
from stowplan.controllers.workloads.daemon_set.failed_pod_backoff import FailedPodBackoff
from tests.apiserver.small_cluster import SmallCluster, Tree, container, pod, template
from tests.controllers.test_replicasets import facts

DAEMON_SETS, REVISIONS = "apps/daemonsets", "apps/controllerrevisions"
SLOW = {"stowplan.dev/stop-seconds": "2"}


def daemon_set(name: str, notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    selector = {"matchLabels": {"app": name}}
    return {
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template(name, notes), **spec},
    }


def rolling(**limits: int | str) -> Tree:
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def pods(cluster: SmallCluster) -> list[str]:
    """Node and image tag of each pod, sorted; `*`: ready, `-`: terminating."""
    found = []
    for each in cluster.pods():
        conditions = each["status"].get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        deleting = "deletionTimestamp" in each["metadata"]
        node = each["spec"].get("nodeName", "").rpartition("-")[2]
        tag = each["spec"]["containers"][0]["image"].partition(":")[2]
        found.append(f"{node}:{tag}" + "*" * ready + "-" * deleting)
    return sorted(found)


def timeline(cluster: SmallCluster, seconds: float) -> list[str]:
    """The pods at each moment at which they change."""
    seen: list[str] = []

    def note(cluster: SmallCluster) -> None:
        line = " ".join(pods(cluster))
        if not seen or seen[-1] != line:
            seen.append(line)

    cluster.run(seconds, note)
    return seen


def set_image(cluster: SmallCluster, tag: str, notes: dict[str, str] | None = None) -> None:
    spec = template("log", notes, containers=[container(image=f"app:{tag}")])
    cluster.change(DAEMON_SETS, "log", template=spec)


def status(cluster: SmallCluster) -> Tree:
    found: Tree = cluster.the(DAEMON_SETS, "log")["status"]
    return found


def events(cluster: SmallCluster) -> list[tuple[str, str]]:
    found = [e for e in cluster.list("events") if e["involvedObject"]["name"] == "log"]
    return [(each["reason"], each["message"]) for each in found]


def set_taints(cluster: SmallCluster, node: str, *taints: tuple[str, str]) -> None:
    spec = [{"key": key, "effect": effect} for key, effect in taints]
    cluster.change("nodes", node, "", taints=spec)


def test_every_node_gets_one_pod_through_the_scheduler() -> None:
    """ "The DaemonSet controller creates a Pod for each eligible node and adds the
    spec.affinity.nodeAffinity field of the Pod to match the target host"."""
    cluster = SmallCluster(3)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    assert timeline(cluster, 5) == ["1:1 2:1 3:1", "1:1* 2:1* 3:1*"]
    made = cluster.pods()[0]
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {"key": "metadata.name", "operator": "In", "values": [made["spec"]["nodeName"]]}
    assert terms == [{"matchFields": [wanted]}]
    labels = made["metadata"]["labels"]
    revision = cluster.list(REVISIONS)[0]
    hash_ = revision["metadata"]["labels"]["controller-revision-hash"]
    assert labels["controller-revision-hash"] == hash_
    assert labels["pod-template-generation"] == "1"
    assert revision["metadata"]["name"] == f"log-{hash_}"
    names = [each["metadata"]["name"] for each in cluster.pods()]
    created = [text for reason, text in events(cluster) if reason == "SuccessfulCreate"]
    assert sorted(created) == [f"Created pod: {name}" for name in sorted(names)]
    assert status(cluster) == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberReady": 3,
        "numberAvailable": 3,
        "updatedNumberScheduled": 3,
        "numberMisscheduled": 0,
        "observedGeneration": 1,
    }


def test_pods_tolerate_the_conditions_of_their_node_for_ever() -> None:
    """Table "Tolerations for DaemonSet pods"."""
    cluster = SmallCluster(1)
    made = daemon_set("log")
    own = [
        {"key": "gpu", "operator": "Exists"},
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 30,
        },
    ]
    made["spec"]["template"]["spec"] |= {"tolerations": own, "hostNetwork": True}
    cluster.create(DAEMON_SETS, made)
    cluster.settle()
    found = cluster.pods()[0]["spec"]["tolerations"]
    assert [(each["key"].rpartition("/")[2], each.get("effect", "")) for each in found] == [
        ("gpu", ""),
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ]
    assert not any("tolerationSeconds" in each for each in found)


@pytest.mark.parametrize(
    ("taint", "kept", "desired", "misscheduled"),
    [
        (("a", "NoSchedule"), True, 1, 1),
        (("a", "NoExecute"), False, 1, 0),
        (("a", "PreferNoSchedule"), True, 2, 0),
        (("node.kubernetes.io/unschedulable", "NoSchedule"), True, 2, 0),
        (("node.kubernetes.io/not-ready", "NoExecute"), True, 2, 0),
    ],
)
def test_taints_decide_where_pods_run(
    taint: tuple[str, str], kept: bool, desired: int, misscheduled: int
) -> None:
    cluster = SmallCluster(2)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    set_taints(cluster, "node-1", taint)
    cluster.run(3)
    # As in the original, a node that only stops to take new pods does not cause a sync by itself.
    cluster.change(DAEMON_SETS, "log", revisionHistoryLimit=9)
    cluster.run(3)
    assert ("1:1*" in pods(cluster)) == kept
    found = status(cluster)
    assert found["desiredNumberScheduled"] == desired
    assert found["numberMisscheduled"] == misscheduled
    set_taints(cluster, "node-1")
    cluster.run(60)
    assert pods(cluster) == ["1:1*", "2:1*"]
    assert status(cluster)["numberMisscheduled"] == 0


def test_labels_of_nodes_decide_where_pods_run() -> None:
    """ "If node labels are changed, the DaemonSet will promptly add Pods to newly matching nodes
    and delete Pods from newly not-matching nodes"."""
    cluster = SmallCluster(2)
    made = daemon_set("log")
    made["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    cluster.create(DAEMON_SETS, made)
    cluster.run(5)
    assert pods(cluster) == []
    for name, value, expected in (("node-1", "ssd", ["1:1*"]), ("node-1", "hdd", [])):
        node = cluster.the("nodes", name, "")
        node["metadata"].setdefault("labels", {})["disk"] = value
        cluster.api.update("nodes", node)
        cluster.run(60)
        assert pods(cluster) == expected


def test_nodes_come_and_go() -> None:
    """ "As nodes are added to the cluster, Pods are added to them. As nodes are removed from the
    cluster, those Pods are garbage collected"."""
    cluster = SmallCluster(2)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    removed = cluster.the("nodes", "node-2", "")
    cluster.delete("nodes", "node-2")
    cluster.run(300)
    assert pods(cluster) == ["1:1*"]
    assert status(cluster)["desiredNumberScheduled"] == 1
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        removed["metadata"].pop(name)
    cluster.create("nodes", removed)
    cluster.run(60)
    assert pods(cluster) == ["1:1*", "2:1*"]


def test_an_unbound_pod_of_a_deleted_node_is_deleted() -> None:
    cluster = SmallCluster(2, schedules=False)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.settle()
    assert len(cluster.pods()) == 2
    cluster.delete("nodes", "node-2")
    cluster.settle()
    assert len(cluster.pods()) == 1


def test_a_rolling_update_replaces_the_pod_of_one_node_at_a_time() -> None:
    """ "After you update a DaemonSet template, old DaemonSet pods will be killed, and new DaemonSet
    pods will be created automatically, in a controlled fashion. At most one pod of the DaemonSet
    will be running on each node during the whole update process"; maxUnavailable is 1."""
    cluster = SmallCluster(2)
    cluster.create(DAEMON_SETS, daemon_set("log", SLOW))
    cluster.run(5)
    set_image(cluster, "2", SLOW)
    assert timeline(cluster, 60) == [
        "1:1*- 2:1*",
        "1:2 2:1*",
        "1:2* 2:1*-",
        "1:2* 2:2",
        "1:2* 2:2*",
    ]
    found = status(cluster)
    assert (found["updatedNumberScheduled"], found["observedGeneration"]) == (2, 2)


def test_max_surge_creates_the_new_pod_beside_the_old_one() -> None:
    cluster = SmallCluster(2)
    strategy = rolling(maxSurge=1, maxUnavailable=0)
    cluster.create(DAEMON_SETS, daemon_set("log", SLOW, updateStrategy=strategy))
    cluster.run(5)
    set_image(cluster, "2", SLOW)
    assert timeline(cluster, 60) == [
        "1:1* 1:2 2:1*",
        "1:1*- 1:2* 2:1* 2:2",
        "1:1*- 1:2* 2:1*- 2:2*",
        "1:2* 2:1*- 2:2*",
        "1:2* 2:2*",
    ]


def test_on_delete_updates_a_pod_when_it_is_deleted() -> None:
    cluster = SmallCluster(2)
    cluster.create(DAEMON_SETS, daemon_set("log", updateStrategy={"type": "OnDelete"}))
    cluster.run(5)
    set_image(cluster, "2")
    cluster.run(30)
    assert pods(cluster) == ["1:1*", "2:1*"]
    assert status(cluster).get("updatedNumberScheduled", 0) == 0
    first = next(p for p in cluster.pods() if p["spec"]["nodeName"] == "node-1")
    cluster.delete("pods", first["metadata"]["name"])
    cluster.run(60)
    assert pods(cluster) == ["1:2*", "2:1*"]


def test_min_ready_seconds_delay_the_next_node() -> None:
    cluster = SmallCluster(2)
    cluster.create(DAEMON_SETS, daemon_set("log", minReadySeconds=30))
    cluster.run(10)
    assert (status(cluster)["numberReady"], status(cluster).get("numberAvailable", 0)) == (2, 0)
    cluster.run(30)
    assert status(cluster)["numberAvailable"] == 2
    set_image(cluster, "2")
    cluster.run(20)
    assert pods(cluster) == ["1:2*", "2:1*"]
    cluster.run(60)
    assert pods(cluster) == ["1:2*", "2:2*"]


def test_failed_pods_are_replaced_with_a_growing_delay() -> None:
    cluster = SmallCluster(1)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    seen: dict[str, float] = {}

    def fail(cluster: SmallCluster) -> None:
        for each in cluster.pods():
            if each["metadata"]["name"] not in seen:
                seen[each["metadata"]["name"]] = cluster.now
                each["status"]["phase"] = "Failed"
                cluster.api.update_status("pods", each)

    cluster.run(20, fail)
    times = sorted(seen.values())
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
    assert gaps == [0, 1, 2, 4, 8]
    node_name = "node node-1, will try to kill it"
    failed = [text for reason, text in events(cluster) if reason == "FailedDaemonPod"]
    assert failed[0] == f"Found failed daemon pod default/{min(seen, key=seen.get)} on {node_name}"  # type: ignore[arg-type]


def test_a_succeeded_pod_is_replaced_at_once() -> None:
    cluster = SmallCluster(1)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    done = cluster.pods()[0]
    done["status"]["phase"] = "Succeeded"
    cluster.api.update_status("pods", done)
    cluster.run(10)
    assert pods(cluster) == ["1:1*"]
    name = done["metadata"]["name"]
    text = f"Found succeeded daemon pod default/{name} on node node-1, will try to delete it"
    assert ("SucceededDaemonPod", text) in events(cluster)


def test_the_delays_double_and_start_again_after_a_long_pause() -> None:
    backoff = FailedPodBackoff()
    found = []
    now = 0.0
    for _ in range(12):
        backoff.advance("k", now)
        found.append(backoff.delay("k", now))
        now += found[-1]
        assert backoff.delay("k", now) == 0.0
    assert found == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    now += 2 * 900
    backoff.advance("k", now)
    assert backoff.delay("k", now) == 1.0


def test_a_rollback_gives_the_old_revision_a_new_number() -> None:
    cluster = SmallCluster(1)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    first = cluster.list(REVISIONS)[0]["metadata"]["name"]
    for tag in ("2", "1"):
        set_image(cluster, tag)
        cluster.run(60)
    found = {each["metadata"]["name"]: each["revision"] for each in cluster.list(REVISIONS)}
    assert (len(found), found[first]) == (2, 3)
    assert pods(cluster) == ["1:1*"]


def test_old_revisions_are_deleted_beyond_the_limit() -> None:
    cluster = SmallCluster(1)
    cluster.create(DAEMON_SETS, daemon_set("log", revisionHistoryLimit=2))
    for tag in range(1, 7):
        set_image(cluster, str(tag))
        cluster.run(60)
    assert sorted(each["revision"] for each in cluster.list(REVISIONS)) == [4, 5, 6]


def test_a_revision_name_that_is_taken_counts_as_a_collision() -> None:
    cluster = SmallCluster(1)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.settle()
    name = cluster.list(REVISIONS)[0]["metadata"]["name"]
    cluster.delete(DAEMON_SETS, "log", propagation="Background")
    cluster.run(60)
    cluster.create(REVISIONS, {"metadata": {"name": name}, "data": {"spec": {}}, "revision": 1})
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(30)
    assert status(cluster)["collisionCount"] == 1
    assert pods(cluster) == ["1:1*"]


def test_two_revisions_of_one_template_become_one() -> None:
    cluster = SmallCluster(1)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    copied = cluster.list(REVISIONS)[0]
    meta = copied["metadata"]
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        meta.pop(name)
    meta["name"], meta["labels"]["controller-revision-hash"] = "log-copy", "copy"
    cluster.create(REVISIONS, {**copied, "revision": 7})
    cluster.change(DAEMON_SETS, "log", minReadySeconds=1)
    cluster.run(60)
    assert [each["metadata"]["name"] for each in cluster.list(REVISIONS)] == ["log-copy"]
    assert cluster.pods()[0]["metadata"]["labels"]["controller-revision-hash"] == "copy"


def test_a_matching_orphan_is_adopted_and_excess_pods_are_deleted() -> None:
    cluster = SmallCluster(1)
    orphan = pod("old", nodeName="node-1")
    orphan["metadata"]["labels"] = {"app": "log"}
    cluster.create("pods", orphan)
    strategy = {"type": "OnDelete"}
    cluster.create(DAEMON_SETS, daemon_set("log", updateStrategy=strategy))
    cluster.run(10)
    assert [each["metadata"]["name"] for each in cluster.pods()] == ["old"]
    assert cluster.pods()[0]["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    second = pod("second", nodeName="node-1")
    second["metadata"]["labels"] = {"app": "log"}
    cluster.create("pods", second)
    cluster.run(60)
    assert [each["metadata"]["name"] for each in cluster.pods()] == ["old"]


def test_a_creation_that_is_refused_is_reported_and_tried_again() -> None:
    cluster = SmallCluster(1)
    made = daemon_set("log")
    made["spec"]["template"]["spec"]["priorityClassName"] = "nosuch"
    cluster.create(DAEMON_SETS, made)
    cluster.settle()
    assert [reason for reason, _ in events(cluster)] == ["FailedCreate"]
    assert events(cluster)[0][1].startswith("Error creating: ")
    meta = {"metadata": {"name": "nosuch"}, "value": 5}
    cluster.create("scheduling.k8s.io/priorityclasses", meta)
    cluster.run(60)
    assert pods(cluster) == ["1:1*"]


def test_pods_go_with_their_daemon_set() -> None:
    cluster = SmallCluster(2)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.run(5)
    cluster.delete(DAEMON_SETS, "log", propagation="Foreground")
    cluster.run(60)
    assert (cluster.list(DAEMON_SETS), pods(cluster), cluster.list(REVISIONS)) == ([], [], [])


def test_many_pods_are_created_in_several_syncs() -> None:
    cluster = SmallCluster(270, simulates_nodes=False, schedules=False)
    cluster.create(DAEMON_SETS, daemon_set("log"))
    cluster.settle()
    assert len(cluster.pods()) == 270


def view(text: str, off: str = "", **limits: int | str) -> DaemonSetView:
    """A DaemonSet on the nodes `a=n b=O`: n new, o old, capital: ready; `-`: none.

    off: nodes that the template does not select.
    """
    by_node = {}
    placements = {}
    for word in text.split():
        node, _, states = word.partition("=")
        placements[node] = NodePlacement(node not in off, node not in off)
        found = [
            facts(
                f"{node}{state}",
                key=("default", f"{node}{state}"),
                node=node,
                labels={"controller-revision-hash": "new" if state in "nN" else "old"},
                ready=state.isupper(),
            )
            for state in states.strip("-")
        ]
        if found:
            by_node[node] = found
    return DaemonSetView(
        strategy=rolling(**limits),
        wait_s=0,
        hash="new",
        generation="",
        now=5000.0,
        placements=placements,
        pods=by_node,
    )


@pytest.mark.parametrize(
    ("text", "unavailable", "expected"),
    [
        ("a=O b=O c=O", 1, "aO"),
        ("a=O b=O c=O", 2, "aO bO"),
        ("a=O b=O c=O d=O", "50%", "aO bO"),
        ("a=O b=O c=O", "34%", "aO bO"),  # Rounded up.
        ("a=n b=O c=O", 1, ""),  # One is missing already.
        ("a=N b=O c=O", 1, "bO"),
        ("a=- b=O c=O", 1, ""),
        ("a=o b=o c=O", 1, "ao bo"),  # Unavailable old pods are replaced in any case.
        ("a=OO b=O", 1, ""),  # Excess pods count as missing until they are deleted.
        ("a=NO b=O", 1, ""),
        ("a=N b=N", 1, ""),
    ],
)
def test_a_rolling_update_keeps_to_max_unavailable(
    text: str, unavailable: int | str, expected: str
) -> None:
    found = rolling_update(view(text, maxUnavailable=unavailable, maxSurge=0))
    assert (found.pods, found.nodes) == (expected.split(), [])


@pytest.mark.parametrize(
    ("text", "off", "nodes", "deleted"),
    [
        ("a=O b=O c=O", "", "a", ""),
        ("a=On b=O c=O", "", "", ""),
        ("a=ON b=O c=O", "", "b", "aO"),
        ("a=o b=o c=O", "", "a b c", ""),  # Unavailable ones do not count as surge.
        ("a=o b=N", "a", "", "ao"),
        ("a=O b=n", "a", "", ""),  # Available elsewhere first.
        ("a=O b=N", "a", "", "aO"),
    ],
)
def test_a_rolling_update_keeps_to_max_surge(text: str, off: str, nodes: str, deleted: str) -> None:
    found = rolling_update(view(text, off, maxUnavailable=0, maxSurge=1))
    assert (" ".join(found.nodes), " ".join(found.pods)) == (nodes, deleted)


@pytest.mark.parametrize(
    ("states", "surge", "excess"),
    [
        ("O", 0, ""),
        ("NO", 0, "O"),
        ("On", 1, ""),
        ("ON", 1, "O"),
        ("on", 1, "o"),
        ("Onn", 1, "n"),
    ],
)
def test_excess_pods_of_a_node_are_deleted(states: str, surge: int, excess: str) -> None:
    found = view(f"a={states}", maxSurge=surge, maxUnavailable=1 - surge)
    assert excess_pods(found, found.pods["a"]) == [f"a{state}" for state in excess]
