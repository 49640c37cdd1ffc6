"""A deleted PodGroup stays until no unfinished pod names it."""

from __future__ import annotations

import pytest

from tests.apiserver.small_cluster import SmallCluster, Tree, pod

GROUPS = "scheduling.k8s.io/podgroups"
GROUP: Tree = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}


def cluster() -> SmallCluster:
    made = SmallCluster(1, workloads=True)
    made.create(GROUPS, GROUP)
    return made


def member(name: str) -> Tree:
    return pod(name, schedulingGroup={"podGroupName": "g"})


def test_a_group_without_pods_goes_at_once() -> None:
    here = cluster()
    here.create("pods", pod("other"))
    here.api.delete(GROUPS, "default", "g")
    here.settle()
    assert here.get(GROUPS, "g") is None


@pytest.mark.parametrize("phase", ["", "Failed"])
def test_a_group_stays_until_its_pods_have_ended(phase: str) -> None:
    here = cluster()
    here.create("pods", member("p"))
    here.api.delete(GROUPS, "default", "g")
    here.run(5)
    assert here.the(GROUPS, "g")["metadata"]["deletionTimestamp"]
    if phase:
        found = here.the("pods", "p")
        found["status"]["phase"] = phase
        here.api.update_status("pods", found)
    else:
        here.api.delete("pods", "default", "p")
    here.run(60)
    assert here.get(GROUPS, "g") is None
