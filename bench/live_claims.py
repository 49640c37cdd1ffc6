"""Resource claims on a real API server: `python bench/live_claims.py [PODS [CASES [SEED]]]`.

KUBE_APISERVER, ETCD, KUBE_SCHEDULER and KUBE_CONTROLLER_MANAGER name the programs. First PODS pods
with a claim from one template are placed by Stowplan with the shipped rights and no others, beside
the original's resourceclaim controller. Then kube-scheduler and Stowplan decide the same CASES, one
after the other on the same cluster, and what each wrote is compared: node, condition, allocation.
Pods prefer nodes in an order, so that no two of them score alike.
"""

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import yaml
from live_rate import NODES, PODS, node, pod, post_all
from live_real import (
    ORIGINAL_CONFIGURATION,
    SCHEDULER_TOKEN,
    TOKEN,
    program,
    real_server,
)

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config

Tree = dict[str, object]

ROOT = Path(__file__).parents[1]
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS, TEMPLATES = (
    f"{GROUP}/namespaces/default/{kind}" for kind in ("resourceclaims", "resourceclaimtemplates")
)
DRIVER = "gpu.example.com"
PATIENCE_S = 300.0
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
N_NODES = 8
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}


async def sent(api: ApiClient, method: str, path: str, body: object = None, kind: str = JSON):
    """The decoded answer to a request that has to succeed."""
    data = b"" if body is None else json.dumps(body).encode()
    answer = await api.send(ApiRequest(method, path, (), data, kind if data else ""))
    assert answer.is_done, (method, path, answer.status, answer.fault, answer.body[:400])
    return json.loads(answer.body)


async def grant(api: ApiClient) -> None:
    """Create what deploy/ ships for the rights of the scheduler."""
    for name in ("namespace.yaml", "rights.yaml"):
        for tree in yaml.safe_load_all((ROOT / "deploy" / name).read_text()):
            place = PLACES[tree["kind"]].format(tree["metadata"].get("namespace", ""))
            await sent(api, "POST", place, tree)


# Devices.


def card(rng: random.Random, index: int) -> Tree:
    """A device of one node or of all."""
    device: Tree = {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": rng.choice(("A100", "H100"))},
            "index": {"int": index},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci{index % 2}"},
        },
        "capacity": {"memory": {"value": rng.choice(("40Gi", "80Gi"))}},
    }
    if rng.random() < 0.15:
        device["taints"] = [TAINT]
    if rng.random() < 0.2:
        device["allowMultipleAllocations"] = True
    return device


def slice_of(name: str, pool: str, n_slices: int, **spec: object) -> Tree:
    """A slice of a pool."""
    whole = {"name": pool, "generation": 1, "resourceSliceCount": n_slices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "pool": whole, **spec},
    }


def slices(rng: random.Random) -> list[Tree]:
    """Devices of nodes, parts of cards, and devices that all nodes reach."""
    found = []
    for i in range(N_NODES):
        devices = [card(rng, j) for j in range(rng.randint(0, 5))]
        found.append(slice_of(f"own-{i}", f"n{i}", 1, nodeName=f"n{i}", devices=devices))
    counters = [{"name": "card", "counters": {"slices": {"value": "7"}}}]
    takes = [{"counterSet": "card", "counters": {"slices": {"value": "2"}}}]
    for i in range(3):
        parts = [
            {"name": f"part-{j}", "consumesCounters": takes,
             "attributes": {"model": {"string": "part"}}}
            for j in range(4)
        ]  # fmt: skip
        name = f"parts-{i}"
        found.append(slice_of(f"{name}-a", name, 2, nodeName=f"n{i}", sharedCounters=counters))
        found.append(slice_of(f"{name}-b", name, 2, nodeName=f"n{i}", devices=parts))
    reached = [card(rng, j) for j in range(4)]
    found.append(slice_of("all", "all", 1, allNodes=True, devices=reached))
    return found


def classes() -> list[Tree]:
    """A class of all devices, and one of a model."""
    config = [{"opaque": {"driver": DRIVER, "parameters": {"sharing": "none"}}}]
    expressions = {
        "any": f'device.driver == "{DRIVER}"',
        "h100": f'device.attributes["{DRIVER}"].model == "H100"',
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": text}}], "config": config},
        }
        for name, text in expressions.items()
    ]


# Cases.


