"""The subresources log, exec, attach and portforward of pods.

Source: kube-apiserver v1.36, pkg/registry/core/pod (LogLocation, streamLocation): the errors of a
container name and of a pod without a node.

Differs: containers of hollow nodes are simulated. `log` is one line that says so, `exec`, `attach`
and `portforward` return 501, where the original connects to the kubelet.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError, bad_request, method_not_allowed
from stowplan.apis.machinery.http_messages import HttpResponse
from stowplan.apiserver.http.plain_pages import UNCACHED
from stowplan.apiserver.http.request_options import QueryParameters
from stowplan.objects.encoding.tree import Tree

LOG_SUBRESOURCE = "log"
CONNECT_ACTIONS = {"attach": "attach", "exec": "exec", "portforward": "port-forward"}
"""Subresources of pods that connect to a container, and the kubectl commands."""
POD_CONNECT_SUBRESOURCES = frozenset({LOG_SUBRESOURCE, *CONNECT_ACTIONS})
GET_ONLY, GET_OR_POST = ("GET", "HEAD"), ("GET", "POST")
_MEDIA = ("Content-Type", "text/plain")


def pod_connect_response(pod: Tree, name: str, method: str, query: QueryParameters) -> HttpResponse:
    """The response to a request for one of POD_CONNECT_SUBRESOURCES. Raises ApiError."""
    if method not in (GET_ONLY if name == LOG_SUBRESOURCE else GET_OR_POST):
        raise method_not_allowed()
    if name == LOG_SUBRESOURCE:
        return _log(pod, query)
    if name != "portforward":
        _container_name(pod, query)
    meta = pod["metadata"]
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {meta['name']} does not have a host assigned")
    what = CONNECT_ACTIONS[name]
    text = (
        f'pods "{meta["name"]}": {what} is not supported: containers of hollow nodes run no process'
    )
    raise ApiError(501, "NotImplemented", text, {"name": meta["name"], "kind": "pods"})


def _log(pod: Tree, query: QueryParameters) -> HttpResponse:
    """One line, or as many bytes and lines of it as requested."""
    name = pod["metadata"]["name"]
    limit, tail = query.number("limitBytes"), query.number("tailLines")
    for field, value, least in (("limitBytes", limit, 1), ("tailLines", tail, 0)):
        if value is not None and value < least:
            raise bad_request(f"{field}: got {value}, must be greater than or equal to {least}")
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
