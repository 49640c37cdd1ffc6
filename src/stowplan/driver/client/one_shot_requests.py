"""One-shot requests to a cluster or to a running scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.assembly.watched_kinds import kinds_read
from stowplan.client.informer import Informer
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.resources import ApiResource, resources_of
from stowplan.client.responses import error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.credentials import client_tls_context, read_credential_file
from stowplan.driver.clocks import monotonic_ns
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.kai.bind_request import with_bind_requests
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates
from stowplan.objects.workload import (
    DaemonSet,
    Deployment,
    Job,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

TIMEOUT_S = 10.0
WORKLOADS: tuple[type[Object], ...] = (
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    ReplicationController,
    Job,
    PodDisruptionBudget,
    PriorityClass,
)
LIST_ATTEMPTS_MAX = 4
"""How often a list is tried that is throttled or whose continue token has expired."""


class ServerUnreachable(RuntimeError):
    """The server cannot be reached, or returned an unexpected response."""


class ClusterListing(msgspec.Struct):
    """Objects of a cluster. notes: kinds that could not be listed."""

    nodes: list[Node] = []
    pods: list[Pod] = []
    objects: list[Object] = []
    notes: list[str] = []


def list_once(
    client_config: ClientConfig,
    deciders: Deciders,
    *,
    partial: bool = False,
    with_finished: bool = False,
    with_workloads: bool = False,
    also: Deciders | None = None,
) -> ClusterListing:
    """List all objects that scheduling reads, once. Raises ServerUnreachable and CredentialError.

    partial: note the kinds that the user may not list and go on, except for nodes and pods.
    with_finished: list finished pods too, which sessions read anyway. with_workloads: list what
    owns pods, and their disruption budgets, which decisions need not read. also: another scheduler
    that is to decide by the objects.
    """
    every = (deciders,) if also is None else (deciders, also)
    read = dict.fromkeys(kind for one in every for kind in kinds_read(one))
    kinds: tuple[type[Object], ...] = (Node, Pod, *read)
    if with_workloads:
        kinds += WORKLOADS
    if deciders.kueue is not None and Namespace not in kinds:
        # Queues of Kueue select namespaces by label.
        kinds += (Namespace,)
    has_sessions = any(one.batch is not None for one in every)
    resources = resources_of(kinds, with_ended=with_finished or has_sessions)
    found = asyncio.run(_list_resources(client_config, resources, partial=partial))
    names = {node.name for node in found.nodes}
    found.pods, found.objects = with_bind_requests(found.pods, found.objects, names)
    return found


async def _list_resources(
    client_config: ClientConfig, resources: Iterable[ApiResource], *, partial: bool
) -> ClusterListing:
    found = ClusterListing([], [], [])
    async with ApiClient(client_config) as api:
        for resource in resources:
            informer = Informer(resource, np.random.default_rng(), PodTemplates(), streams=False)
            n_failed = 0
            while not informer.is_synced:
                request = informer.next(monotonic_ns())
                if isinstance(request, int):
                    await asyncio.sleep(max(0.0, (request - monotonic_ns()) / SECOND))
                    continue
                answer = await api.send(request)
                if answer.status == 403 and partial and resource.kind not in (Node, Pod):
                    what = error_message(answer)
                    found.notes.append(f"{resource.title} could not be listed: {what}")
                    break
                if answer.status in (401, 403):
                    server = client_config.server
                    raise ServerUnreachable(
                        f"{server}: unable to list {resource.title}: {error_message(answer)}"
                    )
                for event in informer.answered(answer, monotonic_ns()):
                    _add_object(event, found)
                # An undecodable page makes the informer back off, too.
                n_failed += not answer.is_done or isinstance(informer.next(monotonic_ns()), int)
                if (n_failed == LIST_ATTEMPTS_MAX or not answer.status) and not informer.is_synced:
                    server = client_config.server
                    what = f"unable to list {resource.title}: {informer.fault}"
                    raise ServerUnreachable(f"{server}: {what}")
    return found


def _add_object(event: Any, found: ClusterListing) -> None:
    match event:
        case happened.PodAdded(pod):
            found.pods.append(pod)
        case happened.NodeAdded(node):
            found.nodes.append(node)
        case happened.ObjectAdded(value):
            found.objects.append(value)


def fetch_status(address: str, token: str = "", ca_file: str = "") -> dict[str, Any]:
    """Status of a running scheduler; raises ServerUnreachable and CredentialError."""
    return asyncio.run(_fetch_tree(address, "/statusz", token, ca_file))


def fetch_configuration(address: str) -> dict[str, Any]:
    """What a running scheduler decides by, see `running_configuration`; raises
    ServerUnreachable."""
    return asyncio.run(_fetch_tree(address, "/configz"))


async def _fetch_tree(
    address: str, path: str, token: str = "", ca_file: str = ""
) -> dict[str, Any]:
    scheme, _, place = address.rpartition("://")
    url = f"{scheme or 'http'}://{place}{path}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context: Any = True
    if ca_file:
        context = client_tls_context(
            read_credential_file(ca_file, url, "--ca-file"), b"", b"", ca_file
        )
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    hint = "is `stowplan run` running there?"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, ssl=context) as response,
        ):
            body = await response.read()
            if response.status != 200:
                raise ServerUnreachable(f"{url}: unexpected status {response.status}; {hint}")
            tree: dict[str, Any] = msgspec.json.decode(body)
            return tree
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        what = str(problem) or "request timed out"
        raise ServerUnreachable(f"unable to connect to {url}: {what}; {hint}") from None
    except msgspec.DecodeError:
        raise ServerUnreachable(f"{url}: unexpected response; {hint}") from None
