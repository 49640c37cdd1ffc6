"""Objects of an API server as they are stored, listed once and page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.one_shot_requests import ServerUnreachable
from stowplan.objects.encoding.tree import Tree

PAGE = "500"
_EXPIRED = 410


class ListedKind(msgspec.Struct, frozen=True):
    """A kind to list. path: of the list. is_optional: where the user may not list it, it counts as
    one that is not served."""

    path: str
    api_version: str
    kind: str
    is_optional: bool = False
    query: tuple[tuple[str, str], ...] = ()


class ObjectListing(msgspec.Struct):
    """Objects of a kind. refused: why they could not be listed, "" if they could."""

    trees: list[Tree] = []
    refused: str = ""


async def list_objects(
    api: ApiClient, client_config: ClientConfig, kind: ListedKind
) -> ObjectListing:
    """List a kind; none where it is not served. Raises ServerUnreachable."""
    found: list[Tree] = []
    after = ""
    while True:
        pages = (("limit", PAGE), *((("continue", after),) if after else ()))
        answer = await api.send(ApiRequest("GET", kind.path, (*kind.query, *pages)))
        if answer.status == 404:
            return ObjectListing()
        if answer.status == _EXPIRED and after:
            # The rest of this list is gone: begin again.
            found, after = [], ""
            continue
        if answer.status != 200:
            what = error_message(answer) if answer.status else "request failed"
            if answer.status == 403 and kind.is_optional:
                return ObjectListing([], f"{kind.kind} could not be listed: {what}")
            raise ServerUnreachable(f"{client_config.server}: unable to list {kind.kind}: {what}")
        tree = msgspec.json.decode(answer.body)
        about = {"apiVersion": kind.api_version, "kind": kind.kind}
        found += ({**one, **about} for one in tree.get("items") or ())
        after = (tree.get("metadata") or {}).get("continue") or ""
        if not after:
            return ObjectListing(found)


def lists_with_objects(client_config: ClientConfig, paths: Iterable[str]) -> set[str]:
    """Those of the paths of lists that have an object; lists that are not served, or may not be
    read, have none. Raises CredentialError."""
    return asyncio.run(_with_objects(client_config, paths))


async def _with_objects(client_config: ClientConfig, paths: Iterable[str]) -> set[str]:
    found = set()
    async with ApiClient(client_config) as api:
        for path in paths:
            answer = await api.send(ApiRequest("GET", path, (("limit", "1"),)))
            if answer.status == 200 and msgspec.json.decode(answer.body).get("items"):
                found.add(path)
    return found
