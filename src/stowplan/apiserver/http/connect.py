"""Subresources that connect to a container, a node or a service, which are simulated here.

`log`, `exec`, `attach`, `portforward` and `proxy` of pods, `proxy` of nodes and services.

Source: kube-apiserver v1.36, pkg/registry/core/pod (LogLocation, streamLocation, ResourceLocation)
and those of nodes and services: the errors of names, of ports and of a pod without a node.

Differs: containers of hollow nodes are simulated. `log` is one line that says so, the others
return 501, where the original connects to the kubelet or to the pod.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from stowplan.apis.machinery.errors import (
    ApiError,
    Cause,
    bad_request,
    forbidden_field,
    invalid,
    invalid_object,
    method_not_allowed,
    not_found,
)
from stowplan.apis.machinery.http_messages import HttpResponse
from stowplan.apis.machinery.resource import Resource, ServerContext
from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.apiserver.auth.request_info import RequestInfo
from stowplan.apiserver.http.plain_pages import UNCACHED
from stowplan.apiserver.http.request_options import QueryParameters
from stowplan.objects.encoding.tree import Tree

LOG_SUBRESOURCE, PROXY_SUBRESOURCE = "log", "proxy"
CONNECT_ACTIONS = {"attach": "attach", "exec": "exec", "portforward": "port-forward"}
"""Subresources of pods that connect to a container, and the kubectl commands."""
CONNECT_SUBRESOURCES = frozenset({LOG_SUBRESOURCE, PROXY_SUBRESOURCE, *CONNECT_ACTIONS})
GET_ONLY, GET_OR_POST = ("GET", "HEAD"), ("GET", "POST")
_MEDIA = ("Content-Type", "text/plain")
_PORT_BITS = 17
"""A sign and 16 bits."""


def is_connect(route: RequestInfo, resource: Resource) -> bool:
    """True for one of CONNECT_SUBRESOURCES of a kind that has it."""
    if resource.group or route.watch or bool(route.namespace) != resource.namespaced:
        return False
    if route.subresource == PROXY_SUBRESOURCE:
        return resource.plural in ("pods", "nodes", "services")
    return resource.plural == "pods" and not route.rest


def connect_response(
    server: ServerContext,
    route: RequestInfo,
    resource: Resource,
    method: str,
    query: QueryParameters,
) -> HttpResponse:
    """The response to a request for which `is_connect` holds. Raises ApiError."""
    if route.subresource == PROXY_SUBRESOURCE:
        raise _proxy_refusal(server, route, resource)
    name = route.subresource
    if method not in (GET_ONLY if name == LOG_SUBRESOURCE else GET_OR_POST):
        raise method_not_allowed()
    if name == LOG_SUBRESOURCE:
        causes = list(_log_causes(query))
        if causes:
            raise invalid_object("", "PodLogOptions", route.name, causes)
    pod = server.get(resource, route.namespace, route.name)
    if pod is None:
        raise not_found(resource.group, resource.plural, route.name)
    if name == LOG_SUBRESOURCE:
        return _log(pod, query)
    if name != "portforward":
        _container_name(pod, query)
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {route.name} does not have a host assigned")
    raise _not_supported(resource, route.name, CONNECT_ACTIONS[name])


def _not_supported(resource: Resource, name: str, what: str) -> ApiError:
    text = f"{what} is not supported: containers of hollow nodes run no process"
    details = {"name": name, "kind": resource.plural}
    return ApiError(501, "NotImplemented", f'{resource.plural} "{name}": {text}', details)


def _proxy_refusal(server: ServerContext, route: RequestInfo, resource: Resource) -> ApiError:
    kind = resource.plural.removesuffix("s")
    parts = route.name.split(":")
    if len(parts) > 3 or (len(parts) == 3 and parts[0] not in ("http", "https")):
        return bad_request(f'invalid {kind} request "{route.name}"')
    name = parts[1] if len(parts) == 3 else parts[0]
    port = parts[-1] if len(parts) > 1 else ""
    obj = server.get(resource, route.namespace, name) if name else None
    if not name:
        return bad_request(f'invalid {kind} request "{route.name}"')
    if obj is None:
        return not_found(resource.group, resource.plural, name)
    if kind == "pod" and not _is_global_address(obj["status"].get("podIP", "")):
        return bad_request("address not allowed")
    if kind == "service":
        refusal = _service_refusal(server, route, obj, port)
        if refusal is not None:
            return refusal
    return _not_supported(resource, name, PROXY_SUBRESOURCE)


def _is_global_address(text: str) -> bool:
    """True for an address of one host that is not local to it."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    local = found.is_loopback or found.is_link_local or found.is_unspecified
    return not local and not found.is_multicast


