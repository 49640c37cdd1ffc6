"""Request paths: RequestInfo and the attributes for authorization.

Source: apiserver v0.36, endpoints/request/requestinfo.go; the routes of endpoints/installer.go.
"""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import no_such_path
from stowplan.apis.machinery.field_selector import parse_field_selector
from stowplan.apis.machinery.http_messages import HttpRequest
from stowplan.apis.machinery.label_selector import SelectorParseError
from stowplan.apis.machinery.resource import Resource

VERB_OF_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
NAMESPACE_SUBRESOURCES = ("status", "finalize")


class RequestInfo(msgspec.Struct, frozen=True):
    """The parts of a resource path. rest: parts after the subresource, if any.

    watch: the path has the deprecated prefix `watch/`, which watches whatever the query says.
    broken: the path has empty parts.
    """

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()
    watch: bool = False
    broken: bool = False
    """From a path of the old form, which watches whatever the query says."""


def parse_request_path(path: str) -> RequestInfo | None:
    """Parse a resource path; None for a non-resource path such as `/version` or `/apis`."""
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) > 2:
        group, version, parts = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, parts = parts[1], parts[2], parts[3:]
    else:
        return None
    broken = "" in parts
    watch = parts[0] == "watch" and len(parts) > 1
    if watch:
        parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        own = len(parts) == 2 or (len(parts) == 3 and parts[2] in NAMESPACE_SUBRESOURCES)
        if own and group == "":
            return _request_info(group, version, "", parts, watch, broken)
        if len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
    return _request_info(group, version, namespace, parts, watch, broken)


def _request_info(
    group: str, version: str, namespace: str, parts: list[str], watch: bool, broken: bool
) -> RequestInfo:
    plural, name, subresource, *rest = (*parts, "", "")
    kept = tuple(part for part in rest[: max(len(parts) - 3, 0)])
    return RequestInfo(group, version, plural, namespace, name, subresource, kept, watch, broken)


def verb_of(method: str, route: RequestInfo, resource: Resource) -> str:
    """The verb of a method on the path of a resource; "" if there is none. Raises ApiError 404."""
    if route.name and resource.act is not None:
        raise no_such_path()
    if method == "GET":
        if route.watch:
            return "watch"
        if resource.act is not None:
            return ""
        return "get" if route.name else "list"
    if method == "DELETE":
        return "delete" if route.name else "deletecollection"
    if method == "POST":
        return "" if route.name else "create"
    if method in ("PUT", "PATCH") and route.name:
        return "update" if method == "PUT" else "patch"
    return ""


def attributes_of(request: HttpRequest) -> Attributes:
    """The attributes of a request for authorization."""
    return attributes_of_info(request, parse_request_path(request.path))


def attributes_of_info(request: HttpRequest, route: RequestInfo | None) -> Attributes:
    """As `attributes_of`, for a path that is parsed already."""
    if route is None:
        return Attributes(request.method.lower(), path=unquote(request.path))
    name = route.name
    verb = VERB_OF_METHOD.get(request.method, "")
    if request.method in ("GET", "HEAD"):
        verb = "get"
        if route.watch:
            verb = "watch"
        elif not name:
            verb = "watch" if _watches(request) else "list"
            name = _name_in_field_selector(request)
    elif verb == "delete" and not name:
        verb = "deletecollection"
    namespace = route.namespace
    if route.plural == "namespaces" and not route.group:
        namespace = route.name
    return Attributes(
        verb, route.group, route.version, route.plural, route.subresource, namespace, name
    )


def _watches(request: HttpRequest) -> bool:
    for key, value in request.query:
        if key == "watch":
            return value.lower() not in ("false", "0")
    return False


def _name_in_field_selector(request: HttpRequest) -> str:
    """The name of a field selector on metadata.name: permission on that object is enough."""
    for key, value in request.query:
        if key == "fieldSelector":
            try:
                terms = parse_field_selector(value)
            except SelectorParseError:
                return ""
            names = [t.value for t in terms if t.equal and t.field == "metadata.name"]
            return names[0] if names else ""
    return ""
