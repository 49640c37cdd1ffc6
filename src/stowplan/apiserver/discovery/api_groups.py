"""Discovery of groups, versions and resources, aggregated and not.

Source: apiserver v0.36, endpoints/discovery and endpoints/discovery/aggregated, as recorded.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping

from stowplan.apis.machinery.errors import method_not_allowed
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import Resource, ResourceRegistry, ServerContext
from stowplan.apis.machinery.strconv import NumError, parse_uint
from stowplan.apiserver.http.negotiation import (
    JSON,
    PROTOBUF,
    SUPPORTED_MEDIA_TEXT,
    ResponseForm,
    accept_clauses,
    check_routed,
    encode_in_form,
    not_acceptable,
)
from stowplan.apiserver.http.plain_pages import PAGE_NOT_FOUND, decoded_path, tree_response
from stowplan.objects.encoding.tree import Tree

_AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
_PARAMETERS = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_PROXY = ("create", "delete", "get", "patch", "update")
_CONNECT = ("create", "get")

KUBELET_SUBRESOURCES: Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "nodes": (("proxy", "NodeProxyOptions", _PROXY),),
    "pods": (
        ("attach", "PodAttachOptions", _CONNECT),
        ("exec", "PodExecOptions", _CONNECT),
        ("log", "Pod", ("get",)),
        ("portforward", "PodPortForwardOptions", _CONNECT),
        ("proxy", "PodProxyOptions", _PROXY),
    ),
    "services": (("proxy", "ServiceProxyOptions", _PROXY),),
}
"""Subresources of core kinds that discovery lists for clients.

