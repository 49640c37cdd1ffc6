"""Address of the status server of `stowplan up`, published in a ConfigMap of its cluster."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, MERGE_PATCH, ApiRequest
from stowplan.client.responses import ApiResponse, error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.one_shot_requests import (
    TIMEOUT_S,
    ServerUnreachable,
    fetch_configuration,
)
from stowplan.driver.cluster_discovery import local_cluster_kubeconfig
from stowplan.driver.logs import log_keys
from stowplan.driver.loopback import is_loopback

log = logging.getLogger("stowplan.http")

NAMESPACE, NAME = "kube-system", "stowplan-status"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
KEY = "address"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def publish_status_address(client_config: ClientConfig, address: str) -> None:
    """Write HOST:PORT into the cluster; logs a failure."""
    tree = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {KEY: address}}
    body = msgspec.json.encode(tree)
    async with ApiClient(client_config) as api:
        answer = await api.send(ApiRequest("POST", MAPS, (), body, JSON, TIMEOUT_S))
        if answer.status == 409:
            path = f"{MAPS}/{NAME}"
            answer = await api.send(ApiRequest("PATCH", path, (), body, MERGE_PATCH, TIMEOUT_S))
    if not answer.is_done:
        keys = {"configMap": f"{NAMESPACE}/{NAME}", "err": error_message(answer)}
        log_keys(log, logging.WARNING, "Unable to write ConfigMap", **keys)


def published_status_address(client_config: ClientConfig) -> str:
    """The published HOST:PORT. Raises ServerUnreachable and CredentialError."""
    return asyncio.run(_published(client_config))


def published_configuration(client_config: ClientConfig) -> dict[str, Any] | None:
    """What the scheduler of a `stowplan up` cluster decides by, see `running_configuration`; None
    where the cluster names no such scheduler on this computer: what it says names files that are
    run. Raises ServerUnreachable where it does not answer, and CredentialError."""
    answer = asyncio.run(_address_map(client_config))
    if not answer.is_done:
        return None
    address = msgspec.json.decode(answer.body, type=_ConfigMap).data.get(KEY, "")
    return fetch_configuration(address) if is_loopback(address.rpartition(":")[0]) else None


async def _address_map(client_config: ClientConfig) -> ApiResponse:
    async with ApiClient(client_config) as api:
        return await api.send(ApiRequest("GET", f"{MAPS}/{NAME}", timeout_s=TIMEOUT_S))


async def _published(client_config: ClientConfig) -> str:
    where = f"{client_config.server}: configmaps {NAME!r} in namespace {NAMESPACE!r}"
    answer = await _address_map(client_config)
    if not answer.is_done:
        hint = "is the scheduler of `stowplan up` running? For `stowplan run` use --address"
        raise ServerUnreachable(f"{where}: {error_message(answer)}; {hint}")
    found = msgspec.json.decode(answer.body, type=_ConfigMap).data.get(KEY, "")
    if not found:
        raise ServerUnreachable(f"{where}: data.{KEY}: Required value: HOST:PORT")
    return found


def local_cluster_config() -> ClientConfig | None:
    """Client configuration of the `stowplan up` cluster of this directory, None if there is none.
    Raises ConfigError and CredentialError."""
    kubeconfig = local_cluster_kubeconfig()
    return None if kubeconfig is None else load_client_config(kubeconfig)
