"""An embedded cluster as a process, for tests."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, MERGE_PATCH, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from tests.driver.processes import Replica
from tests.driver.real_server import RealServer, free_port

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
USER = "system:serviceaccount:stowplan-system:stowplan"
TOKEN = "token-of-the-scheduler"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Queue": "/apis/scheduling.sigs.dev/v1alpha2/queues",
    "PodGroup": "/apis/scheduling.sigs.dev/v1alpha2/namespaces/{}/podgroups",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
}

Tree = dict[str, Any]


class Cluster:
    """api: client with cluster-admin rights. kubeconfig: of the scheduler's account."""

    def __init__(
        self,
        api: ApiClient,
        kubeconfig: str,
        process: asyncio.subprocess.Process,
        start: Callable[[], Awaitable[asyncio.subprocess.Process]],
    ) -> None:
        self.api = api
        self.kubeconfig = kubeconfig
        self.process = process
        self.start = start

    async def create(self, tree: Tree) -> None:
        path = PATHS[tree["kind"]].format(tree["metadata"].get("namespace", "default"))
        if tree["kind"] in ("PodGroup", "Queue"):
            # Several groups serve them.
            path = path.replace("scheduling.sigs.dev/v1alpha2", tree["apiVersion"])
        for _ in range(600):
            request = ApiRequest("POST", path, (), json.dumps(tree).encode(), JSON)
            answer = await self.api.send(request)
            if answer.status in (201, 409):
                return
            # A definition is served a moment after it was made.
            await asyncio.sleep(0.1)
        raise AssertionError(f"{tree['kind']}: {answer.status} {answer.fault} {answer.body!r}")

    async def create_all(self, trees: Iterable[Tree], at_once: int = 25) -> None:
        waiting = list(trees)
        for start in range(0, len(waiting), at_once):
            await asyncio.gather(*map(self.create, waiting[start : start + at_once]))

    async def get(self, path: str, **query: str) -> Any:
        answer = await self.api.send(ApiRequest("GET", path, tuple(query.items()), timeout_s=240.0))
        assert answer.is_done, (answer.status, answer.fault, answer.body[:300])
        return json.loads(answer.body)

    async def patch(self, path: str, body: Tree) -> None:
        request = ApiRequest("PATCH", path, (), json.dumps(body).encode(), MERGE_PATCH)
        answer = await self.api.send(request)
        assert answer.is_done, answer.body

    async def pods(self) -> list[Tree]:
        return list((await self.get("/api/v1/pods"))["items"])

    async def until_placed(self, n_pods: int, timeout_s: float, *schedulers: Replica) -> list[Tree]:
        """schedulers: one of them must be there all the while."""
        async with asyncio.timeout(timeout_s):
            while True:
                last_lines = [
                    one.raw[-5:] for one in schedulers if one.process.returncode is not None
                ]
                assert len(last_lines) < max(1, len(schedulers)), last_lines
                begun = time.perf_counter()
                pods = await self.pods()
                placed = [pod for pod in pods if pod["spec"].get("nodeName")]
                if len(placed) >= n_pods:
                    return pods
                # Looking must not keep the server from what is looked for.
                await asyncio.sleep(max(0.3, 5 * (time.perf_counter() - begun)))

    async def restart(self) -> None:
        """Kill the server, and start it again from its data."""
        self.process.kill()
        await self.process.wait()
        self.process = await self.start()


class Embedded:
    """`stowplan up` with hollow nodes."""

    def __init__(
        self, tmp_path: Path, tokens: Path, n_nodes: int, *, lasting: bool, gates: str = ""
    ) -> None:
        self._path = tmp_path
        self._admin = tmp_path / "admin.kubeconfig"
        self._drains: list[asyncio.Task[None]] = []
        self._arguments = ["--node-count", str(n_nodes), "--token-file", str(tokens)]
        self._arguments += ["--kubeconfig", str(self._admin)]
        self._arguments += ["--port", str(free_port() if lasting else 0)]
        if gates:
            self._arguments += ["--feature-gates", gates]
        if lasting:
            self._arguments += ["--data", str(tmp_path / "data")]

    @property
    def client_config(self) -> ClientConfig:
        return load_client_config(str(self._admin))

    async def start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stowplan", "up", "--no-scheduler"),
            *self._arguments,
            cwd=self._path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        await asyncio.wait_for(_listening(process), 240)
        self._drains.append(asyncio.create_task(_drained(process)))
        return process

    async def make_nodes(self, create: Any, n_nodes: int) -> None:
        """They are there already."""

    async def stop(self) -> None:
        await asyncio.gather(*self._drains)


@asynccontextmanager
async def cluster(
    tmp_path: Path,
    n_nodes: int,
    server: str = "embedded",
    *,
    lasting: bool = False,
    gates: str = "",
) -> AsyncIterator[Cluster]:
    """A cluster in which the scheduler's account has the shipped rights. lasting: it can be
    restarted from its data. gates: of an embedded one."""
    tokens = tmp_path / "tokens.csv"
    groups = "system:serviceaccounts,system:authenticated"
    tokens.write_text(f'{TOKEN},{USER},1,"{groups}"\n')
    under: Embedded | RealServer
    if server == "embedded":
        under = Embedded(tmp_path, tokens, n_nodes, lasting=lasting, gates=gates)
    else:
        under = RealServer(tmp_path, tokens)
    process = await under.start()
    client_config = under.client_config
    file = _kubeconfig(tmp_path / "scheduler.kubeconfig", client_config)
    async with ApiClient(client_config) as api:
        made = Cluster(api, file, process, under.start)
        try:
            for name in ("namespace", "crds/podgroups", "crds/queues", "crds/volcano", "rights"):
                for tree in yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text()):
                    await made.create(tree)
            await under.make_nodes(made.create, n_nodes)
            yield made
        finally:
            made.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(made.process.wait(), 240)
            await under.stop()


async def _listening(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    seen = []
    async for line in process.stdout:
        seen.append(line.decode())
        if re.match(r"Listening on https?://", seen[-1]):
            return
    raise AssertionError("".join(seen))


async def _drained(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(1 << 16):
        pass


def _kubeconfig(path: Path, client_config: ClientConfig) -> str:
    """The administrator's kubeconfig with the token of the scheduler's account."""
    where: Tree = {"server": client_config.server}
    if client_config.is_insecure:
        where["insecure-skip-tls-verify"] = True
    else:
        where["certificate-authority-data"] = base64.b64encode(client_config.ca.data).decode()
    whole = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": where}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    path.write_text(json.dumps(whole))
    return str(path)


def pod(name: str, cpu: str = "10m", scheduler: str = "stowplan", **more: Any) -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "containers": [container], **more.get("spec", {})}
    meta = {"name": name, "namespace": "default"} | more.get("metadata", {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def gang(name: str, size: int, cpu: str = "10m") -> list[Tree]:
    version = "scheduling.sigs.dev/v1alpha2"
    meta = {"name": name, "namespace": "default"}
    spec = {"minMember": size, "queue": "default"}
    group = {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}
    marks = {"annotations": {"scheduling.k8s.io/group-name": name}}
    members = [
        pod(
            f"{name}-{i}",
            cpu,
            "kube-batch",
            metadata={"name": f"{name}-{i}", "namespace": "default"} | marks,
        )
        for i in range(size)
    ]
    return [group, *members]