Those of `http/connect.py`: there is no kubelet.
"""


class DiscoveryPages:
    """`/api`, `/apis` and their groups and versions (`options.NonResourcePages`).

    address: advertised host and port of the server.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._kept: dict[tuple[int, bool, str], tuple[bytes, str]] = {}

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        parts = decoded_path(request)[1:].split("/")
        registry = server.registry
        if parts[0] not in ("api", "apis") or (parts[0] == "api" and len(parts) > 2):
            return None
        if len(parts) == 1:
            return self._root(request, server, parts[0] == "api")
        if parts[0] == "api":
            resources = _resources_of(registry, "", parts[1])
            return (
                tree_response(request, _resource_list("", parts[1], resources))
                if resources
                else None
            )
        return self._below(request, parts, registry)

    def _missing(self, parts: list[str], registry: ResourceRegistry) -> HttpResponse | None:
        """404 of a missing version; None if the request pipeline returns it."""
        if parts[0] == "apis" and len(parts) > 1:
            known = (one for one in registry.all() if one.group == parts[1])
            if any(not one.custom for one in known):
                return None
        return PAGE_NOT_FOUND

    def _root(self, request: HttpRequest, server: ServerContext, core: bool) -> HttpResponse:
        if request.method != "GET":
            raise method_not_allowed()
        check_routed(request, False)
        media = _aggregated_media(request)
        if media:
            return self._aggregated(request, server.registry, core, media)
        return tree_response(request, self._core() if core else _group_list(server.registry))

    def _core(self) -> Tree:
        here = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [here]}

    def _below(
        self, request: HttpRequest, parts: list[str], registry: ResourceRegistry
    ) -> HttpResponse | None:
        group = parts[1]
        versions = versions_of(registry, group)
        if not versions:
            return PAGE_NOT_FOUND
        if len(parts) == 2:
            return tree_response(
                request, {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
            )
        if len(parts) == 3 and parts[2] in versions:
            return tree_response(
                request, _resource_list(group, parts[2], _resources_of(registry, group, parts[2]))
            )
        return self._missing(parts, registry)

    def _aggregated(
        self, request: HttpRequest, registry: ResourceRegistry, core: bool, media: str
    ) -> HttpResponse:
        changes: int = getattr(registry, "changes", 0)
        kept = self._kept.get((changes, core, media))
        if kept is None:
            kept = _document(registry, core, media)
            self._kept = {key: one for key, one in self._kept.items() if key[0] == changes}
            self._kept[(changes, core, media)] = kept
        body, tag = kept
        headers = (("Cache-Control", "public"), ("ETag", tag), ("Vary", "Accept"))
        if request.headers.get("if-none-match", "") == tag:
            return HttpResponse(304, headers)
        return HttpResponse(200, (("Content-Type", media + _PARAMETERS), *headers), body)


def document_etag(content: bytes) -> str:
    """The ETag of a document: the SHA-512 of its JSON."""
    return f'"{hashlib.sha512(content).hexdigest().upper()}"'


def _document(registry: ResourceRegistry, core: bool, media: str) -> tuple[bytes, str]:
    tree = _aggregated_document(registry, core)
    packed = json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()
    body = encode_in_form(tree, ResponseForm(media))
    return body if media == PROTOBUF else body + b"\n", document_etag(packed)


def _aggregated_media(request: HttpRequest) -> str:
    """The media type of aggregated discovery; "" where it is not asked for. Raises ApiError 406."""
    header = request.headers.get("accept", "")
    if not header:
        return ""
    for media, given in accept_clauses(header):
        if not {"as", "g", "v"} & set(given):
            return ""
        wanted = {key: value for key, value in given.items() if key in _AGGREGATED}
        if media in (JSON, PROTOBUF, "*/*") and wanted == _AGGREGATED:
            return PROTOBUF if media == PROTOBUF else JSON
    raise not_acceptable(f"only the following media types are accepted: {SUPPORTED_MEDIA_TEXT}")


def versions_of(registry: ResourceRegistry, group: str) -> list[str]:
    """The versions of a group, the preferred one first."""
    found = {one.version for one in registry.all() if one.group == group}
    return sorted(found, key=version_order)


def version_order(version: str) -> tuple[int, int, int, str]:
    """A key that sorts versions as Kubernetes ranks them: v2, v1, v1beta2, v1alpha1, foo."""
    major, mark, minor = _version(version)
    if not major:
        return (3, 0, 0, version)
    rank = {"": 0, "beta": 1, "alpha": 2}[mark]
    return (rank, -major, -minor, version)


def _version(text: str) -> tuple[int, str, int]:
    body = text[1:] if text.startswith("v") else ""
    try:
        for mark in ("alpha", "beta"):
            major, found, minor = body.partition(mark)
            if found:
                return parse_uint(major), mark, parse_uint(minor)
        return parse_uint(body), "", 0
    except NumError:
        return 0, "", 0


def groups_of(registry: ResourceRegistry) -> list[str]:
    """The named groups: the built-in ones in the original's order, then the custom ones."""
    found: dict[str, bool] = {}
    for one in registry.all():
        if one.group:
            found[one.group] = found.get(one.group, True) and one.custom
    built_in = [group for group, custom in found.items() if not custom]
    return built_in + sorted(group for group, custom in found.items() if custom)


def _resources_of(registry: ResourceRegistry, group: str, version: str) -> list[Resource]:
    found = (one for one in registry.all() if (one.group, one.version) == (group, version))
    return sorted(found, key=lambda one: one.plural)


def _group_list(registry: ResourceRegistry) -> Tree:
    groups = [_group(group, versions_of(registry, group)) for group in groups_of(registry)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(name: str, versions: list[str]) -> Tree:
    printed = [{"groupVersion": f"{name}/{one}", "version": one} for one in versions]
    return {"name": name, "versions": printed, "preferredVersion": printed[0]}


def _resource_list(group: str, version: str, resources: list[Resource]) -> Tree:
    printed = [row for one in resources for row in _resource_rows(one)]
    kind = {"kind": "APIResourceList", "groupVersion": version}
    if group:
        kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
    return {**kind, "resources": printed}


def storage_hash(one: Resource) -> str:
    """The hash of the storage version."""
    group = one.kind_group
    version = one.stored_as or one.version
    digest = hashlib.sha256(f"{group}/{version}/{one.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _resource_rows(one: Resource) -> Iterator[Tree]:
    row: Tree = {
        "name": one.plural,
        "singularName": one.singular,
        "namespaced": one.namespaced,
        "kind": one.kind,
        "verbs": list(one.verbs),
        **_short_names_and_categories(one),
    }
    if one.act is None and "create" in one.verbs:
        row["storageVersionHash"] = storage_hash(one)
    yield row
    for name, group, version, kind, verbs in _subresources(one):
        sub: Tree = {"name": f"{one.plural}/{name}", "singularName": ""}
        sub["namespaced"] = one.namespaced
        if version:
            sub |= {"group": group, "version": version}
        yield sub | {"kind": kind, "verbs": list(verbs)}


def _short_names_and_categories(one: Resource) -> Tree:
    lists = {"shortNames": one.short_names, "categories": one.categories}
    return {name: list(values) for name, values in lists.items() if values}


def _subresources(one: Resource) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    """Name, group and version (where they are not the resource's own), kind, verbs."""
    found = [
        (sub.name, sub.group, sub.version, sub.kind or one.kind, sub.verbs)
        if (sub.group, sub.version) != (one.group, one.version)
        else (sub.name, "", "", sub.kind or one.kind, sub.verbs)
        for sub in one.subresources.values()
    ]
    if not one.group:
        for name, kind, verbs in KUBELET_SUBRESOURCES.get(one.plural, ()):
            if name not in one.subresources:
                away = ("authentication.k8s.io", "v1") if name == "token" else ("", "")
                found.append((name, *away, kind, verbs))
    return found if one.custom else sorted(found)


def _aggregated_document(registry: ResourceRegistry, core: bool) -> Tree:
    groups = [""] if core else groups_of(registry)
    items = []
    for group in groups:
        versions = [
            {
                "version": version,
                "resources": [
                    _aggregated_entry(one) for one in _resources_of(registry, group, version)
                ],
                "freshness": "Current",
            }
            for version in versions_of(registry, group)
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_entry(one: Resource) -> Tree:
    own = (one.group, one.version) if one.custom else ("", "")
    entry: Tree = {
        "resource": one.plural,
        "responseKind": {"group": own[0], "version": own[1], "kind": one.kind},
        "scope": "Namespaced" if one.namespaced else "Cluster",
        "singularResource": one.singular,
        "verbs": list(one.verbs),
        **_short_names_and_categories(one),
    }
    below = [
        {
            "subresource": name,
            "responseKind": {"group": group or own[0], "version": version or own[1], "kind": kind},
            "verbs": list(verbs),
        }
        for name, group, version, kind, verbs in _subresources(one)
    ]
    if below:
        entry["subresources"] = below
    return entry
