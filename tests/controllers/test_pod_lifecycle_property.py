"""Whatever is done to a cluster, in the end every controller has reached its goal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.errors import ApiError
from stowplan.controllers.workloads.job_sync_state import finished_condition
from stowplan.controllers.workloads.replica_set import ReplicaSetController
from tests.apiserver.small_cluster import (
    DEPLOYMENTS,
    JOBS,
    SETS,
    SmallCluster,
    Tree,
    container,
    deployment,
    job,
    template,
)
from tests.soak import examples

Deed = tuple[str, int, int]
"""What is done, to which, with which number."""

DEEDS = ("deploy", "scale", "image", "drop", "job", "kill", "evict", "silence", "wake", "wait")
POLICIES = ("Background", "Foreground", "Orphan")
SLOW = {"stowplan.dev/stop-seconds": "3", "stowplan.dev/run-seconds": "forever"}


def do(cluster: SmallCluster, deed: Deed) -> None:
    """Do one thing; one that is refused (it is there already, it is not there) is not done."""
    what, which, number = deed
    name = f"d{which % 2}"
    pods = sorted(p["metadata"]["name"] for p in cluster.pods())
    node = f"node-{which % 2 + 1}"
    try:
        if what == "deploy":
            cluster.create(DEPLOYMENTS, deployment(name, number, SLOW))
        elif what == "scale":
            cluster.change(DEPLOYMENTS, name, replicas=number)
        elif what == "image":
            spec = template(name, SLOW, containers=[container(image=f"app:{number}")])
            cluster.change(DEPLOYMENTS, name, template=spec)
        elif what == "drop":
            cluster.delete(DEPLOYMENTS, name, propagation=POLICIES[number % 3])
        elif what == "job":
            codes = {"stowplan.dev/exit-code": "1,0" if number % 2 else "0"}
            made = job(f"j{which}", codes, policy="OnFailure", completions=number, parallelism=2)
            cluster.create(JOBS, made)
        elif what == "kill" and pods:
            cluster.delete("pods", pods[number % len(pods)])
        elif what == "evict" and pods:
            cluster.server.evict("default", pods[number % len(pods)], cluster.now)
        elif what in ("silence", "wake"):
            stored = cluster.the("nodes", node, "")
            state = "off" if what == "silence" else "on"
            stored["metadata"].setdefault("annotations", {})["stowplan.dev/kubelet"] = state
            cluster.api.update("nodes", stored)
    except (ApiError, AssertionError):
        # Neither is a failure of what is tested: the deed could not be done.
        return
    cluster.run(number if what == "wait" else 0.5)


def broken(deeds: list[Deed]) -> list[str]:
    """The promises that are not kept in the end."""
    cluster = SmallCluster(3)
    for deed in deeds:
        do(cluster, deed)
    for node in ("node-1", "node-2"):
        do(cluster, ("wake", int(node[-1]) - 1, 0))
    cluster.run(900)
    return [*_workloads(cluster), *_owners(cluster), *_jobs(cluster)]


def _alive(cluster: SmallCluster) -> list[Tree]:
    return [p for p in cluster.pods() if not p["metadata"].get("deletionTimestamp")]


def _workloads(cluster: SmallCluster) -> list[str]:
    found = []
    for each in cluster.list(DEPLOYMENTS):
        name, wanted = each["metadata"]["name"], each["spec"]["replicas"]
        available = each["status"].get("availableReplicas", 0)
        if available != wanted or each["status"].get("updatedReplicas", 0) != wanted:
            found.append(f"{name}: {available} available, wanted {wanted}")
    for each in cluster.list(SETS):
        uid, wanted = each["metadata"]["uid"], each["spec"]["replicas"]
        owned = [
            p for p in _alive(cluster) if _owner(p) == uid and p["status"]["phase"] == "Running"
        ]
        if len(owned) != wanted:
            found.append(f"{each['metadata']['name']}: {len(owned)} pods, wanted {wanted}")
    return found


def _owner(obj: Tree) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def _owners(cluster: SmallCluster) -> list[str]:
    """Everything that names an owner must have it."""
    here = {
        each["metadata"]["uid"] for path in (DEPLOYMENTS, SETS, JOBS) for each in cluster.list(path)
    }
    owned = [*cluster.list(SETS), *cluster.pods()]
    return [
        f"{each['metadata']['name']}: its owner has gone"
        for each in owned
        if _owner(each) and _owner(each) not in here
    ]


def _jobs(cluster: SmallCluster) -> list[str]:
    found = []
    for each in cluster.list(JOBS):
        if finished_condition(each) is None:
            found.append(f"{each['metadata']['name']}: not finished: {each['status']}")
        elif any(each["status"]["uncountedTerminatedPods"].values()):
            found.append(f"{each['metadata']['name']}: not all pods are counted")
    return found


deeds = st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.integers(1, 4))


@given(st.lists(deeds, max_size=12))
@settings(max_examples=examples(12), deadline=None)
def test_every_promise_is_kept_in_the_end(done: list[Deed]) -> None:
    assert broken(done) == []


def test_a_controller_that_does_not_see_pods_go_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong variant: a ReplicaSet is looked at again only when it changes itself."""
    right = ReplicaSetController.observe

    def blind(self: ReplicaSetController, change: Any, before: Any) -> None:
        if change.resource.path == SETS:
            right(self, change, before)

    monkeypatch.setattr(ReplicaSetController, "observe", blind)
    assert broken([("deploy", 0, 2), ("wait", 0, 4), ("kill", 0, 1)]) != []
