"""Where the scheduler of `stowplan up` serves its status: a ConfigMap of its cluster says so."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from stowplan.client.answers import told
from stowplan.client.kubeconfig import Connection
from stowplan.client.requests import JSON, MERGE_PATCH, Request
from stowplan.driver.api import ApiClient
from stowplan.driver.asking import TIMEOUT_S, Unreachable
from stowplan.driver.connecting import connection_to
from stowplan.driver.local_cluster import ALONE

log = logging.getLogger("stowplan.http")

NAMESPACE, NAME = "kube-system", "stowplan-status"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
KEY = "address"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def publish(connection: Connection, address: str) -> None:
    """Write HOST:PORT into the cluster; where that fails, a line of the log says so."""
    tree = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {KEY: address}}
    body = msgspec.json.encode(tree)
    async with ApiClient(connection) as api:
        answer = await api.send(Request("POST", MAPS, (), body, JSON, TIMEOUT_S))
        if answer.status == 409:
            path = f"{MAPS}/{NAME}"
            answer = await api.send(Request("PATCH", path, (), body, MERGE_PATCH, TIMEOUT_S))
    if not answer.is_done:
        log.warning("ConfigMap %s/%s not written: %s", NAMESPACE, NAME, told(answer))


def published(connection: Connection) -> str:
    """The HOST:PORT that a cluster names. Raises Unreachable and CredentialError."""
    return asyncio.run(_published(connection))


async def _published(connection: Connection) -> str:
    where = f"{connection.server}: configmaps {NAME!r} in namespace {NAMESPACE!r}"
    async with ApiClient(connection) as api:
        answer = await api.send(Request("GET", f"{MAPS}/{NAME}", timeout_s=TIMEOUT_S))
    if not answer.is_done:
        wanted = "a cluster of `stowplan up` with its scheduler, or --address of `stowplan run`"
        raise Unreachable(f"{where}: got {told(answer)}, wanted {wanted}")
    found = msgspec.json.decode(answer.body, type=_ConfigMap).data.get(KEY, "")
    if not found:
        raise Unreachable(f"{where}: got no data.{KEY}, wanted HOST:PORT")
    return found


def connection_of_up() -> Connection | None:
    """The cluster that `stowplan up` runs in this directory, None where it runs none. Raises
    ConfigError and CredentialError."""
    return connection_to(ALONE) if Path(ALONE).exists() else None
