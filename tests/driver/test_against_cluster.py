"""`stowplan run` over real HTTP with the shipped rights: against the embedded cluster, and against
a real API server where there is one."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.client.requests import JSON, ApiRequest
from stowplan.objects.quantity import milli_value
from tests.driver.embedded import DEPLOY, PATHS, TOKEN, Cluster, Tree, cluster, gang, pod
from tests.driver.processes import CONFIG, Replica, kubeconfig, replica
from tests.driver.proxy import KINDS, proxy
from tests.driver.real_server import assets
from tests.driver.test_live import GANGS

PLACED = "spec.nodeName!="

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]


@pytest.fixture(params=["embedded", "real"])
def server(request: pytest.FixtureRequest) -> str:
    if request.param == "real" and assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd")
    return str(request.param)


def run(steps: Coroutine[Any, Any, None], timeout_s: float = 600) -> None:
    asyncio.run(asyncio.wait_for(steps, timeout_s))


def arguments(tmp_path: Path, made: Cluster, lease_s: int = 0) -> list[str]:
    """One process that schedules pods by a profile and gangs by sessions. lease_s: lease duration,
    longer than the server is busy; 0 for a short one."""
    profiles, gangs = tmp_path / "profiles.json", tmp_path / "gangs.yaml"
    lease = {"resourceName": "stowplan", "resourceNamespace": "stowplan-system"}
    if not lease_s:
        lease = CONFIG["leaderElection"] | lease  # type: ignore[operator]
    else:
        lease |= {"leaseDuration": f"{lease_s}s", "renewDeadline": f"{lease_s * 2 // 3}s"}
    profiles.write_text(json.dumps(CONFIG | {"leaderElection": lease}))
    gangs.write_text(GANGS)
    files = ["--config", str(profiles), "--config", str(gangs)]
    return [*files, "--kubeconfig", made.kubeconfig, "--listen", "0"]


async def leading(one: Replica) -> None:
    for _ in range(1200):
        if one.has_logged("Successfully acquired lease") and one.has_logged("Informers synced"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(one.raw[-10:])


async def events(made: Cluster) -> Counter[tuple[str, str]]:
    """(reason, pod) -> how often."""
    items = (await made.get("/apis/events.k8s.io/v1/events"))["items"]
    return Counter((one["reason"], one["regarding"]["name"]) for one in items)


def workload(n_pods: int) -> list[Tree]:
    """A tenth of the pods in gangs of four, a tenth that keep apart, the others plain."""
    n_gangs = n_pods // 40
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "apart"}},
    }
    election_config = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    trees = [tree for i in range(n_gangs) for tree in gang(f"g{i}", 4)]
    for i in range(n_pods // 10):
        meta = {"name": f"apart{i}", "namespace": "default", "labels": {"app": "apart"}}
        spec = {"affinity": {"podAntiAffinity": election_config}}
        trees.append(pod(f"apart{i}", metadata=meta, spec=spec))
    n_left = n_pods - 4 * n_gangs - n_pods // 10
    return trees + [pod(f"p{i}") for i in range(n_left)]


def check_placement(nodes: list[Tree], pods: list[Tree], n_nodes: int) -> None:
    """Nobody is on two nodes or on one that is full; who keeps apart is; gangs are whole."""
    room = {n["metadata"]["name"]: n["status"]["allocatable"]["cpu"] for n in nodes}
    used: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for one in pods:
        node = one["spec"].get("nodeName")
        if node:
            request = one["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[node] += milli_value(request)
            apart[node] += one["metadata"].get("labels", {}).get("app") == "apart"
    assert all(milli <= milli_value(room[node]) for node, milli in used.items())
    assert max(apart.values()) <= 1
    gangs: Counter[str] = Counter()
    for one in pods:
        name = one["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name")
        if name and one["spec"].get("nodeName"):
            gangs[name] += 1
    assert set(gangs.values()) <= {4}
    assert len(nodes) == n_nodes


def names_placed(pods: list[Tree]) -> set[str]:
    return {one["metadata"]["name"] for one in pods if one["spec"].get("nodeName")}


async def default_queue(made: Cluster) -> None:
    version = "scheduling.sigs.dev/v1alpha2"
    await made.create(
        {"apiVersion": version, "kind": "Queue", "metadata": {"name": "default"}}
        | {"spec": {"weight": 1}}
    )


@pytest.mark.parametrize(
    ("n_nodes", "n_pods"), [(60, 400), pytest.param(500, 5000, marks=pytest.mark.soak)]
)
def test_all_that_fits_is_bound_once_though_the_leader_is_killed(
    tmp_path: Path, server: str, n_nodes: int, n_pods: int
) -> None:
    async def steps() -> None:
        async with cluster(tmp_path, n_nodes, server) as made:
            await default_queue(made)
            args = arguments(tmp_path, made, lease_s=15 if n_pods > 1000 else 0)
            async with replica(*args) as first:
                await leading(first)
                async with replica(*args) as second:
                    trees = workload(n_pods)
                    half = len(trees) // 2
                    creating = asyncio.create_task(made.create_all(trees[:half]))
                    await made.until_placed(n_pods // 4, 300 + n_pods // 10, first)
                    first.signal(signal.SIGKILL)
                    await first.ended()
                    by_first = names_placed(await made.pods())
                    await creating
                    await made.create_all(trees[half:])
                    pods = await made.until_placed(n_pods, 300 + n_pods // 10, second)
                    assert second.has_logged("Successfully acquired lease")
                    second.signal(signal.SIGTERM)
                    assert await second.ended() == 0
                    recorded = await events(made)
            nodes = (await made.get("/api/v1/nodes"))["items"]
            check_placement(nodes, pods, n_nodes)
            scheduled = {name for reason, name in recorded if reason == "Scheduled"}
            # Of some that were bound as the leader was killed nobody has told.
            assert names_placed(pods) - by_first <= scheduled
            faults = [line["msg"] for line in second.lines if line["level"] == "error"]
            assert faults == []

    run(steps(), 200 + n_pods // 4)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_nothing_is_lost_or_bound_twice_however_bad_the_connection_and_the_server_restarts(
    tmp_path: Path, server: str, seed: int
) -> None:
    n_nodes, n_pods = 40, 200

    async def steps() -> None:
        async with (
            cluster(tmp_path, n_nodes, server, lasting=True) as made,
            proxy(made.api.client_config, seed=seed) as harm,
        ):
            await default_queue(made)
            args = arguments(tmp_path, made, lease_s=60)
            args[args.index("--kubeconfig") + 1] = kubeconfig(tmp_path / "p", harm.url, token=TOKEN)
            harm.cut_s = 3.0
            async with replica(*args) as one:
                await leading(one)
                harm.share = 0.15
                await made.create_all(workload(n_pods))
                await made.restart()
                pods = await made.until_placed(n_pods, 500, one)
                harm.share, harm.cut_s = 0.0, None
                assert one.process.returncode is None
            assert all(harm.seen[kind] for kind in (*KINDS, "cut")), harm.seen
            nodes = (await made.get("/api/v1/nodes"))["items"]
            check_placement(nodes, pods, n_nodes)

    run(steps(), 300)


def test_conditions_events_and_evictions_come_with_the_rights_that_are_shipped(
    tmp_path: Path, server: str
) -> None:
    async def steps() -> None:
        async with cluster(tmp_path, 2, server) as made, replica(*arguments(tmp_path, made)) as one:
            await leading(one)
            nodes = (await made.get("/api/v1/nodes"))["items"]
            cpu = milli_value(nodes[0]["status"]["allocatable"]["cpu"])
            half = f"{cpu * 6 // 10}m"
            await made.create_all([pod("low0", half), pod("low1", half), pod("huge", "4k")])
            await made.until_placed(2, 300)
            await condition(made, "huge", "0/2 nodes are available: 2 Insufficient cpu.")
            high = {"name": "high"}
            version = "scheduling.k8s.io/v1"
            await made.create(
                {"apiVersion": version, "kind": "PriorityClass", "metadata": high, "value": 99}
            )
            await made.create(pod("vip", half, spec={"priorityClassName": "high"}))
            async with asyncio.timeout(240):
                while True:
                    pods = {p["metadata"]["name"]: p for p in await made.pods()}
                    if pods["vip"]["spec"].get("nodeName"):
                        break
                    await asyncio.sleep(0.3)
            assert len(pods.keys() & {"low0", "low1"}) == 1
            async with asyncio.timeout(240):
                # Events come after the bindings.
                while ("Scheduled", "vip") not in (recorded := await events(made)):
                    await asyncio.sleep(0.3)
            reasons = Counter(reason for reason, _ in recorded)
            assert reasons["Preempted"] == 1
            assert ("FailedScheduling", "huge") in recorded
            # Nothing was asked for that the rights do not cover.
            texts = [line["msg"] for line in one.lines if "forbidden" in line["msg"]]
            assert texts == []

    run(steps())


def test_events_are_posted_when_the_scheduler_is_terminated_or_counted_in_its_log(
    tmp_path: Path, server: str
) -> None:
    async def steps() -> None:
        async with cluster(tmp_path, 20, server) as made:
            await made.create_all(pod(f"p{i}") for i in range(200))
            query = {"limit": "1", "fieldSelector": PLACED}
            async with replica(*arguments(tmp_path, made)) as one:
                while not (await made.get("/api/v1/pods", **query))["items"]:
                    await asyncio.sleep(0.05)
                one.signal(signal.SIGTERM)
                assert await one.ended() == 0
            placed = {("Scheduled", name) for name in names_placed(await made.pods())}
            assert placed
            posted = await events(made)
            assert all(posted[one] < 2 for one in placed)
            # A machine that has much to do does not post all of them in the time for that.
            left = [
                line["writes"] for line in one.lines if line["msg"].startswith("Stopped before")
            ]
            assert len(placed - posted.keys()) <= sum(left)

    run(steps())


def test_a_missing_queue_is_reported_on_pod_and_podgroup_until_it_exists(
    tmp_path: Path, server: str
) -> None:
    """With the objects, and the schedulerName, of Volcano."""
    version, text = "scheduling.volcano.sh/v1beta1", 'queues "nowhere" not found'

    async def steps() -> None:
        async with cluster(tmp_path, 1, server) as made, replica(*arguments(tmp_path, made)) as one:
            await leading(one)
            group, member = gang("g", 1)
            group |= {"apiVersion": version, "spec": {"minMember": 1, "queue": "nowhere"}}
            member["spec"]["schedulerName"] = "volcano"
            await made.create_all([group, member])
            await condition(made, "g-0", text)
            path = f"/apis/{version}/namespaces/default/podgroups/g"
            async with asyncio.timeout(240):
                while True:
                    status = (await made.get(path)).get("status", {})
                    conditions = [(c["reason"], c["message"]) for c in status.get("conditions", ())]
                    if conditions:
                        break
                    await asyncio.sleep(0.2)
            assert conditions == [("QueueNotFound", text)]
            assert {("FailedScheduling", "g-0"), ("Unschedulable", "g")} <= set(await events(made))
            queue = {"apiVersion": version, "kind": "Queue", "metadata": {"name": "nowhere"}}
            await made.create(queue | {"spec": {"capability": {"cpu": 1}, "reclaimable": False}})
            await made.until_placed(1, 240, one)

    run(steps())


@pytest.mark.parametrize(
    "server", [pytest.param("embedded", marks=pytest.mark.soak), "real"], indirect=True
)
def test_sessions_of_volcano_write_what_queues_have(tmp_path: Path, server: str) -> None:
    """status.allocated of a queue and of the one above it, by `run` alone."""
    version = "scheduling.volcano.sh/v1beta1"
    config = tmp_path / "volcano.yaml"
    lease = {"resourceName": "stowplan", "resourceNamespace": "stowplan-system"}
    profiles = tmp_path / "profiles.json"
    profiles.write_text(
        json.dumps(CONFIG | {"leaderElection": CONFIG["leaderElection"] | lease})  # type: ignore[operator]
    )
    config.write_text("scheduler: volcano\n")

    async def steps() -> None:
        files = ["--config", str(profiles), "--config", str(config)]
        async with cluster(tmp_path, 1, server) as made:
            args = [*files, "--kubeconfig", made.kubeconfig, "--listen", "0", "--take-over"]
            async with replica(*args) as one:
                await leading(one)
                group, member = gang("g", 1)
                for name, parent in (("upper", ""), ("leaf", "upper")):
                    meta = {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}}
                    await made.create(meta | {"spec": {"weight": 1, "parent": parent}})
                group |= {"apiVersion": version, "spec": {"minMember": 1, "queue": "leaf"}}
                member["spec"]["schedulerName"] = "volcano"
                await made.create_all([group, member])
                await made.until_placed(1, 240, one)
                path = f"/apis/{version}/namespaces/default/podgroups/g"
                async with asyncio.timeout(240):
                    while await allocated_pods(made) != {"upper": "1", "leaf": "1"}:
                        await asyncio.sleep(0.2)
                    while (status := (await made.get(path))["status"])["phase"] != "Running":
                        await asyncio.sleep(0.2)
                (scheduled,) = [c for c in status["conditions"] if c["type"] == "Scheduled"]
                assert (scheduled["type"], scheduled["status"]) == ("Scheduled", "True")

    run(steps())


async def allocated_pods(made: Cluster) -> dict[str, str]:
    """Queue of Volcano -> how many pods its status has."""
    found = (await made.get("/apis/scheduling.volcano.sh/v1beta1/queues"))["items"]
    return {
        one["metadata"]["name"]: one.get("status", {}).get("allocated", {}).get("pods", "")
        for one in found
        if one["metadata"]["name"] in ("upper", "leaf")
    }


async def condition(made: Cluster, name: str, text: str) -> None:
    async with asyncio.timeout(240):
        while True:
            tree = await made.get(f"/api/v1/namespaces/default/pods/{name}")
            for one in tree["status"].get("conditions", ()):
                if one["type"] == "PodScheduled" and one["message"].startswith(text):
                    assert one["status"] == "False"
                    return
            await asyncio.sleep(0.2)


def test_shipped_manifests_pass_strict_validation(tmp_path: Path, server: str) -> None:
    """The pods of the deployment, too, by the rules for pods that the namespace asks for."""

    async def steps() -> None:
        async with cluster(tmp_path, 1, server) as made:
            trees = [
                tree
                for path in sorted(DEPLOY.rglob("*.yaml"))
                for tree in yaml.safe_load_all(path.read_text())
                if tree["kind"] != "Kustomization"
            ]
            template = next(t for t in trees if t["kind"] == "Deployment")["spec"]["template"]
            meta = template["metadata"] | {"name": "p", "namespace": "stowplan-system"}
            spec = {k: v for k, v in template["spec"].items() if k != "priorityClassName"}
            trees.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
            for tree in trees:
                path = PATHS[tree["kind"]].format(tree["metadata"].get("namespace", ""))
                query = (("dryRun", "All"), ("fieldValidation", "Strict"))
                request = ApiRequest("POST", path, query, json.dumps(tree).encode(), JSON)
                answer = await made.api.send(request)
                # Some are there already.
                assert answer.status in (201, 409), (tree["kind"], answer.body)

    run(steps())
