"""A real kube-apiserver with its etcd, where KUBEBUILDER_ASSETS names a folder with both programs.

No controllers and no kubelets: nodes are created by the tests, and finished pods are removed here.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.client.api_client import ApiClient

ADMIN = "token-of-the-admin"
READY_S = 240.0
Process = asyncio.subprocess.Process


def assets() -> Path | None:
    """Directory of the programs, None if they are missing."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
    has_all = all((folder / name).exists() for name in ("kube-apiserver", "etcd"))
    return folder if has_all else None


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


class RealServer:
    """client_config: of cluster-admin."""

    def __init__(self, tmp_path: Path, tokens: Path) -> None:
        """tokens: a file of tokens; that of the administrator is put in."""
        folder = assets()
        assert folder is not None
        self._folder = folder
        self._path = tmp_path
        self._tokens = tokens
        self._store, self._peer, self._port = free_port(), free_port(), free_port()
        self._etcd: Process | None = None
        self._finishing: asyncio.Task[None] | None = None
        tokens.write_text(f'{tokens.read_text()}{ADMIN},admin,0,"system:masters"\n')
        keys = self_signed_certificate(["localhost"], time.time())
        (tmp_path / "accounts.key").write_text(keys.key)
        self.client_config = ClientConfig(
            f"https://127.0.0.1:{self._port}", "real server", token=ADMIN, is_insecure=True
        )

    async def start(self) -> Process:
        """The API server, once it is ready; the store goes on through a restart."""
        if self._etcd is None:
            self._etcd = await self._run(
                "etcd",
                f"--data-dir={self._path / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{self._store}",
                f"--advertise-client-urls=http://127.0.0.1:{self._store}",
                f"--listen-peer-urls=http://127.0.0.1:{self._peer}",
                "--log-level=error",
            )
        key = self._path / "accounts.key"
        process = await self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._path / 'certificates'}",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        async with ApiClient(self.client_config) as api, asyncio.timeout(READY_S):
            while not (await api.send(ApiRequest("GET", "/readyz"))).is_done:
                assert process.returncode is None, "kube-apiserver has ended"
                await asyncio.sleep(0.3)
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._finish())
        return process

    async def _run(self, name: str, *arguments: str) -> Process:
        with (self._path / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                str(self._folder / name), *arguments, stdout=log, stderr=log
            )

    async def make_nodes(self, create: Callable[[dict], Awaitable[None]], n_nodes: int) -> None:
        amounts = {"cpu": "32", "memory": "256Gi", "pods": "110"}
        for i in range(n_nodes):
            name = f"node-{i}"
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            status = {"capacity": amounts, "allocatable": amounts}
            await create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})

    async def _finish(self) -> None:
        """Remove pods that are being deleted, as kubelets would."""
        async with ApiClient(self.client_config) as api:
            while True:
                await asyncio.sleep(0.3)
                answer = await api.send(ApiRequest("GET", "/api/v1/pods"))
                items = json.loads(answer.body)["items"] if answer.is_done else ()
                for meta in (one["metadata"] for one in items):
                    if meta.get("deletionTimestamp"):
                        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                        body = json.dumps({"gracePeriodSeconds": 0}).encode()
                        await api.send(ApiRequest("DELETE", path, (), body, JSON))

    async def stop(self) -> None:
        """End the store, too."""
        if self._finishing is not None:
            self._finishing.cancel()
            await asyncio.gather(self._finishing, return_exceptions=True)
        if self._etcd is not None and self._etcd.returncode is None:
            self._etcd.terminate()
            await self._etcd.wait()
