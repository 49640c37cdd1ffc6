"""Asking: questions to a cluster, or to a running scheduler, that one answer ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.assembly.reading import kinds_read
from stowplan.client.answers import told
from stowplan.client.backoff import SECOND
from stowplan.client.informer import Informer
from stowplan.client.kubeconfig import Connection
from stowplan.client.resources import Resource, resources_of
from stowplan.driver.api import ApiClient
from stowplan.driver.client_credentials import content_of, trust
from stowplan.driver.clocks import steady
from stowplan.messages import events as happened
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.templates import Templates

TIMEOUT_S = 10.0
ATTEMPTS = 4
"""So often a server is asked for a list that has too much to do, or has forgotten the rest."""


class Unreachable(RuntimeError):
    """Nobody answers, or not what was asked for: says who, what was got and what was wanted."""


class Found(msgspec.Struct):
    """What there is in a cluster."""

    nodes: list[Node] = []
    pods: list[Pod] = []
    objects: list[Object] = []


def listed(connection: Connection, deciders: Deciders) -> Found:
    """All that deciding reads, listed once. Raises Unreachable and CredentialError."""
    kinds: tuple[type[Object], ...] = (Node, Pod, *kinds_read(deciders))
    resources = resources_of(kinds, with_ended=deciders.batch is not None)
    return asyncio.run(_listed(connection, resources))


async def _listed(connection: Connection, resources: Iterable[Resource]) -> Found:
    found = Found([], [], [])
    async with ApiClient(connection) as api:
        for resource in resources:
            informer = Informer(resource, np.random.default_rng(), Templates(), streams=False)
            n_failed = 0
            while not informer.is_synced:
                request = informer.next(steady())
                if isinstance(request, int):
                    await asyncio.sleep(max(0.0, (request - steady()) / SECOND))
                    continue
                answer = await api.send(request)
                if answer.status in (401, 403):
                    wanted = f"the right to list {resource.title}"
                    raise Unreachable(f"{connection.server}: got {told(answer)}, wanted {wanted}")
                for event in informer.answered(answer, steady()):
                    _sort(event, found)
                # A page that makes no sense has it wait, too.
                n_failed += not answer.is_done or isinstance(informer.next(steady()), int)
                if (n_failed == ATTEMPTS or not answer.status) and not informer.is_synced:
                    server = connection.server
                    raise Unreachable(f"{server}: {resource.title}: got {informer.fault}")
    return found


def _sort(event: Any, found: Found) -> None:
    match event:
        case happened.PodAdded(pod):
            found.pods.append(pod)
        case happened.NodeAdded(node):
            found.nodes.append(node)
        case happened.ObjectAdded(value):
            found.objects.append(value)


def status_at(address: str, token: str = "", ca_file: str = "") -> dict[str, Any]:
    """What a running scheduler says of itself; raises Unreachable and CredentialError."""
    scheme, _, place = address.rpartition("://")
    return asyncio.run(_status(f"{scheme or 'http'}://{place}/statusz", token, ca_file))


async def _status(url: str, token: str, ca_file: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context: Any = True
    if ca_file:
        context = trust(content_of(ca_file, url, "--ca-file"), b"", b"", ca_file)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    wanted = "a running `stowplan run`"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, ssl=context) as response,
        ):
            body = await response.read()
            if response.status != 200:
                raise Unreachable(f"{url}: got {response.status}, wanted {wanted}")
            tree: dict[str, Any] = msgspec.json.decode(body)
            return tree
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        said = str(problem) or "no answer in time"
        raise Unreachable(f"{url}: got {said}, wanted {wanted}") from None
    except msgspec.DecodeError:
        raise Unreachable(f"{url}: got something else, wanted {wanted}") from None