def _service_refusal(
    server: ServerContext, route: RequestInfo, service: Tree, port: str
) -> ApiError | None:
    """503 of a service without that port or without endpoints."""
    name = service["metadata"]["name"]
    number = uint_or_none(port, _PORT_BITS)
    if number is not None:
        names = [
            one.get("name", "")
            for one in service["spec"].get("ports") or ()
            if one["port"] == number
        ]
        if not names:
            return _unavailable(f'no service port {number} found for service "{name}"')
        port = names[0]
    kind = server.registry.find("", "v1", "endpoints")
    found = server.get(kind, route.namespace, name) if kind is not None else None
    if found is None:
        return not_found("", "endpoints", name)
    subsets = found.get("subsets") or ()
    fitting = any(
        one.get("addresses")
        and any(port == each.get("name", "") for each in one.get("ports") or ())
        for one in subsets
    )
    if fitting:
        return None
    return _unavailable(f'no endpoints available for service "{route.name if subsets else name}"')


def _unavailable(text: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", text)


def _log_causes(query: QueryParameters) -> Iterator[Cause]:
    tail, limit = query.number("tailLines"), query.number("limitBytes")
    if tail is not None and tail < 0:
        yield invalid("tailLines", tail, "must be greater than or equal to 0")
    if limit is not None and limit < 1:
        yield invalid("limitBytes", limit, "must be greater than 0")
    since = query.number("sinceSeconds")
    if since is not None and query.text("sinceTime"):
        yield forbidden_field("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif since is not None and since < 1:
        yield invalid("sinceSeconds", since, "must be greater than 0")
    if query.text("stream"):
        yield forbidden_field("stream", "may not be specified")


def _log(pod: Tree, query: QueryParameters) -> HttpResponse:
    """One line, or as many bytes and lines of it as requested."""
    name = pod["metadata"]["name"]
    limit, tail = query.number("limitBytes"), query.number("tailLines")
    container = _container_name(pod, query)
    if not pod["spec"].get("nodeName"):
        return HttpResponse(204, (UNCACHED,))
    if query.flag("previous"):
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    reason = _waiting_reason(pod, container)
    if reason:
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    line = f"container {container} of a hollow node: it is simulated and writes no log\n"
    body = b"" if tail == 0 else line.encode()[:limit]
    return HttpResponse(200, (_MEDIA, UNCACHED), body)


def _container_name(pod: Tree, query: QueryParameters) -> str:
    """The requested container, or the only one. Raises ApiError 400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [one["name"] for one in spec.get("containers") or ()]
    requested = query.text("container")
    if not requested:
        if len(names) == 1:
            return str(names[0])
        inits = [one["name"] for one in spec.get("initContainers") or ()]
        choice = f", choose one of: [{' '.join(names)}]"
        more = f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
        raise bad_request(f"a container name must be specified for pod {name}{choice}{more}")
    for part in ("containers", "initContainers", "ephemeralContainers"):
        if any(one["name"] == requested for one in spec.get(part) or ()):
            return requested
    raise bad_request(f"container {requested} is not valid for pod {name}")


def _waiting_reason(pod: Tree, container: str) -> str:
    """Why a container waits to start, "" if it has started."""
    status = pod.get("status") or {}
    for part in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(part) or ():
            if one["name"] == container:
                state = one.get("state") or {}
                waiting = state.get("waiting")
                if waiting is None:
                    return ""
                return str(waiting.get("reason") or "ContainerCreating")
    return "ContainerCreating"
