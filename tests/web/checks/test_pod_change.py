"""Check 8: the smallest change that the pod screen names gets the pod bound."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from stowplan.client.requests import MERGE_PATCH
from stowplan.testing.builders import node as made_node
from stowplan.testing.builders import pod as made_pod
from stowplan.web.serving.cluster_questions import ClusterQuestions, ObjectsAtOnce
from tests.driver.deciders import default_deciders
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
HEAD_HAS = "return document.querySelector('h2.title small').textContent.includes(arguments[0])"
ANSWER_MAX = 10_000
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


def change_of(page: Browser, cluster: ServedCluster, name: str) -> tuple[str, Tree]:
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


@pytest.mark.parametrize(
    "name",
    [
        "wants-label",
        # The page asks again every three seconds.
        pytest.param("too-large", marks=pytest.mark.soak),
        pytest.param("wants-taint", marks=pytest.mark.soak),
    ],
)
def test_the_smallest_change_gets_the_pod_bound(
    page: Browser, cluster: ServedCluster, name: str
) -> None:
    assert cluster.until(lambda: refused(cluster, name))
    _, change = change_of(page, cluster, name)
    if name == "wants-label":
        check_a_wrong_label_does_not_help(cluster, name)
    do(cluster, change, name)
    bound = cluster.until(lambda: cluster.pod(name)["spec"].get("nodeName", ""))
    page.until(HEAD_HAS, bound)


def check_a_wrong_label_does_not_help(cluster: ServedCluster, name: str) -> None:
    """Planted: a change that the page does not name."""
    patch = {"metadata": {"labels": {"disk": "slow"}}}
    cluster.send("PATCH", f"{PATHS['Node']}/n0", patch, MERGE_PATCH)
    cluster.until(lambda: cluster.page("nodes/n0")["labels"].get("disk") == "slow")
    assert cluster.page(f"pods/default/{name}/why")["fitting"] == 0


def test_the_answer_does_not_grow_with_the_nodes() -> None:
    sizes = []
    for count in (20, 400):
        nodes = [made_node(f"n{place}", cpu="2") for place in range(count)]
        at_once = ObjectsAtOnce(
            nodes, [made_pod("big", uid="big", cpu="100", scheduler="stowplan")], []
        )
        questions = ClusterQuestions(default_deciders("stowplan"))
        tree = asyncio.run(questions.why("default/big", at_once))
        assert (tree["nodes"], tree["rules"][0]["nodes"]) == (count, count)
        sizes.append(len(msgspec.json.encode(tree)))
    assert sizes[1] < sizes[0] + 100 < ANSWER_MAX
    # Planted: an entry for each node, as `stowplan explain -o json` has it.
    tree["rules"][0]["examples"] *= 80
    assert len(msgspec.json.encode(tree)) > ANSWER_MAX


@pytest.mark.soak
def test_the_screen_of_a_pod_at_5000_nodes(
    page: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with served_cluster(tmp_path_factory.mktemp("large"), list(trees(5000))) as found:
        assert found.until(lambda: refused(found, "too-large"), 300)
        page.visit(f"{found.url}/#/nodes")
        page.until("return document.querySelectorAll('.rows tbody tr').length > 5")
        times = []
        for name in ("too-large", "wants-taint", "too-large", "wants-taint"):
            script = """
            const [address, done] = arguments;
            const begun = performance.now();
            const look = () => {
              const text = document.querySelector('h2.title')?.textContent || '';
              if (text.includes(address) && document.querySelector('.change')) done(performance.now() - begun);
              else requestAnimationFrame(look);
            };
            location.hash = `#/pod?pod=${address}`;
            look();
            """  # noqa: E501
            times.append(page.driver.execute_async_script(script, f"default/{name}"))
        print(f"pod screen at 5,000 nodes: {times} ms")
        assert min(times) < POD_MS


def refused(cluster: ServedCluster, name: str) -> bool:
    conditions = cluster.pod(name).get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
