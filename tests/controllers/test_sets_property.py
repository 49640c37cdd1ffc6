"""Whatever is done to StatefulSets and DaemonSets, in the end their pods are those of the spec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.errors import ApiError
from stowplan.controllers.workloads.daemon_set.daemon_set_controller import DaemonSetController
from stowplan.controllers.workloads.stateful_set.stateful_set_controller import (
    StatefulSetController,
)
from tests.apiserver.small_cluster import SmallCluster, Tree, container, template
from tests.controllers.test_daemon_sets import DAEMON_SETS, daemon_set
from tests.controllers.test_daemon_sets import rolling as daemon_rolling
from tests.controllers.test_stateful_sets import (
    CLAIMS,
    STATEFUL_SETS,
    claim_template,
    stateful_set,
)
from tests.soak import examples

Deed = tuple[str, int, int]
"""What is done, to which, with which number."""

DEEDS = (
    "scale",
    "image",
    "start",
    "strategy",
    "kill",
    "fail",
    "evict",
    "taint",
    "remove-node",
    "add-node",
    "daemon-image",
    "daemon-strategy",
    "drop-claim",
    "wait",
)
NOTES = {"stowplan.dev/stop-seconds": "3", "stowplan.dev/ready-seconds": "1"}
STRATEGIES = (
    daemon_rolling(maxUnavailable=1, maxSurge=0),
    daemon_rolling(maxUnavailable="50%", maxSurge=0),
    daemon_rolling(maxUnavailable=0, maxSurge=1),
)
TAINTS: tuple[list[Tree], ...] = (
    [],
    [{"key": "a", "effect": "NoSchedule"}],
    [{"key": "a", "effect": "NoExecute"}],
)
SETS = ("ordered", "parallel")


def begin() -> SmallCluster:
    """A cluster with a StatefulSet of each kind and a DaemonSet."""
    cluster = SmallCluster(3)
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    for name, management in zip(SETS, ("OrderedReady", "Parallel"), strict=True):
        made = stateful_set(
            name,
            2,
            NOTES,
            podManagementPolicy=management,
            volumeClaimTemplates=[claim_template("data")],
            persistentVolumeClaimRetentionPolicy=policy,
        )
        cluster.create(STATEFUL_SETS, made)
    cluster.create(DAEMON_SETS, daemon_set("log", NOTES))
    cluster.run(3)
    return cluster


def do(cluster: SmallCluster, deed: Deed) -> None:
    """Do one thing; one that is refused (it is there already, it is not there) is not done."""
    what, which, number = deed
    try:
        if what in ("kill", "fail", "evict"):
            _do_to_pod(cluster, deed)
        elif what in ("taint", "remove-node", "add-node"):
            _do_to_node(cluster, deed)
        elif what.startswith("daemon"):
            _do_to_daemon_set(cluster, deed)
        elif what == "drop-claim":
            claims = cluster.list(CLAIMS)
            cluster.delete(CLAIMS, claims[number % len(claims)]["metadata"]["name"])
        elif what != "wait":
            _do_to_stateful_set(cluster, deed)
    except (ApiError, AssertionError, ZeroDivisionError):
        # None is a failure of what is tested: the deed could not be done.
        return
    cluster.run(number if what == "wait" else 0.5 * which)


def _do_to_pod(cluster: SmallCluster, deed: Deed) -> None:
    what, _, number = deed
    names = sorted(p["metadata"]["name"] for p in cluster.pods())
    name = names[number % len(names)]
    if what == "kill":
        cluster.delete("pods", name)
    elif what == "evict":
        cluster.server.evict("default", name, cluster.now)
    else:
        failed = cluster.the("pods", name)
        failed["status"]["phase"] = "Failed" if number % 2 else "Succeeded"
        cluster.api.update_status("pods", failed)


def _do_to_node(cluster: SmallCluster, deed: Deed) -> None:
    what, which, number = deed
    name = f"node-{which % 2 + 1}"
    if what == "taint":
        cluster.change("nodes", name, "", taints=TAINTS[number % 3])
    elif what == "remove-node":
        cluster.delete("nodes", name)
    else:
        node = cluster.the("nodes", "node-3", "")
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            node["metadata"].pop(field)
        node["metadata"]["name"] = name
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        node["spec"].pop("taints", None)
        cluster.create("nodes", node)


def _do_to_stateful_set(cluster: SmallCluster, deed: Deed) -> None:
    what, which, number = deed
    name = SETS[which % 2]
    if what == "scale":
        cluster.change(STATEFUL_SETS, name, replicas=number)
    elif what == "start":
        cluster.change(STATEFUL_SETS, name, ordinals={"start": number % 3})
    elif what == "strategy":
        partition = {"type": "RollingUpdate", "rollingUpdate": {"partition": number % 3}}
        cluster.change(STATEFUL_SETS, name, updateStrategy=partition)
    else:
        spec = template(name, NOTES, containers=[container(image=f"app:{number}")])
        cluster.change(STATEFUL_SETS, name, template=spec)


def _do_to_daemon_set(cluster: SmallCluster, deed: Deed) -> None:
    what, _, number = deed
    if what == "daemon-strategy":
        cluster.change(DAEMON_SETS, "log", updateStrategy=STRATEGIES[number % 3])
    else:
        spec = template("log", NOTES, containers=[container(image=f"app:{number}")])
        cluster.change(DAEMON_SETS, "log", template=spec)


def broken(deeds: list[Deed]) -> list[str]:
    """What differs from the spec in the end."""
    cluster = begin()
    for deed in deeds:
        do(cluster, deed)
    for name in SETS:
        do(cluster, ("strategy", SETS.index(name), 0))
    cluster.run(1200)
    return [*_stateful_sets(cluster), *_daemon_sets(cluster)]


def _image(obj: Tree) -> str:
    spec = obj["spec"].get("template", obj)["spec"]
    return str(spec["containers"][0]["image"])


def _is_ready(pod: Tree) -> bool:
    conditions = pod["status"].get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _stateful_sets(cluster: SmallCluster) -> list[str]:
    found = []
    for name in SETS:
        owner = cluster.the(STATEFUL_SETS, name)
        spec, status = owner["spec"], owner["status"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        wanted = {f"{name}-{n}": _image(owner) for n in range(start, start + spec["replicas"])}
        actual = {p["metadata"]["name"]: _image(p) for p in cluster.pods(app=name) if _is_ready(p)}
        if actual != wanted or len(cluster.pods(app=name)) != len(wanted):
            found.append(f"{name}: pods {actual}, wanted {wanted}")
        names = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
        counts = [status.get(each, 0) for each in (*names, "currentReplicas")]
        if counts != [spec["replicas"]] * 5:
            found.append(f"{name}: status {status}, wanted {spec['replicas']}")
        if status["currentRevision"] != status["updateRevision"]:
            found.append(f"{name}: two revisions in the status")
        missing = {f"data-{pod}" for pod in wanted} - {
            each["metadata"]["name"] for each in cluster.list(CLAIMS)
        }
        if missing:
            found.append(f"{name}: no claims {sorted(missing)}")
    return found


def _daemon_sets(cluster: SmallCluster) -> list[str]:
    owner = cluster.the(DAEMON_SETS, "log")
    taints = {
        node["metadata"]["name"]: {each["effect"] for each in node["spec"].get("taints") or ()}
        for node in cluster.list("nodes")
    }
    wanted = sorted(node for node, effects in taints.items() if not effects)
    kept = {node for node, effects in taints.items() if "NoExecute" not in effects}
    pods = cluster.pods(app="log")
    nodes = sorted(p["spec"].get("nodeName", "") for p in pods)
    found = []
    if not set(wanted) <= set(nodes) <= kept or len(nodes) != len(set(nodes)):
        found.append(f"log: pods on {nodes}, wanted on {wanted}")
    if not all(_is_ready(pod) and _image(pod) == _image(owner) for pod in pods):
        found.append("log: a pod is not ready or outdated")
    return found


deeds = st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.integers(1, 4))


@given(st.lists(deeds, max_size=12))
@settings(max_examples=examples(12), deadline=None)
def test_in_the_end_the_pods_are_those_of_the_spec(done: list[Deed]) -> None:
    assert broken(done) == []


@pytest.mark.parametrize(
    ("controller", "deeds"),
    [
        (StatefulSetController, [("wait", 0, 4), ("kill", 0, 3)]),
        (DaemonSetController, [("wait", 0, 4), ("kill", 0, 1)]),
    ],
)
def test_a_controller_that_does_not_see_pods_go_is_caught(
    monkeypatch: pytest.MonkeyPatch, controller: Any, deeds: list[Deed]
) -> None:
    """The wrong variant: changes of pods are not observed."""
    right = controller.observe

    def blind(self: Any, change: Any, before: Any) -> None:
        if change.path != "pods":
            right(self, change, before)

    monkeypatch.setattr(controller, "observe", blind)
    assert broken(deeds) != []
