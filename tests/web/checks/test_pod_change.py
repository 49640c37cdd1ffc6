"""Check 8: the smallest change that the pod screen names gets the pod bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.browser import Browser
from tests.web.checks.served_cluster import (
    JSON_PATCH,
    PODS,
    ServedCluster,
    Tree,
    node,
    pod,
    served_cluster,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

CHANGES = "return [...document.querySelectorAll('.change')].map((one) => one.textContent)"
ON_NODE = "return document.querySelector('h2.title small')?.textContent === arguments[0]"
ELEMENTS_MAX, ANSWER_MAX = 3_000, 60_000
POD_MS = 300
PATHS = {"Pod": PODS, "Node": "/api/v1/nodes"}


def trees(n_nodes: int) -> Iterator[Tree]:
    """Nodes of two cores, and a larger one with a taint."""
    for number in range(n_nodes):
        yield node(f"n{number}", "2")
    yield node("tainted", "16", taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}])
    yield pod("wants-taint", "12")
    yield pod("wants-label", "1", nodeSelector={"disk": "fast"})
    yield pod("too-large", "20")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with served_cluster(tmp_path_factory.mktemp("cluster"), list(trees(60))) as found:
        yield found


def shown_change(page: Browser, cluster: ServedCluster, name: str) -> tuple[str, Tree]:
    """The first change that the screen of a pod names, and the same from the data API."""
    page.visit(f"{cluster.url}/#/pod?pod=default/{name}")
    page.until(CHANGES)
    change = cluster.page(f"pods/default/{name}/why")["changes"][0]
    text = page.run(CHANGES)[0]
    assert text == change["text"]
    return text, change


def do(cluster: ServedCluster, change: Tree, name: str) -> None:
    """What a person does with kubectl; a pod is replaced by the changed one."""
    for one in change["objects"]:
        path = f"{PATHS[one['kind']]}/{one['name']}"
        if one.get("manifest"):
            cluster.send("POST", PATHS[one["kind"]], one["manifest"])
        elif one.get("delete"):
            cluster.send("DELETE", path, {"gracePeriodSeconds": 0})
        elif one["kind"] != "Pod":
            cluster.send("PATCH", path, one["patch"], JSON_PATCH)
        else:
            old = cluster.pod(name)
            assert one["name"] == name
            changed = {**pod(name), "spec": old["spec"]}
            for operation in one["patch"]:
                apply(changed, operation)
            cluster.send("DELETE", path, {"gracePeriodSeconds": 0})
            cluster.send("POST", PODS, changed)


def apply(tree: Tree, operation: Tree) -> None:
    """A JSON patch operation of those that changes of pods have."""
    place: object = tree
    *parents, last = [
        part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
    ]
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]  # type: ignore[index]
    key = int(last) if isinstance(place, list) and last != "-" else last
    match operation["op"]:
        case "test":
            assert place[key] == operation["value"]  # type: ignore[index]
        case "remove":
            del place[key]  # type: ignore[attr-defined]
        case _ if last == "-":
            place.append(operation["value"])  # type: ignore[attr-defined]
        case _:
            place[key] = operation["value"]  # type: ignore[index]


@pytest.mark.parametrize("name", ["wants-taint", "wants-label", "too-large"])
def test_the_smallest_change_gets_the_pod_bound(
    page: Browser, cluster: ServedCluster, name: str
) -> None:
    assert cluster.until(lambda: refused(cluster, name))
    _, change = shown_change(page, cluster, name)
    do(cluster, change, name)
    bound = cluster.until(lambda: cluster.pod(name)["spec"].get("nodeName", ""))
    page.until(
        "return document.querySelector('h2.title small').textContent.includes(arguments[0])", bound
    )


def refused(cluster: ServedCluster, name: str) -> bool:
    conditions = cluster.pod(name).get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