def request(rng: random.Random) -> Tree:
    """What a claim or an alternative asks for."""
    asked: Tree = {"deviceClassName": rng.choice(("any", "any", "h100"))}
    if rng.random() < 0.1:
        asked["allocationMode"] = "All"
    else:
        asked["count"] = rng.choice((1, 1, 1, 2, 3))
    if rng.random() < 0.4:
        text = rng.choice((
            f'device.attributes["{DRIVER}"].model != "part"',
            f'device.attributes["{DRIVER}"].model == "part"',
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0',
            f'"index" in device.attributes["{DRIVER}"] && '
            f'device.attributes["{DRIVER}"].index > 1',
        ))  # fmt: skip
        asked["selectors"] = [{"cel": {"expression": text}}]
    if rng.random() < 0.3:
        asked["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
    if rng.random() < 0.2:
        asked["capacity"] = {"requests": {"memory": rng.choice(("10Gi", "50Gi"))}}
    return asked


def claim(rng: random.Random, name: str) -> Tree:
    """A claim of one or two requests."""
    requests: list[Tree] = []
    for i in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.3:
            subs = [{"name": f"s{j}", **request(rng)} for j in range(rng.randint(1, 3))]
            requests.append({"name": f"r{i}", "firstAvailable": subs})
        else:
            requests.append({"name": f"r{i}", "exactly": request(rng)})
    devices: Tree = {"requests": requests}
    if rng.random() < 0.3:
        devices["constraints"] = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def consumer(name: str, scheduler: str, uses: list[Tree]) -> Tree:
    """A pod with claims."""
    tree = pod(name, "bench")
    tree["spec"]["schedulerName"] = scheduler
    tree["spec"]["resourceClaims"] = uses
    preferred = [
        {
            "weight": 100 - 9 * i,
            "preference": {
                "matchExpressions": [{"key": "place", "operator": "In", "values": [str(i)]}]
            },
        }
        for i in range(N_NODES)
    ]
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    tree["spec"]["affinity"] = {"nodeAffinity": affinity}
    return tree


async def outcome(api: ApiClient, name: str) -> tuple[str, str]:
    """(node, message of the condition) of a pod, once it has either."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            tree = await sent(api, "GET", f"{PODS}/{name}")
            found = tree["spec"].get("nodeName", "")
            conditions = tree.get("status", {}).get("conditions", ())
            messages = [
                f"{one.get('reason')}: {one.get('message', '')}"
                for one in conditions
                if one["type"] == "PodScheduled" and one["status"] == "False"
            ]
            if found or messages:
                return found, "" if found else messages[0]
            await asyncio.sleep(0.02)


def without_chance(status: Tree) -> Tree:
    """Allocation without what is different each time: share IDs and the time."""
    found = json.loads(json.dumps(status.get("allocation") or {}))
    found.pop("allocationTimestamp", None)
    for one in found.get("devices", {}).get("results", ()):
        if "shareID" in one:
            one["shareID"] = "some"
    return found


async def remove(api: ApiClient, name: str) -> None:
    """Delete a pod and its claim."""
    await api.send(ApiRequest("DELETE", f"{PODS}/{name}", (("gracePeriodSeconds", "0"),)))
    patch = {"metadata": {"finalizers": None}}
    await sent(api, "PATCH", f"{CLAIMS}/{name}", patch, "application/merge-patch+json")
    await api.send(ApiRequest("DELETE", f"{CLAIMS}/{name}"))


async def decided(api: ApiClient, scheduler: str, n_cases: int, seed: int) -> list[object]:
    """What a scheduler does with each case: the pods before have their devices still, but for those
    that ended."""
    rng = random.Random(seed)
    found: list[object] = []
    held: list[str] = []
    for number in range(n_cases):
        name = f"case-{number}"
        await sent(api, "POST", CLAIMS, claim(rng, name))
        uses = [{"name": "devices", "resourceClaimName": name}]
        await sent(api, "POST", PODS, consumer(name, scheduler, uses))
        where, message = await outcome(api, name)
        status = (await sent(api, "GET", f"{CLAIMS}/{name}")).get("status", {})
        found.append((where, message, without_chance(status)))
        if where:
            held.append(name)
        else:
            await remove(api, name)
        if len(held) > 10 or (held and rng.random() < 0.3):
            await remove(api, held.pop(rng.randrange(len(held))))
    for name in held:
        await remove(api, name)
    return found


async def compare(api: ApiClient, directory: Path, files: dict[str, str], n: int, seed: int) -> int:
    """Have both decide; returns the number of cases that differ."""
    answers = {}
    for name in files:
        began = time.perf_counter()
        async with program(directory, name, *command_of(name, directory, files[name])):
            answers[name] = await decided(api, name, n, seed)
        print(f"{name}: {n} cases in {time.perf_counter() - began:.0f} s", flush=True)
    pairs = list(zip(*answers.values(), strict=True))
    wrong = [(i, a, b) for i, (a, b) in enumerate(pairs) if a != b]
    for i, a, b in wrong[:5]:
        print(f"case {i}:\n  {a}\n  {b}")
    n_bound = sum(bool(a[0]) for a, _ in pairs)
    print(f"{n - len(wrong)} of {n} cases are alike, {n_bound} of them placed", flush=True)
    return len(wrong)


def command_of(name: str, directory: Path, file: str) -> tuple[str, ...]:
    """How to start a scheduler."""
    if name == "stowplan":
        run = ("run", "--kubeconfig", file, "--listen", "0", "--no-leader-elect")
        return (sys.executable, "-m", "stowplan", *run)
    configuration = directory / "scheduler.yaml"
    configuration.write_text(ORIGINAL_CONFIGURATION.format(file=file))
    return (os.environ["KUBE_SCHEDULER"], f"--config={configuration}", "--secure-port=0")


async def place(api: ApiClient, directory: Path, files: dict[str, str], n_pods: int) -> None:
    """Pods with a claim from one template, end to end with the shipped rights."""
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"},
        "spec": {"spec": {"devices": asked}},
    }
    await sent(api, "POST", TEMPLATES, template)
    count = -(-n_pods // 8)
    trees, made = [], []
    for i in range(count):
        trees.append(node(f"g{i}"))
        devices = [{"name": f"gpu-{j}"} for j in range(8)]
        made.append(slice_of(f"g{i}", f"g{i}", 1, nodeName=f"g{i}", devices=devices))
    await post_all(api, NODES, trees)
    await post_all(api, f"{GROUP}/resourceslices", made)
    uses = [{"name": "devices", "resourceClaimTemplateName": "one"}]
    controller = (
        os.environ["KUBE_CONTROLLER_MANAGER"], f"--kubeconfig={files['kube-scheduler']}",
        "--controllers=resourceclaim-controller,garbage-collector-controller",
        "--leader-elect=false", "--secure-port=0",
    )  # fmt: skip
    async with (
        program(directory, "controllers", *controller),
        program(directory, "stowplan", *command_of("stowplan", directory, files["stowplan"])),
    ):
        began = time.perf_counter()
        await post_all(api, PODS, [consumer(f"p{i}", "stowplan", uses) for i in range(n_pods)])
        async with asyncio.timeout(PATIENCE_S):
            while True:
                items = (await sent(api, "GET", PODS))["items"]
                if sum(bool(one["spec"].get("nodeName")) for one in items) == n_pods:
                    break
                await asyncio.sleep(0.5)
        took = time.perf_counter() - began
        claims = (await sent(api, "GET", CLAIMS))["items"]
        used = [
            (one["pool"], one["device"])
            for tree in claims
            for one in tree["status"]["allocation"]["devices"]["results"]
        ]
        assert len(used) == len(set(used)) == n_pods, "a device was given twice"
        owners = {one["status"]["reservedFor"][0]["name"] for one in claims}
        assert len(owners) == n_pods, "a claim is reserved for another pod"
        print(f"{n_pods} pods with claims from a template are bound after {took:.0f} s", flush=True)
        await api.send(ApiRequest("DELETE", PODS, (("gracePeriodSeconds", "0"),)))
        async with asyncio.timeout(PATIENCE_S):
            while (await sent(api, "GET", CLAIMS))["items"]:
                await asyncio.sleep(0.5)
        print("their claims are gone with them", flush=True)
    for i in range(count):
        await sent(api, "DELETE", f"{NODES}/g{i}")
        await sent(api, "DELETE", f"{GROUP}/resourceslices/g{i}")


async def main(n_pods: int, n_cases: int, seed: int) -> int:
    names = ("KUBE_APISERVER", "ETCD", "KUBE_SCHEDULER", "KUBE_CONTROLLER_MANAGER")
    if not all(shutil.which(os.environ.get(name, "")) for name in names):
        print(f"No real server: {', '.join(names)} name no programs.")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        async with (
            real_server(directory, os.environ["KUBE_APISERVER"], os.environ["ETCD"]) as (file, *_),
            ApiClient(load_client_config(file)) as api,
        ):
            await grant(api)
            ours = directory / "ours"
            ours.write_text(Path(file).read_text().replace(TOKEN, SCHEDULER_TOKEN))
            files = {"kube-scheduler": file, "stowplan": str(ours)}
            await post_all(api, f"{GROUP}/deviceclasses", classes())
            if n_pods:
                await place(api, directory, files, n_pods)
            trees = []
            for i in range(N_NODES):
                tree = node(f"n{i}")
                tree["metadata"]["labels"] = {"place": str(i)}
                trees.append(tree)
            await post_all(api, NODES, trees)
            await post_all(api, f"{GROUP}/resourceslices", slices(random.Random(seed)))
            original = {"default-scheduler": file, "stowplan": str(ours)}
            return await compare(api, directory, original, n_cases, seed)


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:]]
    sys.exit(bool(asyncio.run(main(*(given + [500, 200, 1][len(given) :])))))
